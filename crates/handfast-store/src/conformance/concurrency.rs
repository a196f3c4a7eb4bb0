//! Many tasks at once: each document changes all or nothing, and no change is lost.
//!
//! The interleavings are random; the cases check what must hold in all of them.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use tokio::task::JoinSet;

use super::subject::{Failure, Subject, c, drain, id, ids, ints, named, numbered};
use super::{ensure, ensure_eq, list_cases};
use crate::{
    BatchLimit, CollectionOptions, CreateIndexes, Delete, DeleteStatement, DocumentStore, Find, FindAndModify, Hint,
    IndexSpec, Insert, Modification, RenameCollection, Result, ReturnDocument, Update, UpdateOutcome, UpdateSpec,
    UpdateStatement,
};

/// The number of tasks of a case, more than a test machine has cores.
const TASKS: i32 = 8;

list_cases! { Nothing:
    concurrent_increments_are_all_counted,
    concurrent_increments_of_many_documents_are_all_counted,
    concurrent_increments_through_find_and_modify_see_each_value_once,
    concurrent_compare_and_set_lets_one_win,
    concurrent_pushes_are_all_there,
    concurrent_inserts_of_the_same_id_let_one_win,
    concurrent_inserts_of_the_same_unique_key_let_one_win,
    concurrent_updates_to_the_same_unique_key_let_one_win,
    concurrent_upserts_by_id_make_one_document,
    concurrent_upserts_by_unique_key_make_one_document,
    concurrent_claims_take_each_document_once,
    concurrent_removes_take_each_document_once,
    concurrent_deletes_count_each_document_once,
    concurrent_readers_see_whole_documents,
    concurrent_cursors_lose_no_document_that_stays,
    concurrent_index_creation_holds_all_documents,
    concurrent_unique_index_creation_admits_no_duplicate,
    concurrent_collection_creation_makes_one,
    concurrent_drops_say_yes_once,
    concurrent_drop_beside_writes_leaves_a_sound_store,
    concurrent_rename_beside_writes_loses_nothing,
    concurrent_writers_of_an_indexed_field_keep_the_index_exact,
    dropped_futures_leave_whole_documents,
}

fn one(filter: RawDocumentBuf, change: RawDocumentBuf) -> Update {
    Update::new(c(), vec![UpdateStatement::one(filter, UpdateSpec::Document(change))])
}

/// Runs the function in several tasks and returns their results.
async fn tasks<T: Send + 'static, F>(
    s: &Subject,
    count: i32,
    run: impl Fn(Arc<dyn DocumentStore>, i32) -> F,
) -> Result<Vec<T>, Failure>
where
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let mut set = JoinSet::new();
    for task in 0..count {
        set.spawn(run(Arc::clone(&s.store), task));
    }
    let mut results = Vec::new();
    while let Some(result) = set.join_next().await {
        results.push(result??);
    }
    Ok(results)
}

/// Retries an update that was refused with a write conflict, which a store without a queue per document may return.
async fn update_or_lose(store: &Arc<dyn DocumentStore>, update: Update) -> Result<UpdateOutcome, Failure> {
    loop {
        let outcome = match store.update(update.clone()).await {
            Err(error) if error.code() == Code::WriteConflict => continue,
            result => result?,
        };
        match outcome.errors.first() {
            Some(lost) if lost.error.code() == Code::WriteConflict => {}
            _ => return Ok(outcome),
        }
    }
}

async fn concurrent_increments_are_all_counted(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    tasks(s, TASKS, |store, _| async move {
        for _ in 0..50 {
            let outcome = update_or_lose(&store, one(id(1), rawdoc! { "$inc": { "n": 1 } })).await?;
            ensure_eq!((outcome.matched, outcome.modified), (1, 1));
        }
        Ok(())
    })
    .await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "n": TASKS * 50 }]);
    Ok(())
}

async fn concurrent_increments_of_many_documents_are_all_counted(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    tasks(s, TASKS, |store, _| async move {
        for _ in 0..10 {
            let statement = UpdateStatement {
                multi: true,
                ..UpdateStatement::one(rawdoc! {}, UpdateSpec::Document(rawdoc! { "$inc": { "n": 100 } }))
            };
            let outcome = store.update(Update::new(c(), vec![statement])).await?;
            ensure_eq!((outcome.matched, outcome.errors.len()), (20, 0));
        }
        Ok(())
    })
    .await?;
    ensure_eq!(ints(&s.all().await?, "n")?, (0..20).map(|n| n + TASKS * 1000).collect::<Vec<_>>());
    Ok(())
}

async fn concurrent_increments_through_find_and_modify_see_each_value_once(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 0 }]).await?;
    let seen = tasks(s, TASKS, |store, _| async move {
        let mut seen = Vec::new();
        for _ in 0..25 {
            let modification = Modification::Update {
                update: UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } }),
                upsert: false,
                returns: ReturnDocument::After,
                array_filters: vec![],
            };
            let outcome = store.find_and_modify(FindAndModify::new(c(), id(1), modification)).await?;
            seen.extend(ints(&outcome.value.into_iter().collect::<Vec<_>>(), "n")?);
        }
        Ok(seen)
    })
    .await?;
    let mut seen = seen.concat();
    seen.sort_unstable();
    ensure_eq!(seen, (1..=TASKS * 25).collect::<Vec<_>>());
    Ok(())
}

async fn concurrent_compare_and_set_lets_one_win(s: &Subject) -> Result<(), Failure> {
    s.fill((0..20).map(|n| rawdoc! { "_id": n, "version": 0 })).await?;
    let won = tasks(s, TASKS, |store, task| async move {
        let mut won = 0;
        for n in 0..20 {
            let filter = rawdoc! { "_id": n, "version": 0 };
            let change = rawdoc! { "$set": { "version": 1, "winner": task } };
            won += update_or_lose(&store, one(filter, change)).await?.modified;
        }
        Ok(won)
    })
    .await?;
    ensure_eq!(won.iter().sum::<u64>(), 20);
    Ok(())
}

async fn concurrent_pushes_are_all_there(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [] }]).await?;
    tasks(s, TASKS, |store, task| async move {
        for step in 0..20 {
            update_or_lose(&store, one(id(1), rawdoc! { "$push": { "a": task * 20 + step } })).await?;
        }
        Ok(())
    })
    .await?;
    let mut pushed = Vec::new();
    for value in s.all().await?[0].get_array("a")? {
        pushed.extend(value?.as_i32());
    }
    pushed.sort_unstable();
    ensure_eq!(pushed, (0..TASKS * 20).collect::<Vec<_>>());
    Ok(())
}

/// Inserts the documents that the function returns for task and round; returns how many were inserted.
async fn race_inserts(s: &Subject, document: fn(i32, i32) -> RawDocumentBuf) -> Result<u64, Failure> {
    let won = tasks(s, TASKS, |store, task| async move {
        let mut won = 0;
        for round in 0..20 {
            let outcome = store.insert(Insert::new(c(), vec![document(task, round)])).await?;
            won += outcome.inserted;
            ensure_eq!(outcome.inserted + outcome.errors.len() as u64, 1);
            for error in &outcome.errors {
                ensure_eq!(error.error.code(), Code::DuplicateKey);
            }
        }
        Ok(won)
    })
    .await?;
    Ok(won.into_iter().sum())
}

async fn concurrent_inserts_of_the_same_id_let_one_win(s: &Subject) -> Result<(), Failure> {
    let won = race_inserts(s, |task, round| rawdoc! { "_id": round, "by": task }).await?;
    ensure_eq!(won, 20);
    ensure_eq!(s.ids(rawdoc! {}).await?, (0..20).collect::<Vec<_>>());
    Ok(())
}

async fn concurrent_inserts_of_the_same_unique_key_let_one_win(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "k": 1 }) }).await?;
    let won = race_inserts(s, |task, round| rawdoc! { "_id": task * 100 + round, "k": round }).await?;
    ensure_eq!(won, 20);
    let mut keys = ints(&s.all().await?, "k")?;
    keys.sort_unstable();
    ensure_eq!(keys, (0..20).collect::<Vec<_>>());
    Ok(())
}

async fn concurrent_updates_to_the_same_unique_key_let_one_win(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "k": 1 }) }).await?;
    s.fill((0..TASKS).map(|n| rawdoc! { "_id": n, "k": 1000 + n })).await?;
    for round in 0..10 {
        let won = tasks(s, TASKS, |store, task| async move {
            let outcome = update_or_lose(&store, one(id(task), rawdoc! { "$set": { "k": round } })).await?;
            for error in &outcome.errors {
                ensure_eq!(error.error.code(), Code::DuplicateKey);
            }
            Ok(outcome.modified)
        })
        .await?;
        ensure_eq!(won.iter().sum::<u64>(), 1);
        ensure_eq!(s.ids(rawdoc! { "k": round }).await?.len(), 1);
    }
    Ok(())
}

async fn race_upserts(s: &Subject, filter: fn(i32) -> RawDocumentBuf) -> Result<u64, Failure> {
    let made = tasks(s, TASKS, |store, _| async move {
        let mut made = 0;
        for round in 0..20 {
            let change = UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } });
            let statement = UpdateStatement { upsert: true, ..UpdateStatement::one(filter(round), change) };
            // An upsert that loses the race to insert may return a duplicate key; the next attempt updates.
            loop {
                let outcome = update_or_lose(&store, Update::new(c(), vec![statement.clone()])).await?;
                made += outcome.upserted.len() as u64;
                match outcome.errors.first() {
                    None => break,
                    Some(error) => ensure_eq!(error.error.code(), Code::DuplicateKey),
                }
            }
        }
        Ok(made)
    })
    .await?;
    ensure_eq!(ints(&s.all().await?, "n")?, vec![TASKS; 20]);
    Ok(made.into_iter().sum())
}

async fn concurrent_upserts_by_id_make_one_document(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(race_upserts(s, |round| rawdoc! { "_id": round }).await?, 20);
    Ok(())
}

async fn concurrent_upserts_by_unique_key_make_one_document(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "k": 1 }) }).await?;
    ensure_eq!(race_upserts(s, |round| rawdoc! { "k": round }).await?, 20);
    Ok(())
}

/// Tasks take free documents like jobs of a queue, until there is none.
async fn concurrent_claims_take_each_document_once(s: &Subject) -> Result<(), Failure> {
    s.fill((0..100).map(|n| rawdoc! { "_id": n, "state": "free" })).await?;
    let claimed = tasks(s, TASKS, |store, task| async move {
        let mut claimed = Vec::new();
        loop {
            let modification = Modification::Update {
                update: UpdateSpec::Document(rawdoc! { "$set": { "state": "taken", "by": task } }),
                upsert: false,
                returns: ReturnDocument::Before,
                array_filters: vec![],
            };
            let request = FindAndModify {
                sort: rawdoc! { "_id": 1 },
                ..FindAndModify::new(c(), rawdoc! { "state": "free" }, modification)
            };
            match store.find_and_modify(request).await?.value {
                Some(document) => claimed.push(document.get_i32("_id")?),
                None => return Ok(claimed),
            }
        }
    })
    .await?;
    let mut claimed = claimed.concat();
    claimed.sort_unstable();
    ensure_eq!(claimed, (0..100).collect::<Vec<_>>());
    ensure_eq!(s.ids(rawdoc! { "state": "taken" }).await?.len(), 100);
    Ok(())
}

async fn concurrent_removes_take_each_document_once(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(100)).await?;
    let removed = tasks(s, TASKS, |store, _| async move {
        let mut removed = Vec::new();
        while let Some(document) =
            store.find_and_modify(FindAndModify::new(c(), rawdoc! {}, Modification::Remove)).await?.value
        {
            removed.push(document.get_i32("_id")?);
        }
        Ok(removed)
    })
    .await?;
    let mut removed = removed.concat();
    removed.sort_unstable();
    ensure_eq!(removed, (0..100).collect::<Vec<_>>());
    ensure_eq!(s.all().await?.len(), 0);
    Ok(())
}

async fn concurrent_deletes_count_each_document_once(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(200)).await?;
    let deleted = tasks(s, TASKS, |store, task| async move {
        // Half of the tasks delete one document after the other, half all at once.
        let mut deleted = 0;
        for n in 0..if task % 2 == 0 { 200 } else { 1 } {
            let filter = if task % 2 == 0 {
                id(n)
            } else {
                rawdoc! {}
            };
            let statement = DeleteStatement { filter, multi: task % 2 != 0, hint: None };
            deleted += store.delete(Delete::new(c(), vec![statement])).await?.deleted;
        }
        Ok(deleted)
    })
    .await?;
    ensure_eq!(deleted.iter().sum::<u64>(), 200);
    ensure_eq!(s.all().await?.len(), 0);
    Ok(())
}

/// Writers keep `a` and `b` equal; no reader finds them apart.
async fn concurrent_readers_see_whole_documents(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "a": 1 })).await?;
    s.fill((0..5).map(|n| rawdoc! { "_id": n, "a": 0, "pad": "x".repeat(2000), "b": 0 })).await?;
    tasks(s, TASKS, |store, task| async move {
        for round in 0..40 {
            if task % 2 == 0 {
                let change = rawdoc! { "$inc": { "a": 1, "b": 1 } };
                update_or_lose(&store, one(id(round % 5), change)).await?;
                continue;
            }
            let filter = if round % 2 == 0 {
                rawdoc! {}
            } else {
                rawdoc! { "a": { "$gte": 0 } }
            };
            for document in drain(store.find(Find::new(c(), filter)).await?).await? {
                ensure_eq!(document.get_i32("a")?, document.get_i32("b")?);
            }
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// A cursor that is open during writes returns each document that is not written exactly once.
async fn concurrent_cursors_lose_no_document_that_stays(s: &Subject) -> Result<(), Failure> {
    s.fill((0..300).map(|n| rawdoc! { "_id": n, "stays": n % 3 == 0 })).await?;
    tasks(s, TASKS, |store, task| async move {
        if task % 2 == 0 {
            for n in (0..300).filter(|n| n % 3 == 1 + task % 2) {
                store
                    .delete(Delete::new(c(), vec![DeleteStatement { filter: id(n), multi: false, hint: None }]))
                    .await?;
                store.insert(Insert::new(c(), vec![id(1000 + 1000 * task + n)])).await?;
            }
            return Ok(());
        }
        let mut cursor = store.find(Find::new(c(), rawdoc! {})).await?;
        let mut found = Vec::new();
        loop {
            let page = cursor.next_page(BatchLimit { documents: 7, bytes: usize::MAX }).await?;
            found.extend(ids(&page.documents)?);
            if page.exhausted {
                break;
            }
            tokio::task::yield_now().await;
        }
        found.sort_unstable();
        ensure!(found.windows(2).all(|pair| pair[0] != pair[1]), "a document came twice: {found:?}");
        let stayed = found.iter().filter(|&&n| n < 300 && n % 3 == 0).count();
        ensure_eq!(stayed, 100);
        Ok(())
    })
    .await?;
    Ok(())
}

async fn concurrent_index_creation_holds_all_documents(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(300)).await?;
    tasks(s, TASKS, |store, task| async move {
        if task == 0 {
            let indexes = vec![IndexSpec::new(rawdoc! { "n": 1 })];
            store.create_indexes(CreateIndexes { namespace: c(), indexes }).await?;
            return Ok(());
        }
        for step in 0..40 {
            let n = 1000 * task + step;
            store.insert(Insert::new(c(), vec![rawdoc! { "_id": n, "n": n }])).await?;
            update_or_lose(&store, one(id(task * 40 + step - 40), rawdoc! { "$inc": { "n": -10_000 } })).await?;
        }
        Ok(())
    })
    .await?;
    index_agrees(s, "n_1", "n").await
}

/// Checks that a query by the index finds the same documents as a scan, with the same values.
async fn index_agrees(s: &Subject, index: &str, field: &str) -> Result<(), Failure> {
    let read = async |hint| {
        let sort = rawdoc! { "_id": 1 };
        s.find(Find { hint: Some(hint), sort, ..Find::new(c(), rawdoc! {}) }).await
    };
    let by_scan = read(Hint::Key(rawdoc! { "$natural": 1 })).await?;
    ensure_eq!(read(Hint::Name(index.to_owned())).await?, by_scan);
    // Each document is found by its own value, and by no other.
    for document in &by_scan {
        let value = document.get_i32(field)?;
        let filter = RawDocumentBuf::try_from(&bson::doc! { "_id": document.get_i32("_id")?, field: value })?;
        let found = s.find(Find { hint: Some(Hint::Name(index.to_owned())), ..Find::new(c(), filter) }).await?;
        ensure_eq!(found.len(), 1);
    }
    Ok(())
}

async fn concurrent_unique_index_creation_admits_no_duplicate(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(200)).await?;
    let created = tasks(s, 2, |store, task| async move {
        let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) };
        if task == 0 {
            let created = store.create_indexes(CreateIndexes { namespace: c(), indexes: vec![unique] }).await;
            return Ok(created.is_ok());
        }
        for n in 0..100 {
            store.insert(Insert::new(c(), vec![rawdoc! { "_id": 1000 + n, "n": n }])).await?;
        }
        Ok(false)
    })
    .await?;
    let mut values = ints(&s.all().await?, "n")?;
    let all = values.len();
    values.sort_unstable();
    values.dedup();
    let indexes = s.store.list_indexes(&c()).await?.len();
    if created.contains(&true) {
        ensure_eq!((values.len(), indexes), (all, 2));
    } else {
        ensure_eq!(indexes, 1);
    }
    Ok(())
}

async fn concurrent_collection_creation_makes_one(s: &Subject) -> Result<(), Failure> {
    tasks(s, TASKS, |store, task| async move {
        match task % 3 {
            0 => store.create_collection(&c(), CollectionOptions::default()).await?,
            1 => drop(store.insert(Insert::new(c(), vec![id(task)])).await?),
            _ => {
                let indexes = vec![IndexSpec::new(rawdoc! { "n": 1 })];
                store.create_indexes(CreateIndexes { namespace: c(), indexes }).await?;
            }
        }
        Ok(())
    })
    .await?;
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 1);
    ensure_eq!(s.ids(rawdoc! {}).await?, (0..TASKS).filter(|task| task % 3 == 1).collect::<Vec<_>>());
    ensure_eq!(s.store.list_indexes(&c()).await?.len(), 2);
    Ok(())
}

async fn concurrent_drops_say_yes_once(s: &Subject) -> Result<(), Failure> {
    for _ in 0..5 {
        s.fill(numbered(20)).await?;
        let dropped = tasks(s, TASKS, |store, _| async move { Ok(store.drop_collection(&c()).await?) }).await?;
        ensure_eq!(dropped.iter().filter(|&&dropped| dropped).count(), 1);
    }
    Ok(())
}

/// Writes go to the old collection or to a new one; in both cases counts and indexes agree at the end.
async fn concurrent_drop_beside_writes_leaves_a_sound_store(s: &Subject) -> Result<(), Failure> {
    tasks(s, TASKS, |store, task| async move {
        for step in 0..20 {
            if task == 0 {
                store.drop_collection(&c()).await?;
                let indexes = vec![IndexSpec::new(rawdoc! { "n": 1 })];
                store.create_indexes(CreateIndexes { namespace: c(), indexes }).await?;
                continue;
            }
            let n = task * 100 + step;
            store.insert(Insert::new(c(), vec![rawdoc! { "_id": n, "n": n }])).await?;
            update_or_lose(&store, one(id(n), rawdoc! { "$inc": { "n": 1 } })).await?;
        }
        Ok(())
    })
    .await?;
    let stats = s.store.collection_stats(&c()).await?;
    ensure_eq!(stats.count, s.all().await?.len() as u64);
    index_agrees(s, "n_1", "n").await
}

async fn concurrent_rename_beside_writes_loses_nothing(s: &Subject) -> Result<(), Failure> {
    s.store.create_collection(&c(), CollectionOptions::default()).await?;
    tasks(s, TASKS, |store, task| async move {
        for step in 0..20 {
            if task == 0 {
                // Each round renames the collection, and the writers create a new one.
                let to = named(&format!("old{step}"));
                match store.rename_collection(RenameCollection { from: c(), to, drop_target: false }).await {
                    Err(error) if error.code() == Code::NamespaceNotFound => {}
                    result => result?,
                }
                tokio::task::yield_now().await;
                continue;
            }
            let outcome = store.insert(Insert::new(c(), vec![id(task * 100 + step)])).await?;
            ensure_eq!(outcome.inserted, 1);
        }
        Ok(())
    })
    .await?;
    let mut found = Vec::new();
    for info in s.store.list_collections("conformance").await? {
        found.extend(ids(&s.find(Find::new(named(&info.name), rawdoc! {})).await?)?);
    }
    found.sort_unstable();
    let expected: Vec<_> = (1..TASKS).flat_map(|task| (0..20).map(move |step| task * 100 + step)).collect();
    ensure_eq!(found, expected);
    Ok(())
}

async fn concurrent_writers_of_an_indexed_field_keep_the_index_exact(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill(numbered(10)).await?;
    tasks(s, TASKS, |store, task| async move {
        for step in 0..30 {
            let target = (task + step) % 10;
            if step % 10 == 9 {
                store
                    .delete(Delete::new(c(), vec![DeleteStatement { filter: id(target), multi: false, hint: None }]))
                    .await?;
                store.insert(Insert::new(c(), vec![rawdoc! { "_id": target, "n": 0 }])).await?;
            } else {
                update_or_lose(&store, one(id(target), rawdoc! { "$set": { "n": task * 1000 + step } })).await?;
            }
        }
        Ok(())
    })
    .await?;
    index_agrees(s, "n_1", "n").await
}

/// A dropped future leaves each document and its index entries either as they were or changed.
async fn dropped_futures_leave_whole_documents(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill(numbered(50)).await?;
    for round in 0..40_u32 {
        let statement = UpdateStatement {
            multi: true,
            ..UpdateStatement::one(rawdoc! {}, UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } }))
        };
        let store = Arc::clone(&s.store);
        let task = tokio::spawn(async move { store.update(Update::new(c(), vec![statement])).await.map(|_| ()) });
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
    }
    ensure_eq!(s.all().await?.len(), 50);
    // A store may still run the request of a dropped future; these writes wait for it.
    for n in 0..50 {
        s.update_one(id(n), rawdoc! { "$set": { "done": true } }).await?;
    }
    index_agrees(s, "n_1", "n").await
}
