//! Tools of this crate's tests, and the tests that use a faulty engine.

mod crash_points;
pub(crate) mod faulty_engine;
mod power_loss;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, RawDocument, RawDocumentBuf, Timestamp, rawdoc};
use handfast_mql::update::{UpdateOptions, UpdateSource};
use handfast_mql::{CompileOptions, Context};
use handfast_store::decorator::Checked;
use handfast_store::source::cluster_clock::of_bits;
use handfast_store::{BatchLimit, Cursor, DocumentStore, Find, Namespace, Sources, Watch, WatchScope, WatchStart};

use crate::committer::Committer;
use crate::format::ChangeLogState;
use crate::store::assemble;
use crate::{EmbeddedStore, Options, directory};
use faulty_engine::FaultyEngine;

/// Opens a store on an engine whose faults the test plans.
pub(crate) fn open_faulty(path: &Path, options: Options) -> (Arc<FaultyEngine>, EmbeddedStore) {
    let (engine, committer) = start_faulty(path, &options);
    (engine, assemble(path, committer, Sources::seeded(1), options))
}

pub(crate) fn start_faulty(path: &Path, options: &Options) -> (Arc<FaultyEngine>, Committer) {
    let locked = directory::lock(path).unwrap();
    let opened = directory::open(&locked, options).unwrap();
    let engine = Arc::new(FaultyEngine::new(opened.engine));
    let committer =
        Committer::start(engine.clone(), opened.witness, opened.chain, options, &Sources::seeded(1)).unwrap();
    (engine, committer)
}

pub(crate) async fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path, Sources::seeded(1), Options::small()).await.unwrap()
}

pub(crate) fn namespace() -> Namespace {
    Namespace::new("db", "c").unwrap()
}

pub(crate) async fn all(mut cursor: Box<dyn Cursor>) -> Vec<RawDocumentBuf> {
    let mut documents = Vec::new();
    loop {
        let page = cursor.next_page(BatchLimit { documents: 7, bytes: 1 << 20 }).await.unwrap();
        documents.extend(page.documents);
        if page.exhausted {
            return documents;
        }
    }
}

/// Returns the store with a check of the contract, which fails the test at a wrong answer.
pub(crate) fn checked(store: &EmbeddedStore) -> Checked<EmbeddedStore> {
    Checked::new(store.clone(), Sources::seeded(1))
}

/// Returns the documents of a collection after the events of the log, which was begun before there were any.
pub(crate) async fn replayed(store: &EmbeddedStore, namespace: &Namespace) -> Vec<RawDocumentBuf> {
    let state = ChangeLogState::read(&*store.context.snapshot().view().unwrap()).unwrap().unwrap();
    let start = WatchStart::At(of_bits(state.since_time));
    let watch = Watch { start, ..Watch::new(WatchScope::Collection(namespace.clone())) };
    let mut stream = store.watch(watch).await.unwrap();
    let mut documents = BTreeMap::new();
    loop {
        let limit = BatchLimit { documents: 7, bytes: 1 << 20 };
        let page = stream.next_events(limit, Duration::ZERO).await.unwrap();
        for event in &page.events {
            let key = event.get_document("documentKey").unwrap();
            let key = handfast_mql::key::encoded(key.get("_id").unwrap().unwrap());
            match event.get_str("operationType").unwrap() {
                "insert" => {
                    let document = event.get_document("fullDocument").unwrap().to_owned();
                    assert!(documents.insert(key, document).is_none(), "inserted twice: {event:?}");
                }
                "replace" => {
                    let document = event.get_document("fullDocument").unwrap().to_owned();
                    assert!(documents.insert(key, document).is_some(), "replaced and not inserted: {event:?}");
                }
                "update" => {
                    let before = documents.remove(&key).expect("an inserted document");
                    documents.insert(key, updated(&before, event.get_document("updateDescription").unwrap()));
                }
                "delete" => assert!(documents.remove(&key).is_some(), "deleted and not inserted: {event:?}"),
                other => panic!("{other}"),
            }
        }
        if page.events.is_empty() {
            return documents.into_values().collect();
        }
    }
}

/// Applies the difference of an event. Truncated arrays are not in these tests.
fn updated(before: &RawDocument, description: &RawDocument) -> RawDocumentBuf {
    let mut update = RawDocumentBuf::new();
    update.append(bson::raw::cstr!("$set"), description.get_document("updatedFields").unwrap());
    let mut removed = RawDocumentBuf::new();
    for path in description.get_array("removedFields").unwrap() {
        let path = path.unwrap().as_str().unwrap().to_owned();
        removed.append(bson::raw::CString::try_from(path).unwrap(), true);
    }
    update.append(bson::raw::cstr!("$unset"), removed);
    let options = UpdateOptions { array_filters: &[], compile: CompileOptions::default(), keep_empty_timestamps: true };
    let update = handfast_mql::Update::compile(UpdateSource::Document(&update), &options).unwrap();
    let context = Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 1);
    update.apply(before, Default::default(), &context).unwrap().document
}

pub(crate) async fn find_all(store: &EmbeddedStore) -> Vec<RawDocumentBuf> {
    all(checked(store).find(Find::new(namespace(), rawdoc! {})).await.unwrap()).await
}
