//! Updates by a pipeline.

use super::*;
use crate::Filter;

fn run(document: &Document, stages: &[Document]) -> Result<Applied> {
    let stages: Vec<RawDocumentBuf> = stages.iter().map(raw).collect();
    let update = Update::compile(UpdateSource::Pipeline(&stages), &UpdateOptions::default())?;
    assert!(!update.is_idempotent());
    update.apply(&raw(document), MatchPosition::default(), &context())
}

#[track_caller]
fn changes<const N: usize>(document: Document, stages: [Document; N], expected: Document) {
    let applied = run(&document, &stages).unwrap();
    assert_eq!(Document::try_from(&applied.document).unwrap().to_string(), expected.to_string());
    assert_eq!(applied.modified, document != expected);
}

#[test]
fn stages_of_an_update_change_the_document() {
    let document = || doc! { "_id": 1, "a": 2, "b": { "c": 3 } };
    changes(
        document(),
        [doc! { "$set": { "n": { "$add": ["$a", "$b.c"] } } }],
        doc! { "_id": 1, "a": 2, "b": { "c": 3 }, "n": 5 },
    );
    changes(document(), [doc! { "$unset": "b" }, doc! { "$addFields": { "x": 1 } }], doc! { "_id": 1, "a": 2, "x": 1 });
    changes(document(), [doc! { "$project": { "a": 1, "_id": 0 } }], doc! { "_id": 1, "a": 2 });
    changes(document(), [doc! { "$replaceWith": "$b" }], doc! { "_id": 1, "c": 3 });
    changes(document(), [doc! { "$replaceRoot": { "newRoot": { "a": 2, "_id": 1 } } }], doc! { "_id": 1, "a": 2 });
    changes(document(), [doc! { "$set": { "a": 2 } }], document());
    changes(document(), [], document());
}

#[test]
fn invalid_pipelines_are_refused() {
    let error = run(&doc! { "_id": 1 }, &[doc! { "$match": { "a": 1 } }]).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidOptions, "$match is not allowed to be used within an update")
    );
    let error = run(&doc! { "_id": 1 }, &[doc! { "$set": { "_id": 2 } }]).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::ImmutableField,
            "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2"
        )
    );
    assert!(run(&doc! { "_id": 1 }, &[doc! { "$nothing": 1 }]).is_err());
    let filters = [raw(&doc! { "x": 1 })];
    let options = UpdateOptions { array_filters: &filters, ..Default::default() };
    let error = Update::compile(UpdateSource::Pipeline(&[]), &options).unwrap_err();
    assert_eq!(error.message(), "arrayFilters may not be specified for pipeline-style updates");
}

#[test]
fn an_upsert_by_a_pipeline_sees_the_fields_of_the_filter() {
    let stages = [raw(&doc! { "$set": { "n": { "$add": ["$a", 1] } } })];
    let update = Update::compile(UpdateSource::Pipeline(&stages), &UpdateOptions::default()).unwrap();
    let filter = Filter::compile(&raw(&doc! { "a": 1, "_id": 9 }), &CompileOptions::default()).unwrap();
    let made = update.upsert(&filter, &context()).unwrap();
    assert_eq!(made, raw(&doc! { "_id": 9, "a": 1, "n": 2 }));
}

#[test]
fn constants_are_variables_of_the_pipeline() {
    let stages = [raw(&doc! { "$set": { "n": { "$add": ["$a", "$$k"] }, "at": "$$NOW" } })];
    let constants = raw(&doc! { "k": 5 });
    let options = UpdateOptions { compile: CompileOptions::with_variables(&constants).unwrap(), ..Default::default() };
    let update = Update::compile(UpdateSource::Pipeline(&stages), &options).unwrap();
    let context = context().with_variables(constants);
    let applied = update.apply(&raw(&doc! { "a": 1 }), MatchPosition::default(), &context).unwrap();
    assert_eq!(applied.document, raw(&doc! { "a": 1, "n": 6, "at": DateTime::from_millis(NOW_MILLIS) }));
    let error = Update::compile(UpdateSource::Pipeline(&stages), &UpdateOptions::default()).unwrap_err();
    assert_eq!(error.code(), Code(17276));
}

#[test]
fn a_result_that_is_too_deep_is_refused() {
    let mut deep = Bson::Int32(1);
    for _ in 0..60 {
        deep = Bson::Document(doc! { "x": deep });
    }
    let mut nested = Bson::String("$deep".into());
    for _ in 0..50 {
        nested = Bson::Document(doc! { "y": nested });
    }
    let error = run(&doc! { "_id": 1, "deep": deep }, &[doc! { "$set": { "both": nested } }]).unwrap_err();
    assert_eq!(error.code(), Code::Overflow);
}
