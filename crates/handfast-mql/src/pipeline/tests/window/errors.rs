use bson::{Bson, DateTime, Document, bson, doc};

use super::super::{check_error, run};

#[track_caller]
fn check_stage(stage: impl Into<Bson>, code: i32) {
    check_error(bson!([{ "$setWindowFields": stage.into() }]), code);
}

#[test]
fn wrong_stages_are_refused() {
    for (stage, code) in [
        (bson!(1), 9),
        (bson!({}), 40414),
        (bson!({ "output": 1 }), 14),
        (bson!({ "output": {}, "sortBy": 1 }), 14),
        (bson!({ "output": {}, "sortBy": { "a": 2 } }), 15975),
        (bson!({ "output": {}, "partitionBy": { "$foo": 1 } }), 168),
        (bson!({ "output": {}, "partitionBy": [1] }), 14),
        (bson!({ "output": {}, "other": 1 }), 40415),
        (bson!({ "output": { "a": 1 } }), 9),
        (bson!({ "output": { "a": {} } }), 9),
        (bson!({ "output": { "a": { "b": 1 } } }), 9),
        (bson!({ "output": { "a": { "window": {} } } }), 9),
        (bson!({ "output": { "a": { "$foo": 1 } } }), 9),
        (bson!({ "output": { "a": { "$sum": 1, "$max": 1 } } }), 9),
        (bson!({ "output": { "a": { "$sum": 1, "b": 1 } } }), 9),
        (bson!({ "output": { "a..b": { "$sum": 1 } } }), 15998),
        (bson!({ "output": { "a": { "$sum": 1 }, "a.b": { "$sum": 1 } } }), 31249),
    ] {
        check_stage(stage, code);
    }
}

#[test]
fn wrong_windows_are_refused() {
    let sorted = doc! { "x": 1 };
    for (sort, window, code) in [
        (sorted.clone(), bson!(1), 9),
        (sorted.clone(), bson!({ "a": 1 }), 9),
        (sorted.clone(), bson!({ "documents": 1 }), 9),
        (sorted.clone(), bson!({ "documents": [1] }), 9),
        (sorted.clone(), bson!({ "documents": [1, 2, 3] }), 9),
        (sorted.clone(), bson!({ "documents": [1, "x"] }), 9),
        (sorted.clone(), bson!({ "documents": [0.5, 1] }), 9),
        (sorted.clone(), bson!({ "documents": [0, 1], "range": [0, 1] }), 9),
        (sorted.clone(), bson!({ "documents": [0, 1], "unit": "day" }), 9),
        (sorted.clone(), bson!({ "unit": "day" }), 9),
        (sorted.clone(), bson!({ "range": [0, 1], "unit": "days" }), 9),
        (sorted.clone(), bson!({ "range": [0, 1], "unit": 1 }), 9),
        (sorted.clone(), bson!({ "range": [0, 1.5], "unit": "day" }), 9),
        (sorted.clone(), bson!({ "documents": [1, 0] }), 5339900),
        (sorted.clone(), bson!({ "range": [1.5, 1] }), 5339900),
        (doc! {}, bson!({ "documents": [-1, 0] }), 5339901),
        (doc! {}, bson!({ "range": [-1, 0] }), 5339902),
        (doc! { "x": -1 }, bson!({ "range": [-1, 0] }), 5339902),
        (doc! { "x": 1, "y": 1 }, bson!({ "range": [-1, 0] }), 5339902),
        (sorted.clone(), bson!({ "range": [-1, 0] }), 5429414),
        (sorted, bson!({ "range": [-1, 0], "unit": "day" }), 5429513),
    ] {
        let mut stage = doc! { "output": { "a": { "$sum": 1, "window": window } } };
        if !sort.is_empty() {
            stage.insert("sortBy", sort);
        }
        check_stage(stage, code);
    }
}

#[test]
fn wrong_functions_are_refused() {
    let sorted = doc! { "x": 1 };
    let both = doc! { "x": 1, "y": 1 };
    for (sort, function, code) in [
        (&sorted, doc! { "$rank": 1 }, 5371603),
        (&sorted, doc! { "$rank": {}, "window": {} }, 5371601),
        (&doc! {}, doc! { "$denseRank": {} }, 5371602),
        (&both, doc! { "$documentNumber": {} }, 5371602),
        (&sorted, doc! { "$shift": 1 }, 9),
        (&sorted, doc! { "$shift": { "by": 1 } }, 9),
        (&sorted, doc! { "$shift": { "output": "$a" } }, 9),
        (&sorted, doc! { "$shift": { "output": "$a", "by": 1.5 } }, 9),
        (&sorted, doc! { "$shift": { "output": "$a", "by": 1, "default": "$b" } }, 9),
        (&sorted, doc! { "$shift": { "output": "$a", "by": 1, "other": 1 } }, 9),
        (&sorted, doc! { "$shift": { "output": "$a", "by": 1 }, "window": {} }, 9),
        (&doc! {}, doc! { "$shift": { "output": "$a", "by": 1 } }, 9),
        (&sorted, doc! { "$locf": "$a", "window": {} }, 9),
        (&sorted, doc! { "$linearFill": "$a", "window": {} }, 9),
        (&both, doc! { "$linearFill": "$a" }, 605001),
        (&sorted, doc! { "$linearFill": "$a" }, 14),
        (&sorted, doc! { "$covariancePop": "$a" }, 9),
        (&sorted, doc! { "$covariancePop": ["$a"] }, 9),
        (&sorted, doc! { "$derivative": 1, "window": {} }, 9),
        (&sorted, doc! { "$derivative": { "input": 1 } }, 9),
        (&sorted, doc! { "$derivative": { "unit": "hour" }, "window": {} }, 9),
        (&sorted, doc! { "$derivative": { "input": 1, "other": 1 }, "window": {} }, 9),
        (&both, doc! { "$derivative": { "input": 1 }, "window": {} }, 9),
        (&sorted, doc! { "$derivative": { "input": 1, "unit": "month" }, "window": {} }, 5490710),
        (&sorted, doc! { "$integral": { "input": 1, "unit": "year" } }, 5490710),
        (&sorted, doc! { "$expMovingAvg": 1 }, 9),
        (&sorted, doc! { "$expMovingAvg": { "input": "$a" } }, 9),
        (&sorted, doc! { "$expMovingAvg": { "N": 1 } }, 9),
        (&sorted, doc! { "$expMovingAvg": { "input": "$a", "N": 1, "alpha": 0.5 } }, 9),
        (&sorted, doc! { "$expMovingAvg": { "input": "$a", "N": 0 } }, 9),
        (&sorted, doc! { "$expMovingAvg": { "input": "$a", "N": 1.5 } }, 9),
        (&sorted, doc! { "$expMovingAvg": { "input": "$a", "alpha": 1 } }, 9),
        (&sorted, doc! { "$expMovingAvg": { "input": "$a", "alpha": "x" } }, 9),
        (&sorted, doc! { "$expMovingAvg": { "input": "$a", "N": 1 }, "window": {} }, 9),
        (&doc! {}, doc! { "$expMovingAvg": { "input": "$a", "N": 1 } }, 9),
        (&sorted, doc! { "$firstN": { "input": "$a", "n": 0 } }, 5787908),
        (&sorted, doc! { "$concatArrays": 1 }, 14),
        (&sorted, doc! { "$mergeObjects": { "$add": [1, 2] } }, 40400),
    ] {
        let mut stage = doc! { "output": { "a": function } };
        if !sort.is_empty() {
            stage.insert("sortBy", sort.clone());
        }
        check_stage(stage, code);
    }
}

#[test]
fn wrong_values_are_refused() {
    let date = DateTime::from_millis(0);
    let range = |unit: Document| {
        let mut window = doc! { "range": [-1, 0] };
        window.extend(unit);
        doc! { "$sum": "$v", "window": window }
    };
    for (function, input, code) in [
        (range(doc! {}), doc! { "x": date }, 5429413),
        (range(doc! {}), doc! { "x": "text" }, 5429414),
        (range(doc! { "unit": "day" }), doc! { "x": 1 }, 5429513),
        (doc! { "$derivative": { "input": "$v" }, "window": {} }, doc! { "x": date, "v": 1 }, 5624901),
        (doc! { "$derivative": { "input": "$v", "unit": "day" }, "window": {} }, doc! { "x": 1, "v": 1 }, 5624900),
        (doc! { "$integral": { "input": "$v" } }, doc! { "x": "text", "v": 1 }, 5624902),
        (doc! { "$integral": { "input": "$v" } }, doc! { "x": 1, "v": "text" }, 14),
        (doc! { "$linearFill": "$v" }, doc! { "x": 1, "v": "text" }, 14),
        (doc! { "$linearFill": "$v" }, doc! { "x": 1, "v": 1 }, 6050106),
    ] {
        let stage = bson!([{ "$setWindowFields": { "sortBy": { "x": 1 }, "output": { "a": function } } }]);
        let error = run(stage.clone(), bson!([input.clone(), input])).expect_err("a wrong value");
        assert_eq!(error.code().0, code, "{stage}: {error}");
    }
}
