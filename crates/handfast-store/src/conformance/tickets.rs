//! Writes with tickets, which are sent twice and applied once.

use std::sync::Arc;

use bson::{RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, ints, named, refusal, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::{
    AtomicBatch, BatchWrite, Delete, DeleteStatement, DocumentWrite, Find, FindAndModify, Hint, IndexSpec, Insert,
    InsertOutcome, Modification, RequestedDocument, Result, ReturnDocument, Ticket, Update, UpdateOutcome, UpdateSpec,
    UpdateStatement, WriteError, ticket,
};

list_cases! { Tickets:
    ticket_of_an_insert_is_used_once,
    ticket_of_an_update_is_used_once,
    ticket_of_a_replacement_is_used_once,
    ticket_of_an_update_found_by_search_is_used_once,
    ticket_of_an_upsert_answers_the_first_id,
    ticket_of_a_delete_is_used_once,
    ticket_of_a_find_and_modify_answers_the_first_value,
    ticket_of_a_find_and_modify_that_removes_answers_the_first_value,
    ticket_of_a_find_and_modify_that_upserts_answers_the_same,
    ticket_is_used_once_beside_other_attempts,
    ticket_of_an_upsert_is_used_once_beside_other_attempts,
    ticket_of_a_claim_is_used_once_beside_other_attempts,
    ticket_is_known_after_the_document_is_gone,
    ticket_is_known_after_the_collection_is_gone,
    ticket_with_another_number_is_another_write,
    ticket_with_an_older_number_is_refused,
    ticket_of_another_session_is_another_write,
    ticket_of_what_had_no_effect_leaves_no_record,
    ticket_of_a_refused_write_leaves_no_record,
    ticket_of_another_kind_of_write_is_refused,
    ticket_of_many_documents_is_refused,
    ticket_of_two_hundred_statements_is_used_once,
    ticket_of_two_hundred_documents_is_used_once,
    ticket_goes_on_where_the_first_attempt_stopped,
    ticket_records_can_be_removed_by_age,
}

list_cases! { Atomic as BATCH_CASES:
    ticket_of_a_batch_answers_the_first_timestamp,
    ticket_of_a_batch_with_an_older_number_is_refused,
    ticket_has_its_record_in_the_same_step,
}

fn ticket(number: i64) -> Ticket {
    Ticket { session: [7; 16], number, statement: 0, requested: RequestedDocument::Nothing }
}

fn increment(filter: RawDocumentBuf) -> UpdateStatement {
    UpdateStatement::one(filter, UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } }))
}

async fn update(s: &Subject, number: i64, statements: Vec<UpdateStatement>) -> Result<UpdateOutcome, Failure> {
    Ok(s.store.update(Update { ticket: Some(ticket(number)), ..Update::new(c(), statements) }).await?)
}

/// Runs one update statement and returns matched, modified and the upserted `_id`.
async fn updated(s: &Subject, number: i64, statement: UpdateStatement) -> Result<(u64, u64, Vec<RawBson>), Failure> {
    let outcome = update(s, number, vec![statement]).await?;
    ensure!(outcome.errors.is_empty(), "refused: {:?}", outcome.errors);
    Ok((outcome.matched, outcome.modified, outcome.upserted.into_iter().map(|(_, id)| id).collect()))
}

async fn insert(s: &Subject, number: i64, documents: Vec<RawDocumentBuf>) -> Result<InsertOutcome, Failure> {
    Ok(s.store.insert(Insert { ticket: Some(ticket(number)), ..Insert::new(c(), documents) }).await?)
}

fn one(filter: RawDocumentBuf) -> Vec<DeleteStatement> {
    vec![DeleteStatement { filter, multi: false, hint: None }]
}

async fn delete(s: &Subject, number: i64, filter: RawDocumentBuf) -> Result<u64, Failure> {
    let outcome = s.store.delete(Delete { ticket: Some(ticket(number)), ..Delete::new(c(), one(filter)) }).await?;
    ensure!(outcome.errors.is_empty(), "refused: {:?}", outcome.errors);
    Ok(outcome.deleted)
}

fn claim(number: i64, filter: RawDocumentBuf, upsert: bool, returns: ReturnDocument) -> FindAndModify {
    let update = UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } });
    let modification = Modification::Update { update, upsert, returns, array_filters: Vec::new() };
    FindAndModify { ticket: Some(ticket(number)), ..FindAndModify::new(c(), filter, modification) }
}

async fn records(s: &Subject) -> Result<Vec<RawDocumentBuf>, Failure> {
    s.find(Find::new(Ticket::namespace()?, rawdoc! {})).await
}

async fn ticket_of_an_insert_is_used_once(s: &Subject) -> Result<(), Failure> {
    for _ in 0..2 {
        let outcome = insert(s, 1, vec![rawdoc! { "_id": 1, "n": 1 }, rawdoc! { "_id": 2, "n": 2 }]).await?;
        ensure_eq!((outcome.inserted, outcome.errors.len()), (2, 0));
        ensure_eq!(s.ids(rawdoc! {}).await?, [1, 2]);
    }
    Ok(())
}

async fn ticket_of_an_update_is_used_once(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    for _ in 0..3 {
        ensure_eq!(updated(s, 1, increment(id(1))).await?, (1, 1, vec![]));
        ensure_eq!(ints(&s.all().await?, "n")?, [1]);
    }
    Ok(())
}

async fn ticket_of_a_replacement_is_used_once(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    let replacement = UpdateStatement::one(id(1), UpdateSpec::Document(rawdoc! { "n": 5 }));
    ensure_eq!(updated(s, 1, replacement.clone()).await?, (1, 1, vec![]));
    s.update_one(id(1), rawdoc! { "$set": { "n": 6 } }).await?;
    ensure_eq!(updated(s, 1, replacement).await?, (1, 1, vec![]));
    ensure_eq!(ints(&s.all().await?, "n")?, [6]);
    Ok(())
}

/// The second attempt finds another document than the first one found.
async fn ticket_of_an_update_found_by_search_is_used_once(s: &Subject) -> Result<(), Failure> {
    s.fill((0..3).map(|n| rawdoc! { "_id": n, "state": "new", "n": n })).await?;
    let take = UpdateStatement {
        sort: rawdoc! { "n": 1 },
        ..UpdateStatement::one(
            rawdoc! { "state": "new" },
            UpdateSpec::Document(rawdoc! { "$set": { "state": "taken" } }),
        )
    };
    for _ in 0..3 {
        ensure_eq!(updated(s, 1, take.clone()).await?, (1, 1, vec![]));
        ensure_eq!(s.ids(rawdoc! { "state": "taken" }).await?, [0]);
    }
    Ok(())
}

async fn ticket_of_an_upsert_answers_the_first_id(s: &Subject) -> Result<(), Failure> {
    let upsert = UpdateStatement { upsert: true, ..increment(rawdoc! { "name": "x" }) };
    let (matched, modified, first) = updated(s, 1, upsert.clone()).await?;
    ensure_eq!((matched, modified, first.len()), (0, 0, 1));
    // Now the filter matches.
    ensure_eq!(updated(s, 1, upsert).await?, (0, 0, first));
    ensure_eq!(ints(&s.all().await?, "n")?, [1]);
    Ok(())
}

async fn ticket_of_a_delete_is_used_once(s: &Subject) -> Result<(), Failure> {
    s.fill((0..3).map(|n| rawdoc! { "_id": n, "n": 0 })).await?;
    for _ in 0..3 {
        ensure_eq!(delete(s, 1, rawdoc! { "n": 0 }).await?, 1);
        ensure_eq!(s.all().await?.len(), 2);
    }
    // The second delete names the document by its `_id`; the repetition finds no document.
    let left = s.ids(rawdoc! {}).await?;
    for _ in 0..2 {
        ensure_eq!(delete(s, 2, id(left[0])).await?, 1);
        ensure_eq!(s.ids(rawdoc! {}).await?, [left[1]]);
    }
    Ok(())
}

async fn ticket_of_a_find_and_modify_answers_the_first_value(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    for (number, returns, value) in [(1, ReturnDocument::Before, 0), (2, ReturnDocument::After, 2)] {
        for _ in 0..2 {
            let outcome = s.store.find_and_modify(claim(number, id(1), false, returns)).await?;
            ensure_eq!(outcome.value, Some(rawdoc! { "_id": 1, "n": value }));
            ensure!(outcome.matched && outcome.upserted.is_none(), "{outcome:?}");
            s.update_one(id(1), rawdoc! { "$set": { "n": number as i32 } }).await?;
        }
    }
    Ok(())
}

async fn ticket_of_a_find_and_modify_that_removes_answers_the_first_value(s: &Subject) -> Result<(), Failure> {
    s.fill((0..3).map(|n| rawdoc! { "_id": n, "n": n })).await?;
    let remove = FindAndModify {
        sort: rawdoc! { "n": -1 },
        ticket: Some(ticket(1)),
        ..FindAndModify::new(c(), rawdoc! {}, Modification::Remove)
    };
    for _ in 0..3 {
        let outcome = s.store.find_and_modify(remove.clone()).await?;
        ensure_eq!(outcome.value, Some(rawdoc! { "_id": 2, "n": 2 }));
        ensure_eq!(s.ids(rawdoc! {}).await?, [0, 1]);
    }
    Ok(())
}

async fn ticket_of_a_find_and_modify_that_upserts_answers_the_same(s: &Subject) -> Result<(), Failure> {
    for (number, returns) in [(1, ReturnDocument::Before), (2, ReturnDocument::After)] {
        let filter = rawdoc! { "_id": number };
        let first = s.store.find_and_modify(claim(number, filter.clone(), true, returns)).await?;
        let second = s.store.find_and_modify(claim(number, filter, true, returns)).await?;
        ensure_eq!(first.upserted, Some(RawBson::Int64(number)));
        ensure_eq!(
            (first.value, first.matched, first.upserted),
            (second.value.clone(), second.matched, second.upserted)
        );
        ensure_eq!(second.value.is_some(), returns == ReturnDocument::After);
    }
    ensure_eq!(ints(&s.all().await?, "n")?, [1, 1]);
    Ok(())
}

async fn ticket_of_a_batch_answers_the_first_timestamp(s: &Subject) -> Result<(), Failure> {
    let store = s.atomic_store()?;
    let put = |n: i32| BatchWrite::new(c(), 1, DocumentWrite::Put(rawdoc! { "_id": 1, "n": n }));
    let read_at = store.snapshot().await?.timestamp();
    let batch = AtomicBatch { writes: vec![put(5)], ticket: Some(ticket(1)), ..AtomicBatch::new(read_at) };
    let first = store.commit(batch.clone()).await?;
    s.update_one(id(1), rawdoc! { "$set": { "n": 6 } }).await?;
    // Without its ticket the batch would conflict now.
    ensure_eq!(store.commit(batch.clone()).await?, first);
    ensure_eq!(ints(&s.all().await?, "n")?, [6]);
    refused(store.commit(AtomicBatch { ticket: None, ..batch }).await, Code::WriteConflict)?;
    Ok(())
}

async fn ticket_is_used_once_beside_other_attempts(s: &Subject) -> Result<(), Failure> {
    s.fill((0..20).map(|n| rawdoc! { "_id": n, "n": 0, "group": 1 })).await?;
    for number in 0..20 {
        let mut attempts = tokio::task::JoinSet::new();
        for attempt in 0..6 {
            let store = Arc::clone(&s.store);
            // Stores may have one way for a filter on `_id` and another for a search: both are used.
            let filter = if number % 2 == 0 {
                id(1)
            } else {
                rawdoc! { "group": 1, "n": { "$lt": number as i32 + 2 } }
            };
            let request = Update { ticket: Some(ticket(number)), ..Update::new(c(), vec![increment(filter)]) };
            attempts.spawn(async move {
                if attempt % 2 == 0 {
                    tokio::task::yield_now().await;
                }
                store.update(request).await
            });
        }
        while let Some(outcome) = attempts.join_next().await {
            let outcome = outcome??;
            ensure_eq!((outcome.matched, outcome.modified, outcome.errors.len()), (1, 1, 0));
        }
        ensure_eq!(ints(&s.all().await?, "n")?.iter().sum::<i32>(), number as i32 + 1);
    }
    Ok(())
}

async fn ticket_of_an_upsert_is_used_once_beside_other_attempts(s: &Subject) -> Result<(), Failure> {
    for number in 0..20 {
        let upsert = UpdateStatement { upsert: true, ..increment(rawdoc! { "name": number }) };
        let mut attempts = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let store = Arc::clone(&s.store);
            let request = Update { ticket: Some(ticket(number)), ..Update::new(c(), vec![upsert.clone()]) };
            attempts.spawn(async move { store.update(request).await });
        }
        let mut upserted = Vec::new();
        while let Some(outcome) = attempts.join_next().await {
            upserted.push(outcome??.upserted);
        }
        ensure_eq!(upserted[0].len(), 1);
        ensure!(upserted.iter().all(|other| *other == upserted[0]), "different answers: {upserted:?}");
        ensure_eq!(ints(&s.matching(rawdoc! { "name": number }).await?, "n")?, [1]);
    }
    Ok(())
}

/// Each find-and-modify takes the first free document, so a late attempt would take the next one.
async fn ticket_of_a_claim_is_used_once_beside_other_attempts(s: &Subject) -> Result<(), Failure> {
    s.fill((0..30).map(|n| rawdoc! { "_id": n, "n": 0 })).await?;
    for number in 0..15 {
        let mut attempts = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let store = Arc::clone(&s.store);
            let request = claim(number, rawdoc! { "n": 0 }, false, ReturnDocument::After);
            attempts.spawn(async move { store.find_and_modify(request).await });
        }
        let mut values = Vec::new();
        while let Some(outcome) = attempts.join_next().await {
            values.push(outcome??.value);
        }
        ensure!(values[0].is_some(), "nothing was claimed");
        ensure!(values.iter().all(|other| *other == values[0]), "different answers: {values:?}");
        ensure_eq!(s.matching(rawdoc! { "n": 1 }).await?.len(), number as usize + 1);
    }
    Ok(())
}

async fn ticket_is_known_after_the_document_is_gone(s: &Subject) -> Result<(), Failure> {
    for (number, filter) in [(1, id(1)), (2, rawdoc! { "name": "x" })] {
        s.fill([rawdoc! { "_id": 1, "name": "x", "n": 0 }]).await?;
        ensure_eq!(updated(s, number, increment(filter.clone())).await?, (1, 1, vec![]));
        s.delete(id(1), false).await?;
        ensure_eq!(updated(s, number, increment(filter.clone())).await?, (1, 1, vec![]));
        let upsert = UpdateStatement { upsert: true, ..increment(filter) };
        ensure_eq!(updated(s, number, upsert).await?, (1, 1, vec![]));
        ensure_eq!(s.all().await?, []);
    }
    Ok(())
}

async fn ticket_is_known_after_the_collection_is_gone(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    let hinted = UpdateStatement { hint: Some(Hint::Name("n_1".to_owned())), ..increment(rawdoc! { "n": 0 }) };
    ensure_eq!(updated(s, 1, hinted.clone()).await?, (1, 1, vec![]));
    s.store.drop_collection(&c()).await?;
    ensure_eq!(updated(s, 1, hinted).await?, (1, 1, vec![]));
    Ok(())
}

async fn ticket_with_another_number_is_another_write(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    for number in 1..5 {
        ensure_eq!(updated(s, number, increment(id(1))).await?, (1, 1, vec![]));
        ensure_eq!(ints(&s.all().await?, "n")?, [number as i32]);
    }
    ensure_eq!(records(s).await?.len(), 1);
    Ok(())
}

async fn ticket_with_an_older_number_is_refused(s: &Subject) -> Result<(), Failure> {
    let too_old = Code::TransactionTooOld;
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    updated(s, 5, increment(id(1))).await?;
    let first = |errors: Vec<WriteError>| {
        let error = errors.into_iter().next().ok_or_else(|| Failure::new(line!(), "it was accepted".to_owned()))?;
        refusal(error.error, too_old)
    };
    first(update(s, 4, vec![increment(id(1))]).await?.errors)?;
    first(update(s, 4, vec![increment(rawdoc! { "n": 77 })]).await?.errors)?;
    first(insert(s, 4, vec![id(2)]).await?.errors)?;
    let outcome = s.store.delete(Delete { ticket: Some(ticket(4)), ..Delete::new(c(), one(id(1))) }).await?;
    first(outcome.errors)?;
    refused(s.store.find_and_modify(claim(4, id(1), false, ReturnDocument::After)).await, too_old)?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "n": 1 }]);
    Ok(())
}

async fn ticket_of_a_batch_with_an_older_number_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    updated(s, 5, increment(id(1))).await?;
    let read_at = s.atomic_store()?.snapshot().await?.timestamp();
    let batch = AtomicBatch { ticket: Some(ticket(4)), ..AtomicBatch::new(read_at) };
    refused(s.atomic_store()?.commit(batch).await, Code::TransactionTooOld)?;
    Ok(())
}

async fn ticket_of_another_session_is_another_write(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    for session in 0..3 {
        let ticket = Ticket { session: [session; 16], ..ticket(1) };
        let request = Update { ticket: Some(ticket), ..Update::new(c(), vec![increment(id(1))]) };
        for _ in 0..2 {
            ensure_eq!(s.store.update(request.clone()).await?.modified, 1);
        }
    }
    ensure_eq!(ints(&s.all().await?, "n")?, [3]);
    Ok(())
}

async fn ticket_of_what_had_no_effect_leaves_no_record(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    let same = UpdateStatement::one(id(1), UpdateSpec::Document(rawdoc! { "$set": { "n": 0 } }));
    ensure_eq!(updated(s, 1, same).await?, (1, 0, vec![]));
    ensure_eq!(updated(s, 1, increment(id(2))).await?, (0, 0, vec![]));
    ensure_eq!(updated(s, 1, increment(rawdoc! { "n": 9 })).await?, (0, 0, vec![]));
    ensure_eq!(delete(s, 1, id(2)).await?, 0);
    let outcome = s.store.find_and_modify(claim(1, id(2), false, ReturnDocument::After)).await?;
    ensure!(!outcome.matched && outcome.value.is_none(), "{outcome:?}");
    ensure_eq!(records(s).await?, []);
    ensure_eq!(updated(s, 1, increment(id(1))).await?, (1, 1, vec![]));
    ensure_eq!(records(s).await?.len(), 1);
    Ok(())
}

async fn ticket_of_a_refused_write_leaves_no_record(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    let outcome = insert(s, 1, vec![id(1)]).await?;
    ensure_eq!((outcome.inserted, outcome.errors.len()), (0, 1));
    let bad = UpdateStatement::one(id(1), UpdateSpec::Document(rawdoc! { "$inc": { "_id": 1 } }));
    ensure_eq!(update(s, 1, vec![bad]).await?.errors.len(), 1);
    ensure_eq!(records(s).await?, []);
    s.delete(id(1), false).await?;
    ensure_eq!(insert(s, 1, vec![id(1)]).await?.inserted, 1);
    Ok(())
}

async fn ticket_of_another_kind_of_write_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    updated(s, 1, increment(id(1))).await?;
    refused(
        s.store.find_and_modify(claim(1, id(1), false, ReturnDocument::After)).await,
        Code::IncompleteTransactionHistory,
    )?;
    ensure_eq!(ints(&s.all().await?, "n")?, [1]);
    Ok(())
}

async fn ticket_of_many_documents_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill((0..3).map(|n| rawdoc! { "_id": n, "n": 0 })).await?;
    let many = UpdateStatement { multi: true, ..increment(rawdoc! {}) };
    let request = Update { ticket: Some(ticket(1)), ..Update::new(c(), vec![increment(id(1)), many]) };
    let error = refused(s.store.update(request).await, Code::InvalidOptions)?;
    ensure_eq!(error.message(), "Cannot use retryable writes with multi=true");
    let statement = DeleteStatement { filter: rawdoc! {}, multi: true, hint: None };
    let request = Delete { ticket: Some(ticket(1)), ..Delete::new(c(), vec![statement]) };
    refused(s.store.delete(request).await, Code::InvalidOptions)?;
    ensure_eq!(ints(&s.all().await?, "n")?, [0, 0, 0]);
    Ok(())
}

async fn ticket_of_two_hundred_statements_is_used_once(s: &Subject) -> Result<(), Failure> {
    s.fill((0..200).map(|n| rawdoc! { "_id": n, "n": 0 })).await?;
    let statements: Vec<_> = (0..200).map(|n| increment(id(n))).collect();
    for _ in 0..2 {
        let outcome = update(s, 1, statements.clone()).await?;
        ensure_eq!((outcome.matched, outcome.modified, outcome.errors.len()), (200, 200, 0));
        ensure_eq!(ints(&s.all().await?, "n")?, [1; 200]);
    }
    let deletes = (0..200).map(|n| DeleteStatement { filter: id(n), multi: false, hint: None }).collect();
    let request = Delete { ticket: Some(ticket(2)), ..Delete::new(c(), deletes) };
    for _ in 0..2 {
        ensure_eq!(s.store.delete(request.clone()).await?.deleted, 200);
    }
    ensure_eq!(s.all().await?, []);
    ensure_eq!(records(s).await?.len(), 200_usize.div_ceil(ticket::STATEMENTS_PER_RECORD as usize));
    Ok(())
}

async fn ticket_of_two_hundred_documents_is_used_once(s: &Subject) -> Result<(), Failure> {
    let documents: Vec<_> = (0..200).map(id).collect();
    for _ in 0..2 {
        let outcome = insert(s, 1, documents.clone()).await?;
        ensure_eq!((outcome.inserted, outcome.errors.len()), (200, 0));
        ensure_eq!(s.all().await?.len(), 200);
    }
    ensure_eq!(records(s).await?.len(), 200_usize.div_ceil(ticket::STATEMENTS_PER_RECORD as usize));
    Ok(())
}

async fn ticket_goes_on_where_the_first_attempt_stopped(s: &Subject) -> Result<(), Failure> {
    s.fill((0..100).map(|n| rawdoc! { "_id": n, "n": 0 })).await?;
    let statements: Vec<_> = (0..100).map(|n| increment(id(n))).collect();
    update(s, 1, statements[..70].to_vec()).await?;
    ensure_eq!(update(s, 1, statements).await?.modified, 100);
    ensure_eq!(ints(&s.all().await?, "n")?, [1; 100]);
    // One of the inserted documents is refused; the others are inserted once.
    let documents: Vec<_> = (0..100).map(|n| id(if n == 80 { 5 } else { 1000 + n })).collect();
    for (attempt, inserted) in [(&documents[..75], 75), (&documents[..], 99), (&documents[..], 99)] {
        let request = Insert { ordered: false, ticket: Some(ticket(2)), ..Insert::new(c(), attempt.to_vec()) };
        let outcome = s.store.insert(request).await?;
        ensure_eq!(outcome.inserted, inserted);
        let refused: Vec<_> = outcome.errors.iter().map(|error| error.index).collect();
        ensure_eq!(refused, (80..81).filter(|_| attempt.len() > 80).collect::<Vec<_>>());
    }
    ensure_eq!(s.all().await?.len(), 199);
    Ok(())
}

/// Every snapshot shows as many writes as records: no write without its record, and no record without its write.
async fn ticket_has_its_record_in_the_same_step(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    let store = Arc::clone(&s.store);
    let writer = tokio::spawn(async move {
        for number in 1..100 {
            let request = Update { ticket: Some(ticket(number)), ..Update::new(c(), vec![increment(id(1))]) };
            store.update(request).await?;
            tokio::task::yield_now().await;
        }
        Ok::<_, Failure>(())
    });
    let mut done = false;
    while !done {
        done = writer.is_finished();
        let snapshot = s.atomic_store()?.snapshot().await?;
        let record_id = ticket(0).record_id();
        let record = snapshot.get(&Ticket::namespace()?, record_id.as_raw_bson_ref()).await?;
        let number = record.map_or(Ok(0), |record| record.get_i64("number"))?;
        let document = snapshot.get(&c(), RawBsonRef::Int32(1)).await?;
        let n = document.map_or(Ok(-1), |document| document.get_i32("n"))?;
        ensure_eq!(i64::from(n), number);
        tokio::task::yield_now().await;
    }
    writer.await??;
    ensure_eq!(ints(&s.all().await?, "n")?, [99]);
    Ok(())
}

/// A cleaner deletes the records of old sessions while writes renew others.
async fn ticket_records_can_be_removed_by_age(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    updated(s, 1, increment(id(1))).await?;
    let all = records(s).await?;
    let at = all.first().and_then(|record| record.get_datetime("at").ok());
    let at = at.ok_or_else(|| Failure::new(line!(), format!("no date in {all:?}")))?;
    let older = |than: bson::DateTime| {
        let statement = DeleteStatement { filter: rawdoc! { "at": { "$lt": than } }, multi: true, hint: None };
        Ok::<_, Failure>(Delete::new(Ticket::namespace()?, vec![statement]))
    };
    ensure_eq!(s.store.delete(older(at)?).await?.deleted, 0);
    ensure_eq!(updated(s, 1, increment(id(1))).await?, (1, 1, vec![]));
    let later = bson::DateTime::from_millis(at.timestamp_millis().saturating_add(1));
    ensure_eq!(s.store.delete(older(later)?).await?.deleted, 1);
    ensure_eq!(records(s).await?, []);
    // The record is deleted, so the ticket names a new write.
    ensure_eq!(updated(s, 1, increment(id(1))).await?, (1, 1, vec![]));
    ensure_eq!(ints(&s.find(Find::new(named("c"), rawdoc! {})).await?, "n")?, [2]);
    Ok(())
}
