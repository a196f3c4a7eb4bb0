//! Commands of the server's own process, such as those of its HTTP API. They run as the commands of a connection do, with the same checks, limits and metrics.
//!
//! ```text
//! server.in_process().connect(address)   a client, which `currentOp` lists as a connection
//!   log_in(name, password)               by the password itself: there is nobody between the client and the server
//!   run(database, command)               the reply, {ok: 1, ..} or {ok: 0, code, ..}
//! ```

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Namespace, Result, StoreExt as _};
use tokio::sync::watch;

use crate::auth::login::Authenticated;
use crate::auth::user::UserId;
use crate::auth::{Password, UserName};
use crate::dispatch;
use crate::error::CommandError;
use crate::exchange::check_document;
use crate::reply::failure;
use crate::request::Request;
use crate::state::{Client, Shared};

/// A server, for clients in its own process. It keeps the store of the server open: drop it and its clients before the store is closed.
#[derive(Clone)]
pub struct InProcess {
    shared: Arc<Shared>,
}

/// A client without a connection.
pub struct LocalClient {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

impl InProcess {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        InProcess { shared }
    }

    /// Returns whether commands need a login.
    pub fn requires_login(&self) -> bool {
        self.shared.options.authentication
    }

    /// Returns whether the server stops, so that it refuses commands.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.is_shutting_down()
    }

    /// Checks that the store answers a write, by one that changes nothing.
    ///
    /// # Errors
    /// The store's error: it cannot be reached, or has failed before.
    pub async fn check_store(&self) -> Result<()> {
        let nothing = rawdoc! { "_id": { "$in": [] } };
        self.shared.database.store().delete_one(&Namespace::new("admin", "system.version")?, nothing).await.map(|_| ())
    }

    /// Returns a receiver that changes after each later write to a collection through this server. It may change without one.
    pub fn writes_to(&self, namespace: Namespace) -> watch::Receiver<()> {
        self.shared.write_signals.subscribe(namespace)
    }

    /// Returns a client that has not logged in. `remote` is the address that `currentOp` and the log show.
    pub fn connect(&self, remote: impl Into<String>) -> LocalClient {
        let id = self.shared.metrics.connections_created.increment();
        let client = Arc::new(Client::new(id, remote.into(), "in process".to_owned()));
        self.shared.operations.add(&client);
        LocalClient { shared: Arc::clone(&self.shared), client }
    }
}

impl Drop for LocalClient {
    fn drop(&mut self) {
        self.shared.operations.remove(self.client.id);
    }
}

impl LocalClient {
    /// Logs in; returns whether there is such a user with this password. Both answers take the same time, also for a name that does not exist.
    ///
    /// # Errors
    /// Fails if the users cannot be read.
    pub async fn log_in(&self, name: &UserName, password: Password) -> Result<bool> {
        let users = &self.shared.users;
        let generation = users.generation();
        let Some(user) = users.verify(name, password).await? else { return Ok(false) };
        self.client.login.set(Some(Arc::new(Authenticated { user, generation })));
        Ok(true)
    }

    /// Returns whether no user has been changed or removed since the login, so that the password is still the right one.
    pub fn is_login_current(&self) -> bool {
        self.client.login.user().is_some_and(|user| user.generation == self.shared.users.generation())
    }

    /// Returns the id of the user who has logged in. A user who is removed and added again has another one.
    pub fn user_id(&self) -> Option<UserId> {
        self.client.user_id()
    }

    /// Returns another client, with the login of this one.
    pub fn same_login(&self, remote: impl Into<String>) -> LocalClient {
        let client = InProcess { shared: Arc::clone(&self.shared) }.connect(remote);
        client.client.login.set(self.client.login.user());
        client
    }

    /// Runs a command and returns its reply. A client runs one command at a time.
    ///
    /// # Cancellation
    /// The command may or may not be carried out.
    pub async fn run(&mut self, database: &str, command: &RawDocument) -> RawDocumentBuf {
        let request = match check_document(command).and_then(|()| Request::new(command, &[], Some(database), false)) {
            Ok(request) => request.of_user(self.client.user_id()),
            Err(error) => return failure(&error),
        };
        match dispatch::run(&self.shared, &self.client, &request).await {
            Some(reply) => reply.document,
            // A fail point closes the connection, and this client has none.
            None => failure(&CommandError::new(Code::HostUnreachable, "the connection was closed").maybe_applied()),
        }
    }
}

#[cfg(test)]
mod tests;
