//! Tables of cases for `$fill`.

use bson::{Bson, bson};

use super::{check, check_error};

#[track_caller]
fn filled(stage: Bson, input: Bson, expected: Bson) {
    check(bson!([{ "$fill": stage }]), input, expected);
}

#[test]
fn values_are_filled_in() {
    filled(
        bson!({ "output": { "a": { "value": 0 }, "b.c": { "value": { "$add": ["$_id", 1] } } } }),
        bson!([{ "_id": 1, "a": 5 }, { "_id": 2, "a": null, "b": { "c": 7 } }]),
        bson!([{ "_id": 1, "a": 5, "b": { "c": 2 } }, { "_id": 2, "a": 0, "b": { "c": 7 } }]),
    );
    filled(bson!({ "output": {} }), bson!([{ "a": 5 }]), bson!([{ "a": 5 }]));
}

#[test]
fn the_last_value_is_carried_forward() {
    let input = || {
        bson!([
            { "p": 1, "q": 1, "x": 2, "v": null }, { "p": 1, "q": 1, "x": 1, "v": 5 }, { "p": 1, "q": 2, "x": 1 },
            { "p": 2, "q": 1, "x": 3 }, { "p": 2, "q": 1, "x": 2, "v": 6 },
        ])
    };
    let expected = || {
        bson!([
            { "p": 1, "q": 1, "x": 1, "v": 5 }, { "p": 1, "q": 1, "x": 2, "v": 5 }, { "p": 1, "q": 2, "x": 1, "v": null },
            { "p": 2, "q": 1, "x": 2, "v": 6 }, { "p": 2, "q": 1, "x": 3, "v": 6 },
        ])
    };
    let output = || bson!({ "v": { "method": "locf" } });
    filled(bson!({ "partitionByFields": ["p", "q"], "sortBy": { "x": 1 }, "output": output() }), input(), expected());
    filled(
        bson!({ "partitionBy": { "p": "$p", "q": "$q" }, "sortBy": { "x": 1 }, "output": output() }),
        input(),
        expected(),
    );
}

/// The example of MongoDB's manual, and a field that gets a value.
#[test]
fn values_are_interpolated() {
    filled(
        bson!({ "sortBy": { "time": 1 }, "output": { "price": { "method": "linear" }, "note": { "value": "none" } } }),
        bson!([
            { "time": 9, "price": 500 }, { "time": 10 }, { "time": 11, "price": 515 }, { "time": 12 }, { "time": 13 },
            { "time": 14, "price": 485, "note": "x" },
        ]),
        bson!([
            { "time": 9, "price": 500, "note": "none" },
            { "time": 10, "price": 507.5, "note": "none" },
            { "time": 11, "price": 515, "note": "none" },
            { "time": 12, "price": 505.0, "note": "none" },
            { "time": 13, "price": 495.0, "note": "none" },
            { "time": 14, "price": 485, "note": "x" },
        ]),
    );
}

#[test]
fn wrong_stages_are_refused() {
    let output = || bson!({ "a": { "method": "locf" } });
    for (stage, code) in [
        (bson!(1), 9),
        (bson!({}), 40414),
        (bson!({ "output": 1 }), 14),
        (bson!({ "output": {}, "sortBy": 1 }), 14),
        (bson!({ "output": {}, "other": 1 }), 40415),
        (bson!({ "output": {}, "partitionBy": "$p", "partitionByFields": ["p"] }), 6050204),
        (bson!({ "output": {}, "partitionByFields": 1 }), 14),
        (bson!({ "output": {}, "partitionByFields": ["$p"] }), 16410),
        (bson!({ "output": { "a": 1 } }), 6050201),
        (bson!({ "output": { "a": {} } }), 6050201),
        (bson!({ "output": { "a": { "value": 1, "method": "locf" } } }), 6050201),
        (bson!({ "output": { "a": { "other": 1 } } }), 6050201),
        (bson!({ "output": { "a": { "method": "cubic" } }, "sortBy": { "x": 1 } }), 6050202),
        (bson!({ "output": output() }), 9),
        (bson!({ "output": output(), "sortBy": { "x": 2 } }), 15975),
        (bson!({ "output": output(), "sortBy": { "x": 1 }, "partitionBy": { "$foo": 1 } }), 168),
        (bson!({ "output": { "a": { "method": "linear" } }, "sortBy": { "x": 1, "y": 1 } }), 605001),
    ] {
        check_error(bson!([{ "$fill": stage }]), code);
    }
}
