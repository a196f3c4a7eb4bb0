//! Operators on arrays: `$push`, `$addToSet`, `$pull`, `$pullAll`, `$pop`.

use super::*;

#[test]
fn push_appends_values() {
    check(doc! { "a": [1] }, doc! { "$push": { "a": 2 } }, doc! { "a": [1, 2] });
    check(doc! {}, doc! { "$push": { "a": 2 } }, doc! { "a": [2] });
    check(doc! {}, doc! { "$push": { "a.b": { "c": 1 } } }, doc! { "a": { "b": [{ "c": 1 }] } });
    check(doc! { "a": [1] }, doc! { "$push": { "a": [2, 3] } }, doc! { "a": [1, [2, 3]] });
    check(doc! { "a": [[1]] }, doc! { "$push": { "a.0": 2 } }, doc! { "a": [[1, 2]] });
    check(doc! { "a": [1] }, doc! { "$push": { "a": { "$each": [2, 3] } } }, doc! { "a": [1, 2, 3] });
    check(doc! {}, doc! { "$push": { "a": { "$each": [] } } }, doc! { "a": [] });
    unchanged(doc! { "a": [1] }, doc! { "$push": { "a": { "$each": [] } } });
}

#[test]
fn push_inserts_at_a_position() {
    for (position, expected) in
        [(0, [9, 1, 2]), (1, [1, 9, 2]), (5, [1, 2, 9]), (-1, [1, 9, 2]), (-2, [9, 1, 2]), (-9, [9, 1, 2])]
    {
        check(
            doc! { "a": [1, 2] },
            doc! { "$push": { "a": { "$each": [9], "$position": position } } },
            doc! { "a": expected.to_vec() },
        );
    }
    check(
        doc! { "a": [1, 2] },
        doc! { "$push": { "a": { "$position": 1.0, "$each": [8, 9] } } },
        doc! { "a": [1, 8, 9, 2] },
    );
}

#[test]
fn push_cuts_the_array() {
    for (slice, expected) in [(2, vec![1, 2]), (0, vec![]), (-2, vec![2, 3]), (9, vec![1, 2, 3]), (-9, vec![1, 2, 3])] {
        check(
            doc! { "a": [1, 2] },
            doc! { "$push": { "a": { "$each": [3], "$slice": slice } } },
            doc! { "a": expected },
        );
    }
    unchanged(doc! { "a": [1, 2] }, doc! { "$push": { "a": { "$each": [3], "$slice": 2 } } });
    check(doc! {}, doc! { "$push": { "a": { "$each": [1, 2, 3], "$slice": -1 } } }, doc! { "a": [3] });
}

#[test]
fn push_sorts_the_array() {
    check(
        doc! { "a": [3, "x", 1] },
        doc! { "$push": { "a": { "$each": [2], "$sort": 1 } } },
        doc! { "a": [1, 2, 3, "x"] },
    );
    check(doc! { "a": [3, 1] }, doc! { "$push": { "a": { "$each": [2], "$sort": -1 } } }, doc! { "a": [3, 2, 1] });
    check(
        doc! { "a": [{ "q": 3, "w": 1 }, { "q": 1, "w": 2 }] },
        doc! { "$push": { "a": { "$each": [{ "q": 2, "w": 9 }, { "w": 5 }], "$sort": { "q": 1 }, "$slice": 3 } } },
        doc! { "a": [{ "w": 5 }, { "q": 1, "w": 2 }, { "q": 2, "w": 9 }] },
    );
    check(
        doc! { "a": [{ "b": { "c": 1 }, "d": 1 }, { "b": { "c": 2 }, "d": 2 }, { "b": { "c": 1 }, "d": 3 }] },
        doc! { "$push": { "a": { "$each": [], "$sort": { "b.c": -1, "d": -1 } } } },
        doc! { "a": [{ "b": { "c": 2 }, "d": 2 }, { "b": { "c": 1 }, "d": 3 }, { "b": { "c": 1 }, "d": 1 }] },
    );
    // The sort is stable.
    check(
        doc! { "a": [{ "q": 1, "n": 1 }, { "q": 0 }, { "q": 1, "n": 0 }] },
        doc! { "$push": { "a": { "$each": [], "$sort": { "q": 1 } } } },
        doc! { "a": [{ "q": 0 }, { "q": 1, "n": 1 }, { "q": 1, "n": 0 }] },
    );
}

#[test]
fn invalid_pushes_are_refused() {
    fails(
        doc! { "_id": 1, "a": 5 },
        doc! { "$push": { "a": 1 } },
        Code::BadValue,
        "The field 'a' must be an array but is of type int in document {_id: 1}",
    );
    let push = |clauses: Document| doc! { "$push": { "a": clauses } };
    let each: [i32; 0] = [];
    let bad = |clauses: Document, message: &str| fails(doc! { "a": [] }, push(clauses), Code::BadValue, message);
    bad(doc! { "$each": "x" }, "The argument to $each in $push must be an array but it was of type: string");
    bad(doc! { "$each": each.to_vec(), "$foo": 1 }, "Unrecognized clause in $push: $foo");
    bad(
        doc! { "$each": each.to_vec(), "$slice": "x" },
        "The value for $slice must be an integer value but was given type: string",
    );
    bad(
        doc! { "$each": each.to_vec(), "$slice": 1.5 },
        "The value for $slice must be an integer value but was given type: double",
    );
    bad(
        doc! { "$each": each.to_vec(), "$position": Bson::Null },
        "The value for $position must be an integer value, not of type: null",
    );
    let whole = "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields";
    bad(doc! { "$each": each.to_vec(), "$sort": 2 }, whole);
    bad(doc! { "$each": each.to_vec(), "$sort": "x" }, whole);
    bad(doc! { "$each": each.to_vec(), "$sort": { "a": 2 } }, "The $sort element value must be either 1 or -1");
    bad(doc! { "$each": each.to_vec(), "$sort": {} }, "The $sort pattern is empty when it should be a set of fields.");
}

#[test]
fn add_to_set_appends_missing_values() {
    check(doc! { "a": [1] }, doc! { "$addToSet": { "a": 2 } }, doc! { "a": [1, 2] });
    unchanged(doc! { "a": [1, 2] }, doc! { "$addToSet": { "a": 2 } });
    unchanged(doc! { "a": [1, 2] }, doc! { "$addToSet": { "a": 2.0 } });
    check(doc! {}, doc! { "$addToSet": { "a": { "$each": [1, 1, 2] } } }, doc! { "a": [1, 2] });
    check(
        doc! { "a": [2, { "x": 1 }] },
        doc! { "$addToSet": { "a": { "$each": [1, 2, { "x": 1 }, { "x": 2 }] } } },
        doc! { "a": [2, { "x": 1 }, 1, { "x": 2 }] },
    );
    check(doc! { "a": [1, 1] }, doc! { "$addToSet": { "a": [1] } }, doc! { "a": [1, 1, [1]] });
    // Documents are equal only with the same order of fields.
    check(
        doc! { "a": [{ "x": 1, "y": 2 }] },
        doc! { "$addToSet": { "a": { "y": 2, "x": 1 } } },
        doc! { "a": [{ "x": 1, "y": 2 }, { "y": 2, "x": 1 }] },
    );
    fails(
        doc! { "a": "x" },
        doc! { "$addToSet": { "a": 1 } },
        Code::BadValue,
        "Cannot apply $addToSet to non-array field. Field named 'a' has non-array type string",
    );
    fails(
        doc! {},
        doc! { "$addToSet": { "a": { "$each": 1 } } },
        Code::TypeMismatch,
        "The argument to $each in $addToSet must be an array but it was of type: int",
    );
    fails(
        doc! {},
        doc! { "$addToSet": { "a": { "$each": [1], "$slice": 1 } } },
        Code::BadValue,
        "Found unexpected fields after $each in $addToSet: { $each: [ 1 ], $slice: 1 }",
    );
}

#[test]
fn pull_removes_matching_elements() {
    check(doc! { "a": [1, 2, 1, 3] }, doc! { "$pull": { "a": 1 } }, doc! { "a": [2, 3] });
    check(doc! { "a": [1, 2, 1.0] }, doc! { "$pull": { "a": 1 } }, doc! { "a": [2] });
    check(doc! { "a": [1, 5, 7] }, doc! { "$pull": { "a": { "$gte": 5 } } }, doc! { "a": [1] });
    check(
        doc! { "a": [{ "x": 1, "y": 1 }, { "x": 2 }, 1, { "y": 1, "x": 1 }] },
        doc! { "$pull": { "a": { "x": 1 } } },
        doc! { "a": [{ "x": 2 }, 1] },
    );
    check(
        doc! { "r": [{ "item": "A", "score": 5 }, { "item": "B", "score": 8 }] },
        doc! { "$pull": { "r": { "score": 8, "item": "B" } } },
        doc! { "r": [{ "item": "A", "score": 5 }] },
    );
    check(doc! { "a": [{}, { "x": 1 }, 1] }, doc! { "$pull": { "a": {} } }, doc! { "a": [1] });
    check(doc! { "a": [[1, 2], [1]] }, doc! { "$pull": { "a": [1, 2] } }, doc! { "a": [[1]] });
    check(doc! { "a": [1, 2, 3] }, doc! { "$pull": { "a": { "$in": [1, 3, 9] } } }, doc! { "a": [2] });
    check(doc! { "a": [1, 2, 3] }, doc! { "$pull": { "a": { "$not": { "$gt": 1 } } } }, doc! { "a": [2, 3] });
    check(doc! { "a": [1, 2, 3] }, doc! { "$pull": { "a": { "$ne": 2 } } }, doc! { "a": [2] });
    let pattern =
        Bson::RegularExpression(bson::Regex { pattern: "^x".try_into().unwrap(), options: "".try_into().unwrap() });
    check(doc! { "a": ["xy", "yx", 1] }, doc! { "$pull": { "a": pattern } }, doc! { "a": ["yx", 1] });
    check(
        doc! { "a": [{ "x": 1 }, { "x": 2 }, { "y": 1 }, 7] },
        doc! { "$pull": { "a": { "$or": [{ "x": 1 }, { "y": 1 }] } } },
        doc! { "a": [{ "x": 2 }, 7] },
    );
    check(
        doc! { "r": [{ "n": 1, "l": [{ "q": 1, "a": 4 }, { "q": 2, "a": 6 }] }, { "n": 2, "l": [{ "q": 2, "a": 9 }] }] },
        doc! { "$pull": { "r": { "l": { "$elemMatch": { "q": 2, "a": { "$gte": 8 } } } } } },
        doc! { "r": [{ "n": 1, "l": [{ "q": 1, "a": 4 }, { "q": 2, "a": 6 }] }] },
    );
    check(doc! { "a": [[1, 6], [1]] }, doc! { "$pull": { "a": { "$gte": 5 } } }, doc! { "a": [[1]] });
    let error = PLAIN.run(&doc! { "a": [1] }, &doc! { "$pull": { "a": { "$foo": 1 } } }).unwrap_err();
    assert_eq!(error.code(), Code::BadValue);
    unchanged(doc! { "a": [1] }, doc! { "$pull": { "a": 2, "b": 1, "c.d": 1 } });
    fails(doc! { "a": 1 }, doc! { "$pull": { "a": 1 } }, Code::BadValue, "Cannot apply $pull to a non-array value");
    fails(
        doc! { "a": 1 },
        doc! { "$pull": { "a.b": 1 } },
        Code::PathNotViable,
        "Cannot use the part (b) of (a.b) to traverse the element ({a: 1})",
    );
}

#[test]
fn pull_all_removes_equal_elements() {
    check(doc! { "a": [1, 2, 1, 3, "x"] }, doc! { "$pullAll": { "a": [1, "x", 9] } }, doc! { "a": [2, 3] });
    check(
        doc! { "a": [{ "x": 1 }, { "x": 1, "y": 2 }] },
        doc! { "$pullAll": { "a": [{ "x": 1 }] } },
        doc! { "a": [{ "x": 1, "y": 2 }] },
    );
    unchanged(doc! { "a": [1] }, doc! { "$pullAll": { "a": [], "b": [1] } });
    fails(
        doc! { "a": [1] },
        doc! { "$pullAll": { "a": 1 } },
        Code::BadValue,
        "$pullAll requires an array argument but was given a int",
    );
    fails(
        doc! { "a": 1 },
        doc! { "$pullAll": { "a": [1] } },
        Code::BadValue,
        "Cannot apply $pull to a non-array value",
    );
}

#[test]
fn pop_removes_the_first_or_last_element() {
    check(doc! { "a": [1, 2, 3] }, doc! { "$pop": { "a": 1 } }, doc! { "a": [1, 2] });
    check(doc! { "a": [1, 2, 3] }, doc! { "$pop": { "a": -1 } }, doc! { "a": [2, 3] });
    check(doc! { "a": [1] }, doc! { "$pop": { "a": -1.0 } }, doc! { "a": [] });
    unchanged(doc! { "a": [] }, doc! { "$pop": { "a": 1, "b": -1 } });
    fails(
        doc! { "a": "x" },
        doc! { "$pop": { "a": 1 } },
        Code::TypeMismatch,
        "Path 'a' contains an element of non-array type 'string'",
    );
    fails(doc! { "a": [] }, doc! { "$pop": { "a": 2 } }, Code::FailedToParse, "$pop expects 1 or -1, found: 2");
    fails(doc! { "a": [] }, doc! { "$pop": { "a": "1" } }, Code::FailedToParse, "Expected a number in: a: \"1\"");
    fails(
        doc! { "a": "x" },
        doc! { "$pop": { "a.b": 1 } },
        Code::PathNotViable,
        "Cannot use the part (b) of (a.b) to traverse the element ({a: \"x\"})",
    );
}

/// The time must not grow with the product of the lengths.
#[test]
fn long_arrays_are_changed_in_linear_time() {
    let values: Vec<Bson> = (0..20_000).map(Bson::Int32).collect();
    let document = doc! { "a": values.clone() };
    unchanged(document.clone(), doc! { "$addToSet": { "a": { "$each": values.clone() } } });
    check(document, doc! { "$pullAll": { "a": values } }, doc! { "a": [] });
}
