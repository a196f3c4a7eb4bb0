//! The update as a whole: conflicts, `_id`, replacements, idempotence.

use bson::{Document, RawDocumentBuf, Timestamp, doc};

use super::super::{Update, UpdateOptions, UpdateSource, stamp};
use super::{PLAIN, check, context, fails, raw, unchanged};
use crate::{Code, CompileOptions, Filter, MatchPosition};

#[test]
fn unknown_and_malformed_operators_are_refused() {
    fails(
        doc! {},
        doc! { "$foo": { "a": 1 } },
        Code::FailedToParse,
        "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update specified as an array",
    );
    fails(
        doc! {},
        doc! { "$set": { "a": 1 }, "b": 1 },
        Code::FailedToParse,
        "Unknown modifier: b. Expected a valid update modifier or pipeline-style update specified as an array",
    );
    fails(
        doc! {},
        doc! { "$set": 1 },
        Code::FailedToParse,
        "Modifiers operate on fields but we found type int instead. For example: {$mod: {<field>: ...}} not {$set: 1}",
    );
    fails(
        doc! {},
        doc! { "$set": { "a..b": 1 } },
        Code::EmptyFieldName,
        "The update path 'a..b' contains an empty field name, which is not allowed.",
    );
    fails(doc! {}, doc! { "$set": { "": 1 } }, Code::EmptyFieldName, "An empty update path is not valid.");
}

#[test]
fn conflicting_paths_are_refused() {
    for (first, second, conflict) in
        [("a", "a", "a"), ("a", "a.b", "a"), ("a.b", "a", "a"), ("a.b.c", "a.b", "a.b"), ("a.0", "a.0.b", "a.0")]
    {
        fails(
            doc! {},
            doc! { "$set": { first: 1 }, "$inc": { second: 1 } },
            Code::ConflictingUpdateOperators,
            &format!("Updating the path '{second}' would create a conflict at '{conflict}'"),
        );
    }
    check(doc! {}, doc! { "$set": { "a.b": 1 }, "$inc": { "a.bc": 1 } }, doc! { "a": { "b": 1, "bc": 1 } });
}

#[test]
fn names_with_a_dollar_are_refused() {
    let refused = "The dollar ($) prefixed field '$h' in '$h' is not allowed in the context of an update's replacement \
                   document. Consider using an aggregation pipeline with $replaceWith.";
    fails(doc! { "a": 1 }, doc! { "$set": { "$h": 1 } }, Code::DollarPrefixedFieldName, refused);
    fails(doc! { "a": 1 }, doc! { "a": 1, "$h": 1 }, Code::DollarPrefixedFieldName, refused);
    check(
        doc! { "a": { "$street": 1 } },
        doc! { "$set": { "a.$street": 2, "b": { "$ref": "c", "$id": 1, "x.y": 1 } } },
        doc! { "a": { "$street": 2 }, "b": { "$ref": "c", "$id": 1, "x.y": 1 } },
    );
    check(doc! { "_id": 1 }, doc! { "a.b": 1, "c": { "$d": 1 } }, doc! { "_id": 1, "a.b": 1, "c": { "$d": 1 } });
}

#[test]
fn a_change_of_the_id_is_refused() {
    let immutable =
        |path: &str| format!("Performing an update on the path '{path}' would modify the immutable field '_id'");
    for (update, path) in [
        (doc! { "$set": { "_id": 2 } }, "_id"),
        (doc! { "$unset": { "_id": 1 } }, "_id"),
        (doc! { "$inc": { "_id": 1 } }, "_id"),
        (doc! { "$rename": { "_id": "b" } }, "_id"),
        (doc! { "$rename": { "a": "_id" } }, "_id"),
    ] {
        fails(doc! { "_id": 1, "a": 5 }, update, Code::ImmutableField, &immutable(path));
    }
    fails(doc! { "_id": { "x": 1 } }, doc! { "$set": { "_id.x": 2 } }, Code::ImmutableField, &immutable("_id.x"));
    fails(doc! { "_id": { "x": 1 } }, doc! { "$rename": { "_id.x": "y" } }, Code::ImmutableField, &immutable("_id.x"));
    unchanged(doc! { "_id": 1, "a": 1 }, doc! { "$set": { "_id": 1 } });
    unchanged(doc! { "_id": { "x": 1 } }, doc! { "$set": { "_id.x": 1 } });
    // The value is equal and of another type: the stored form stays.
    check(doc! { "_id": 1 }, doc! { "$set": { "_id": 1.0, "a": 1 } }, doc! { "_id": 1, "a": 1 });
}

#[test]
fn a_replacement_keeps_the_id() {
    check(doc! { "_id": 1, "a": 1 }, doc! { "b": 2 }, doc! { "_id": 1, "b": 2 });
    check(doc! { "_id": 1, "a": 1 }, doc! {}, doc! { "_id": 1 });
    check(doc! { "_id": 1, "a": 1 }, doc! { "b": 2, "_id": 1 }, doc! { "_id": 1, "b": 2 });
    check(doc! { "_id": 1, "a": 1 }, doc! { "_id": 1.0, "a": 2 }, doc! { "_id": 1, "a": 2 });
    unchanged(doc! { "_id": 1, "a": 1 }, doc! { "_id": 1, "a": 1 });
    // Without its `_id`, the replacement is not the same document.
    let applied = PLAIN.run(&doc! { "_id": 1, "a": 1 }, &doc! { "a": 1 }).unwrap();
    assert_eq!((applied.document, applied.modified), (raw(&doc! { "_id": 1, "a": 1 }), true));
    fails(
        doc! { "_id": 1, "a": 1 },
        doc! { "_id": 2 },
        Code::ImmutableField,
        "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2",
    );
    let empty = Timestamp { time: 0, increment: 0 };
    check(
        doc! { "_id": 1 },
        doc! { "t": empty, "u": { "t": empty } },
        doc! { "_id": 1, "t": Timestamp { time: 9, increment: 3 }, "u": { "t": empty } },
    );
}

#[test]
fn a_replacement_fills_empty_timestamps() {
    let empty = Timestamp { time: 0, increment: 0 };
    let now = Timestamp { time: 9, increment: 3 };
    let document =
        raw(&doc! { "_id": empty, "a": empty, "b": 1, "c": [empty], "d": Timestamp { time: 0, increment: 1 } });
    let expected =
        raw(&doc! { "_id": empty, "a": now, "b": 1, "c": [empty], "d": Timestamp { time: 0, increment: 1 } });
    assert_eq!(stamp(&document, now).unwrap(), Some(expected));
    assert_eq!(stamp(&raw(&doc! { "a": 1 }), now).unwrap(), None);
    // Operators store an empty timestamp as it is.
    check(doc! {}, doc! { "$set": { "a": empty } }, doc! { "a": empty });
}

#[test]
fn empty_timestamps_may_be_kept() {
    let empty = raw(&doc! { "t": Timestamp { time: 0, increment: 0 } });
    let set = raw(&doc! { "$set": { "t": Timestamp { time: 0, increment: 0 } } });
    let context = context();
    for update in [&empty, &set] {
        let options = UpdateOptions { keep_empty_timestamps: true, ..Default::default() };
        let update = Update::compile(UpdateSource::Document(update), &options).unwrap();
        let applied = update.apply(&raw(&doc! {}), Default::default(), &context).unwrap();
        assert_eq!(applied.document, empty);
        let nothing = Filter::compile(&raw(&doc! {}), &CompileOptions::default()).unwrap();
        assert_eq!(update.upsert(&nothing, &context).unwrap(), empty);
    }
}

#[test]
fn idempotent_updates_are_recognised() {
    let update = |update: Document, filters: &[RawDocumentBuf]| {
        let options = UpdateOptions { array_filters: filters, ..Default::default() };
        Update::compile(UpdateSource::Document(&raw(&update)), &options).unwrap().is_idempotent()
    };
    for (operators, expected) in [
        (doc! { "a": 1 }, true),
        (doc! { "$set": { "a": 1 } }, true),
        (doc! { "$setOnInsert": { "a": 1 } }, true),
        (doc! { "$unset": { "a": 1 } }, true),
        (doc! { "$min": { "a": 1 } }, true),
        (doc! { "$max": { "a": 1 } }, true),
        (doc! { "$addToSet": { "a": 1 } }, true),
        (doc! { "$pull": { "a": 1 } }, true),
        (doc! { "$pullAll": { "a": [1] } }, true),
        (doc! { "$rename": { "a": "b" } }, true),
        (doc! { "$bit": { "a": { "and": 1, "or": 2 } } }, true),
        (doc! { "$bit": { "a": { "xor": 1 } } }, false),
        (doc! { "$inc": { "a": 1 } }, false),
        (doc! { "$mul": { "a": 2 } }, false),
        (doc! { "$push": { "a": 1 } }, false),
        (doc! { "$pop": { "a": 1 } }, false),
        (doc! { "$currentDate": { "a": true } }, false),
        (doc! { "$set": { "a.$": 1 } }, false),
        (doc! { "$set": { "a.$[]": 1, "b.$[].c": 2 } }, true),
        (doc! { "$set": { "b": 1 }, "$inc": { "a": 1 } }, false),
    ] {
        assert_eq!(update(operators.clone(), &[]), expected, "{operators}");
    }
    let filters = [raw(&doc! { "x": 1 })];
    assert!(update(doc! { "$set": { "a.$[x]": 1 } }, &filters));
    assert!(!update(doc! { "$set": { "a.$[x].b": 1, "a.$[x].c": 1 } }, &filters));
}

/// Fields outside of the path are copied without being parsed, so that bytes which are not BSON stay as they are.
#[test]
fn only_the_containers_on_the_path_are_opened() {
    let mut bytes = raw(&doc! { "_id": 1, "dark": { "x": [1, 2] }, "n": 1 }).into_bytes();
    // The type of `x` becomes an unknown one.
    let index = bytes.windows(3).position(|window| window == b"\x04x\0").unwrap();
    bytes[index] = 0x77;
    let document = RawDocumentBuf::from_bytes(bytes).unwrap();
    assert!(crate::depth::check(document.as_bytes(), Default::default()).is_err());
    let update = |update: Document| {
        let update = Update::compile(UpdateSource::Document(&raw(&update)), &UpdateOptions::default()).unwrap();
        update.apply(&document, MatchPosition::default(), &context())
    };
    let applied = update(doc! { "$inc": { "n": 1 } }).unwrap();
    assert_eq!(applied.document.get_i32("n").unwrap(), 2);
    assert_eq!(applied.document.get_document("dark").unwrap(), document.get_document("dark").unwrap());
    assert_eq!(update(doc! { "$inc": { "dark.y": 1 } }).unwrap_err().code(), Code::InvalidBSON);
}
