//! `$project`, `$addFields` and `$unset`.

use bson::bson;

use super::{check, check_error};

#[test]
fn project_includes_fields() {
    let input = bson!({ "_id": 1, "a": { "b": 1, "c": 2 }, "d": [{ "e": 1, "f": 2 }, 5, [{ "e": 3 }]], "g": 4 });
    check(bson!([{ "$project": { "g": 1 } }]), input.clone(), bson!({ "_id": 1, "g": 4 }));
    check(bson!([{ "$project": { "g": true, "_id": 0 } }]), input.clone(), bson!({ "g": 4 }));
    check(bson!([{ "$project": { "a.b": 1 } }]), input.clone(), bson!({ "_id": 1, "a": { "b": 1 } }));
    check(bson!([{ "$project": { "a": { "b": 1 } } }]), input.clone(), bson!({ "_id": 1, "a": { "b": 1 } }));
    check(bson!([{ "$project": { "d.e": 1 } }]), input.clone(), bson!({ "_id": 1, "d": [{ "e": 1 }, [{ "e": 3 }]] }));
    check(bson!([{ "$project": { "g.x": 1 } }]), input.clone(), bson!({ "_id": 1 }));
    check(bson!([{ "$project": { "_id": 1 } }]), input, bson!({ "_id": 1 }));
}

#[test]
fn project_excludes_fields() {
    let input = bson!({ "_id": 1, "a": { "b": 1, "c": 2 }, "d": [{ "e": 1, "f": 2 }, 5] });
    check(bson!([{ "$project": { "a": 0 } }]), input.clone(), bson!({ "_id": 1, "d": [{ "e": 1, "f": 2 }, 5] }));
    check(
        bson!([{ "$project": { "d.e": 0, "a.c": false } }]),
        input.clone(),
        bson!({ "_id": 1, "a": { "b": 1 }, "d": [{ "f": 2 }, 5] }),
    );
    check(bson!([{ "$project": { "_id": 0, "a": 0 } }]), input.clone(), bson!({ "d": [{ "e": 1, "f": 2 }, 5] }));
    check(
        bson!([{ "$project": { "_id": 0 } }, { "$project": { "d": 0 } }]),
        input.clone(),
        bson!({ "a": { "b": 1, "c": 2 } }),
    );
    check(bson!([{ "$unset": "a" }]), input.clone(), bson!({ "_id": 1, "d": [{ "e": 1, "f": 2 }, 5] }));
    check(bson!([{ "$unset": ["a.b", "d"] }]), input, bson!({ "_id": 1, "a": { "c": 2 } }));
}

#[test]
fn project_computes_fields() {
    let input = bson!({ "_id": 1, "x": 5, "y": 2, "a": { "b": 1 }, "l": [{ "p": 1 }, 7] });
    check(bson!([{ "$project": { "sum": { "$add": ["$x", "$y"] } } }]), input.clone(), bson!({ "_id": 1, "sum": 7 }));
    check(bson!([{ "$project": { "_id": 0, "x": "$y", "y": 1 } }]), input.clone(), bson!({ "y": 2, "x": 2 }));
    check(
        bson!([{ "$project": { "_id": 0, "t": "text", "n": { "$literal": 1 } } }]),
        input.clone(),
        bson!({ "t": "text", "n": 1 }),
    );
    check(bson!([{ "$project": { "_id": 0, "new": ["$x", "$none"] } }]), input.clone(), bson!({ "new": [5, null] }));
    check(
        bson!([{ "$project": { "_id": 0, "a": { "b": 1, "c": "$x" } } }]),
        input.clone(),
        bson!({ "a": { "b": 1, "c": 5 } }),
    );
    check(bson!([{ "$project": { "_id": 0, "l.q": "$x" } }]), input.clone(), bson!({ "l": [{ "q": 5 }, { "q": 5 }] }));
    check(bson!([{ "$project": { "_id": "$x" } }]), input.clone(), bson!({ "_id": 5 }));
    check(bson!([{ "$project": { "_id": 0, "gone": "$none", "x": 1 } }]), input.clone(), bson!({ "x": 5 }));
    check(bson!([{ "$project": { "x": { "$cond": [true, "$$REMOVE", 1] } } }]), input, bson!({ "_id": 1 }));
}

#[test]
fn invalid_projections_are_refused() {
    check_error(bson!([{ "$project": {} }]), 51272);
    check_error(bson!([{ "$project": { "a": 1, "b": 0 } }]), 31254);
    check_error(bson!([{ "$project": { "a": 0, "b": 1 } }]), 31253);
    check_error(bson!([{ "$project": { "a": 0, "b": "$x" } }]), 31252);
    check_error(bson!([{ "$project": { "a": 1, "a.b": 1 } }]), 31249);
    check_error(bson!([{ "$project": { "a.b": 1, "a": 1 } }]), 31250);
    check_error(bson!([{ "$project": { "a": {} } }]), 51270);
    check_error(bson!([{ "$project": { "a.": 1 } }]), 40353);
    check_error(bson!([{ "$project": 1 }]), 15969);
    check_error(bson!([{ "$unset": 1 }]), 31002);
    check_error(bson!([{ "$unset": [] }]), 31119);
    check_error(bson!([{ "$unset": [1] }]), 31120);
    check_error(bson!([{ "$addFields": {} }]), 40177);
    check_error(bson!([{ "$set": 5 }]), 40272);
}

#[test]
fn add_fields_sets_in_place_and_appends() {
    let input = bson!({ "_id": 1, "a": 1, "b": { "c": 2 }, "l": [1, { "x": 1 }] });
    check(
        bson!([{ "$addFields": { "a": 9, "z": "$b.c" } }]),
        input.clone(),
        bson!({ "_id": 1, "a": 9, "b": { "c": 2 }, "l": [1, { "x": 1 }], "z": 2 }),
    );
    check(
        bson!([{ "$set": { "b.d": "$a" } }]),
        input.clone(),
        bson!({ "_id": 1, "a": 1, "b": { "c": 2, "d": 1 }, "l": [1, { "x": 1 }] }),
    );
    check(
        bson!([{ "$set": { "b": { "d": 3 } } }]),
        input.clone(),
        bson!({ "_id": 1, "a": 1, "b": { "c": 2, "d": 3 }, "l": [1, { "x": 1 }] }),
    );
    check(
        bson!([{ "$set": { "l.y": 5 } }, { "$project": { "l": 1, "_id": 0 } }]),
        input.clone(),
        bson!({ "l": [{ "y": 5 }, { "x": 1, "y": 5 }] }),
    );
    check(
        bson!([{ "$set": { "a.b": 5 } }, { "$project": { "a": 1, "_id": 0 } }]),
        input.clone(),
        bson!({ "a": { "b": 5 } }),
    );
    check(
        bson!([{ "$set": { "n.m.o": 5 } }, { "$project": { "n": 1, "_id": 0 } }]),
        input.clone(),
        bson!({ "n": { "m": { "o": 5 } } }),
    );
    check(bson!([{ "$set": { "a": "$$REMOVE", "l": "$none", "b": {} } }]), input.clone(), bson!({ "_id": 1, "b": {} }));
    // All expressions see the input document.
    check(
        bson!([{ "$set": { "a": 2, "s": "$a" } }, { "$project": { "_id": 0, "a": 1, "s": 1 } }]),
        input,
        bson!({ "a": 2, "s": 1 }),
    );
}
