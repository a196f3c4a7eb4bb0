//! Queries at a snapshot: what they cost, and what they hold in memory.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{BatchLimit, DocumentStore, Find, Insert, Result as StoreResult, Snapshot};
use handfast_txn::{Engine, Percolator};

use crate::support::*;

/// A bank with so many accounts that nobody has changed in a transaction, each of a thousand bytes.
async fn with_accounts(count: i32) -> Bank {
    let bank = Bank::of_the_seed().await;
    let account = |id| rawdoc! { "_id": id, "balance": id % 100, "fill": "x".repeat(950) };
    bank.store.insert(Insert::new(accounts(), (0..count).map(account).collect())).await.unwrap();
    bank
}

async fn snapshot_over(bank: &Bank, store: Arc<dyn DocumentStore>) -> Arc<dyn Snapshot> {
    let engine = Percolator::new(store, bank.sources.clone(), options()).unwrap();
    engine.begin(Duration::MAX).await.unwrap().snapshot
}

async fn all(snapshot: &dyn Snapshot, find: Find) -> StoreResult<Vec<RawDocumentBuf>> {
    let mut cursor = snapshot.find(find).await?;
    let mut documents = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        documents.extend(page.documents);
        if page.exhausted {
            return Ok(documents);
        }
    }
}

/// A sort holds what it may, and does not read on when that is too little.
#[tokio::test]
async fn a_sort_that_is_too_large_ends_early() {
    let mut bank = with_accounts(20_000).await;
    bank.sources = bank.sources.clone().with_stage_bytes(1024 * 1024);
    let counting = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
    let snapshot = snapshot_over(&bank, counting.clone()).await;
    let by_balance =
        |limit| Find { sort: rawdoc! { "balance": 1, "_id": 1 }, limit, ..Find::new(accounts(), rawdoc! {}) };
    let before = counting.operations();
    let error = all(&*snapshot, by_balance(None)).await.unwrap_err();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{error}");
    let operations = counting.operations() - before;
    assert!(operations < 10, "{operations}");
    // The first few need little.
    let least = all(&*snapshot, by_balance(Some(3))).await.unwrap();
    let ids: Vec<_> = least.iter().map(|account| account.get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [0, 100, 200]);
}

/// What was read for a page that nobody waits for any more is lost: the cursor says so, instead of going on behind it.
#[tokio::test]
async fn a_page_that_is_broken_off_is_missed() {
    let bank = with_accounts(1_500).await;
    let second_page = {
        let counting = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
        let snapshot = snapshot_over(&bank, counting.clone()).await;
        let _opened = snapshot.find(Find::new(accounts(), rawdoc! {})).await.unwrap();
        counting.operations()
    };
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(second_page, Fault::FreezeBefore)));
    let snapshot = snapshot_over(&bank, faulty.clone()).await;
    let mut cursor = snapshot.find(Find::new(accounts(), rawdoc! {})).await.unwrap();
    {
        let page = pin!(cursor.next_page(BatchLimit { documents: 1_200, bytes: usize::MAX }));
        assert!(page.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(faulty.frozen(), 1);
    }
    let error = cursor.next_page(BatchLimit::REPLY).await.unwrap_err();
    assert_eq!(error.code(), Code::CursorKilled, "{error}");
}
