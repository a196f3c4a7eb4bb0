//! The state that all connections share, and the state of one connection.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{DateTime, RawBsonRef};
use handfast_store::Sources;
use handfast_txn::Database;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::auth::login::Login;
use crate::auth::user::UserId;
use crate::auth::users::Users;
use crate::cluster_time::ClusterTime;
use crate::commands::{COMMANDS, TEST_COMMANDS};
use crate::cursors::Cursors;
use crate::fail_points::FailPoints;
use crate::lock::lock;
use crate::memory_budget::MemoryBudget;
use crate::metrics::{Metrics, NamespaceCounters, ReaperJobs};
use crate::operations::{CommandSlot, Operations};
use crate::options::{Options, Topology};
use crate::patterns::OpenPatterns;
use crate::sessions::{SESSIONS_MAX, Sessions};
use crate::write_signals::WriteSignals;

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) users: Users,
    pub(crate) sources: Sources,
    pub(crate) patterns: OpenPatterns,
    pub(crate) options: Options,
    pub(crate) cursors: Cursors,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) operations: Operations,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) requests: MemoryBudget,
    /// The memory budget of inflated requests. It is separate from that of the requests, because a request waits for this one while it
    /// holds a reservation of its own.
    pub(crate) inflated: MemoryBudget,
    pub(crate) replies: MemoryBudget,
    /// Connections that are open.
    pub(crate) connections: AtomicUsize,
    /// Open connections that have not logged in, where a login is needed.
    pub(crate) unauthenticated: AtomicUsize,
    /// Connections that are being refused because there are too many.
    pub(crate) refusals: AtomicUsize,
    /// Becomes `true` when the shutdown begins; connections wait for it.
    shutdown: watch::Sender<bool>,
    /// A copy of `shutdown` that each command reads, because reading the channel takes a lock.
    shutting_down: AtomicBool,
    /// The id of this run of the server in `topologyVersion`.
    pub(crate) process_id: ObjectId,
    pub(crate) started: Duration,
    /// `None` for a standalone server.
    pub(crate) cluster_time: Option<ClusterTime>,
    /// The fail points, if test commands are enabled.
    pub(crate) fail_points: Option<FailPoints>,
    pub(crate) write_signals: WriteSignals,
    /// The time, in milliseconds, from which a command is logged as slow.
    slow_millis: AtomicU64,
    /// The time, in milliseconds, that a transaction may be open.
    transaction_lifetime_millis: AtomicU64,
    next_request_id: AtomicI32,
}

impl Shared {
    pub(crate) fn new(database: Database, options: Options) -> Self {
        let sources = database.sources().clone();
        let is_replicated = options.topology != Topology::Standalone;
        Shared {
            users: Users::new(Arc::new(database.clone())),
            database,
            patterns: OpenPatterns::new(),
            cursors: Cursors::new(options.cursors, Arc::clone(&sources.random)),
            sessions: Arc::new(Sessions::new(SESSIONS_MAX)),
            operations: Operations::new(),
            metrics: Arc::new(Metrics::new(COMMANDS.iter().chain(TEST_COMMANDS).map(|command| command.name))),
            requests: MemoryBudget::new(options.connections.request_bytes_max),
            inflated: MemoryBudget::new(options.connections.request_bytes_max),
            replies: MemoryBudget::new(options.connections.reply_bytes_max),
            connections: AtomicUsize::new(0),
            unauthenticated: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            shutdown: watch::channel(false).0,
            shutting_down: AtomicBool::new(false),
            process_id: sources.ids.object_id(),
            started: sources.clock.elapsed(),
            cluster_time: is_replicated.then(|| ClusterTime::new(Arc::clone(&sources.cluster_clock))),
            fail_points: options.test_commands.then(FailPoints::default),
            write_signals: WriteSignals::default(),
            slow_millis: AtomicU64::new(u64::try_from(options.slow_operation.as_millis()).unwrap_or(u64::MAX)),
            transaction_lifetime_millis: AtomicU64::new(
                u64::try_from(options.transaction_lifetime.as_millis()).unwrap_or(u64::MAX),
            ),
            next_request_id: AtomicI32::new(1),
            sources,
            options,
        }
    }

    /// Returns the time since the clock's start.
    pub(crate) fn now(&self) -> Duration {
        self.sources.clock.elapsed()
    }

    /// Returns the time from which a command is logged as slow, in milliseconds.
    pub(crate) fn slow_millis(&self) -> u64 {
        self.slow_millis.load(Ordering::Relaxed)
    }

    /// Changes this time until the server stops.
    pub(crate) fn set_slow_millis(&self, millis: u64) {
        self.slow_millis.store(millis, Ordering::Relaxed);
    }

    /// Returns the time that a transaction may be open.
    pub(crate) fn transaction_lifetime(&self) -> Duration {
        Duration::from_millis(self.transaction_lifetime_millis.load(Ordering::Relaxed))
    }

    /// Changes this time, for transactions that begin later, until the server stops.
    pub(crate) fn set_transaction_lifetime(&self, lifetime: Duration) {
        let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        self.transaction_lifetime_millis.store(millis, Ordering::Relaxed);
    }

    /// Returns the time since the server was started.
    pub(crate) fn uptime(&self) -> Duration {
        self.now().saturating_sub(self.started)
    }

    /// Returns the moment at which the server was started.
    pub(crate) fn started_at(&self) -> DateTime {
        let ago = i64::try_from(self.uptime().as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.sources.clock.now().timestamp_millis().saturating_sub(ago))
    }

    /// Returns the id of the next message that the server sends.
    pub(crate) fn request_id(&self) -> i32 {
        self.next_request_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }

    /// Begins the shutdown.
    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Release);
        self.shutdown.send_replace(true);
    }

    /// Returns the receiver for [`shutdown_begun`].
    pub(crate) fn subscribe_to_shutdown(&self) -> watch::Receiver<bool> {
        self.shutdown.subscribe()
    }

    /// Returns once the server begins to shut down.
    pub(crate) async fn shutting_down(&self) {
        shutdown_begun(&mut self.subscribe_to_shutdown()).await;
    }

    /// Advances the cluster time while there are no writes.
    pub(crate) fn tick(&self) {
        if let Some(time) = &self.cluster_time {
            time.reach(self.sources.clock.now());
        }
    }

    /// Rolls back the transactions that have exceeded their lifetime, and releases old snapshots.
    pub(crate) fn expire_transactions(&self) {
        let counts = self.database.counts();
        if counts.open() == 0 && counts.snapshots == 0 {
            return;
        }
        for open in self.sessions.expire_transactions() {
            info!(session = %open.session, number = open.number, "a transaction exceeded its lifetime and was rolled back");
            self.cursors.kill_of_transaction(open.session, open.number);
        }
    }

    /// Removes outcomes of commits and retryable writes that are older than the retention.
    pub(crate) async fn forget_outcomes(&self) {
        match self.database.forget_outcomes(self.options.outcome_retention).await {
            Ok(records) => {
                let mut jobs = lock(&self.metrics.reaper);
                let (count, last) = (jobs.count + 1, Some(self.sources.clock.now()));
                *jobs = ReaperJobs { count, last, last_removed: records };
                if records > 0 {
                    info!(records, "old outcomes of transactions and retryable writes were removed");
                }
            }
            Err(error) => warn!(%error, "old outcomes of transactions and retryable writes cannot be removed"),
        }
    }

    /// Closes the cursors and ends the sessions that have timed out.
    pub(crate) fn expire(&self) {
        self.expire_transactions();
        let now = self.now();
        self.cursors.expire(now);
        let ended = self.sessions.expire(now);
        if !ended.is_empty() {
            self.cursors.kill_of_sessions(&ended);
        }
    }
}

/// Returns once the shutdown has begun.
pub(crate) async fn shutdown_begun(shutdown: &mut watch::Receiver<bool>) {
    // The sender lives as long as the connections, so an error means that no shutdown can come.
    if shutdown.wait_for(|begun| *begun).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A collection that a connection has used, and its counters.
struct UsedNamespace {
    /// `database.collection`.
    name: String,
    counters: Arc<NamespaceCounters>,
}

impl UsedNamespace {
    fn is(&self, database: &str, collection: &str) -> bool {
        let rest = self.name.strip_prefix(database).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| rest == collection)
    }
}

/// The state of one connection.
pub(crate) struct Client {
    /// The number of the connection, from 1; `hello` shows it.
    pub(crate) id: u64,
    /// The address of the client.
    pub(crate) remote: String,
    /// The address at which it was accepted.
    local: String,
    /// The host name to which the client connected, as most clients send it over TLS, with the server's port.
    dialled: OnceLock<String>,
    /// The metadata of the driver in its first `hello`.
    metadata: Mutex<Option<Arc<RawDocumentBuf>>>,
    /// The command that it runs.
    pub(crate) command_slot: CommandSlot,
    /// The collection that it used last.
    used_last: Mutex<Option<UsedNamespace>>,
    /// The state of its login.
    pub(crate) login: Login,
    hung_up: AtomicBool,
}

impl Client {
    pub(crate) fn new(id: u64, remote: String, local: String) -> Self {
        Client {
            id,
            remote,
            local,
            dialled: OnceLock::new(),
            metadata: Mutex::new(None),
            command_slot: CommandSlot::default(),
            used_last: Mutex::new(None),
            login: Login::default(),
            hung_up: AtomicBool::new(false),
        }
    }

    /// Keeps the host name of the TLS handshake (SNI, which is never an IP address). A client that checks certificates cannot use
    /// another name of the server.
    pub(crate) fn dialled(&self, name: &str) {
        let port = self.local.rsplit_once(':').map_or("", |(_, port)| port);
        self.dialled.get_or_init(|| format!("{name}:{port}"));
    }

    /// Returns the address to which the client connected, as far as the server knows it.
    pub(crate) fn address(&self) -> &str {
        self.dialled.get().unwrap_or(&self.local)
    }

    /// Counts a use of a collection, and the plans by which it was searched. Most connections use the same one again, whose counters are then not looked up.
    pub(crate) fn count(
        &self,
        metrics: &Metrics,
        (database, collection): (&str, &str),
        write: bool,
        time: Duration,
        plans: &str,
    ) {
        let mut used_last = lock(&self.used_last);
        if let Some(used) = used_last.as_ref().filter(|used| used.is(database, collection)) {
            used.counters.count(write, time);
            used.counters.count_plans(plans);
            return;
        }
        let name = [database, ".", collection].concat();
        if let Some(counters) = metrics.namespace(&name) {
            counters.count(write, time);
            counters.count_plans(plans);
            *used_last = Some(UsedNamespace { name, counters });
        }
    }

    /// Keeps the first metadata that the driver sends.
    pub(crate) fn introduce(&self, metadata: &RawDocument) {
        lock(&self.metadata).get_or_insert_with(|| Arc::new(metadata.to_owned()));
    }

    pub(crate) fn metadata(&self) -> Option<Arc<RawDocumentBuf>> {
        lock(&self.metadata).clone()
    }

    /// Lets its connection close without a reply; a fail point does this.
    pub(crate) fn hang_up(&self) {
        self.hung_up.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed)
    }

    /// Returns the id of the user who has logged in.
    pub(crate) fn user_id(&self) -> Option<UserId> {
        self.login.user().map(|user| user.user.id)
    }

    /// Returns the `application.name` of the driver's metadata.
    pub(crate) fn app_name(&self) -> Option<String> {
        let metadata = self.metadata()?;
        match metadata.get_document("application").ok()?.get("name") {
            Ok(Some(RawBsonRef::String(name))) => Some(name.to_owned()),
            _ => None,
        }
    }
}
