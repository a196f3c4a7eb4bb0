//! Sends commands to the cluster.

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

/// A client of a cluster with the concerns and limits of all commands.
pub(crate) struct Remote {
    pub(crate) client: Client,
    pub(crate) concerns: Concerns,
    /// The number of statements in one command.
    pub(crate) statements_max: usize,
    pub(crate) reply_timeout: Duration,
    /// The collection of the last write that may not be durable yet.
    unflushed: Mutex<Option<Namespace>>,
}

/// The time limit of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyWait {
    /// The limit of the options.
    Limited,
    /// There is no limit except the end of the connection.
    Unlimited,
}

impl Remote {
    pub(crate) fn new(client: Client, concerns: Concerns, statements_max: usize, reply_timeout: Duration) -> Self {
        Remote { client, concerns, statements_max, reply_timeout, unflushed: Mutex::default() }
    }

    fn reply_timeout(&self, wait: ReplyWait) -> Option<Duration> {
        match wait {
            ReplyWait::Limited => Some(self.reply_timeout),
            ReplyWait::Unlimited => None,
        }
    }

    async fn within<T>(
        &self,
        wait: ReplyWait,
        effect: Effect,
        call: impl Future<Output = mongodb::error::Result<T>>,
    ) -> Result<T> {
        let answer = match self.reply_timeout(wait) {
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
        wait: ReplyWait,
    ) -> Result<RawDocumentBuf> {
        let database = self.client.database(database);
        let run = async { database.run_raw_command(command.done()).await };
        let reply = self.within(wait, effect, run).await?;
        RawDocumentBuf::try_from(&reply).map_err(|error| incomplete(&error.to_string(), effect))
    }

    /// Runs a command that changes nothing.
    pub(crate) async fn read(&self, database: &str, command: Command, wait: ReplyWait) -> Result<RawDocumentBuf> {
        self.run(database, command, Effect::Nothing, wait).await
    }

    /// Runs a command about collections and indexes.
    pub(crate) async fn define(&self, database: &str, command: Command) -> Result<RawDocumentBuf> {
        let command = command.put(cstr!("writeConcern"), self.concerns.write(Durability::Journaled));
        let reply = self.run(database, command, Effect::Several, ReplyWait::Unlimited).await?;
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
        let reply = self.run(namespace.database(), command, effect, ReplyWait::Limited).await?;
        self.note_unflushed(namespace, durability);
        Ok(reply)
    }

    /// Runs a command whose answer is a cursor, and waits for its first documents.
    pub(crate) async fn open(
        &self,
        database: &str,
        command: Command,
        effect: Effect,
        wait: ReplyWait,
    ) -> Result<MongoCursor> {
        let database = self.client.database(database);
        let source = self.within(wait, effect, database.run_raw_cursor_command(command.done()).batch()).await?;
        let mut cursor = MongoCursor::new(source, effect, self.reply_timeout(wait));
        cursor.fetch().await?;
        Ok(cursor)
    }

    /// Adds the read concern to a command.
    pub(crate) fn reading(&self, command: Command) -> Command {
        command.put_some(cstr!("readConcern"), self.concerns.read())
    }

    /// Notes that a write may not be durable yet.
    fn note_unflushed(&self, namespace: &Namespace, durability: Durability) {
        if self.concerns.leaves_undone(durability) {
            *self.unflushed.lock().unwrap_or_else(PoisonError::into_inner) = Some(namespace.clone());
        }
    }

    /// Waits until all acknowledged writes are durable. It sends a write without changes, which the server acknowledges when its
    /// log up to there is durable.
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
