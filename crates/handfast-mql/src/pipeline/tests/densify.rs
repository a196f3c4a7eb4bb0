//! Tables of cases for `$densify`.

use bson::{Bson, DateTime, Document, bson, doc};

use super::{check, check_error, compile, raw, run};
use crate::{
    Code,
    context::{QueryMemory, StageTotal},
    expression::testing::context,
};

#[track_caller]
fn densified(stage: Document, input: Bson, expected: Bson) {
    check(bson!([{ "$densify": stage }]), input, expected);
}

#[test]
fn steps_without_a_document_get_one() {
    densified(
        doc! { "field": "n", "range": { "step": 2, "bounds": "full" } },
        bson!([{ "_id": 1, "n": 7 }, { "_id": 2, "n": 0 }, { "_id": 3, "n": 3 }, { "_id": 4, "n": 4.0 }, { "_id": 5 }, { "_id": 6, "n": null }]),
        bson!([
            { "_id": 5 }, { "_id": 6, "n": null }, { "_id": 2, "n": 0 }, { "n": 2 }, { "_id": 3, "n": 3 }, { "_id": 4, "n": 4.0 },
            { "n": 6 }, { "_id": 1, "n": 7 },
        ]),
    );
    densified(
        doc! { "field": "a.n", "range": { "step": 0.5, "bounds": "full" } },
        bson!([{ "a": { "n": 1 } }, { "a": { "n": 2 } }]),
        bson!([{ "a": { "n": 1 } }, { "a": { "n": 1.5 } }, { "a": { "n": 2 } }]),
    );
    densified(doc! { "field": "n", "range": { "step": 1, "bounds": "full" } }, bson!([]), bson!([]));
    densified(
        doc! { "field": "n", "range": { "step": 1, "bounds": "full" } },
        bson!([{ "a": 1 }]),
        bson!([{ "a": 1 }]),
    );
}

#[test]
fn bounds_are_filled_whatever_the_documents_are() {
    let stage = || doc! { "field": "n", "range": { "step": 5, "bounds": [0, 12] } };
    densified(stage(), bson!([]), bson!([{ "n": 0 }, { "n": 5 }, { "n": 10 }]));
    densified(stage(), bson!([{ "a": 1 }]), bson!([{ "a": 1 }, { "n": 0 }, { "n": 5 }, { "n": 10 }]));
    densified(
        stage(),
        bson!([{ "n": -3 }, { "n": 5 }, { "n": 7 }, { "n": 30 }]),
        bson!([{ "n": -3 }, { "n": 0 }, { "n": 5 }, { "n": 7 }, { "n": 10 }, { "n": 30 }]),
    );
    densified(
        doc! { "field": "n", "range": { "step": 5, "bounds": [0, 10] } },
        bson!([]),
        bson!([{ "n": 0 }, { "n": 5 }]),
    );
    densified(doc! { "field": "n", "range": { "step": 5, "bounds": [1, 1] } }, bson!([]), bson!([]));
    densified(
        doc! { "field": "n", "partitionByFields": ["p"], "range": { "step": 1, "bounds": [0, 2] } },
        bson!([{ "p": "a", "n": 1 }, { "n": 0 }]),
        bson!([{ "n": 0 }, { "p": "a", "n": 0 }, { "p": "a", "n": 1 }, { "n": 1 }]),
    );
}

fn coffee() -> Bson {
    bson!([
        { "altitude": 600, "variety": "Arabica Typica", "score": 68.3 },
        { "altitude": 750, "variety": "Arabica Typica", "score": 69.5 },
        { "altitude": 950, "variety": "Arabica Typica", "score": 70.5 },
        { "altitude": 1250, "variety": "Gesha", "score": 88.15 },
        { "altitude": 1700, "variety": "Gesha", "score": 95.5, "price": 1029 },
    ])
}

/// The example of MongoDB's manual.
#[test]
fn partitions_span_the_full_range() {
    densified(
        doc! { "field": "altitude", "partitionByFields": ["variety"], "range": { "bounds": "full", "step": 200 } },
        coffee(),
        bson!([
            { "altitude": 600, "variety": "Arabica Typica", "score": 68.3 },
            { "altitude": 750, "variety": "Arabica Typica", "score": 69.5 },
            { "variety": "Arabica Typica", "altitude": 800 },
            { "altitude": 950, "variety": "Arabica Typica", "score": 70.5 },
            { "variety": "Gesha", "altitude": 600 },
            { "variety": "Gesha", "altitude": 800 },
            { "variety": "Gesha", "altitude": 1000 },
            { "variety": "Gesha", "altitude": 1200 },
            { "altitude": 1250, "variety": "Gesha", "score": 88.15 },
            { "variety": "Gesha", "altitude": 1400 },
            { "variety": "Gesha", "altitude": 1600 },
            { "altitude": 1700, "variety": "Gesha", "score": 95.5, "price": 1029 },
            { "variety": "Arabica Typica", "altitude": 1000 },
            { "variety": "Arabica Typica", "altitude": 1200 },
            { "variety": "Arabica Typica", "altitude": 1400 },
            { "variety": "Arabica Typica", "altitude": 1600 },
        ]),
    );
}

/// The example of MongoDB's manual.
#[test]
fn partitions_span_their_own_range() {
    densified(
        doc! { "field": "altitude", "partitionByFields": ["variety"], "range": { "bounds": "partition", "step": 200 } },
        coffee(),
        bson!([
            { "altitude": 600, "variety": "Arabica Typica", "score": 68.3 },
            { "altitude": 750, "variety": "Arabica Typica", "score": 69.5 },
            { "variety": "Arabica Typica", "altitude": 800 },
            { "altitude": 950, "variety": "Arabica Typica", "score": 70.5 },
            { "altitude": 1250, "variety": "Gesha", "score": 88.15 },
            { "variety": "Gesha", "altitude": 1450 },
            { "variety": "Gesha", "altitude": 1650 },
            { "altitude": 1700, "variety": "Gesha", "score": 95.5, "price": 1029 },
        ]),
    );
}

#[test]
fn partitions_by_several_fields() {
    densified(
        doc! { "field": "n", "partitionByFields": ["p", "q.r"], "range": { "step": 1, "bounds": "full" } },
        bson!([{ "p": 1, "q": { "r": 1 }, "n": 0 }, { "p": 1, "n": 1 }, { "p": 1, "q": { "r": null }, "n": 1 }]),
        bson!([
            { "p": 1, "q": { "r": 1 }, "n": 0 },
            { "p": 1, "n": 0 }, { "p": 1, "n": 1 },
            { "p": 1, "q": { "r": null }, "n": 0 }, { "p": 1, "q": { "r": null }, "n": 1 },
            { "p": 1, "q": { "r": 1 }, "n": 1 },
        ]),
    );
}

#[test]
fn dates_have_units() {
    let date = |text: &str| DateTime::parse_rfc3339_str(text).unwrap();
    let (first, second, third) =
        (date("2024-01-31T12:00:00Z"), date("2024-02-29T12:00:00Z"), date("2024-03-30T00:00:00Z"));
    densified(
        doc! { "field": "t", "range": { "step": 1, "unit": "month", "bounds": "full" } },
        bson!([{ "t": first }, { "t": third }]),
        bson!([{ "t": first }, { "t": second }, { "t": date("2024-03-29T12:00:00Z") }, { "t": third }]),
    );
    densified(
        doc! { "field": "t", "range": { "step": 6_i64, "unit": "hour", "bounds": [date("2024-01-31T00:00:00Z"), date("2024-01-31T18:00:00Z")] } },
        bson!([{ "t": first }]),
        bson!([{ "t": date("2024-01-31T00:00:00Z") }, { "t": date("2024-01-31T06:00:00Z") }, { "t": first }]),
    );
    // A sequence ends where no date is later.
    densified(
        doc! { "field": "t", "range": { "step": i64::MAX, "unit": "millisecond", "bounds": "full" } },
        bson!([{ "t": DateTime::from_millis(1) }, { "t": DateTime::from_millis(5) }]),
        bson!([{ "t": DateTime::from_millis(1) }, { "t": DateTime::from_millis(5) }]),
    );
}

#[test]
fn wrong_stages_and_values_are_refused() {
    let range = || bson!({ "step": 1, "bounds": "full" });
    for (stage, code) in [
        (bson!(1), 9),
        (bson!({ "range": range() }), 40414),
        (bson!({ "field": "a" }), 40414),
        (bson!({ "field": "a", "range": range(), "other": 1 }), 40415),
        (bson!({ "field": 1, "range": range() }), 14),
        (bson!({ "field": "$a", "range": range() }), 16410),
        (bson!({ "field": "a", "range": 1 }), 14),
        (bson!({ "field": "a", "range": { "bounds": "full" } }), 40414),
        (bson!({ "field": "a", "range": { "step": 1 } }), 40414),
        (bson!({ "field": "a", "range": { "step": 1, "bounds": "full", "other": 1 } }), 40415),
        (bson!({ "field": "a", "range": { "step": "x", "bounds": "full" } }), 14),
        (bson!({ "field": "a", "range": { "step": 0, "bounds": "full" } }), 5733401),
        (bson!({ "field": "a", "range": { "step": -1, "bounds": "full" } }), 5733401),
        (bson!({ "field": "a", "range": { "step": f64::NAN, "bounds": "full" } }), 5733401),
        (bson!({ "field": "a", "range": { "step": 1.5, "unit": "day", "bounds": "full" } }), 6586400),
        (bson!({ "field": "a", "range": { "step": 1, "unit": "days", "bounds": "full" } }), 9),
        (bson!({ "field": "a", "range": { "step": 1, "unit": 1, "bounds": "full" } }), 14),
        (bson!({ "field": "a", "range": { "step": 1, "bounds": "all" } }), 9),
        (bson!({ "field": "a", "range": { "step": 1, "bounds": 1 } }), 14),
        (bson!({ "field": "a", "range": { "step": 1, "bounds": [1] } }), 5733403),
        (bson!({ "field": "a", "range": { "step": 1, "bounds": [2, 1] } }), 5733402),
        (bson!({ "field": "a", "range": { "step": 1, "bounds": [1, "x"] } }), 9),
        (bson!({ "field": "a", "range": { "step": 1, "unit": "day", "bounds": [1, 2] } }), 9),
        (bson!({ "field": "a", "range": { "step": 1, "bounds": "partition" } }), 5733408),
        (bson!({ "field": "a", "partitionByFields": [], "range": { "step": 1, "bounds": "partition" } }), 5733408),
        (bson!({ "field": "a", "partitionByFields": "p", "range": range() }), 14),
        (bson!({ "field": "a", "partitionByFields": [1], "range": range() }), 14),
        (bson!({ "field": "a", "partitionByFields": ["$p"], "range": range() }), 16410),
        (bson!({ "field": "a", "partitionByFields": ["a"], "range": range() }), 8993000),
        (bson!({ "field": "a.b", "partitionByFields": ["a"], "range": range() }), 8993000),
    ] {
        check_error(bson!([{ "$densify": stage }]), code);
    }
    for (unit, value, code) in [
        (doc! {}, bson!("x"), 5733201),
        (doc! {}, bson!([1]), 5733201),
        (doc! {}, Bson::from(DateTime::from_millis(0)), 6053600),
        (doc! { "unit": "day" }, bson!(1), 6053600),
    ] {
        let mut range = doc! { "step": 1, "bounds": "full" };
        range.extend(unit);
        let stage = bson!([{ "$densify": { "field": "n", "range": range } }]);
        assert_eq!(run(stage.clone(), bson!([{ "n": value }])).unwrap_err().code().0, code, "{stage}");
    }
}

#[test]
fn added_documents_are_limited() {
    let most = run(
        bson!([{ "$densify": { "field": "n", "range": { "step": 1, "bounds": [0, 500_000] } } }, { "$count": "n" }]),
        bson!([]),
    );
    assert_eq!(most, Ok(vec![doc! { "n": 500_000 }]));
    for stage in [
        doc! { "field": "n", "range": { "step": 1, "bounds": [0, 500_001] } },
        // The step is too small to change the number.
        doc! { "field": "n", "range": { "step": 1, "bounds": [1e300, 1e301] } },
    ] {
        let error = run(bson!([{ "$densify": stage }]), bson!([])).unwrap_err();
        assert_eq!(error.code().0, 5_897_900);
        assert!(error.message().contains("limit of 500000"), "{error}");
    }
}

#[test]
fn partitions_count_as_held() {
    let total = StageTotal::new(usize::MAX);
    let context =
        |stage_bytes_max| context().with_memory(QueryMemory { stage_bytes_max, total: total.clone(), spill: None });
    let documents = || raw((0..10).map(|n| doc! { "n": n, "p": format!("{n}{}", "x".repeat(1000)) }));
    let stage =
        doc! { "$densify": { "field": "n", "partitionByFields": ["p"], "range": { "step": 1000, "bounds": "full" } } };
    let pipeline = compile(stage).unwrap();
    let error = pipeline.run(documents(), &context(25_000)).unwrap_err();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{error}");
    // The input fits, and the values of the partitions beside it do not.
    assert!(error.message().contains("$densify"), "{error}");
    assert!(pipeline.run(documents(), &context(200_000)).is_ok());
    assert_eq!(total.held(), 0, "given back");
}
