//! The server whose commands the API runs, as the API sees it.

use async_trait::async_trait;
use bson::{DateTime, Document, RawDocument, RawDocumentBuf};
use handfast_store::Namespace;
use tokio::sync::watch;

/// A part of the server that cannot take requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// The part: `server` or `store`.
    pub part: &'static str,
    /// Why it cannot.
    pub detail: String,
}

/// A server in the same process, whose commands the API runs.
#[async_trait]
pub trait CommandServer: Send + Sync + 'static {
    /// Returns the parts that cannot take requests; none if all can.
    async fn not_ready(&self) -> Vec<NotReady>;

    /// Returns whether commands need a login.
    fn requires_login(&self) -> bool;

    /// Returns a receiver that changes after each later write to a collection through this server. It may change without one.
    fn writes_to(&self, namespace: Namespace) -> watch::Receiver<()>;

    /// Returns a client that has not logged in.
    fn connect(&self) -> Box<dyn CommandClient>;
}

/// The user whose tokens a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOwner {
    /// The database of the user.
    pub database: String,
    /// The name.
    pub name: String,
}

/// A client of a [`CommandServer`], which runs one command at a time.
#[async_trait]
pub trait CommandClient: Send + Sync {
    /// Logs in; returns whether there is such a user with this password.
    ///
    /// # Errors
    /// Fails if the users cannot be read.
    async fn log_in(&mut self, database: &str, name: &str, password: &str) -> handfast_store::Result<bool>;

    /// Logs in by a token of a user; returns whether it is one that has not expired.
    ///
    /// # Errors
    /// Fails if the users cannot be read.
    async fn log_in_by_token(&mut self, token: &str) -> handfast_store::Result<bool>;

    /// Makes a token of the user who has logged in, and returns `{token, _id, name, createdAt, expiresAt}`.
    ///
    /// # Errors
    /// Code 13 without a login by a password; 2 for an invalid name or time.
    async fn add_token(&mut self, name: &str, expires_at: Option<DateTime>) -> handfast_store::Result<Document>;

    /// Returns the tokens of a user, by default of the one who has logged in, each as `{_id, name, createdAt, expiresAt}`.
    ///
    /// # Errors
    /// Code 13 without a login by a password, and without the right to change the other user; 11 if there is no such user.
    async fn tokens(&mut self, of: Option<&TokenOwner>) -> handfast_store::Result<Vec<Document>>;

    /// Revokes a token of a user, by default of the one who has logged in; returns whether there was one.
    ///
    /// # Errors
    /// Code 13 without a login by a password, and without the right to change the other user; 11 if there is no such user.
    async fn revoke_token(&mut self, of: Option<&TokenOwner>, id: &str) -> handfast_store::Result<bool>;

    /// Returns the id of the user who has logged in, which no other user has, not even a later one of the same name.
    fn user_id(&self) -> Option<[u8; 16]>;

    /// Returns whether no user has been changed since the login, and its token, if it was by one, has not expired.
    fn is_login_current(&self) -> bool;

    /// Returns another client, with the login of this one.
    fn same_login(&self) -> Box<dyn CommandClient>;

    /// Runs a command and returns its reply, which has an error if it failed.
    async fn run(&mut self, database: &str, command: &RawDocument) -> RawDocumentBuf;
}
