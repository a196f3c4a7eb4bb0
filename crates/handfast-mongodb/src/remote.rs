//! The cluster as something that commands are sent to.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{Durability, Namespace, Result};
use mongodb::Client;

use crate::command::{self, Command};
use crate::concern::Concerns;
use crate::cursor::MongoCursor;
use crate::error::{Effect, incomplete, no_answer, of_driver};
use crate::reply;

/// A client of a cluster, and what all commands have in common.
pub(crate) struct Remote {
    pub(crate) client: Client,
    pub(crate) concerns: Concerns,
    /// Statements of one command at most.
    pub(crate) statements_max: usize,
    pub(crate) reply_timeout: Duration,
    /// Where something was written last that is not durable yet, as far as anybody knows.
    unflushed: Mutex<Option<Namespace>>,
}

/// Whether to wait for an answer as long as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as the options say.
    Bounded,
    /// Until the connection breaks.
    Endless,
}

impl Remote {
    pub(crate) fn new(client: Client, concerns: Concerns, statements_max: usize, reply_timeout: Duration) -> Self {
        Remote { client, concerns, statements_max, reply_timeout, unflushed: Mutex::default() }
    }

    fn reply_timeout(&self, patience: Patience) -> Option<Duration> {
        match patience {
            Patience::Bounded => Some(self.reply_timeout),
            Patience::Endless => None,
        }
    }

    async fn within<T>(
        &self,
        patience: Patience,
        effect: Effect,
        call: impl Future<Output = mongodb::error::Result<T>>,
    ) -> Result<T> {
        let answer = match self.reply_timeout(patience) {
            None => call.await,
            Some(limit) => match tokio::time::timeout(limit, call).await {
                Ok(answer) => answer,
                Err(_) => return Err(no_answer(limit, effect)),
            },
        };
        answer.map_err(|error| of_driver(error, effect))
    }

    /// Runs a command.
    pub(crate) async fn run(
        &self,
        database: &str,
        command: Command,
        effect: Effect,
        patience: Patience,
    ) -> Result<RawDocumentBuf> {
        let database = self.client.database(database);
        let run = async { database.run_raw_command(command.done()).await };
        let reply = self.within(patience, effect, run).await?;
        RawDocumentBuf::try_from(&reply).map_err(|error| incomplete(&error.to_string(), effect))
    }

    /// Runs a command that changes nothing.
    pub(crate) async fn read(&self, database: &str, command: Command, patience: Patience) -> Result<RawDocumentBuf> {
        self.run(database, command, Effect::Nothing, patience).await
    }

    /// Runs a command about collections and indexes.
    pub(crate) async fn define(&self, database: &str, command: Command) -> Result<RawDocumentBuf> {
        let command = command.put(cstr!("writeConcern"), self.concerns.write(Durability::Journaled));
        let reply = self.run(database, command, Effect::Several, Patience::Endless).await?;
        reply::check_write_concern(&reply)?;
        Ok(reply)
    }

    /// Runs a command that writes documents.
    pub(crate) async fn write(
        &self,
        namespace: &Namespace,
        command: Command,
        durability: Durability,
        effect: Effect,
    ) -> Result<RawDocumentBuf> {
        let command = command.put(cstr!("writeConcern"), self.concerns.write(durability));
        let reply = self.run(namespace.database(), command, effect, Patience::Bounded).await?;
        self.note_unflushed(namespace, durability);
        Ok(reply)
    }

    /// Runs a command whose answer is a cursor, and awaits its first documents.
    pub(crate) async fn open(
        &self,
        database: &str,
        command: Command,
        effect: Effect,
        patience: Patience,
    ) -> Result<MongoCursor> {
        let database = self.client.database(database);
        let source = self.within(patience, effect, database.run_raw_cursor_command(command.done()).batch()).await?;
        let mut cursor = MongoCursor::new(source, effect, self.reply_timeout(patience));
        cursor.fetch().await?;
        Ok(cursor)
    }

    /// The command with the read concern of all reads.
    pub(crate) fn reading(&self, command: Command) -> Command {
        command.put_some(cstr!("readConcern"), self.concerns.read())
    }

    /// Keeps in mind that something is not durable yet.
    fn note_unflushed(&self, namespace: &Namespace, durability: Durability) {
        if self.concerns.leaves_undone(durability) {
            *self.unflushed.lock().unwrap_or_else(PoisonError::into_inner) = Some(namespace.clone());
        }
    }

    /// Returns once all that was acknowledged is durable. A write that changes nothing is acknowledged when everything
    /// before it is: the server waits for the end of its log.
    pub(crate) async fn flush(&self) -> Result<()> {
        let unflushed = self.unflushed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(namespace) = unflushed else { return Ok(()) };
        let nothing = rawdoc! { "q": { "_id": { "$in": [] } }, "limit": 1 };
        let command = command::delete(&namespace, &[nothing], true, &rawdoc! {});
        let flushed = self.write(&namespace, command, Durability::Journaled, Effect::Nothing).await;
        let checked = flushed.and_then(|reply| reply::check_write_concern(&reply));
        if checked.is_err() {
            self.note_unflushed(&namespace, Durability::Memory);
        }
        checked
    }
}
