//! The commands that run: for `currentOp`, and so that `killOp` and the end of a session can stop them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::RawDocumentBuf;
use tokio::sync::Notify;

use crate::lock::lock;
use crate::request::SessionId;

/// The command's document is shown by `currentOp` up to this many bytes.
const SHOWN_BYTES_MAX: usize = 1_000;

/// A command that runs.
pub(crate) struct Running {
    pub(crate) id: i32,
    pub(crate) connection: u64,
    pub(crate) client: String,
    pub(crate) app_name: Option<String>,
    pub(crate) database: String,
    pub(crate) command: &'static str,
    /// The command, if it is small enough to be shown, and nobody's secret.
    pub(crate) document: Option<RawDocumentBuf>,
    pub(crate) session: Option<SessionId>,
    /// The number of the transaction that it is part of.
    pub(crate) transaction: Option<i64>,
    /// When it began, as time since the clock's start.
    pub(crate) since: Duration,
    /// Told when somebody kills the command; the command alone waits for it.
    killed: Notify,
}

/// What is to be noted of a command.
pub(crate) struct Noted<'a> {
    pub(crate) connection: u64,
    pub(crate) client: &'a str,
    pub(crate) app_name: Option<String>,
    pub(crate) database: &'a str,
    pub(crate) command: &'static str,
    /// None if it may hold what nobody else may see.
    pub(crate) body: Option<&'a bson::RawDocument>,
    pub(crate) session: Option<SessionId>,
    pub(crate) transaction: Option<i64>,
    pub(crate) since: Duration,
}

type Table = Mutex<BTreeMap<i32, Arc<Running>>>;

/// The table of running commands.
pub(crate) struct Operations {
    table: Table,
    next_id: AtomicI32,
}

/// A command's place in the table, until it is dropped.
pub(crate) struct Operation<'a> {
    running: Arc<Running>,
    table: &'a Table,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        lock(self.table).remove(&self.running.id);
    }
}

impl Operation<'_> {
    pub(crate) fn id(&self) -> i32 {
        self.running.id
    }

    /// When the command began, as time since the clock's start.
    pub(crate) fn since(&self) -> Duration {
        self.running.since
    }

    /// Returns once somebody has killed the command, also if that was before.
    pub(crate) async fn killed(&self) {
        self.running.killed.notified().await;
    }
}

impl Operations {
    pub(crate) fn new() -> Self {
        Operations { table: Table::default(), next_id: AtomicI32::new(1) }
    }

    /// Notes a command.
    pub(crate) fn begin(&self, noted: &Noted<'_>) -> Operation<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let shown = noted.body.filter(|body| body.as_bytes().len() <= SHOWN_BYTES_MAX);
        let running = Arc::new(Running {
            id,
            connection: noted.connection,
            client: noted.client.to_owned(),
            app_name: noted.app_name.clone(),
            database: noted.database.to_owned(),
            command: noted.command,
            document: shown.map(bson::RawDocument::to_owned),
            session: noted.session,
            transaction: noted.transaction,
            since: noted.since,
            killed: Notify::new(),
        });
        lock(&self.table).insert(id, Arc::clone(&running));
        Operation { running, table: &self.table }
    }

    /// The commands that run, the oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<Running>> {
        let mut list: Vec<_> = lock(&self.table).values().cloned().collect();
        list.sort_by_key(|running| (running.since, running.id));
        list
    }

    /// Tells a command to stop; `false` if there is none of that id.
    pub(crate) fn kill(&self, id: i32) -> bool {
        match lock(&self.table).get(&id) {
            Some(running) => {
                running.killed.notify_one();
                true
            }
            None => false,
        }
    }

    /// Tells the commands of sessions to stop, except one: the command that asks for it.
    pub(crate) fn kill_of_sessions(&self, sessions: &[SessionId], except: i32) {
        for running in lock(&self.table).values() {
            if running.id != except && running.session.is_some_and(|session| sessions.contains(&session)) {
                running.killed.notify_one();
            }
        }
    }
}
