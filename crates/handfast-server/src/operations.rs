//! The running commands, for `currentOp`, `killOp` and the end of a session.
//!
//! A connection runs one command at a time, and each connection has its own slot for it, so that no command waits for one of another
//! connection. `currentOp` and `killOp` visit the slots of all connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::RawDocumentBuf;
use tokio::sync::Notify;

use crate::commands::Command;
use crate::lock::lock;
use crate::request::{Request, SessionId};
use crate::state::Client;

/// `currentOp` shows a command's document up to this size.
const SHOWN_BYTES_MAX: usize = 1_000;

/// A command that runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) id: i32,
    pub(crate) database: String,
    pub(crate) command: &'static str,
    /// The command, if it is small enough to be shown, and not confidential.
    pub(crate) document: Option<RawDocumentBuf>,
    pub(crate) session: Option<SessionId>,
    /// The number of the transaction that it is part of.
    pub(crate) transaction: Option<i64>,
    /// The time at which it began, since the clock's start.
    pub(crate) since: Duration,
    /// Whether a client has killed it.
    killed: bool,
}

/// The command that one connection runs.
#[derive(Default)]
pub(crate) struct CommandSlot {
    running: Mutex<Option<Running>>,
    /// Notified when the command is killed. The command alone waits for it, and may end before the notification.
    killed: Notify,
}

impl CommandSlot {
    /// Kills the command of this slot if it matches, and returns whether it did.
    fn kill_if(&self, is_meant: impl Fn(&Running) -> bool) -> bool {
        match lock(&self.running).as_mut().filter(|running| is_meant(running)) {
            Some(running) => {
                running.killed = true;
                self.killed.notify_one();
                true
            }
            None => false,
        }
    }

    fn is_killed(&self) -> bool {
        lock(&self.running).as_ref().is_some_and(|running| running.killed)
    }
}

/// The connections, and the numbers of their commands.
pub(crate) struct Operations {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_id: AtomicI32,
}

/// Keeps a connection in the list until it is dropped.
pub(crate) struct Registration<'a> {
    operations: &'a Operations,
    id: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.operations.remove(self.id);
    }
}

/// A command in the slot of its connection, until it is dropped.
pub(crate) struct Operation<'a> {
    slot: &'a CommandSlot,
    id: i32,
    since: Duration,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        *lock(&self.slot.running) = None;
    }
}

impl Operation<'_> {
    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    /// Returns the time at which the command began, since the clock's start.
    pub(crate) fn since(&self) -> Duration {
        self.since
    }

    /// Returns once the command was killed, also if that was before the call.
    pub(crate) async fn killed(&self) {
        loop {
            self.slot.killed.notified().await;
            // The notification may have been for the command before this one.
            if self.slot.is_killed() {
                return;
            }
        }
    }
}

impl Operations {
    pub(crate) fn new() -> Self {
        Operations { clients: Mutex::default(), next_id: AtomicI32::new(1) }
    }

    /// Adds a connection to the list, until the registration is dropped.
    pub(crate) fn register(&self, client: &Arc<Client>) -> Registration<'_> {
        self.add(client);
        Registration { operations: self, id: client.id }
    }

    /// Adds a client to the list.
    pub(crate) fn add(&self, client: &Arc<Client>) {
        lock(&self.clients).insert(client.id, Arc::clone(client));
    }

    /// Removes a client from the list.
    pub(crate) fn remove(&self, id: u64) {
        lock(&self.clients).remove(&id);
    }

    /// Puts a command into the slot of its connection.
    pub(crate) fn begin<'a>(
        &self,
        client: &'a Client,
        request: &Request<'_>,
        command: &Command,
        since: Duration,
    ) -> Operation<'a> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let is_shown = !command.confidential && request.body.as_bytes().len() <= SHOWN_BYTES_MAX;
        *lock(&client.command_slot.running) = Some(Running {
            id,
            database: request.database.to_owned(),
            command: command.name,
            document: is_shown.then(|| request.body.to_owned()),
            session: request.session,
            transaction: request.numbering.number().filter(|_| request.numbering.is_in_transaction()),
            since,
            killed: false,
        });
        Operation { slot: &client.command_slot, id, since }
    }

    /// Returns the running commands, the oldest first.
    pub(crate) fn list(&self) -> Vec<(Arc<Client>, Running)> {
        let running = |client: &Arc<Client>| {
            let running = lock(&client.command_slot.running).clone()?;
            Some((Arc::clone(client), running))
        };
        let mut list: Vec<_> = lock(&self.clients).values().filter_map(running).collect();
        list.sort_by_key(|(_, running)| (running.since, running.id));
        list
    }

    /// Returns the connections that run no command, in the order in which they were opened.
    pub(crate) fn idle(&self) -> Vec<Arc<Client>> {
        let is_idle = |client: &&Arc<Client>| lock(&client.command_slot.running).is_none();
        lock(&self.clients).values().filter(is_idle).map(Arc::clone).collect()
    }

    /// Kills a command. Returns `false` if there is none of that id.
    pub(crate) fn kill(&self, id: i32) -> bool {
        lock(&self.clients).values().any(|client| client.command_slot.kill_if(|running| running.id == id))
    }

    /// Kills the commands of sessions, except the command that asks for it.
    pub(crate) fn kill_of_sessions(&self, sessions: &[SessionId], except: i32) {
        for client in lock(&self.clients).values() {
            client.command_slot.kill_if(|running| {
                running.id != except && running.session.is_some_and(|session| sessions.contains(&session))
            });
        }
    }
}

#[cfg(test)]
mod tests;
