//! `handfast bench store`: the embedded store against the bare key-value engine under it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{
    BatchLimit, Clock, CreateIndexes, DocumentStore, Find, IndexSpec, Insert, Namespace, Update, UpdateSpec,
    UpdateStatement,
};

use super::Promises;
use super::bare::{Bare, Put};
use super::measure::{Round, interleaved, round};
use super::report::Comparison;

/// Bytes that the embedded store puts before a document and its key; the baseline writes as many, so that both write
/// the same.
const RECORD_HEADER_BYTES: usize = 13;
/// Bytes of a document's key: collection, type, eight bytes of number.
pub(super) const RECORD_KEY_BYTES: usize = 13;
/// Bytes of an index entry's key beside the record key.
const INDEX_KEY_BYTES: usize = 17;

pub(crate) struct Plan {
    pub(crate) tasks: usize,
    pub(crate) documents: u64,
    pub(crate) document_bytes: usize,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) cache_bytes: u64,
    pub(super) promises: Promises,
}

impl Plan {
    pub(super) fn round_duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns a document of about the wanted size.
    pub(crate) fn document(&self, id: i64) -> RawDocumentBuf {
        document(id, self.document_bytes)
    }
}

/// Returns a document of about the wanted size.
pub(crate) fn document(id: i64, bytes: usize) -> RawDocumentBuf {
    let fixed = rawdoc! { "_id": id, "group": id % 1000, "count": 0_i32, "text": "" }.as_bytes().len();
    let text = "x".repeat(bytes.saturating_sub(fixed));
    rawdoc! { "_id": id, "group": id % 1000, "count": 0_i32, "text": text }
}

/// Runs all cases.
pub(crate) async fn run(
    plan: &Plan,
    clock: Arc<dyn Clock>,
    store: Arc<dyn DocumentStore>,
    bare_directory: &Path,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Comparison>> {
    let bare = Arc::new(Bare::open(bare_directory, plan.cache_bytes)?);
    let plain = Namespace::new("bench", "plain")?;
    let indexed = Namespace::new("bench", "indexed")?;
    store
        .create_indexes(CreateIndexes {
            namespace: indexed.clone(),
            indexes: vec![IndexSpec::new(rawdoc! { "group": 1 })],
        })
        .await?;
    let bench = Bench { plan, clock, store, bare };

    progress("journaled inserts");
    let mut comparisons = vec![bench.inserts(&plain, false).await?, bench.inserts(&indexed, true).await?];
    progress("loading documents to read");
    load(plan, &bench.store, &bench.bare, &plain).await?;
    progress("find by _id");
    comparisons.push(bench.finds(&plain).await?);
    progress("update by _id");
    comparisons.push(bench.updates(&plain).await?);
    Ok(comparisons)
}

/// The state that the cases share.
struct Bench<'a> {
    plan: &'a Plan,
    clock: Arc<dyn Clock>,
    store: Arc<dyn DocumentStore>,
    bare: Arc<Bare>,
}

impl Bench<'_> {
    async fn inserts(&self, namespace: &Namespace, has_index: bool) -> Result<Comparison> {
        let (case, promised, first_id) =
            if has_index { ("insert, one index", 0.4, 2 << 40) } else { ("insert", 0.6, 1 << 40) };
        let document_bytes = self.plan.document_bytes;
        let template = self.plan.document(1).into_bytes();
        let id_of = move |turn: u64, task: usize, step: u64| first_id + (turn << 32) + ((task as u64) << 24) + step;
        let syncs_before = self.bare.syncs();
        let rounds = interleaved(
            self.plan.rounds,
            async |turn| {
                let (bare, template) = (Arc::clone(&self.bare), template.clone());
                self.round(move |task, step| {
                    let bare = Arc::clone(&bare);
                    let id = id_of(turn, task, step);
                    let mut batch = vec![Put::document(bare_key(id, RECORD_KEY_BYTES), bare_value(&template))];
                    if has_index {
                        batch.push(Put::index(bare_key(id, INDEX_KEY_BYTES + RECORD_KEY_BYTES), vec![0; 4]));
                    }
                    async move { bare.write(batch).await }
                })
                .await
            },
            async |turn| {
                let (store, namespace) = (Arc::clone(&self.store), namespace.clone());
                self.round(move |task, step| {
                    let (store, namespace) = (Arc::clone(&store), namespace.clone());
                    async move {
                        let document = document(i64::try_from(id_of(turn, task, step))?, document_bytes);
                        let outcome = store.insert(Insert::new(namespace, vec![document])).await?;
                        ensure!(outcome.inserted == 1, "an insert was refused: {:?}", outcome.errors);
                        Ok(())
                    }
                })
                .await
            },
        )
        .await?;
        let promised = self.plan.promises.ratio(promised);
        Ok(Comparison::new(case, "bare group commit", &rounds, promised).with_note(self.syncs_since(syncs_before)))
    }

    async fn finds(&self, namespace: &Namespace) -> Result<Comparison> {
        let documents = self.plan.documents;
        let rounds = interleaved(
            self.plan.rounds,
            async |_| {
                let bare = Arc::clone(&self.bare);
                self.round(move |task, step| {
                    let bare = Arc::clone(&bare);
                    async move {
                        let key = bare_key(scattered(task, step, documents), RECORD_KEY_BYTES);
                        bare.read(&key)?.context("a loaded record is missing")?;
                        yield_now_and_then(step).await;
                        Ok(())
                    }
                })
                .await
            },
            async |_| {
                let (store, namespace) = (Arc::clone(&self.store), namespace.clone());
                self.round(move |task, step| {
                    let (store, namespace) = (Arc::clone(&store), namespace.clone());
                    async move {
                        let id = i64::try_from(scattered(task, step, documents))?;
                        let mut cursor = store.find(Find::new(namespace, rawdoc! { "_id": id })).await?;
                        let page = cursor.next_page(BatchLimit::REPLY).await?;
                        ensure!(page.documents.len() == 1, "a loaded document is missing: {id}");
                        yield_now_and_then(step).await;
                        Ok(())
                    }
                })
                .await
            },
        )
        .await?;
        let promised = self.plan.promises.ratio(0.5);
        Ok(Comparison::new("find by _id", "bare point read", &rounds, promised)
            .with_note(format!("{documents} documents of {} bytes", self.plan.document_bytes)))
    }

    async fn updates(&self, namespace: &Namespace) -> Result<Comparison> {
        let documents = self.plan.documents;
        let syncs_before = self.bare.syncs();
        let rounds = interleaved(
            self.plan.rounds,
            async |_| {
                let bare = Arc::clone(&self.bare);
                self.round(move |task, step| {
                    let bare = Arc::clone(&bare);
                    async move {
                        let key = bare_key(scattered(task, step, documents), RECORD_KEY_BYTES);
                        let value = bare.read(&key)?.context("a loaded record is missing")?;
                        bare.write(vec![Put::document(key, value.to_vec())]).await
                    }
                })
                .await
            },
            async |_| {
                let (store, namespace) = (Arc::clone(&self.store), namespace.clone());
                self.round(move |task, step| {
                    let (store, namespace) = (Arc::clone(&store), namespace.clone());
                    async move {
                        let id = i64::try_from(scattered(task, step, documents))?;
                        let change = UpdateSpec::Document(rawdoc! { "$inc": { "count": 1 } });
                        let statement = UpdateStatement::one(rawdoc! { "_id": id }, change);
                        let outcome = store.update(Update::new(namespace, vec![statement])).await?;
                        ensure!(outcome.modified == 1, "an update did not apply: {:?}", outcome.errors);
                        Ok(())
                    }
                })
                .await
            },
        )
        .await?;
        let note = self.syncs_since(syncs_before);
        Ok(Comparison::new("update by _id ($inc)", "bare read and group commit", &rounds, None).with_note(note))
    }

    async fn round<F, O>(&self, operation: F) -> Result<Round>
    where
        F: Fn(usize, u64) -> O + Clone + Send + 'static,
        O: Future<Output = Result<()>> + Send,
    {
        round(Arc::clone(&self.clock), self.plan.tasks, self.plan.round_duration(), operation).await
    }

    /// Returns the note of a case that writes.
    fn syncs_since(&self, before: u64) -> String {
        format!("{} tasks; baseline syncs {}", self.plan.tasks, self.bare.syncs() - before)
    }
}

/// Documents that one load request carries.
const LOAD_BATCH_DOCUMENTS: u64 = 1000;

/// Puts the documents into the store, and records of the same size into the engine.
pub(super) async fn load(
    plan: &Plan,
    store: &Arc<dyn DocumentStore>,
    bare: &Arc<Bare>,
    namespace: &Namespace,
) -> Result<()> {
    let template = plan.document(1).into_bytes();
    let mut next = 0;
    while next < plan.documents {
        let end = (next + LOAD_BATCH_DOCUMENTS).min(plan.documents);
        let documents = (next..end).map(|id| Ok(plan.document(i64::try_from(id)?))).collect::<Result<Vec<_>>>()?;
        let outcome = store.insert(Insert::new(namespace.clone(), documents)).await?;
        ensure!(outcome.errors.is_empty(), "an insert was refused: {:?}", outcome.errors);
        bare.write(
            (next..end).map(|id| Put::document(bare_key(id, RECORD_KEY_BYTES), bare_value(&template))).collect(),
        )
        .await?;
        next = end;
    }
    Ok(())
}

/// Yields now and then: point reads never wait, and a task that never waits blocks the others.
async fn yield_now_and_then(step: u64) {
    const READS_BETWEEN_YIELDS: u64 = 64;
    if step.is_multiple_of(READS_BETWEEN_YIELDS) {
        tokio::task::yield_now().await;
    }
}

/// Returns a document number: an odd multiplier scatters consecutive steps over the collection.
pub(crate) fn scattered(task: usize, step: u64, documents: u64) -> u64 {
    ((task as u64) << 32 | step).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) % documents
}

pub(super) fn bare_key(id: u64, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes];
    let place = bytes.saturating_sub(8);
    key.splice(place.., id.to_be_bytes());
    key
}

pub(super) fn bare_value(document: &[u8]) -> Vec<u8> {
    let mut value = vec![0; RECORD_HEADER_BYTES];
    value.extend_from_slice(document);
    value
}
