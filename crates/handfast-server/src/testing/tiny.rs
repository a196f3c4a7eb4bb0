//! A store of a few lines: lists of documents, filtered. It can be told to be slow or to fail, which a good store never
//! does when a test needs it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf, Timestamp, rawdoc};
use handfast_mql::{Code, CompileOptions, Context, Filter};
use handfast_store::*;

use crate::batches::ListCursor;
use crate::lock::lock;

/// See the module.
#[derive(Default)]
pub(crate) struct TinyStore {
    collections: Mutex<BTreeMap<Namespace, Vec<RawDocumentBuf>>>,
    /// The delay of each read.
    pub(crate) delay: Mutex<Duration>,
    /// The delay of each page of a cursor.
    pub(crate) page_delay: Arc<Mutex<Duration>>,
    /// The error of each write.
    pub(crate) failure: Mutex<Option<Error>>,
    /// The result of a check of a collection, if it is not that of reading it.
    pub(crate) check: Mutex<Option<CollectionCheck>>,
    /// Inserts that were finished.
    pub(crate) inserts: Mutex<Vec<Durability>>,
}

impl TinyStore {
    fn matching(&self, namespace: &Namespace, filter: &RawDocumentBuf) -> Result<Vec<RawDocumentBuf>> {
        let filter = Filter::compile(filter, &CompileOptions::default())?;
        let context = Context::new(bson::DateTime::MIN, Timestamp { time: 0, increment: 0 }, 1);
        let collections = lock(&self.collections);
        let mut found = Vec::new();
        for document in collections.get(namespace).into_iter().flatten() {
            if filter.matches(document, &context)? {
                found.push(document.clone());
            }
        }
        Ok(found)
    }

    async fn wait(&self) {
        let delay = *lock(&self.delay);
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
    }
}

/// A cursor that takes its time.
struct SlowCursor {
    cursor: Box<dyn Cursor>,
    delay: Arc<Mutex<Duration>>,
}

#[async_trait]
impl Cursor for SlowCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        let delay = *lock(&self.delay);
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
        self.cursor.next_page(limit).await
    }
}

fn missing<T>() -> Result<T> {
    Err(Error::command(Code::NotImplemented, "not in the tiny store"))
}

#[async_trait]
impl DocumentStore for TinyStore {
    fn name(&self) -> &'static str {
        "tiny"
    }

    async fn insert(&self, request: Insert) -> Result<InsertOutcome> {
        self.wait().await;
        if let Some(error) = lock(&self.failure).clone() {
            return Err(error);
        }
        let mut collections = lock(&self.collections);
        let collection = collections.entry(request.namespace.clone()).or_default();
        let mut outcome = InsertOutcome::default();
        for (index, document) in request.documents.into_iter().enumerate() {
            let id = document.get("_id").unwrap();
            if collection.iter().any(|other| other.get("_id").unwrap() == id) {
                let text = format!("E11000 duplicate key error collection: {} index: _id_", request.namespace);
                let details = rawdoc! { "keyPattern": { "_id": 1 }, "keyValue": { "_id": RawBson::from(id.unwrap()) } };
                let error = Error::command(Code::DuplicateKey, text).with_details(details);
                outcome.errors.push(WriteError { index, error });
                if request.ordered {
                    break;
                }
                continue;
            }
            collection.push(document);
            outcome.inserted += 1;
        }
        lock(&self.inserts).push(request.durability);
        Ok(outcome)
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.wait().await;
        let found = self.matching(&request.namespace, &request.filter)?;
        let skip = usize::try_from(request.skip).unwrap();
        let limit = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
        let cursor = ListCursor::new(found.into_iter().skip(skip).take(limit).collect());
        Ok(Box::new(SlowCursor { cursor: Box::new(cursor), delay: Arc::clone(&self.page_delay) }))
    }

    async fn update(&self, _request: Update) -> Result<UpdateOutcome> {
        missing()
    }

    async fn find_and_modify(&self, _request: FindAndModify) -> Result<FindAndModifyOutcome> {
        missing()
    }

    async fn delete(&self, request: Delete) -> Result<DeleteOutcome> {
        let mut outcome = DeleteOutcome::default();
        for statement in request.statements {
            let mut found = self.matching(&request.namespace, &statement.filter)?;
            found.truncate(if statement.multi { usize::MAX } else { 1 });
            let mut collections = lock(&self.collections);
            let collection = collections.entry(request.namespace.clone()).or_default();
            collection.retain(|document| !found.contains(document));
            outcome.deleted += found.len() as u64;
        }
        Ok(outcome)
    }

    async fn aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        match request.source {
            AggregateSource::Collection(namespace) if request.pipeline.is_empty() => {
                self.find(Find::new(namespace, rawdoc! {})).await
            }
            AggregateSource::Collection(_) if request.pipeline.iter().any(|stage| stage.get_str("$out").is_ok()) => {
                self.wait().await;
                Ok(Box::new(ListCursor::new(Vec::new())))
            }
            _ => missing(),
        }
    }

    async fn count(&self, request: Count) -> Result<u64> {
        self.wait().await;
        Ok(self.matching(&request.namespace, &request.filter)?.len() as u64)
    }

    async fn distinct(&self, request: Distinct) -> Result<Vec<RawBson>> {
        let found = self.matching(&request.namespace, &request.filter)?;
        let values = found.iter().filter_map(|document| document.get(&request.key).unwrap());
        Ok(values.map(RawBson::from).collect())
    }

    async fn explain(&self, _request: Explain) -> Result<RawDocumentBuf> {
        Ok(rawdoc! { "queryPlanner": { "winningPlan": { "stage": "COLLSCAN" } } })
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<(u32, u32)> {
        Ok((1, 1 + u32::try_from(request.indexes.len()).unwrap()))
    }

    async fn drop_indexes(&self, _request: DropIndexes) -> Result<u32> {
        missing()
    }

    async fn list_indexes(&self, namespace: &Namespace) -> Result<Vec<IndexInfo>> {
        if !lock(&self.collections).contains_key(namespace) {
            return Err(Error::command(Code::NamespaceNotFound, format!("ns does not exist: {namespace}")));
        }
        let spec = IndexSpec { name: "_id_".to_owned(), ..IndexSpec::new(rawdoc! { "_id": 1 }) };
        Ok(vec![IndexInfo { spec }])
    }

    async fn create_collection(&self, namespace: &Namespace, _options: CollectionOptions) -> Result<()> {
        lock(&self.collections).entry(namespace.clone()).or_default();
        Ok(())
    }

    async fn modify_collection(&self, _request: ModifyCollection) -> Result<RawDocumentBuf> {
        missing()
    }

    async fn rename_collection(&self, request: RenameCollection) -> Result<()> {
        let mut collections = lock(&self.collections);
        let documents = collections.remove(&request.from).unwrap_or_default();
        collections.insert(request.to, documents);
        Ok(())
    }

    async fn drop_collection(&self, namespace: &Namespace) -> Result<bool> {
        Ok(lock(&self.collections).remove(namespace).is_some())
    }

    async fn list_collections(&self, database: &str) -> Result<Vec<CollectionInfo>> {
        let collections = lock(&self.collections);
        let names = collections.keys().filter(|namespace| namespace.database() == database);
        let info = |namespace: &Namespace| CollectionInfo {
            name: namespace.collection().to_owned(),
            options: CollectionOptions {},
            uuid: [1; 16],
        };
        Ok(names.map(info).collect())
    }

    async fn list_databases(&self) -> Result<Vec<String>> {
        let mut names: Vec<_> =
            lock(&self.collections).keys().map(|namespace| namespace.database().to_owned()).collect();
        names.dedup();
        Ok(names)
    }

    async fn drop_database(&self, database: &str) -> Result<bool> {
        let mut collections = lock(&self.collections);
        let before = collections.len();
        collections.retain(|namespace, _| namespace.database() != database);
        Ok(collections.len() < before)
    }

    async fn collection_stats(&self, namespace: &Namespace) -> Result<CollectionStats> {
        let collections = lock(&self.collections);
        let Some(documents) = collections.get(namespace) else { return Ok(CollectionStats::default()) };
        Ok(CollectionStats {
            exists: true,
            count: documents.len() as u64,
            size_bytes: documents.iter().map(|document| document.as_bytes().len() as u64).sum(),
            storage_bytes: 4096,
            index_bytes: vec![("_id_".to_owned(), 100)],
        })
    }

    async fn check_collection(&self, namespace: &Namespace) -> Result<CollectionCheck> {
        let told = lock(&self.check).clone();
        match told {
            Some(check) => Ok(check),
            None => check_by_reading(self, namespace).await,
        }
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }
}
