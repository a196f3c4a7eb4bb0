//! `$`, `$[]` and `$[name]`.

use super::*;

#[test]
fn the_positional_operator_changes_the_matched_element() {
    at(1).check(doc! { "a": [1, 2] }, doc! { "$set": { "a.$": 9 } }, doc! { "a": [1, 9] });
    at(0).check(
        doc! { "a": [{ "b": 1 }] },
        doc! { "$inc": { "a.$.b": 1 }, "$set": { "a.$.c": 1 } },
        doc! { "a": [{ "b": 2, "c": 1 }] },
    );
    at(0).check(
        doc! { "a": [{ "b": 1 }] },
        doc! { "$inc": { "a.$.b": 1 }, "$set": { "a.0.c": 1 } },
        doc! { "a": [{ "b": 2, "c": 1 }] },
    );
    at(1).check(doc! { "a": [1, 2] }, doc! { "$unset": { "a.$": 1 } }, doc! { "a": [1, Bson::Null] });
    fails(
        doc! { "a": [1] },
        doc! { "$set": { "a.$": 9 } },
        Code::BadValue,
        "The positional operator did not find the match needed from the query.",
    );
    at(0).fails(
        doc! { "a": [{ "b": 1 }] },
        doc! { "$inc": { "a.$.b": 1 }, "$set": { "a.0.b": 1 } },
        Code::ConflictingUpdateOperators,
        "Update created a conflict at 'a.0.b'",
    );
}

#[test]
fn all_elements_are_changed() {
    check(doc! { "a": [1, 2] }, doc! { "$inc": { "a.$[]": 10 } }, doc! { "a": [11, 12] });
    check(
        doc! { "a": [{ "b": 1 }, { "b": 2, "c": 0 }] },
        doc! { "$inc": { "a.$[].b": 10, "a.$[].c": 1 } },
        doc! { "a": [{ "b": 11, "c": 1 }, { "b": 12, "c": 1 }] },
    );
    check(doc! { "a": [[1, 2], [3]] }, doc! { "$mul": { "a.$[].$[]": 2 } }, doc! { "a": [[2, 4], [6]] });
    unchanged(doc! { "a": [] }, doc! { "$inc": { "a.$[]": 10 } });
    fails(
        doc! { "a": 1 },
        doc! { "$inc": { "a.$[]": 1 } },
        Code::BadValue,
        "Cannot apply array updates to non-array element a: 1",
    );
    fails(
        doc! { "b": 1 },
        doc! { "$inc": { "a.$[]": 1 } },
        Code::BadValue,
        "The path 'a' must exist in the document in order to apply array updates.",
    );
    fails(
        doc! { "a": [1] },
        doc! { "$inc": { "a.$[]": 1, "a.0": 1 } },
        Code::ConflictingUpdateOperators,
        "Updating the path 'a.0' would create a conflict at 'a'",
    );
    fails(
        doc! { "a": [{ "b": 1 }, 5] },
        doc! { "$set": { "a.$[].b": 1 } },
        Code::PathNotViable,
        "Cannot create field 'b' in element {1: 5}",
    );
}

#[test]
fn filtered_elements_are_changed() {
    filtered([doc! { "x": { "$gte": 2 } }]).check(
        doc! { "a": [1, 2, 3] },
        doc! { "$set": { "a.$[x]": 0 } },
        doc! { "a": [1, 0, 0] },
    );
    filtered([doc! { "x.k": 1, "x.m": { "$gt": 5 } }]).check(
        doc! { "a": [{ "k": 1, "m": 6 }, { "k": 1, "m": 5 }, { "k": 2, "m": 6 }] },
        doc! { "$set": { "a.$[x].n": 1 } },
        doc! { "a": [{ "k": 1, "m": 6, "n": 1 }, { "k": 1, "m": 5 }, { "k": 2, "m": 6 }] },
    );
    filtered([doc! { "i.k": 1 }, doc! { "j": { "$lt": 3 } }]).check(
        doc! { "a": [{ "k": 1, "v": [1, 5] }, { "k": 2, "v": [1, 5] }] },
        doc! { "$inc": { "a.$[i].v.$[j]": 100 } },
        doc! { "a": [{ "k": 1, "v": [101, 5] }, { "k": 2, "v": [1, 5] }] },
    );
    // Both filters select the same element.
    filtered([doc! { "i": { "$gte": 1 } }, doc! { "j": { "$gte": 2 } }]).fails(
        doc! { "_id": 1, "a": [1, 2] },
        doc! { "$inc": { "a.$[i]": 1, "a.$[j]": 1 } },
        Code::ConflictingUpdateOperators,
        "Update created a conflict at 'a.1'",
    );
    filtered([doc! { "i.k": 1 }, doc! { "j.m": 2 }]).check(
        doc! { "a": [{ "k": 1, "m": 2 }, { "k": 1 }, { "m": 2 }] },
        doc! { "$set": { "a.$[i].x": 1, "a.$[j].y": 1 } },
        doc! { "a": [{ "k": 1, "m": 2, "x": 1, "y": 1 }, { "k": 1, "x": 1 }, { "m": 2, "y": 1 }] },
    );
}

#[test]
fn invalid_array_filters_are_refused() {
    let update = || doc! { "$set": { "a.$[x]": 0 } };
    fails(doc! {}, update(), Code::BadValue, "No array filter found for identifier 'x' in path 'a.$[x]'");
    filtered([doc! { "x": 1 }, doc! { "y": 1 }]).fails(
        doc! {},
        update(),
        Code::FailedToParse,
        "The array filter for identifier 'y' was not used in the update { $set: { a.$[x]: 0 } }",
    );
    filtered([doc! { "x": 1 }, doc! { "x.b": 1 }]).fails(
        doc! {},
        update(),
        Code::FailedToParse,
        "Found multiple array filters with the same top-level field name x",
    );
    filtered([doc! { "x": 1, "y.b": 1 }]).fails(
        doc! {},
        update(),
        Code::FailedToParse,
        "Error parsing array filter :: caused by :: Expected a single top-level field name, found 'x' and 'y'",
    );
    filtered([doc! { "$or": [{ "x": 1 }, { "y.b": 1 }] }]).fails(
        doc! {},
        update(),
        Code::FailedToParse,
        "Error parsing array filter :: caused by :: Expected a single top-level field name, found 'x' and 'y'",
    );
    filtered([doc! {}]).fails(
        doc! {},
        update(),
        Code::FailedToParse,
        "Error parsing array filter :: caused by :: Cannot use an expression without a top-level field name in \
         arrayFilters",
    );
    filtered([doc! { "X": 1 }]).fails(
        doc! {},
        update(),
        Code::BadValue,
        "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string beginning \
         with a lowercase letter, found 'X'",
    );
    filtered([doc! { "x": 1 }]).fails(
        doc! {},
        doc! { "a": 1 },
        Code::FailedToParse,
        "arrayFilters may not be specified for replacement-style updates",
    );
}
