//! The patterns on a `Database`, which is a store: within its transactions, and beside them, on both engines.

use std::sync::Arc;

use bson::{Document, doc, rawdoc};
use handfast_patterns::job_queue::{JobError, JobState};
use handfast_patterns::ledger::Posting;
use handfast_patterns::two_phase::{State, TwoPhaseOutcome};
use handfast_patterns::{
    Change, Error, ExactlyOnce, JobQueue, Ledger, Link, NewAccount, NewEntry, NewJob, SyncFlag, SyncFlagOptions,
    Transfer, TwoPhase, TwoPhaseOptions, UpdateOutcome, VersionedTree, VersionedTreeOptions, Worker,
};
use handfast_store::{DocumentStore, MemoryStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, PercolatorOptions, Transaction};
use tokio::task::JoinSet;

/// The number of tasks that do the same at once.
const TASKS: i64 = 8;

fn databases() -> [Database; 2] {
    let store = || MemoryStore::new(Sources::seeded(1));
    let percolator = Database::percolator(Arc::new(store()), Sources::seeded(2), PercolatorOptions::default()).unwrap();
    [Database::local(store(), Sources::seeded(2)), percolator]
}

fn namespace(collection: &str) -> Namespace {
    Namespace::new("test", collection).unwrap()
}

struct Patterns {
    once: ExactlyOnce,
    queue: JobQueue,
    ledger: Ledger,
    two_phase: TwoPhase,
    names: SyncFlag,
    tree: VersionedTree,
}

impl Patterns {
    async fn open(database: &Database) -> Self {
        let (store, sources): (Arc<dyn DocumentStore>, _) = (Arc::new(database.clone()), Sources::seeded(3));
        let all = || (store.clone(), sources.clone());
        let link = Link::new(namespace("comments"), "user").field("name", "userName");
        let options = TwoPhaseOptions::new("App1", namespace("accounts"));
        let patterns = Patterns {
            once: ExactlyOnce::open_with(store.clone(), namespace("days"), sources.clone(), Default::default())
                .await
                .unwrap(),
            queue: JobQueue::open_with(all().0, namespace("jobs"), all().1, Default::default()).await.unwrap(),
            ledger: Ledger::open_with(all().0, namespace("tx"), all().1, Default::default()).await.unwrap(),
            two_phase: TwoPhase::open_with(all().0, namespace("transactions"), all().1, options).await.unwrap(),
            names: SyncFlag::open_with(all().0, namespace("users"), all().1, SyncFlagOptions::new([link]))
                .await
                .unwrap(),
            tree: VersionedTree::open_with(all().0, namespace("items"), all().1, VersionedTreeOptions::new("tree"))
                .await
                .unwrap(),
        };
        store.insert_one(&namespace("days"), rawdoc! { "_id": 1, "n": 0_i64 }).await.unwrap();
        for account in ["A", "B"] {
            store.insert_one(&namespace("accounts"), rawdoc! { "_id": account, "balance": 100_i64 }).await.unwrap();
        }
        store.insert_one(&namespace("users"), rawdoc! { "_id": 1, "name": "Ann" }).await.unwrap();
        let _ = patterns.names.insert_copy(&namespace("comments"), doc! { "_id": 1, "user": 1 }).await.unwrap();
        patterns.ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await.unwrap();
        let given = patterns.ledger.post(NewEntry::transfer("cash", "ann", 100, "EUR")).await.unwrap();
        assert!(matches!(given, Posting::Posted(_)));
        patterns
    }

    /// Makes the first step of each pattern that has one for transactions.
    async fn all_within(&self, tx: &Transaction) -> Result<(), Error> {
        let store: Arc<dyn DocumentStore> = Arc::new(tx.clone());
        let token = self.once.token();
        let once = self.once.within(store.clone());
        assert_eq!(once.apply(token, 1, &Change::increment("n", 1)).await?, UpdateOutcome::Applied);
        assert_eq!(once.apply(token, 1, &Change::increment("n", 1)).await?, UpdateOutcome::AlreadyApplied);
        self.queue.within(store.clone()).enqueue(job()).await?;
        let entry = NewEntry::transfer("ann", "bob", 10, "EUR");
        assert!(matches!(self.ledger.within(store.clone()).post(entry).await?, Posting::Posted(_)));
        self.two_phase.within(store.clone()).begin(1, Transfer::new("A", "B", 10)).await?;
        let renamed = Change::new(doc! { "$set": { "name": "Mary" } });
        let _ = self.names.within(store).begin(self.names.token(), 1, &renamed).await?;
        Ok(())
    }

    /// Returns the count, the number of jobs, of entries of ann and of two-phase transactions, and the user's name.
    async fn seen(&self, database: &Database) -> (i64, u64, u64, usize, String) {
        let field = async |collection: &str| {
            let found = database.find_one(&namespace(collection), rawdoc! { "_id": 1 }).await.unwrap();
            Document::try_from(found.unwrap()).unwrap()
        };
        (
            field("days").await.get_i64("n").unwrap(),
            self.queue.depth().await.unwrap().due,
            self.ledger.status().await.unwrap().entries,
            self.two_phase.list(State::Initial, 10).await.unwrap().len(),
            field("users").await.get_str("name").unwrap().to_owned(),
        )
    }
}

fn job() -> NewJob {
    NewJob::new("mail", &doc! { "to": "ann" }).unwrap()
}

#[tokio::test]
async fn a_pattern_begun_within_a_transaction_exists_if_and_only_if_it_commits() {
    for database in databases() {
        let patterns = Patterns::open(&database).await;
        let before = patterns.seen(&database).await;
        let tx = database.begin().await.unwrap();
        patterns.all_within(&tx).await.unwrap();
        assert_eq!(patterns.seen(&database).await, before);
        tx.abort();
        assert_eq!(patterns.seen(&database).await, before);

        let tx = database.begin().await.unwrap();
        patterns.all_within(&tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(patterns.seen(&database).await, (1, 1, 2, 1, "Mary".to_owned()));
        // The remaining steps are made outside of the transaction.
        assert_eq!(patterns.two_phase.run(1).await.unwrap(), TwoPhaseOutcome::Done);
        let _ = patterns.names.sync(1).await.unwrap();
        let comment = database.find_one(&namespace("comments"), rawdoc! { "userName": "Mary" }).await.unwrap();
        assert!(comment.is_some());
    }
}

/// A transaction that loses the next place to another one is run again, and takes the place after it.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_post_to_one_account_all_come_through() {
    for database in databases() {
        let patterns = Patterns::open(&database).await;
        let mut posting = JoinSet::new();
        for number in 0..TASKS {
            let (database, ledger) = (database.clone(), patterns.ledger.clone());
            posting.spawn(async move {
                database
                    .transaction(async |tx: Transaction| {
                        let entry = NewEntry::transfer("ann", "bob", 1, "EUR").with_id(number);
                        let posted = ledger.within(Arc::new(tx)).post(entry).await;
                        posted.map_err(|error| handfast_txn::Error::from(handfast_store::Error::from(error)))
                    })
                    .await
                    .unwrap()
            });
        }
        for posted in posting.join_all().await {
            assert!(matches!(posted, Posting::Posted(_)), "{posted:?}");
        }
        while patterns.ledger.commit(100).await.unwrap().done > 0 {}
        let balance = patterns.ledger.balance("ann").await.unwrap().unwrap();
        assert_eq!((balance.balance, balance.pending), (100 - TASKS, 0));
        assert!(patterns.ledger.verify_all().await.unwrap().is_clean());
        assert_eq!(database.counts().open(), 0);
    }
}

/// Without a transaction around them the patterns work as on any store.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_a_store_for_all_of_them() {
    for database in databases() {
        let patterns = Arc::new(Patterns::open(&database).await);
        let mut tasks = JoinSet::new();
        for number in 0..TASKS {
            let patterns = Arc::clone(&patterns);
            tasks.spawn(async move {
                let Patterns { once, queue, ledger, two_phase, tree, .. } = &*patterns;
                let token = once.token();
                for _ in 0..2 {
                    assert!(once.apply(token, 1, &Change::increment("n", 1)).await.unwrap().is_applied());
                }
                queue.enqueue(job()).await.unwrap();
                let _ = ledger.post(NewEntry::transfer("ann", "bob", 1, "EUR")).await.unwrap();
                two_phase.begin(number, Transfer::new("A", "B", 1)).await.unwrap();
                assert_eq!(two_phase.run(number).await.unwrap(), TwoPhaseOutcome::Done);
                let change = tree.change(|mut write| async move {
                    write.put(number, doc! { "n": number }).await?;
                    Ok::<_, Error>(write.with_same_root())
                });
                change.await.unwrap();
            });
        }
        tasks.join_all().await;
        let Patterns { queue, ledger, two_phase, names, tree, .. } = &*patterns;
        let worker = Worker::new(queue.clone(), "w").handle("mail", |_, _: Document| async { Ok::<_, JobError>(()) });
        assert_eq!(worker.drain().await.unwrap().completed, TASKS as u64);
        assert_eq!(queue.list(JobState::Done, 100).await.unwrap().len(), TASKS as usize);
        while ledger.commit(100).await.unwrap().done > 0 {}
        assert!(ledger.verify_all().await.unwrap().is_clean());
        assert_eq!(ledger.balance("bob").await.unwrap().unwrap().balance, TASKS);
        assert!(two_phase.verify(10, |_| ()).await.unwrap().is_clean());
        let newest = tree.newest().await.unwrap().unwrap();
        assert_eq!(newest.all().await.unwrap().len(), TASKS as usize);
        assert!(tree.verify(None, |_| ()).await.unwrap().is_clean());
        let renamed = Change::new(doc! { "$set": { "name": "Mary" } });
        let _ = names.change(names.token(), 1, &renamed).await.unwrap();
        for (collection, filter) in [
            ("days", rawdoc! { "n": TASKS }),
            ("accounts", rawdoc! { "_id": "B", "balance": 100 + TASKS }),
            ("comments", rawdoc! { "userName": "Mary" }),
        ] {
            assert_eq!(database.count_matching(&namespace(collection), filter).await.unwrap(), 1, "{collection}");
        }
    }
}
