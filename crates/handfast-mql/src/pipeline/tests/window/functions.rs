use bson::{Bson, DateTime, Decimal128, Document, bson, doc};

use super::{check_function, results};

/// Checks a function over the window of the document before and the current one.
#[track_caller]
fn check_pairs(mut function: Document, values: Bson, expected: Bson) {
    function.insert("window", doc! { "documents": [-1, 0] });
    check_function(function, values, expected);
}

#[test]
fn accumulators_over_two_documents() {
    let values = || bson!([3, 1, null, "x", 2.5, 2]);
    for (function, expected) in [
        (doc! { "$sum": "$v" }, bson!([3, 4, 1, 0, 2.5, 4.5])),
        (doc! { "$avg": "$v" }, bson!([3.0, 2.0, 1.0, null, 2.5, 2.25])),
        (doc! { "$min": "$v" }, bson!([3, 1, 1, "x", 2.5, 2])),
        (doc! { "$max": "$v" }, bson!([3, 3, 1, "x", "x", 2.5])),
        (doc! { "$count": {} }, bson!([1, 2, 2, 2, 2, 2])),
        (doc! { "$first": "$v" }, bson!([3, 3, 1, null, "x", 2.5])),
        (doc! { "$last": "$v" }, bson!([3, 1, null, "x", 2.5, 2])),
        (doc! { "$push": "$v" }, bson!([[3], [3, 1], [1, null], [null, "x"], ["x", 2.5], [2.5, 2]])),
        (doc! { "$addToSet": "$v" }, bson!([[3], [1, 3], [null, 1], [null, "x"], [2.5, "x"], [2, 2.5]])),
        (doc! { "$stdDevPop": "$v" }, bson!([0.0, 1.0, 0.0, null, 0.0, 0.25])),
        (doc! { "$stdDevSamp": "$v" }, bson!([null, 2.0_f64.sqrt(), null, null, null, 0.125_f64.sqrt()])),
        (doc! { "$firstN": { "input": "$v", "n": 1 } }, bson!([[3], [3], [1], [null], ["x"], [2.5]])),
        (
            doc! { "$lastN": { "input": "$v", "n": 5 } },
            bson!([[3], [3, 1], [1, null], [null, "x"], ["x", 2.5], [2.5, 2]]),
        ),
        (doc! { "$minN": { "input": "$v", "n": 2 } }, bson!([[3], [1, 3], [1], ["x"], [2.5, "x"], [2, 2.5]])),
        (doc! { "$maxN": { "input": "$v", "n": 1 } }, bson!([[3], [3], [1], ["x"], ["x"], [2.5]])),
        (doc! { "$top": { "sortBy": { "v": 1 }, "output": "$x" } }, bson!([0, 1, 2, 2, 4, 5])),
        (doc! { "$bottom": { "sortBy": { "v": 1 }, "output": "$x" } }, bson!([0, 0, 1, 3, 3, 4])),
        (
            doc! { "$topN": { "sortBy": { "v": 1 }, "output": "$x", "n": 2 } },
            bson!([[0], [1, 0], [2, 1], [2, 3], [4, 3], [5, 4]]),
        ),
        (doc! { "$bottomN": { "sortBy": { "v": 1 }, "output": "$x", "n": 1 } }, bson!([[0], [0], [1], [3], [3], [4]])),
        (doc! { "$median": { "input": "$v", "method": "approximate" } }, bson!([3.0, 1.0, 1.0, null, 2.5, 2.0])),
        (
            doc! { "$percentile": { "input": "$v", "p": [0, 1.0], "method": "approximate" } },
            bson!([[3.0, 3.0], [1.0, 3.0], [1.0, 1.0], [null, null], [2.5, 2.5], [2.0, 2.5]]),
        ),
    ] {
        check_pairs(function, values(), expected);
    }
    check_pairs(doc! { "$concatArrays": "$v" }, bson!([[1], [2, 2], [], [3]]), bson!([[1], [1, 2, 2], [2, 2], [3]]));
    check_pairs(doc! { "$setUnion": "$v" }, bson!([[1], [2, 2], [], [3]]), bson!([[1], [1, 2], [2], [3]]));
    check_pairs(
        doc! { "$mergeObjects": "$v" },
        bson!([{ "a": 1 }, { "b": 2 }, null, { "b": 3, "c": 4 }]),
        bson!([{ "a": 1 }, { "a": 1, "b": 2 }, { "b": 2 }, { "b": 3, "c": 4 }]),
    );
}

#[test]
fn accumulators_over_growing_windows() {
    let growing = |mut function: Document, expected: Bson| {
        function.insert("window", doc! { "documents": ["unbounded", "current"] });
        check_function(function, bson!([3, 1, 3, 2]), expected);
    };
    growing(doc! { "$avg": "$v" }, bson!([3.0, 2.0, 7.0 / 3.0, 2.25]));
    growing(doc! { "$min": "$v" }, bson!([3, 1, 1, 1]));
    growing(doc! { "$first": "$v" }, bson!([3, 3, 3, 3]));
    growing(doc! { "$last": "$v" }, bson!([3, 1, 3, 2]));
    growing(doc! { "$firstN": { "input": "$v", "n": 2 } }, bson!([[3], [3, 1], [3, 1], [3, 1]]));
    growing(doc! { "$lastN": { "input": "$v", "n": 2 } }, bson!([[3], [3, 1], [1, 3], [3, 2]]));
    growing(doc! { "$minN": { "input": "$v", "n": 2 } }, bson!([[3], [1, 3], [1, 3], [1, 2]]));
    growing(doc! { "$top": { "sortBy": { "v": 1 }, "output": "$x" } }, bson!([0, 1, 1, 1]));
    growing(doc! { "$bottom": { "sortBy": { "v": 1 }, "output": "$x" } }, bson!([0, 0, 2, 2]));
    growing(doc! { "$addToSet": "$v" }, bson!([[3], [1, 3], [1, 3], [1, 2, 3]]));
    growing(doc! { "$mergeObjects": { "a": "$v" } }, bson!([{ "a": 3 }, { "a": 1 }, { "a": 3 }, { "a": 2 }]));
    growing(doc! { "$median": { "input": "$v", "method": "approximate" } }, bson!([3.0, 1.0, 3.0, 2.0]));
}

#[test]
fn empty_windows_have_results() {
    for (function, expected) in [
        (doc! { "$sum": "$v" }, bson!(0)),
        (doc! { "$count": {} }, bson!(0)),
        (doc! { "$avg": "$v" }, bson!(null)),
        (doc! { "$min": "$v" }, bson!(null)),
        (doc! { "$first": "$v" }, bson!(null)),
        (doc! { "$last": "$v" }, bson!(null)),
        (doc! { "$push": "$v" }, bson!([])),
        (doc! { "$addToSet": "$v" }, bson!([])),
        (doc! { "$stdDevPop": "$v" }, bson!(null)),
        (doc! { "$covariancePop": ["$x", "$v"] }, bson!(null)),
        (doc! { "$top": { "sortBy": { "v": 1 }, "output": "$x" } }, bson!(null)),
        (doc! { "$derivative": { "input": "$v" } }, bson!(null)),
        (doc! { "$integral": { "input": "$v" } }, bson!(null)),
    ] {
        let mut function = function;
        function.insert("window", doc! { "documents": [5, 6] });
        check_function(function, bson!([1]), bson!([expected]));
    }
}

#[test]
fn ranks_and_numbers() {
    let input = || bson!([{ "x": 9 }, { "x": 7 }, { "x": null }, {}, { "x": 10 }, { "x": 9.0 }]);
    for (function, expected) in [
        ("$rank", bson!([1_i64, 1_i64, 3_i64, 4_i64, 4_i64, 6_i64])),
        ("$denseRank", bson!([1_i64, 1_i64, 2_i64, 3_i64, 3_i64, 4_i64])),
        ("$documentNumber", bson!([1_i64, 2_i64, 3_i64, 4_i64, 5_i64, 6_i64])),
    ] {
        let stage = doc! { "sortBy": { "x": 1 }, "output": { "r": { function: {} } } };
        assert_eq!(Bson::from(results(stage, input())), expected, "{function}");
    }
    let stage = doc! { "partitionBy": "$p", "sortBy": { "x": -1 }, "output": { "r": { "$rank": {} } } };
    let input = bson!([{ "p": 1, "x": 1 }, { "p": 2, "x": 5 }, { "p": 1, "x": 2 }]);
    assert_eq!(Bson::from(results(stage, input)), bson!([1_i64, 2_i64, 1_i64]));
}

#[test]
fn shifts() {
    let values = || bson!([1, 2, null, 4]);
    for (function, expected) in [
        (doc! { "output": "$v", "by": 1 }, bson!([2, null, 4, null])),
        (doc! { "output": "$v", "by": -1, "default": "none" }, bson!(["none", 1, 2, null])),
        (doc! { "output": "$missing", "by": 0, "default": "none" }, bson!([null, null, null, null])),
        (doc! { "output": { "$add": ["$v", 1] }, "by": -2.0, "default": { "$literal": 3 } }, bson!([3, 3, 2, 3])),
        (doc! { "output": "$v", "by": i32::MIN, "default": 0 }, bson!([0, 0, 0, 0])),
    ] {
        check_function(doc! { "$shift": function }, values(), expected);
    }
}

#[test]
fn missing_values_are_filled() {
    let missing = Bson::Undefined;
    check_function(doc! { "$locf": "$v" }, bson!([null, 1, missing.clone(), "x", null]), bson!([null, 1, 1, "x", "x"]));
    check_function(
        doc! { "$linearFill": "$v" },
        bson!([null, 1, missing, null, 7, 8, null]),
        bson!([null, 1, 3.0, 5.0, 7, 8, null]),
    );
    let day = |day: i64| DateTime::from_millis(day * 86_400_000);
    let stage = doc! { "sortBy": { "x": 1 }, "output": { "r": { "$linearFill": "$v" } } };
    let input = bson!([{ "x": day(1), "v": 10 }, { "x": day(2) }, { "x": day(5), "v": 50 }]);
    assert_eq!(Bson::from(results(stage, input)), bson!([10, 20.0, 50]));
}

#[test]
fn covariances() {
    let input = bson!([{ "x": 0, "v": 0 }, { "x": 1, "v": 2 }, { "x": 2, "v": 4 }, { "x": 3 }, { "x": 4, "v": "x" }]);
    for (function, expected) in [
        ("$covariancePop", bson!([0.0, 0.5, 4.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0])),
        ("$covarianceSamp", bson!([null, 1.0, 2.0, 2.0, 2.0])),
    ] {
        let window = doc! { "documents": ["unbounded", "current"] };
        let stage = doc! { "sortBy": { "x": 1 }, "output": { "r": { function: ["$x", "$v"], "window": window } } };
        assert_eq!(Bson::from(results(stage, input.clone())), expected, "{function}");
    }
}

#[test]
fn derivatives_and_integrals() {
    check_pairs(
        doc! { "$derivative": { "input": "$v" } },
        bson!([1, 4, null, 2, 5]),
        bson!([null, 3.0, null, null, 3.0]),
    );
    check_pairs(doc! { "$integral": { "input": "$v" } }, bson!([1, 4, null, 2, 5]), bson!([0, 2.5, 0, 0, 3.5]));
    let whole = |function: &str, expected: f64| {
        check_function(
            doc! { function: { "input": "$v" }, "window": {} },
            bson!([0, 2, 2]),
            bson!([expected, expected, expected]),
        );
    };
    whole("$derivative", 1.0);
    whole("$integral", 3.0);
    let minute = |minute: i64| DateTime::from_millis(minute * 60_000);
    for (function, unit, expected) in [
        ("$derivative", "hour", bson!([null, 60.0, 30.0])),
        ("$derivative", "week", bson!([null, 10_080.0, 5_040.0])),
        ("$integral", "minute", bson!([0, 1.5, 6.0])),
    ] {
        let window = doc! { "documents": ["unbounded", 0] };
        let stage = doc! {
            "sortBy": { "t": 1 },
            "output": { "r": { function: { "input": "$v", "unit": unit }, "window": window } },
        };
        let input = bson!([{ "t": minute(0), "v": 1 }, { "t": minute(1), "v": 2 }, { "t": minute(3), "v": 2.5 }]);
        assert_eq!(Bson::from(results(stage, input)), expected, "{function} {unit}");
    }
}

#[test]
fn moving_averages() {
    let values = || bson!([13, 15.4, null, 12, "x"]);
    check_function(
        doc! { "$expMovingAvg": { "input": "$v", "N": 2 } },
        values(),
        bson!([13.0, 14.6, 14.6, 12.866_666_666_666_667, 12.866_666_666_666_667]),
    );
    check_function(
        doc! { "$expMovingAvg": { "input": "$v", "alpha": 0.75 } },
        values(),
        bson!([13.0, 14.8, 14.8, 12.7, 12.7]),
    );
    check_function(
        doc! { "$expMovingAvg": { "input": "$v", "N": 3 } },
        bson!([0.123_456_789_012_345_67, null]),
        bson!([0.123_456_789_012_345_67, 0.123_456_789_012_345_67]),
    );
    let decimal = |text: &str| Bson::from(text.parse::<Decimal128>().unwrap());
    check_function(
        doc! { "$expMovingAvg": { "input": "$v", "alpha": 0.5 } },
        bson!([null, decimal("1"), 2]),
        bson!([null, decimal("1"), decimal("1.5")]),
    );
}
