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
use super::bare::Bare;
use super::measure::{Series, round};
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

    progress("journaled inserts");
    let mut comparisons = vec![
        inserts(plan, &clock, &store, &bare, &plain, false, 1 << 40).await?,
        inserts(plan, &clock, &store, &bare, &indexed, true, 2 << 40).await?,
    ];
    progress("loading documents to read");
    load(plan, &store, &bare, &plain).await?;
    progress("find by _id");
    comparisons.push(finds(plan, &clock, &store, &bare, &plain).await?);
    progress("update by _id");
    comparisons.push(updates(plan, &clock, &store, &bare, &plain).await?);
    Ok(comparisons)
}

async fn inserts(
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    store: &Arc<dyn DocumentStore>,
    bare: &Arc<Bare>,
    namespace: &Namespace,
    index: bool,
    first_id: u64,
) -> Result<Comparison> {
    let (mut subject, mut baseline) = (Series::default(), Series::default());
    let template = plan.document(1).into_bytes();
    let syncs_before = bare.syncs();
    for turn in 0..plan.rounds as u64 {
        let base = first_id + (turn << 32);
        let (template, writer) = (template.clone(), Arc::clone(bare));
        baseline.push(
            round(Arc::clone(clock), plan.tasks, plan.round_duration(), move |task, step| {
                let writer = Arc::clone(&writer);
                let id = base + ((task as u64) << 24) + step;
                let mut batch = vec![(false, bare_key(id, RECORD_KEY_BYTES), bare_value(&template))];
                if index {
                    batch.push((true, bare_key(id, INDEX_KEY_BYTES + RECORD_KEY_BYTES), vec![0; 4]));
                }
                async move { writer.write(batch).await }
            })
            .await?,
        );
        let documents = Arc::new((plan.document(1), namespace.clone(), Arc::clone(store)));
        let size = plan.document_bytes;
        let own = Plan { document_bytes: size, ..*plan };
        let own = Arc::new(own);
        subject.push(
            round(Arc::clone(clock), plan.tasks, plan.round_duration(), move |task, step| {
                let (shared, own) = (Arc::clone(&documents), Arc::clone(&own));
                let id = base + ((task as u64) << 24) + step;
                async move {
                    let document = own.document(i64::try_from(id)?);
                    let outcome = shared.2.insert(Insert::new(shared.1.clone(), vec![document])).await?;
                    ensure!(outcome.inserted == 1, "an insert was refused: {:?}", outcome.errors);
                    Ok(())
                }
            })
            .await?,
        );
    }
    let (case, promised) = if index { ("insert, one index", 0.4) } else { ("insert", 0.6) };
    let syncs = bare.syncs() - syncs_before;
    Ok(Comparison::new(case, &subject, "bare group commit", &baseline, plan.promises.ratio(promised))
        .with_note(format!("{} tasks; baseline syncs {syncs}", plan.tasks)))
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
        bare.write((next..end).map(|id| (false, bare_key(id, RECORD_KEY_BYTES), bare_value(&template))).collect())
            .await?;
        next = end;
    }
    Ok(())
}

async fn finds(
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    store: &Arc<dyn DocumentStore>,
    bare: &Arc<Bare>,
    namespace: &Namespace,
) -> Result<Comparison> {
    let (mut subject, mut baseline) = (Series::default(), Series::default());
    let documents = plan.documents;
    for _ in 0..plan.rounds {
        let reader = Arc::clone(bare);
        baseline.push(
            round(Arc::clone(clock), plan.tasks, plan.round_duration(), move |task, step| {
                let reader = Arc::clone(&reader);
                async move {
                    let key = bare_key(scattered(task, step, documents), RECORD_KEY_BYTES);
                    reader.read(&key)?.context("a loaded record is missing")?;
                    yield_now_and_then(step).await;
                    Ok(())
                }
            })
            .await?,
        );
        let shared = Arc::new((namespace.clone(), Arc::clone(store)));
        subject.push(
            round(Arc::clone(clock), plan.tasks, plan.round_duration(), move |task, step| {
                let shared = Arc::clone(&shared);
                async move {
                    let id = i64::try_from(scattered(task, step, documents))?;
                    let mut cursor = shared.1.find(Find::new(shared.0.clone(), rawdoc! { "_id": id })).await?;
                    let page = cursor.next_page(BatchLimit::REPLY).await?;
                    ensure!(page.documents.len() == 1, "a loaded document is missing: {id}");
                    yield_now_and_then(step).await;
                    Ok(())
                }
            })
            .await?,
        );
    }
    Ok(Comparison::new("find by _id", &subject, "bare point read", &baseline, plan.promises.ratio(0.5))
        .with_note(format!("{documents} documents of {} bytes", plan.document_bytes)))
}

async fn updates(
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    store: &Arc<dyn DocumentStore>,
    bare: &Arc<Bare>,
    namespace: &Namespace,
) -> Result<Comparison> {
    let (mut subject, mut baseline) = (Series::default(), Series::default());
    let documents = plan.documents;
    let syncs_before = bare.syncs();
    for _ in 0..plan.rounds {
        let engine = Arc::clone(bare);
        baseline.push(
            round(Arc::clone(clock), plan.tasks, plan.round_duration(), move |task, step| {
                let engine = Arc::clone(&engine);
                async move {
                    let key = bare_key(scattered(task, step, documents), RECORD_KEY_BYTES);
                    let value = engine.read(&key)?.context("a loaded record is missing")?;
                    engine.write(vec![(false, key, value.to_vec())]).await
                }
            })
            .await?,
        );
        let shared = Arc::new((namespace.clone(), Arc::clone(store)));
        subject.push(
            round(Arc::clone(clock), plan.tasks, plan.round_duration(), move |task, step| {
                let shared = Arc::clone(&shared);
                async move {
                    let id = i64::try_from(scattered(task, step, documents))?;
                    let change = UpdateSpec::Document(rawdoc! { "$inc": { "count": 1 } });
                    let statement = UpdateStatement::one(rawdoc! { "_id": id }, change);
                    let outcome = shared.1.update(Update::new(shared.0.clone(), vec![statement])).await?;
                    ensure!(outcome.modified == 1, "an update did not apply: {:?}", outcome.errors);
                    Ok(())
                }
            })
            .await?,
        );
    }
    let syncs = bare.syncs() - syncs_before;
    Ok(Comparison::new("update by _id ($inc)", &subject, "bare read and group commit", &baseline, None)
        .with_note(format!("{} tasks; baseline syncs {syncs}", plan.tasks)))
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
