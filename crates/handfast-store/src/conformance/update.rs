//! Update statements.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, ids, ints, named, numbered, refusal};
use super::{ensure, ensure_eq, list_cases};
use crate::{Find, Hint, IndexSpec, Update, UpdateSpec, UpdateStatement};

list_cases! { Nothing:
    update_sets_a_field,
    update_counts_matched_and_modified,
    update_that_changes_nothing_modifies_nothing,
    update_changes_one_document_unless_told_otherwise,
    update_many_changes_all_that_match,
    update_increments,
    update_unsets_renames_and_multiplies,
    update_pushes_and_pulls,
    update_by_position,
    update_by_array_filter,
    update_with_pipeline_and_constants,
    update_replaces_and_keeps_the_id,
    update_refuses_to_change_the_id,
    update_of_the_id_nan,
    update_refuses_a_replacement_with_another_id,
    update_refuses_a_replacement_of_many,
    update_refuses_an_unknown_operator,
    update_refuses_conflicting_paths,
    update_refuses_to_increment_a_string,
    update_refuses_to_grow_a_document_over_16_mebibytes,
    update_refused_leaves_the_document,
    update_of_nothing_matches_nothing,
    update_without_upsert_makes_no_collection,
    update_picks_by_sort,
    update_refuses_a_hint_to_no_index,
    update_statements_run_in_order,
    update_ordered_stops_at_the_first_error,
    update_unordered_goes_on_after_errors,
    upsert_inserts_the_filters_equalities,
    upsert_takes_the_id_of_the_filter,
    upsert_makes_an_object_id,
    upsert_applies_set_on_insert,
    upsert_does_not_insert_if_something_matches,
    upsert_with_replacement,
    upsert_says_which_statement_upserted,
    upsert_creates_the_collection,
    upsert_of_many_inserts_one,
    update_to_a_taken_unique_key_is_refused,
    update_keeps_indexes_in_step,
    update_many_stops_at_the_document_that_fails,
    update_does_not_meet_its_own_output,
}

fn change(filter: RawDocumentBuf, change: RawDocumentBuf) -> UpdateStatement {
    UpdateStatement::one(filter, UpdateSpec::Document(change))
}

async fn update_sets_a_field(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 2 }, id(2)]).await?;
    s.update_one(id(1), rawdoc! { "$set": { "a": 5, "c.d": 6 } }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 5, "b": 2, "c": { "d": 6 } }, id(2)]);
    Ok(())
}

async fn update_counts_matched_and_modified(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(4)).await?;
    let outcome =
        s.update(UpdateStatement { multi: true, ..change(rawdoc! {}, rawdoc! { "$max": { "n": 2 } }) }).await?;
    ensure_eq!((outcome.matched, outcome.modified), (4, 2));
    ensure_eq!((outcome.upserted.len(), outcome.errors.len()), (0, 0));
    ensure_eq!(ints(&s.all().await?, "n")?, [2, 2, 2, 3]);
    Ok(())
}

async fn update_that_changes_nothing_modifies_nothing(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    let outcome = s.update_one(id(1), rawdoc! { "$set": { "a": 1 } }).await?;
    ensure_eq!((outcome.matched, outcome.modified), (1, 0));
    Ok(())
}

async fn update_changes_one_document_unless_told_otherwise(s: &Subject) -> Result<(), Failure> {
    s.fill((0..5).map(|n| rawdoc! { "_id": n, "a": 0 })).await?;
    let outcome = s.update_one(rawdoc! { "a": 0 }, rawdoc! { "$set": { "a": 1 } }).await?;
    ensure_eq!((outcome.matched, outcome.modified), (1, 1));
    ensure_eq!(s.ids(rawdoc! { "a": 1 }).await?.len(), 1);
    Ok(())
}

async fn update_many_changes_all_that_match(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(300)).await?;
    let filter = rawdoc! { "n": { "$gte": 100 } };
    let outcome =
        s.update(UpdateStatement { multi: true, ..change(filter, rawdoc! { "$inc": { "n": 1000 } }) }).await?;
    ensure_eq!((outcome.matched, outcome.modified), (200, 200));
    ensure_eq!(s.ids(rawdoc! { "n": { "$gte": 1000 } }).await?, (100..300).collect::<Vec<_>>());
    Ok(())
}

async fn update_increments(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    s.update_one(id(1), rawdoc! { "$inc": { "a": 2, "b": -1 } }).await?;
    s.update_one(id(1), rawdoc! { "$inc": { "a": i32::MAX } }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": i64::from(i32::MAX) + 3, "b": -1 }]);
    Ok(())
}

async fn update_unsets_renames_and_multiplies(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 2, "c": 3 }]).await?;
    s.update_one(id(1), rawdoc! { "$unset": { "a": "" }, "$rename": { "b": "d" }, "$mul": { "c": 4 } }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "c": 12, "d": 2 }]);
    Ok(())
}

async fn update_pushes_and_pulls(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [3, 1] }]).await?;
    s.update_one(id(1), rawdoc! { "$push": { "a": { "$each": [2, 5], "$sort": 1 } } }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": [1, 2, 3, 5] }]);
    s.update_one(id(1), rawdoc! { "$pull": { "a": { "$lt": 3 } } }).await?;
    s.update_one(id(1), rawdoc! { "$addToSet": { "a": 3 } }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": [3, 5] }]);
    Ok(())
}

async fn update_by_position(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [1, 5, 9] }]).await?;
    s.update_one(rawdoc! { "_id": 1, "a": 5 }, rawdoc! { "$set": { "a.$": 0 } }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": [1, 0, 9] }]);
    Ok(())
}

async fn update_by_array_filter(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [{ "n": 1 }, { "n": 5 }, { "n": 9 }] }]).await?;
    let statement = UpdateStatement {
        array_filters: vec![rawdoc! { "x.n": { "$gt": 3 } }],
        ..change(id(1), rawdoc! { "$inc": { "a.$[x].n": 10 } })
    };
    ensure_eq!(s.update(statement).await?.modified, 1);
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": [{ "n": 1 }, { "n": 15 }, { "n": 19 }] }]);
    Ok(())
}

async fn update_with_pipeline_and_constants(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 2, "b": 3 }]).await?;
    let stages = vec![rawdoc! { "$set": { "c": { "$add": ["$a", "$b", "$$more"] } } }, rawdoc! { "$unset": "a" }];
    let statement = UpdateStatement {
        constants: rawdoc! { "more": 10 },
        ..UpdateStatement::one(id(1), UpdateSpec::Pipeline(stages))
    };
    ensure_eq!(s.update(statement).await?.modified, 1);
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "b": 3, "c": 15 }]);
    Ok(())
}

async fn update_replaces_and_keeps_the_id(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 2 }]).await?;
    s.update_one(rawdoc! { "a": 1 }, rawdoc! { "z": 1 }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "z": 1 }]);
    s.update_one(rawdoc! {}, rawdoc! {}).await?;
    ensure_eq!(s.all().await?, [id(1)]);
    Ok(())
}

async fn refused(s: &Subject, statement: UpdateStatement, code: Code) -> Result<(), Failure> {
    let shown = format!("{statement:?}");
    let before = s.all().await?;
    refusal(s.update_refused(statement).await?, code).map_err(|failure| failure.about(&shown))?;
    ensure_eq!(s.all().await?, before);
    Ok(())
}

async fn update_of_the_id_nan(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": f64::NAN, "n": 1 }]).await?;
    s.update_one(rawdoc! { "_id": f64::NAN }, rawdoc! { "$set": { "n": 2 } }).await?;
    ensure_eq!(ints(&s.all().await?, "n")?, [2]);
    Ok(())
}

async fn update_refuses_to_change_the_id(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    refused(s, change(id(1), rawdoc! { "$set": { "_id": 2 } }), Code::ImmutableField).await?;
    refused(s, change(id(1), rawdoc! { "$inc": { "_id": 1 } }), Code::ImmutableField).await?;
    ensure_eq!(s.update_one(id(1), rawdoc! { "$set": { "_id": 1 } }).await?.modified, 0);
    Ok(())
}

async fn update_refuses_a_replacement_with_another_id(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    refused(s, change(id(1), rawdoc! { "_id": 2, "a": 1 }), Code::ImmutableField).await
}

async fn update_refuses_a_replacement_of_many(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    refused(s, UpdateStatement { multi: true, ..change(id(1), rawdoc! { "a": 1 }) }, Code::FailedToParse).await
}

async fn update_refuses_an_unknown_operator(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    refused(s, change(id(1), rawdoc! { "$frobnicate": { "a": 1 } }), Code::FailedToParse).await?;
    // The operator is refused even if no document matches.
    refused(s, change(id(9), rawdoc! { "$frobnicate": { "a": 1 } }), Code::FailedToParse).await
}

async fn update_refuses_conflicting_paths(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let update = rawdoc! { "$set": { "a": 1 }, "$inc": { "a.b": 1 } };
    refused(s, change(id(1), update), Code::ConflictingUpdateOperators).await
}

async fn update_refuses_to_increment_a_string(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": "x" }]).await?;
    refused(s, change(id(1), rawdoc! { "$inc": { "a": 1 } }), Code::TypeMismatch).await
}

async fn update_refuses_to_grow_a_document_over_16_mebibytes(s: &Subject) -> Result<(), Failure> {
    let half = "x".repeat(crate::insertion::DOCUMENT_BYTES_MAX / 2);
    s.fill([rawdoc! { "_id": 1, "a": half.clone() }]).await?;
    let error = s.update_refused(change(id(1), rawdoc! { "$set": { "b": half } })).await?;
    let codes = [Code::BSONObjectTooLarge, Code(17419)];
    ensure!(codes.contains(&error.code()), "{:?} is none of {codes:?}: {error}", error.code());
    ensure_eq!(s.ids(rawdoc! { "b": { "$exists": true } }).await?, []);
    Ok(())
}

async fn update_refused_leaves_the_document(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": "x" }]).await?;
    refused(s, change(id(1), rawdoc! { "$set": { "a": 2 }, "$inc": { "b": 1 } }), Code::TypeMismatch).await
}

async fn update_of_nothing_matches_nothing(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let outcome = s.update_one(id(2), rawdoc! { "$set": { "a": 1 } }).await?;
    ensure_eq!((outcome.matched, outcome.modified, outcome.upserted.len()), (0, 0, 0));
    Ok(())
}

async fn update_without_upsert_makes_no_collection(s: &Subject) -> Result<(), Failure> {
    s.update_one(id(2), rawdoc! { "$set": { "a": 1 } }).await?;
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 0);
    Ok(())
}

async fn update_picks_by_sort(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let statement = UpdateStatement {
        sort: rawdoc! { "n": -1 },
        ..change(rawdoc! { "n": { "$lt": 4 } }, rawdoc! { "$set": { "picked": true } })
    };
    ensure_eq!(s.update(statement).await?.modified, 1);
    ensure_eq!(s.ids(rawdoc! { "picked": true }).await?, [3]);
    Ok(())
}

async fn update_refuses_a_hint_to_no_index(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let hint = Some(Hint::Name("missing".to_owned()));
    refused(s, UpdateStatement { hint, ..change(id(1), rawdoc! { "$set": { "a": 1 } }) }, Code::BadValue).await
}

async fn update_statements_run_in_order(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    let statements = vec![
        change(rawdoc! { "a": 1 }, rawdoc! { "$set": { "a": 2 } }),
        change(rawdoc! { "a": 2 }, rawdoc! { "$set": { "a": 3 } }),
        change(rawdoc! { "a": 1 }, rawdoc! { "$set": { "a": 9 } }),
    ];
    let outcome = s.store.update(Update::new(c(), statements)).await?;
    ensure_eq!((outcome.matched, outcome.modified), (2, 2));
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 3 }]);
    Ok(())
}

fn one_bad_of_three() -> Vec<UpdateStatement> {
    vec![
        change(id(1), rawdoc! { "$inc": { "a": 1 } }),
        change(id(2), rawdoc! { "$inc": { "a": 1 } }),
        change(id(3), rawdoc! { "$inc": { "a": 1 } }),
    ]
}

async fn update_ordered_stops_at_the_first_error(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 0 }, rawdoc! { "_id": 2, "a": "x" }, rawdoc! { "_id": 3, "a": 0 }]).await?;
    let outcome = s.store.update(Update::new(c(), one_bad_of_three())).await?;
    ensure_eq!(outcome.errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
    ensure_eq!(outcome.modified, 1);
    ensure_eq!(s.ids(rawdoc! { "a": 1 }).await?, [1]);
    Ok(())
}

async fn update_unordered_goes_on_after_errors(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 0 }, rawdoc! { "_id": 2, "a": "x" }, rawdoc! { "_id": 3, "a": 0 }]).await?;
    let outcome = s.store.update(Update { ordered: false, ..Update::new(c(), one_bad_of_three()) }).await?;
    ensure_eq!(outcome.errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
    ensure_eq!(outcome.modified, 2);
    ensure_eq!(s.ids(rawdoc! { "a": 1 }).await?, [1, 3]);
    Ok(())
}

fn upsert(filter: RawDocumentBuf, update: RawDocumentBuf) -> UpdateStatement {
    UpdateStatement { upsert: true, ..change(filter, update) }
}

async fn upsert_inserts_the_filters_equalities(s: &Subject) -> Result<(), Failure> {
    let filter = rawdoc! { "_id": 1, "a": 5, "b": { "$gt": 1 }, "c.d": { "$eq": 2 } };
    let outcome = s.update(upsert(filter, rawdoc! { "$set": { "e": 3 } })).await?;
    ensure_eq!((outcome.matched, outcome.modified), (0, 0));
    ensure_eq!(outcome.upserted, [(0, RawBson::from(1))]);
    let found = s.all().await?;
    ensure_eq!(found.len(), 1);
    ensure_eq!(s.ids(rawdoc! { "a": 5, "c.d": 2, "e": 3, "b": { "$exists": false } }).await?, [1]);
    Ok(())
}

async fn upsert_takes_the_id_of_the_filter(s: &Subject) -> Result<(), Failure> {
    let outcome = s.update(upsert(id("mine"), rawdoc! { "$inc": { "a": 1 } })).await?;
    ensure_eq!(outcome.upserted, [(0, RawBson::from("mine"))]);
    ensure_eq!(s.all().await?, [rawdoc! { "_id": "mine", "a": 1 }]);
    Ok(())
}

async fn upsert_makes_an_object_id(s: &Subject) -> Result<(), Failure> {
    let outcome = s.update(upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "b": 1 } })).await?;
    ensure_eq!(outcome.upserted.len(), 1);
    let made = outcome.upserted[0].1.clone();
    ensure!(made.as_object_id().is_some(), "{made:?} is no ObjectId");
    ensure_eq!(s.matching(id(made)).await?.len(), 1);
    Ok(())
}

async fn upsert_applies_set_on_insert(s: &Subject) -> Result<(), Failure> {
    let update = rawdoc! { "$set": { "a": 1 }, "$setOnInsert": { "b": 2 } };
    s.update(upsert(id(1), update.clone())).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 1, "b": 2 }]);
    s.update_one(id(1), rawdoc! { "$set": { "b": 0 } }).await?;
    s.update(upsert(id(1), update)).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 1, "b": 0 }]);
    Ok(())
}

async fn upsert_does_not_insert_if_something_matches(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    let outcome = s.update(upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "b": 1 } })).await?;
    ensure_eq!((outcome.matched, outcome.modified, outcome.upserted.len()), (1, 1, 0));
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 1, "b": 1 }]);
    Ok(())
}

async fn upsert_with_replacement(s: &Subject) -> Result<(), Failure> {
    let outcome = s.update(upsert(id(1), rawdoc! { "b": 1 })).await?;
    ensure_eq!(outcome.upserted, [(0, RawBson::from(1))]);
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "b": 1 }]);
    Ok(())
}

async fn upsert_says_which_statement_upserted(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let statements = [1, 2, 3].map(|n| upsert(id(n), rawdoc! { "$set": { "a": n } })).to_vec();
    let outcome = s.store.update(Update::new(c(), statements)).await?;
    ensure_eq!(outcome.upserted, [(1, RawBson::from(2)), (2, RawBson::from(3))]);
    ensure_eq!((outcome.matched, outcome.modified), (1, 1));
    Ok(())
}

async fn upsert_creates_the_collection(s: &Subject) -> Result<(), Failure> {
    let outcome = s.store.update(Update::new(named("new"), vec![upsert(id(1), rawdoc! { "a": 1 })])).await?;
    ensure_eq!(outcome.upserted.len(), 1);
    ensure_eq!(s.find(Find::new(named("new"), rawdoc! {})).await?, [rawdoc! { "_id": 1, "a": 1 }]);
    Ok(())
}

async fn upsert_of_many_inserts_one(s: &Subject) -> Result<(), Failure> {
    let statement = UpdateStatement { multi: true, ..upsert(rawdoc! { "a": 1 }, rawdoc! { "$set": { "b": 2 } }) };
    ensure_eq!(s.update(statement).await?.upserted.len(), 1);
    ensure_eq!(s.all().await?.len(), 1);
    Ok(())
}

async fn update_to_a_taken_unique_key_is_refused(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "a": 1 }) }).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 2 }]).await?;
    refused(s, change(id(1), rawdoc! { "$inc": { "a": 1 } }), Code::DuplicateKey).await?;
    refused(s, upsert(id(3), rawdoc! { "$set": { "a": 2 } }), Code::DuplicateKey).await
}

async fn update_keeps_indexes_in_step(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "a": 1 })).await?;
    s.fill((0..10).map(|n| rawdoc! { "_id": n, "a": n })).await?;
    s.update_one(id(3), rawdoc! { "$set": { "a": 100 } }).await?;
    s.update_one(id(4), rawdoc! { "$unset": { "a": 1 } }).await?;
    s.update_one(id(5), rawdoc! { "$set": { "a": [50, 51] } }).await?;
    let by_index = async |filter: RawDocumentBuf| {
        let hint = Some(Hint::Name("a_1".to_owned()));
        ids(&s.find(Find { hint, sort: rawdoc! { "_id": 1 }, ..Find::new(c(), filter) }).await?)
    };
    ensure_eq!(by_index(rawdoc! { "a": { "$in": [3, 4, 5] } }).await?, []);
    ensure_eq!(by_index(rawdoc! { "a": { "$gte": 9 } }).await?, [3, 5, 9]);
    ensure_eq!(by_index(rawdoc! { "a": 51 }).await?, [5]);
    ensure_eq!(by_index(rawdoc! { "a": null }).await?, [4]);
    Ok(())
}

/// The documents before the failing one stay changed, because each document is atomic and the statement is not.
async fn update_many_stops_at_the_document_that_fails(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 0 }, rawdoc! { "_id": 2, "a": "x" }, rawdoc! { "_id": 3, "a": 0 }]).await?;
    let statement = UpdateStatement { multi: true, ..change(rawdoc! {}, rawdoc! { "$inc": { "a": 1 } }) };
    let outcome = s.update(statement).await?;
    ensure_eq!(outcome.errors.iter().map(|error| error.error.code()).collect::<Vec<_>>(), [Code::TypeMismatch]);
    let changed = s.ids(rawdoc! { "a": 1 }).await?.len() as u64;
    ensure_eq!(outcome.modified, changed);
    ensure_eq!(s.ids(rawdoc! { "a": "x" }).await?, [2]);
    Ok(())
}

/// A document is changed once even if the change moves it ahead of the scan in an index.
async fn update_does_not_meet_its_own_output(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill(numbered(200)).await?;
    let statement = UpdateStatement {
        multi: true,
        hint: Some(Hint::Name("n_1".to_owned())),
        ..change(rawdoc! { "n": { "$gte": 0 } }, rawdoc! { "$inc": { "n": 50 } })
    };
    ensure_eq!(s.update(statement).await?.modified, 200);
    ensure_eq!(ints(&s.all().await?, "n")?, (50..250).collect::<Vec<_>>());
    Ok(())
}
