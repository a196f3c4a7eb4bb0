//! The commands that run: for `currentOp`, and so that `killOp` and the end of a session can stop them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::RawDocumentBuf;
use tokio::sync::watch;

use crate::lock::lock;
use crate::request::SessionId;

/// The command's document is shown by `currentOp` up to this many bytes.
const SHOWN_BYTES_MAX: usize = 1_000;

/// A command that runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) id: i32,
    pub(crate) connection: u64,
    pub(crate) client: String,
    pub(crate) app_name: Option<String>,
    pub(crate) database: String,
    pub(crate) command: String,
    /// The command, if it is small enough to be shown.
    pub(crate) document: Option<RawDocumentBuf>,
    pub(crate) session: Option<SessionId>,
    /// When it began, as time since the clock's start.
    pub(crate) since: Duration,
    killed: watch::Sender<bool>,
}

/// What is to be noted of a command.
pub(crate) struct Noted<'a> {
    pub(crate) connection: u64,
    pub(crate) client: &'a str,
    pub(crate) app_name: Option<String>,
    pub(crate) database: &'a str,
    pub(crate) command: &'a str,
    pub(crate) body: &'a bson::RawDocument,
    pub(crate) session: Option<SessionId>,
    pub(crate) since: Duration,
}

/// The table of running commands.
pub(crate) struct Operations {
    running: Arc<Mutex<HashMap<i32, Running>>>,
    next_id: AtomicI32,
}

/// A command's place in the table, until it is dropped.
pub(crate) struct Operation {
    id: i32,
    running: Arc<Mutex<HashMap<i32, Running>>>,
    killed: watch::Receiver<bool>,
}

impl Drop for Operation {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.id);
    }
}

impl Operation {
    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    /// Returns once somebody has killed the command.
    pub(crate) async fn killed(&self) {
        let mut killed = self.killed.clone();
        // The sender lives in the table as long as this place does: no error while we wait.
        if killed.wait_for(|killed| *killed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Operations {
    pub(crate) fn new() -> Self {
        Operations { running: Arc::default(), next_id: AtomicI32::new(1) }
    }

    /// Notes a command.
    pub(crate) fn begin(&self, noted: &Noted<'_>) -> Operation {
        let (sender, killed) = watch::channel(false);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let small = noted.body.as_bytes().len() <= SHOWN_BYTES_MAX;
        let running = Running {
            id,
            connection: noted.connection,
            client: noted.client.to_owned(),
            app_name: noted.app_name.clone(),
            database: noted.database.to_owned(),
            command: noted.command.to_owned(),
            document: small.then(|| noted.body.to_owned()),
            session: noted.session,
            since: noted.since,
            killed: sender,
        };
        lock(&self.running).insert(id, running);
        Operation { id, running: Arc::clone(&self.running), killed }
    }

    /// The commands that run, the oldest first.
    pub(crate) fn list(&self) -> Vec<Running> {
        let mut list: Vec<_> = lock(&self.running).values().cloned().collect();
        list.sort_by_key(|running| (running.since, running.id));
        list
    }

    /// Tells a command to stop; `false` if there is none of that id.
    pub(crate) fn kill(&self, id: i32) -> bool {
        match lock(&self.running).get(&id) {
            Some(running) => {
                running.killed.send_replace(true);
                true
            }
            None => false,
        }
    }

    /// Tells the commands of sessions to stop, except one: the command that asks for it.
    pub(crate) fn kill_of_sessions(&self, sessions: &[SessionId], except: i32) {
        for running in lock(&self.running).values() {
            if running.id != except && running.session.is_some_and(|session| sessions.contains(&session)) {
                running.killed.send_replace(true);
            }
        }
    }
}
