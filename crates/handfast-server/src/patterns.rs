//! The patterns of handfast-patterns that clients use by commands: job queues, ledgers and the others.
//!
//! A pattern is opened by its first command, as a Rust program opens it: with the recorded settings, or with the defaults, which are then recorded, and with
//! its indexes. It is kept, so that the other commands open nothing.
//!
//! Settings name further collections, and a client may have written them. Roles are given for databases, so a command uses collections of its own
//! database alone.

mod exactly_once;
pub(crate) mod sync_flag;
pub(crate) mod two_phase;
pub(crate) mod versioned_tree;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_patterns::{
    ExactlyOnce, JobQueue, JobQueueOptions, Ledger, LedgerOptions, SyncFlag, TwoPhase, VersionedTree,
};
use handfast_store::decorator::{DelegatingStore, WithDurability};
use handfast_store::{DocumentStore, Namespace, StoreExt};
use handfast_txn::Transaction;
use lru::LruCache;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::auth::guard::is_protected;
use crate::commands::Call;
use crate::error::{CommandError, CommandResult};
use crate::lock::lock;
use crate::request::check_written;
use crate::sessions::OpenTransaction;
use crate::state::Shared;
use crate::transactions::RequestContext;

/// Limit on the patterns of a kind that are kept. Others are opened again.
const OPEN_MAX: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
/// The time after which a pattern is opened again: another program may have changed its settings, or dropped its collection with the indexes.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);

/// The patterns that are open.
pub(crate) struct OpenPatterns {
    queues: Kept<JobQueue>,
    ledgers: Kept<Ledger>,
    once: Kept<ExactlyOnce>,
    two_phase: Kept<TwoPhase>,
    flags: Kept<SyncFlag>,
    trees: Kept<VersionedTree>,
    /// Held shared by commands that rely on a unique index, and alone by those that may drop it.
    indexes: RwLock<()>,
}

/// The open patterns of a kind, by their collections.
pub(crate) struct Kept<P>(Mutex<LruCache<Namespace, OpenPattern<P>>>);

struct OpenPattern<P> {
    pattern: P,
    /// The time at which it was opened, since the clock's start.
    since: Duration,
}

/// A kind of patterns.
pub(crate) trait Pattern: Clone + Send + Sync + 'static {
    /// Opens the pattern in a collection, with its indexes.
    fn open(shared: &Shared, namespace: Namespace) -> impl Future<Output = CommandResult<Self>> + Send;
    /// Returns the pattern on another store.
    fn on(&self, store: Arc<dyn DocumentStore>) -> Self;
    fn kept(patterns: &OpenPatterns) -> &Kept<Self>;
}

/// A kind of patterns that can be read without being created.
pub(crate) trait ReadPattern: Pattern {
    /// Opens the pattern in a collection without writing anything.
    fn attach(shared: &Shared, namespace: Namespace) -> impl Future<Output = CommandResult<Self>> + Send;
}

impl Pattern for JobQueue {
    async fn open(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let store = store_of(shared);
        let options = JobQueueOptions::recorded(Arc::clone(&store), &namespace).await?.unwrap_or_default();
        Ok(JobQueue::open_with(store, namespace, shared.sources.clone(), options).await?)
    }

    fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        self.within(store)
    }

    fn kept(patterns: &OpenPatterns) -> &Kept<Self> {
        &patterns.queues
    }
}

impl ReadPattern for JobQueue {
    async fn attach(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let store = store_of(shared);
        let options = JobQueueOptions::recorded(Arc::clone(&store), &namespace).await?.unwrap_or_default();
        Ok(JobQueue::attach(store, namespace, shared.sources.clone(), options).await?)
    }
}

impl Pattern for Ledger {
    async fn open(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let options = ledger_options(shared, &namespace).await?;
        Ok(Ledger::open_with(store_of(shared), namespace, shared.sources.clone(), options).await?)
    }

    fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        self.within(store)
    }

    fn kept(patterns: &OpenPatterns) -> &Kept<Self> {
        &patterns.ledgers
    }
}

impl ReadPattern for Ledger {
    async fn attach(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let options = ledger_options(shared, &namespace).await?;
        Ok(Ledger::attach(store_of(shared), namespace, shared.sources.clone(), options).await?)
    }
}

/// The store of an open transaction.
struct TransactionStore(Arc<OpenTransaction>);

impl DelegatingStore for TransactionStore {
    type Inner = Transaction;

    fn inner(&self) -> &Transaction {
        &self.0.transaction
    }
}

impl OpenPatterns {
    pub(crate) fn new() -> Self {
        OpenPatterns {
            queues: Kept::new(),
            ledgers: Kept::new(),
            once: Kept::new(),
            two_phase: Kept::new(),
            flags: Kept::new(),
            trees: Kept::new(),
            indexes: RwLock::new(()),
        }
    }

    /// Keeps the unique indexes of patterns while a command relies on them: from the opening of its pattern, which creates them, until its document is inserted.
    pub(crate) async fn keep_indexes(&self) -> RwLockReadGuard<'_, ()> {
        self.indexes.read().await
    }

    /// Waits for the commands that rely on unique indexes, and keeps others waiting: an index may be dropped. Afterwards the patterns must be forgotten.
    pub(crate) async fn may_drop_indexes(&self) -> RwLockWriteGuard<'_, ()> {
        self.indexes.write().await
    }

    /// Forgets all patterns: a collection or an index was dropped, or a collection was renamed.
    pub(crate) fn forget(&self) {
        self.queues.forget();
        self.ledgers.forget();
        self.once.forget();
        self.two_phase.forget();
        self.flags.forget();
        self.trees.forget();
    }
}

impl<P: Clone> Kept<P> {
    fn new() -> Self {
        Kept(Mutex::new(LruCache::new(OPEN_MAX)))
    }

    fn forget(&self) {
        lock(&self.0).clear();
    }

    fn get(&self, namespace: &Namespace, now: Duration) -> Option<P> {
        let mut open = lock(&self.0);
        let open = open.get(namespace).filter(|open| now.saturating_sub(open.since) < OPEN_TIME_MAX)?;
        Some(open.pattern.clone())
    }
}

/// Returns the pattern that a command names: in its transaction, or with its write concern.
pub(crate) async fn of<P: Pattern>(call: &Call<'_>) -> CommandResult<P> {
    let pattern = opened::<P>(call).await?;
    Ok(pattern.on(store_of_call(call)))
}

/// Returns the pattern that a command names outside of its transaction, with its write concern.
pub(crate) async fn outside<P: Pattern>(call: &Call<'_>) -> CommandResult<P> {
    let pattern = opened::<P>(call).await?;
    Ok(pattern.on(durable_store(call)))
}

/// Returns the ledger with what a command resolves, in its transaction; `None` if there is no such ledger. A name that is misspelt creates none.
pub(crate) async fn ledger_with_entries(call: &Call<'_>) -> CommandResult<Option<Ledger>> {
    let (shared, namespace) = (call.shared, call.request.namespace()?);
    if Ledger::kept(&shared.patterns).get(&namespace, shared.now()).is_none()
        && LedgerOptions::recorded(store_of(shared), &namespace).await?.is_none()
        && store_of(shared).find_one(&namespace, RawDocumentBuf::new()).await?.is_none()
    {
        return Ok(None);
    }
    of(call).await.map(Some)
}

/// Returns the pattern that a command reads, in its transaction. It is not created, so that its reader needs no role to do so.
pub(crate) async fn to_read<P: ReadPattern>(call: &Call<'_>) -> CommandResult<P> {
    let (shared, namespace) = (call.shared, call.request.namespace()?);
    let pattern = match P::kept(&shared.patterns).get(&namespace, shared.now()) {
        Some(open) => open,
        None => P::attach(shared, namespace).await?,
    };
    Ok(pattern.on(store_of_call(call)))
}

/// Returns an open pattern. It is opened outside of the transaction of the command, which could not create its indexes.
async fn opened<P: Pattern>(call: &Call<'_>) -> CommandResult<P> {
    let namespace = call.request.namespace()?;
    check_written(&namespace)?;
    let (kept, now) = (P::kept(&call.shared.patterns), call.shared.now());
    if let Some(open) = kept.get(&namespace, now) {
        return Ok(open);
    }
    let pattern = P::open(call.shared, namespace.clone()).await?;
    lock(&kept.0).put(namespace, OpenPattern { pattern: pattern.clone(), since: now });
    Ok(pattern)
}

/// Returns the recorded options of a ledger, or the defaults.
///
/// # Errors
/// `Unauthorized` (13) if it has its accounts or its authorisations in a collection that no client may use, `InvalidNamespace` (73) for another system collection.
async fn ledger_options(shared: &Shared, entries: &Namespace) -> CommandResult<LedgerOptions> {
    let options = LedgerOptions::recorded(store_of(shared), entries).await?.unwrap_or_default();
    for collection in [&options.accounts, &options.holds] {
        check_usable(entries, &Namespace::new(entries.database(), collection.as_str())?)?;
    }
    Ok(options)
}

/// Checks that a command may use a collection that the settings of its pattern name.
///
/// # Errors
/// `Unauthorized` (13) for a collection that no client may use, and for one of another database; `InvalidNamespace` (73) for another system collection.
fn check_usable(pattern: &Namespace, named: &Namespace) -> CommandResult<()> {
    check_written(named)?;
    let refused = |why: &str| {
        let text = format!("not authorized on {named}, which the settings of {pattern} name{why}");
        Err(CommandError::new(Code::Unauthorized, text))
    };
    if named.database() != pattern.database() {
        return refused(": a command uses the collections of its own database");
    }
    if is_protected(named) { refused("") } else { Ok(()) }
}

fn store_of(shared: &Shared) -> Arc<dyn DocumentStore> {
    Arc::new(shared.database.clone())
}

/// Returns the store of a command: its transaction, or the database with the command's write concern.
pub(crate) fn store_of_call(call: &Call<'_>) -> Arc<dyn DocumentStore> {
    match call.context {
        RequestContext::Transaction { open, .. } => Arc::new(TransactionStore(Arc::clone(open))),
        RequestContext::Plain | RequestContext::RetryableWrite { .. } | RequestContext::Snapshot(_) => {
            durable_store(call)
        }
    }
}

/// Returns the store of a command outside of its transaction, with its write concern.
pub(crate) fn durable_store(call: &Call<'_>) -> Arc<dyn DocumentStore> {
    Arc::new(WithDurability::new(store_of(call.shared), call.durability()))
}
