//! The document that an upsert makes from filter and update.

use super::*;
use crate::Filter;

fn upsert(filter: &Document, update: &Document) -> Result<Document> {
    let update = Update::compile(UpdateSource::Document(&raw(update)), &UpdateOptions::default())?;
    let filter = Filter::compile(&raw(filter), &CompileOptions::default())?;
    Ok(Document::try_from(&update.upsert(&filter, &context())?).unwrap())
}

#[track_caller]
fn makes(filter: Document, update: Document, expected: Document) {
    let made = upsert(&filter, &update).unwrap_or_else(|error| panic!("{filter} {update}: {error:?}"));
    assert_eq!(made.to_string(), expected.to_string(), "{filter} {update}");
}

#[track_caller]
fn refuses(filter: Document, update: Document, code: Code, message: &str) {
    let error = upsert(&filter, &update).expect_err("must fail");
    assert_eq!((error.code(), error.message()), (code, message), "{filter} {update}");
}

#[test]
fn equalities_of_the_filter_become_fields() {
    let set = || doc! { "$set": { "x": 1 } };
    makes(doc! {}, set(), doc! { "x": 1 });
    makes(doc! { "b": 2, "a": 1 }, set(), doc! { "a": 1, "b": 2, "x": 1 });
    makes(doc! { "a": { "$eq": 1 }, "c.d": "y" }, set(), doc! { "a": 1, "c": { "d": "y" }, "x": 1 });
    makes(doc! { "a": { "b": 1 } }, set(), doc! { "a": { "b": 1 }, "x": 1 });
    makes(doc! { "a": Bson::Null }, set(), doc! { "a": Bson::Null, "x": 1 });
    makes(doc! { "a.0": 1, "a.b": 2 }, set(), doc! { "a": { "0": 1, "b": 2 }, "x": 1 });
    makes(doc! { "$and": [{ "a": 1 }, { "$and": [{ "b": 2 }] }] }, set(), doc! { "a": 1, "b": 2, "x": 1 });
    makes(doc! { "$or": [{ "a": 1 }] }, set(), doc! { "a": 1, "x": 1 });
    makes(doc! { "a": { "$in": [1] }, "b": { "$all": [2] } }, set(), doc! { "a": 1, "b": 2, "x": 1 });
    makes(doc! { "$or": [{ "a": 1 }, { "a": 2 }], "b": { "$gt": 1 }, "c": { "$in": [1, 2] } }, set(), doc! { "x": 1 });
    let pattern =
        || Bson::RegularExpression(bson::Regex { pattern: "x".try_into().unwrap(), options: "".try_into().unwrap() });
    makes(doc! { "a": pattern(), "b": { "$in": [1, pattern()] } }, set(), doc! { "x": 1 });
    makes(
        doc! { "a": { "$ne": 1 }, "b": { "$not": { "$eq": 1 } }, "$nor": [{ "c": 1 }], "d": { "$exists": true } },
        set(),
        doc! { "x": 1 },
    );
}

#[test]
fn the_update_applies_to_the_fields_of_the_filter() {
    makes(doc! { "a": 1 }, doc! { "$inc": { "a": 5, "n": 1 } }, doc! { "a": 6, "n": 1 });
    makes(doc! { "a": 1 }, doc! { "$setOnInsert": { "b": 2 }, "$unset": { "a": 1 } }, doc! { "b": 2 });
    makes(doc! { "a": 1 }, doc! { "$push": { "l": 1 } }, doc! { "a": 1, "l": [1] });
    makes(doc! { "z": 1, "_id": 7 }, doc! { "$set": { "a": 1 } }, doc! { "_id": 7, "z": 1, "a": 1 });
    makes(doc! { "z": 1 }, doc! { "$set": { "_id": 7, "a": 1 } }, doc! { "_id": 7, "z": 1, "a": 1 });
    makes(doc! {}, doc! { "$set": { "$hotel": 1 } }, doc! { "$hotel": 1 });
    makes(
        doc! {},
        doc! { "$set": { "t": Timestamp { time: 0, increment: 0 } } },
        doc! { "t": Timestamp { time: 9, increment: 3 } },
    );
}

#[test]
fn a_replacement_takes_the_id_of_the_filter() {
    makes(doc! { "_id": 1, "a": 5 }, doc! { "b": 1 }, doc! { "_id": 1, "b": 1 });
    makes(doc! { "a": 5 }, doc! { "b": 1, "_id": 3 }, doc! { "_id": 3, "b": 1 });
    makes(doc! { "a": 5 }, doc! { "b": 1 }, doc! { "b": 1 });
    makes(doc! { "_id": { "$gt": 1 } }, doc! { "b": 1 }, doc! { "b": 1 });
    refuses(
        doc! { "_id": 1 },
        doc! { "_id": 2, "b": 1 },
        Code::ImmutableField,
        "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2",
    );
    refuses(
        doc! { "_id.x": 1 },
        doc! { "b": 1 },
        Code(111),
        "field at '_id' must be exactly specified, field at sub-path '_id.x'found",
    );
}

#[test]
fn contradicting_conditions_are_refused() {
    let set = || doc! { "$set": { "x": 1 } };
    refuses(
        doc! { "a": 1, "$and": [{ "a": 2 }] },
        set(),
        Code::NotSingleValueField,
        "cannot infer query fields to set, path 'a' is matched twice",
    );
    refuses(
        doc! { "a": { "b": 1 }, "a.b": 1 },
        set(),
        Code::NotSingleValueField,
        "cannot infer query fields to set, both paths 'a' and 'a.b' are matched",
    );
    refuses(
        doc! { "_id": 1 },
        doc! { "$set": { "_id": 2 } },
        Code::ImmutableField,
        "Performing an update on the path '_id' would modify the immutable field '_id'",
    );
    refuses(
        doc! { "a": 1 },
        doc! { "$push": { "a": 2 } },
        Code::BadValue,
        "The field 'a' must be an array but is of type int in document {no id}",
    );
    for filter in [doc! { "$expr": true }, doc! { "a": 1, "$or": [{ "b": 1 }, { "$expr": true }] }] {
        refuses(filter, set(), Code(224), "$expr is not allowed in the query predicate for an upsert");
    }
    let large = "x".repeat(crate::depth::DOCUMENT_BYTES_MAX);
    refuses(doc! {}, doc! { "$set": { "a": large } }, Code(17420), "Document to upsert is larger than 16777216");
}
