//! Delete statements.

use bson::rawdoc;
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, numbered, refusal};
use super::{ensure, ensure_eq, list_cases};
use crate::{Delete, DeleteStatement, Error, Hint, IndexSpec};

list_cases! { Nothing:
    delete_one_removes_one,
    delete_by_id_removes_that_one,
    delete_many_removes_all_that_match,
    delete_of_everything_keeps_collection_and_indexes,
    delete_of_nothing_removes_nothing,
    delete_in_a_missing_collection,
    delete_statements_run_in_order,
    delete_refuses_an_unknown_operator,
    delete_refuses_a_hint_to_no_index,
    delete_ordered_stops_at_the_first_error,
    delete_unordered_goes_on_after_errors,
    delete_frees_unique_keys,
}

fn statement(filter: bson::RawDocumentBuf, multi: bool) -> DeleteStatement {
    DeleteStatement { filter, multi, hint: None }
}

async fn delete_one_removes_one(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    ensure_eq!(s.delete(rawdoc! {}, false).await?, 1);
    ensure_eq!(s.all().await?.len(), 4);
    Ok(())
}

async fn delete_by_id_removes_that_one(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    ensure_eq!(s.delete(id(3), false).await?, 1);
    ensure_eq!(s.delete(id(3), false).await?, 0);
    ensure_eq!(s.ids(rawdoc! {}).await?, [0, 1, 2, 4]);
    Ok(())
}

async fn delete_many_removes_all_that_match(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(300)).await?;
    ensure_eq!(s.delete(rawdoc! { "n": { "$gte": 10 } }, true).await?, 290);
    ensure_eq!(s.ids(rawdoc! {}).await?, (0..10).collect::<Vec<_>>());
    Ok(())
}

async fn delete_of_everything_keeps_collection_and_indexes(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill(numbered(20)).await?;
    ensure_eq!(s.delete(rawdoc! {}, true).await?, 20);
    ensure_eq!(s.all().await?.len(), 0);
    ensure_eq!(s.store.list_indexes(&c()).await?.len(), 2);
    Ok(())
}

async fn delete_of_nothing_removes_nothing(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    ensure_eq!(s.delete(rawdoc! { "n": 99 }, true).await?, 0);
    let outcome = s.store.delete(Delete::new(c(), vec![])).await?;
    ensure_eq!((outcome.deleted, outcome.errors.len()), (0, 0));
    ensure_eq!(s.all().await?.len(), 5);
    Ok(())
}

async fn delete_in_a_missing_collection(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(s.delete(rawdoc! {}, true).await?, 0);
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 0);
    Ok(())
}

async fn delete_statements_run_in_order(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let statements = vec![statement(id(1), false), statement(id(1), false), statement(id(2), true)];
    ensure_eq!(s.store.delete(Delete::new(c(), statements)).await?.deleted, 2);
    ensure_eq!(s.ids(rawdoc! {}).await?, [0, 3, 4]);
    Ok(())
}

/// Returns the error of a request with one statement, whether the statement or the whole request was refused.
async fn error_of(s: &Subject, statement: DeleteStatement) -> Result<Error, Failure> {
    match s.store.delete(Delete::new(c(), vec![statement])).await {
        Err(error) => Ok(error),
        Ok(outcome) => {
            ensure_eq!((outcome.deleted, outcome.errors.len()), (0, 1));
            Ok(outcome.errors[0].error.clone())
        }
    }
}

async fn delete_refuses_an_unknown_operator(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    refusal(error_of(s, statement(rawdoc! { "a": { "$frobnicate": 1 } }, true)).await?, Code::BadValue)?;
    ensure_eq!(s.all().await?.len(), 5);
    Ok(())
}

async fn delete_refuses_a_hint_to_no_index(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let hinted = DeleteStatement { hint: Some(Hint::Name("missing".to_owned())), ..statement(id(1), false) };
    refusal(error_of(s, hinted).await?, Code::BadValue)?;
    ensure_eq!(s.all().await?.len(), 5);
    Ok(())
}

fn one_bad_of_three() -> Vec<DeleteStatement> {
    vec![statement(id(0), false), statement(rawdoc! { "a": { "$frobnicate": 1 } }, false), statement(id(1), false)]
}

async fn delete_ordered_stops_at_the_first_error(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let outcome = s.store.delete(Delete::new(c(), one_bad_of_three())).await?;
    ensure_eq!(outcome.deleted, 1);
    ensure_eq!(outcome.errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
    ensure_eq!(s.ids(rawdoc! {}).await?, [1, 2]);
    Ok(())
}

async fn delete_unordered_goes_on_after_errors(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let outcome = s.store.delete(Delete { ordered: false, ..Delete::new(c(), one_bad_of_three()) }).await?;
    ensure_eq!(outcome.deleted, 2);
    ensure_eq!(outcome.errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
    ensure_eq!(s.ids(rawdoc! {}).await?, [2]);
    Ok(())
}

async fn delete_frees_unique_keys(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) }).await?;
    s.fill(numbered(3)).await?;
    s.delete(id(1), false).await?;
    let refused = s.insert_one(rawdoc! { "_id": 9, "n": 1 }).await?;
    ensure!(refused.is_none(), "the key of a deleted document is still taken: {refused:?}");
    Ok(())
}
