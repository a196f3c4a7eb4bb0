//! Commands of the server's own process, such as those of its HTTP API. They run as the commands of a connection do, with the same checks, limits and metrics.
//!
//! ```text
//! server.in_process().connect(address)   a client, which `currentOp` lists as a connection
//!   log_in(name, password)               by the password itself: there is nobody between the client and the server
//!   run(database, command)               the reply, {ok: 1, ..} or {ok: 0, code, ..}
//! ```

use std::sync::Arc;

use bson::{DateTime, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Error, Namespace, Result, StoreExt as _};
use tokio::sync::watch;

use crate::auth::login::Authenticated;
use crate::auth::role::Action;
use crate::auth::user::UserId;
use crate::auth::{NewUserToken, Password, UserName, UserToken};
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
        self.client.login.set(Some(Arc::new(Authenticated { user, generation, token: None })));
        Ok(true)
    }

    /// Logs in by a token of a user; returns whether it is one that has not expired.
    ///
    /// # Errors
    /// Fails if the users cannot be read.
    pub async fn log_in_by_token(&self, token: &str) -> Result<bool> {
        let users = &self.shared.users;
        let generation = users.generation();
        let Some((user, token)) = users.verify_token(token, self.now()).await? else { return Ok(false) };
        self.client.login.set(Some(Arc::new(Authenticated { user, generation, token: Some(token) })));
        Ok(true)
    }

    /// Makes a token of the user who has logged in.
    ///
    /// # Errors
    /// `Unauthorized` (13) without a login by a password: a token that is to expire must make none that lives on.
    pub async fn add_token(&self, name: &str, expires_at: Option<DateTime>) -> Result<NewUserToken> {
        self.shared.users.add_token(&self.owner(None)?, name, self.now(), expires_at).await
    }

    /// Revokes a token of a user, by default of the one who has logged in; returns whether there was one.
    ///
    /// # Errors
    /// `Unauthorized` (13) without a login by a password, and without the right to change the other user; `UserNotFound` (11).
    pub async fn revoke_token(&self, of: Option<&UserName>, id: &str) -> Result<bool> {
        self.shared.users.revoke_token(&self.owner(of)?, id).await
    }

    /// Returns the tokens of a user, by default of the one who has logged in.
    ///
    /// # Errors
    /// `Unauthorized` (13) without a login by a password, and without the right to change the other user; `UserNotFound` (11).
    pub async fn tokens(&self, of: Option<&UserName>) -> Result<Vec<UserToken>> {
        let owner = self.owner(of)?;
        let user = self.shared.users.find(&owner).await?;
        let not_found = || Error::command(Code::UserNotFound, format!("there is no user '{owner}'"));
        user.map(|user| user.tokens).ok_or_else(not_found)
    }

    /// Returns the user whose tokens a request is about.
    fn owner(&self, of: Option<&UserName>) -> Result<UserName> {
        let refused = |text: &str| Error::command(Code::Unauthorized, text);
        let user = self.client.login.user().filter(|user| user.token.is_none());
        let user = user.ok_or_else(|| refused("tokens are made and revoked with the password of the user"))?;
        match of {
            Some(other) if *other != user.user.name => match user.user.may(Action::ManageUsers, other.database()) {
                true => Ok(other.clone()),
                false => Err(refused("the tokens of another user need the role userAdmin of its database")),
            },
            _ => Ok(user.user.name.clone()),
        }
    }

    fn now(&self) -> DateTime {
        self.shared.sources.clock.now()
    }

    /// Returns whether no user has been changed or removed since the login, so that the password is still the right one, and a token has not expired.
    pub fn is_login_current(&self) -> bool {
        self.client.login.user().is_some_and(|user| {
            user.token.as_ref().is_none_or(|token| !token.has_expired(self.now()))
                && user.generation == self.shared.users.generation()
        })
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
