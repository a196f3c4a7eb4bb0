//! Tools of this crate's tests, and the tests that use a faulty engine.

mod crash_points;
pub(crate) mod faulty_engine;
mod power_loss;

use std::path::Path;
use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::decorator::Checked;
use handfast_store::{BatchLimit, Cursor, DocumentStore, Find, Namespace, Sources};

use crate::committer::Committer;
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
    let clock = Sources::seeded(1).clock;
    let committer = Committer::start(engine.clone(), opened.witness, opened.chain, clock, options).unwrap();
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

pub(crate) async fn find_all(store: &EmbeddedStore) -> Vec<RawDocumentBuf> {
    all(checked(store).find(Find::new(namespace(), rawdoc! {})).await.unwrap()).await
}
