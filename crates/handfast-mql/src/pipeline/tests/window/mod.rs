//! Tables of cases for `$setWindowFields`.

mod bounds;
mod errors;
mod functions;
mod model;

use bson::{Bson, Document, bson, doc};

use super::{check, run};

/// Runs the stage with one output field over documents, and returns the values of that field.
fn results(stage: Document, input: Bson) -> Vec<Bson> {
    let results =
        run(bson!([{ "$setWindowFields": stage.clone() }]), input).unwrap_or_else(|error| panic!("{stage}: {error}"));
    results.into_iter().map(|document| document.get("r").cloned().unwrap_or(Bson::from("missing"))).collect()
}

/// Checks the results of a function over documents `{x: 0, v: ..}`, `{x: 1, v: ..}`, .. that are sorted by `x`.
#[track_caller]
fn check_function(function: Document, values: Bson, expected: Bson) {
    let input = values.as_array().unwrap().iter().enumerate().map(|(x, value)| match value {
        Bson::Undefined => Bson::from(doc! { "x": x as i32 }),
        value => Bson::from(doc! { "x": x as i32, "v": value.clone() }),
    });
    let found =
        results(doc! { "sortBy": { "x": 1 }, "output": { "r": function.clone() } }, input.collect::<Vec<_>>().into());
    assert_eq!(Bson::from(found), expected, "{function}");
}

#[test]
fn partitions_are_sorted_and_computed_each_by_itself() {
    check(
        bson!([{ "$setWindowFields": {
            "partitionBy": "$state",
            "sortBy": { "date": 1 },
            "output": { "sum": { "$sum": "$n", "window": { "documents": ["unbounded", "current"] } } },
        } }]),
        bson!([
            { "_id": 1, "state": "WA", "date": 3, "n": 140 },
            { "_id": 2, "state": "CA", "date": 2, "n": 120 },
            { "_id": 3, "state": "WA", "date": 1, "n": 134 },
            { "_id": 4, "date": 9, "n": 1 },
            { "_id": 5, "state": "CA", "date": 1, "n": 162 },
            { "_id": 6, "state": null, "date": 1, "n": 2 },
        ]),
        bson!([
            { "_id": 6, "state": null, "date": 1, "n": 2, "sum": 2 },
            { "_id": 4, "date": 9, "n": 1, "sum": 3 },
            { "_id": 5, "state": "CA", "date": 1, "n": 162, "sum": 162 },
            { "_id": 2, "state": "CA", "date": 2, "n": 120, "sum": 282 },
            { "_id": 3, "state": "WA", "date": 1, "n": 134, "sum": 134 },
            { "_id": 1, "state": "WA", "date": 3, "n": 140, "sum": 274 },
        ]),
    );
}

#[test]
fn without_partition_and_order_the_documents_keep_theirs() {
    check(
        bson!([{ "$setWindowFields": { "output": { "all": { "$count": {} }, "max": { "$max": "$n" } } } }]),
        bson!([{ "n": 3 }, { "n": 1 }, { "n": 2 }]),
        bson!([{ "n": 3, "all": 3, "max": 3 }, { "n": 1, "all": 3, "max": 3 }, { "n": 2, "all": 3, "max": 3 }]),
    );
    check(bson!([{ "$setWindowFields": { "output": { "all": { "$count": {} } } } }]), bson!([]), bson!([]));
    check(bson!([{ "$setWindowFields": { "output": {} } }]), bson!([{ "n": 3 }]), bson!([{ "n": 3 }]));
}

#[test]
fn fields_are_added_as_add_fields_does() {
    check(
        bson!([{ "$setWindowFields": { "output": { "a.b": { "$sum": "$n" }, "n": { "$max": "$n" }, "c": { "$push": "$n" } } } }]),
        bson!([{ "n": 1, "a": { "x": 1, "b": 0 } }, { "n": 2, "a": [{ "x": 1 }, 5] }, { "n": 4, "a": 5 }]),
        bson!([
            { "n": 4, "a": { "x": 1, "b": 7 }, "c": [1, 2, 4] },
            { "n": 4, "a": [{ "x": 1, "b": 7 }, { "b": 7 }], "c": [1, 2, 4] },
            { "n": 4, "a": { "b": 7 }, "c": [1, 2, 4] },
        ]),
    );
}
