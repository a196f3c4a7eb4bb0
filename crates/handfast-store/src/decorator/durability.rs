//! A decorator that changes the durability of writes.

use std::sync::Arc;

use async_trait::async_trait;

use super::DelegatingStore;
use crate::{
    Aggregate, Cursor, Delete, DeleteOutcome, DocumentStore, Durability, FindAndModify, FindAndModifyOutcome, Insert,
    InsertOutcome, Result, Update, UpdateOutcome,
};

/// A store whose writes all have one durability, for the patterns, which request [`Durability::Journaled`] in each step.
///
/// With [`Durability::Memory`] a step does not wait for the sync, and a crash may undo the newest writes of the whole store. The
/// pattern is then in an earlier state, from which its recovery continues. If the documents of a pattern are in several stores, a
/// crash of one of them may undo a step and leave a later one, and the recovery fails. Use [`Durability::Journaled`] there (a sharded
/// cluster is always written to with `Journaled`).
///
/// ```
/// use std::sync::Arc;
/// use bson::rawdoc;
/// use handfast_store::decorator::WithDurability;
/// use handfast_store::{DocumentStore, Durability, MemoryStore, Namespace, Sources, StoreExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_store::Result<()> {
/// let store = Arc::new(MemoryStore::new(Sources::seeded(1)));
/// let hasty = WithDurability::new(store, Durability::Memory);
/// hasty.insert_one(&Namespace::new("site", "days")?, rawdoc! { "_id": "2016-06-28" }).await?;
/// hasty.flush().await?; // now it is durable
/// # Ok(())
/// # }
/// ```
pub struct WithDurability<S: ?Sized> {
    store: Arc<S>,
    durability: Durability,
}

impl<S: DocumentStore + ?Sized> WithDurability<S> {
    /// Wraps a store.
    pub fn new(store: Arc<S>, durability: Durability) -> Self {
        WithDurability { store, durability }
    }
}

#[async_trait]
impl<S: DocumentStore + ?Sized> DelegatingStore for WithDurability<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.store
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.store.insert(Insert { durability: self.durability, ..request }).await
    }

    async fn update(&self, request: Update) -> Result<UpdateOutcome> {
        self.store.update(Update { durability: self.durability, ..request }).await
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.store.find_and_modify(FindAndModify { durability: self.durability, ..request }).await
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.store.delete(Delete { durability: self.durability, ..request }).await
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        self.store.aggregate(Aggregate { durability: self.durability, ..request }).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use bson::rawdoc;

    use super::super::DelegatingStore;
    use super::WithDurability;
    use crate::{
        Aggregate, Cursor, Delete, DeleteOutcome, DocumentStore, Durability, FindAndModify, FindAndModifyOutcome,
        Insert, InsertOutcome, MemoryStore, Modification, Namespace, Result, Sources, StoreExt, Update, UpdateOutcome,
    };

    /// Records the durability of each write.
    struct RecordingStore {
        store: MemoryStore,
        asked: Mutex<Vec<Durability>>,
    }

    impl RecordingStore {
        fn note(&self, durability: Durability) {
            self.asked.lock().expect("no panic").push(durability);
        }
    }

    #[async_trait]
    impl DelegatingStore for RecordingStore {
        type Inner = MemoryStore;

        fn inner(&self) -> &MemoryStore {
            &self.store
        }

        async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
            self.note(request.durability);
            self.store.insert(request).await
        }

        async fn update(&self, request: Update) -> Result<UpdateOutcome> {
            self.note(request.durability);
            self.store.update(request).await
        }

        async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
            self.note(request.durability);
            self.store.find_and_modify(request).await
        }

        async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
            self.note(request.durability);
            self.store.delete(request).await
        }

        async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
            self.note(request.durability);
            self.store.aggregate(request).await
        }
    }

    #[tokio::test]
    async fn every_write_has_the_durability_of_the_store() {
        let store = MemoryStore::new(Sources::seeded(1));
        let recording = Arc::new(RecordingStore { store, asked: Mutex::default() });
        let c = Namespace::valid("d", "c");
        for durability in [Durability::Memory, Durability::Journaled] {
            let store: &dyn DocumentStore = &WithDurability::new(Arc::clone(&recording), durability);
            store.insert_one(&c, rawdoc! { "_id": 1 }).await.expect("inserted");
            let updated = store.update_one(&c, rawdoc! { "_id": 1 }, rawdoc! { "$set": { "a": 1 } }).await;
            assert_eq!(updated.expect("updated").modified, 1);
            let modification = Modification::Remove;
            store.find_and_modify(FindAndModify::new(c.clone(), rawdoc! { "_id": 1 }, modification)).await.expect("ok");
            store.delete_many(&c, rawdoc! {}).await.expect("deleted");
            let out = vec![rawdoc! { "$out": "copies" }];
            store.aggregate(Aggregate::new(c.clone(), out)).await.expect("written");
            assert_eq!(std::mem::take(&mut *recording.asked.lock().expect("no panic")), [durability; 5]);
        }
    }
}
