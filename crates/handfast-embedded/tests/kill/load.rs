//! The child's part: tasks that change the store, and print each step before it begins and after it is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_embedded::EmbeddedStore;
use handfast_store::decorator::Checked;
use handfast_store::{
    CollectionOptions, DocumentStore, DropIndexes, FindAndModify, IndexSelector, IndexSpec, Insert, Modification,
    Namespace, RequestedDocument, Result, ReturnDocument, StoreExt, Ticket, UpdateSpec,
};
use tokio::task::JoinSet;

use crate::step::{COUNTER, GROUPS, Step, filling, group};

/// The store, whose answers are checked against the contract.
pub(crate) type CheckedStore = Arc<Checked<EmbeddedStore>>;

/// The number of tasks that write documents at the same time.
pub(crate) const WRITERS: u64 = 4;
/// The number of the task that creates and drops an index and a collection.
pub(crate) const DEFINER: u64 = WRITERS;
/// The index that is created and dropped during the load.
pub(crate) const INDEX_NAME: &str = "n_1";

/// The pause between two rounds of the task that creates and drops: without it, index builds would be most of the journal.
const DEFINER_PAUSE: Duration = Duration::from_millis(50);

/// Returns the namespace of the documents.
pub(crate) fn documents() -> Namespace {
    Namespace::new("kill", "c").unwrap()
}

/// Returns the namespace of the collection that is created and dropped.
pub(crate) fn passing() -> Namespace {
    Namespace::new("kill", "passing").unwrap()
}

/// Returns the `_id` of a task's counter.
pub(crate) fn counter_id(writer: u64) -> String {
    format!("{COUNTER}-{writer}")
}

/// Changes the store until the process is killed. The number of the run makes its names unique.
pub(crate) async fn run(store: CheckedStore, run: u64) {
    for index in [
        IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "u": 1 }) },
        IndexSpec::new(rawdoc! { "tags": 1 }),
        IndexSpec::new(rawdoc! { "writer": 1, "group": 1, "n": 1 }),
    ] {
        store.create_index(&documents(), index).await.unwrap();
    }
    // The test harness has begun a line.
    println!();
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let task = Task { store: store.clone(), number: writer };
        tasks.spawn(async move { task.write(run).await });
    }
    let task = Task { store, number: DEFINER };
    tasks.spawn(async move { task.define(run).await });
    // No task ends by itself.
    tasks.join_next().await.unwrap().unwrap();
}

struct Task {
    store: CheckedStore,
    number: u64,
}

impl Task {
    async fn write(&self, run: u64) {
        let mut count = counter(&self.store, self.number).await;
        for n in 0_i64.. {
            let name = |n: i64| format!("{run}-{}-{n}", self.number);
            self.step(Step::Insert(name(n))).await;
            count += 1;
            self.step(Step::Count(count)).await;
            match n % 8 {
                1 | 3 => self.step(Step::Remove(name(n - 1))).await,
                // Deleted documents leave no entries in the unique index.
                4 => self.step(Step::Insert(name(n - 2))).await,
                5 => self.step(Step::RaiseGroup(n / 8 % GROUPS)).await,
                _ => {}
            }
            if n % 32 == 31 {
                self.step(Step::RemoveGroup(n / 32 % GROUPS)).await;
            }
        }
    }

    async fn define(&self, run: u64) {
        // An earlier run may have left them.
        self.step(Step::DropCollection).await;
        self.step(Step::DropIndex).await;
        for n in 0_i64.. {
            self.step(Step::CreateCollection).await;
            self.step(Step::CreateIndex).await;
            self.step(Step::Fill(i64::try_from(run).unwrap() * 1_000_000 + n)).await;
            self.step(Step::DropIndex).await;
            self.step(Step::DropCollection).await;
            tokio::time::sleep(DEFINER_PAUSE).await;
        }
    }

    async fn step(&self, step: Step) {
        println!("begin {} {step}", self.number);
        self.carry_out(&step).await.unwrap_or_else(|error| panic!("task {}: {step}: {error}", self.number));
        println!("done {} {step}", self.number);
    }

    async fn carry_out(&self, step: &Step) -> Result<()> {
        let (store, writer) = (&self.store, i64::try_from(self.number).unwrap());
        match step {
            Step::Insert(name) => {
                let group = group(name);
                let fill = "x".repeat(name.len() * 10 % 500);
                let document = rawdoc! {
                    "_id": name.as_str(), "u": name.as_str(), "writer": writer, "group": group, "n": 0_i64,
                    "tags": [group, group + 1, name.len() as i32], "fill": fill,
                };
                store.insert_one(&documents(), document).await
            }
            Step::Remove(name) => {
                assert!(store.delete_one(&documents(), rawdoc! { "_id": name.as_str() }).await?);
                Ok(())
            }
            Step::RaiseGroup(group) => {
                let raise = rawdoc! { "$inc": { "n": 1_i64 }, "$push": { "tags": "raised" } };
                store.update_many(&documents(), rawdoc! { "writer": writer, "group": *group }, raise).await.map(drop)
            }
            Step::RemoveGroup(group) => {
                store.delete_many(&documents(), rawdoc! { "writer": writer, "group": *group }).await.map(drop)
            }
            Step::Count(number) => {
                let counted = increment(store, self.number, *number).await?;
                assert_eq!(counted, *number, "counter {writer}");
                Ok(())
            }
            Step::CreateIndex => store.create_index(&documents(), IndexSpec::new(rawdoc! { "n": 1 })).await,
            Step::DropIndex => self.drop_index().await,
            Step::CreateCollection => {
                store.create_collection(&passing(), CollectionOptions::default()).await?;
                store.create_index(&passing(), IndexSpec::new(rawdoc! { "n": 1 })).await
            }
            Step::Fill(round) => {
                let filling = filling(*round).map(|name| rawdoc! { "_id": name, "n": 0_i64 }).collect();
                let outcome = store.insert(Insert::new(passing(), filling)).await?;
                assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
                Ok(())
            }
            Step::DropCollection => store.drop_collection(&passing()).await.map(drop),
        }
    }

    /// Drops the index if it is there.
    async fn drop_index(&self) -> Result<()> {
        let indexes = self.store.list_indexes(&documents()).await?;
        if indexes.iter().any(|index| index.spec.name == INDEX_NAME) {
            let selector = IndexSelector::Names(vec![INDEX_NAME.to_owned()]);
            self.store.drop_indexes(DropIndexes { namespace: documents(), selector }).await?;
        }
        Ok(())
    }
}

/// Returns the counter of a task.
pub(crate) async fn counter(store: &CheckedStore, writer: u64) -> i64 {
    let found = store.find_one(&documents(), rawdoc! { "_id": counter_id(writer) }).await.unwrap();
    found.map_or(0, |counter| counter.get_i64("n").unwrap())
}

/// Adds one to the counter of a task, in this request of its session. Returns the new value.
pub(crate) async fn increment(store: &CheckedStore, writer: u64, number: i64) -> Result<i64> {
    let ticket =
        Some(Ticket { session: [writer as u8; 16], number, statement: 0, requested: RequestedDocument::Nothing });
    let id = counter_id(writer);
    let modification = Modification::Update {
        update: UpdateSpec::Document(rawdoc! { "$inc": { "n": 1_i64 }, "$set": { "u": id.as_str() } }),
        upsert: true,
        returns: ReturnDocument::After,
        array_filters: Vec::new(),
    };
    let request = FindAndModify { ticket, ..FindAndModify::new(documents(), rawdoc! { "_id": id }, modification) };
    Ok(store.find_and_modify(request).await?.value.unwrap().get_i64("n").unwrap())
}
