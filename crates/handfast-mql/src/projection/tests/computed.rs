//! Computed fields.

use super::*;

#[test]
fn computed_fields_are_set() {
    let document = || doc! { "_id": 1, "a": 1, "b": { "c": 2 }, "l": [{ "x": 1 }, 5] };
    check(document(), doc! { "sum": { "$add": ["$a", "$b.c"] } }, doc! { "_id": 1, "sum": 3 });
    check(document(), doc! { "z": "text", "y": "$b", "a": 1 }, doc! { "_id": 1, "a": 1, "z": "text", "y": { "c": 2 } });
    check(document(), doc! { "y": "$nothing", "n": Bson::Null }, doc! { "_id": 1, "n": Bson::Null });
    check(document(), doc! { "_id": "$a", "b": 1, "x": "$a" }, doc! { "_id": 1, "b": { "c": 2 }, "x": 1 });
    check(document(), doc! { "b.d": "$a" }, doc! { "_id": 1, "b": { "d": 1 } });
    check(document(), doc! { "b.c": 1, "b.d": "$a" }, doc! { "_id": 1, "b": { "c": 2, "d": 1 } });
    check(
        document(),
        doc! { "a.d": "$a", "n.o.p": "$a" },
        doc! { "_id": 1, "a": { "d": 1 }, "n": { "o": { "p": 1 } } },
    );
    check(document(), doc! { "l.y": "$a", "l.x": 1 }, doc! { "_id": 1, "l": [{ "x": 1, "y": 1 }, { "y": 1 }] });
}

#[test]
fn fields_computed_in_every_element_are_limited() {
    let document = doc! { "a": vec![doc! { "x": 1 }; 1000], "s": "x".repeat(1_000_000) };
    for projection in [doc! { "a.x": "$s" }, doc! { "a.y.z": "$s" }, doc! { "a": { "x": { "$toUpper": "$s" } } }] {
        let error = run(&projection, None, &document).expect_err("too large");
        assert_eq!(error.code(), Code::BSONObjectTooLarge, "{projection}");
    }
}
