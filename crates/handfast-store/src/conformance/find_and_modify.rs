//! Changing or removing one document and returning it, in one step.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, numbered, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::{FindAndModify, FindAndModifyOutcome, Hint, IndexSpec, Modification, ReturnDocument, UpdateSpec};

list_cases! { Nothing:
    find_and_modify_returns_the_document_before,
    find_and_modify_returns_the_document_after,
    find_and_modify_of_nothing_returns_nothing,
    find_and_modify_changes_one_document,
    find_and_modify_picks_by_sort,
    find_and_modify_projects,
    find_and_modify_replaces,
    find_and_modify_by_position,
    find_and_modify_with_pipeline,
    find_and_remove_returns_what_it_removed,
    find_and_remove_of_nothing,
    find_and_upsert_returns_nothing_before,
    find_and_upsert_returns_the_document_after,
    find_and_upsert_of_a_match_changes_it,
    find_and_modify_refuses_a_change_of_id,
    find_and_modify_refuses_an_unknown_operator,
    find_and_modify_refuses_a_taken_unique_key,
    find_and_modify_refuses_a_hint_to_no_index,
    find_and_modify_without_upsert_makes_no_collection,
}

fn update(change: RawDocumentBuf, returns: ReturnDocument, upsert: bool) -> Modification {
    Modification::Update { update: UpdateSpec::Document(change), upsert, returns, array_filters: vec![] }
}

async fn modify(
    s: &Subject,
    filter: RawDocumentBuf,
    modification: Modification,
) -> Result<FindAndModifyOutcome, Failure> {
    Ok(s.store.find_and_modify(FindAndModify::new(c(), filter, modification)).await?)
}

async fn find_and_modify_returns_the_document_before(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let outcome = modify(s, id(1), update(rawdoc! { "$inc": { "n": 10 } }, ReturnDocument::Before, false)).await?;
    ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "n": 1 }));
    ensure!(outcome.matched && outcome.upserted.is_none(), "{outcome:?}");
    ensure_eq!(s.matching(id(1)).await?, [rawdoc! { "_id": 1, "n": 11 }]);
    Ok(())
}

async fn find_and_modify_returns_the_document_after(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let outcome = modify(s, id(1), update(rawdoc! { "$inc": { "n": 10 } }, ReturnDocument::After, false)).await?;
    ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "n": 11 }));
    ensure!(outcome.matched, "{outcome:?}");
    Ok(())
}

async fn find_and_modify_of_nothing_returns_nothing(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    for returns in [ReturnDocument::Before, ReturnDocument::After] {
        let outcome = modify(s, id(9), update(rawdoc! { "$inc": { "n": 1 } }, returns, false)).await?;
        ensure_eq!(outcome.value, None);
        ensure!(!outcome.matched && outcome.upserted.is_none(), "{outcome:?}");
    }
    ensure_eq!(s.all().await?.len(), 3);
    Ok(())
}

async fn find_and_modify_changes_one_document(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    modify(s, rawdoc! {}, update(rawdoc! { "$set": { "hit": 1 } }, ReturnDocument::Before, false)).await?;
    ensure_eq!(s.ids(rawdoc! { "hit": 1 }).await?.len(), 1);
    Ok(())
}

async fn find_and_modify_picks_by_sort(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let request = FindAndModify {
        sort: rawdoc! { "n": -1 },
        ..FindAndModify::new(c(), rawdoc! { "n": { "$lt": 4 } }, Modification::Remove)
    };
    ensure_eq!(s.store.find_and_modify(request).await?.value, Some(rawdoc! { "_id": 3, "n": 3 }));
    ensure_eq!(s.ids(rawdoc! {}).await?, [0, 1, 2, 4]);
    Ok(())
}

async fn find_and_modify_projects(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 2 }]).await?;
    let change = update(rawdoc! { "$set": { "a": 5 } }, ReturnDocument::After, false);
    let request = FindAndModify { projection: rawdoc! { "_id": 0, "a": 1 }, ..FindAndModify::new(c(), id(1), change) };
    ensure_eq!(s.store.find_and_modify(request).await?.value, Some(rawdoc! { "a": 5 }));
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 5, "b": 2 }]);
    Ok(())
}

async fn find_and_modify_replaces(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    let outcome = modify(s, rawdoc! { "a": 1 }, update(rawdoc! { "z": 1 }, ReturnDocument::After, false)).await?;
    ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "z": 1 }));
    Ok(())
}

async fn find_and_modify_by_position(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [1, 5] }]).await?;
    let change = update(rawdoc! { "$set": { "a.$": 0 } }, ReturnDocument::After, false);
    let outcome = modify(s, rawdoc! { "a": 5 }, change).await?;
    ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "a": [1, 0] }));
    Ok(())
}

async fn find_and_modify_with_pipeline(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    let change = Modification::Update {
        update: UpdateSpec::Pipeline(vec![rawdoc! { "$set": { "b": { "$add": ["$a", 1] } } }]),
        upsert: false,
        returns: ReturnDocument::After,
        array_filters: vec![],
    };
    ensure_eq!(modify(s, id(1), change).await?.value, Some(rawdoc! { "_id": 1, "a": 1, "b": 2 }));
    Ok(())
}

async fn find_and_remove_returns_what_it_removed(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let outcome = modify(s, id(1), Modification::Remove).await?;
    ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "n": 1 }));
    ensure!(outcome.matched, "{outcome:?}");
    ensure_eq!(s.ids(rawdoc! {}).await?, [0, 2]);
    Ok(())
}

async fn find_and_remove_of_nothing(s: &Subject) -> Result<(), Failure> {
    let outcome = modify(s, id(1), Modification::Remove).await?;
    ensure!(outcome.value.is_none() && !outcome.matched && outcome.upserted.is_none(), "{outcome:?}");
    Ok(())
}

async fn find_and_upsert_returns_nothing_before(s: &Subject) -> Result<(), Failure> {
    let outcome = modify(s, id(1), update(rawdoc! { "$set": { "a": 1 } }, ReturnDocument::Before, true)).await?;
    ensure_eq!(outcome.value, None);
    ensure_eq!(outcome.upserted, Some(RawBson::from(1)));
    ensure!(!outcome.matched, "{outcome:?}");
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 1 }]);
    Ok(())
}

async fn find_and_upsert_returns_the_document_after(s: &Subject) -> Result<(), Failure> {
    let filter = rawdoc! { "_id": 1, "b": 2 };
    let outcome = modify(s, filter, update(rawdoc! { "$inc": { "a": 1 } }, ReturnDocument::After, true)).await?;
    ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "b": 2, "a": 1 }));
    ensure_eq!(outcome.upserted, Some(RawBson::from(1)));
    Ok(())
}

async fn find_and_upsert_of_a_match_changes_it(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let outcome = modify(s, id(1), update(rawdoc! { "$set": { "n": 7 } }, ReturnDocument::After, true)).await?;
    ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "n": 7 }));
    ensure!(outcome.matched && outcome.upserted.is_none(), "{outcome:?}");
    ensure_eq!(s.all().await?.len(), 3);
    Ok(())
}

async fn expect_refused(s: &Subject, request: FindAndModify, code: Code) -> Result<(), Failure> {
    let before = s.all().await?;
    refused(s.store.find_and_modify(request).await, code)?;
    ensure_eq!(s.all().await?, before);
    Ok(())
}

async fn find_and_modify_refuses_a_change_of_id(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let change = update(rawdoc! { "$set": { "_id": 9 } }, ReturnDocument::Before, false);
    expect_refused(s, FindAndModify::new(c(), id(1), change), Code::ImmutableField).await
}

async fn find_and_modify_refuses_an_unknown_operator(s: &Subject) -> Result<(), Failure> {
    let change = update(rawdoc! { "$frobnicate": { "a": 9 } }, ReturnDocument::Before, false);
    expect_refused(s, FindAndModify::new(c(), id(1), change), Code::FailedToParse).await
}

async fn find_and_modify_refuses_a_taken_unique_key(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) }).await?;
    s.fill(numbered(3)).await?;
    let change = || update(rawdoc! { "$set": { "n": 2 } }, ReturnDocument::Before, true);
    expect_refused(s, FindAndModify::new(c(), id(1), change()), Code::DuplicateKey).await?;
    expect_refused(s, FindAndModify::new(c(), id(9), change()), Code::DuplicateKey).await
}

async fn find_and_modify_refuses_a_hint_to_no_index(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let hint = Some(Hint::Name("missing".to_owned()));
    let request = FindAndModify { hint, ..FindAndModify::new(c(), id(1), Modification::Remove) };
    expect_refused(s, request, Code::BadValue).await
}

async fn find_and_modify_without_upsert_makes_no_collection(s: &Subject) -> Result<(), Failure> {
    modify(s, id(1), update(rawdoc! { "$set": { "a": 1 } }, ReturnDocument::Before, false)).await?;
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 0);
    Ok(())
}
