//! The login of a connection: none, a conversation that has begun, or a user.
//!
//! ```text
//! nothing -- saslStart --> challenged -- saslContinue --> proved -- saslContinue (empty) --> logged in
//!                                              └──────── skipEmptyExchange ────────────────────┘
//! ```
//!
//! A connection has one conversation at a time; a new one replaces it. A wrong name, a wrong password and a malformed message get the
//! same error after the same work, so that no client can find out which users exist. After [`FAILURES_MAX`] failures the connection is
//! closed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use handfast_mql::Code;
use tracing::{debug, warn};

use super::scram::{ClientFirst, Exchange, MECHANISM};
use super::token::UserToken;
use super::user::{User, UserName};
use super::users::random;
use crate::connection::UnauthenticatedConnection;
use crate::error::{CommandError, CommandResult};
use crate::lock::lock;
use crate::request::EXTERNAL;
use crate::state::{Client, Shared};

/// The failed logins after which a connection is closed. A driver opens a new connection for each further attempt.
pub(crate) const FAILURES_MAX: u32 = 3;
/// The time limit of a login, from its first message to its last.
pub(crate) const LOGIN_TIME: Duration = Duration::from_secs(30);

/// The user who has logged in.
pub(crate) struct Authenticated {
    pub(crate) user: User,
    /// [`Users::generation`](super::Users) when the user was read.
    pub(crate) generation: u64,
    /// The token of the login, if it was by one.
    pub(crate) token: Option<UserToken>,
}

/// The state of the login of a connection.
#[derive(Default)]
pub(crate) struct Login {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    user: Option<Arc<Authenticated>>,
    conversation: Option<Conversation>,
    failures: u32,
    /// Counts the connection as unauthenticated.
    unauthenticated: Option<UnauthenticatedConnection>,
}

enum Conversation {
    Challenged {
        exchange: Exchange,
        /// The user, or `None` if there is none of this name.
        user: Option<Arc<Authenticated>>,
        skip_empty: bool,
        since: Duration,
    },
    /// The client has proved its password, and has to send an empty message after the server's proof.
    Proved { user: Arc<Authenticated>, since: Duration },
}

/// The first message of a login.
pub(crate) struct Start<'a> {
    /// The database of the user.
    pub(crate) database: &'a str,
    pub(crate) mechanism: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) skip_empty: bool,
}

/// The reply to a message of a login.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) done: bool,
    pub(crate) payload: String,
}

impl Login {
    /// Returns the user who has logged in.
    pub(crate) fn user(&self) -> Option<Arc<Authenticated>> {
        lock(&self.state).user.clone()
    }

    /// Sets the user of the connection, or ends its login.
    pub(crate) fn set(&self, user: Option<Arc<Authenticated>>) {
        lock(&self.state).user = user;
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        lock(&self.state).user.is_some()
    }

    /// Counts the connection as unauthenticated, until a user has logged in or the connection has ended.
    pub(crate) fn count_as_unauthenticated(&self, connection: UnauthenticatedConnection) {
        lock(&self.state).unauthenticated = Some(connection);
    }

    /// Returns whether a conversation has begun and not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        lock(&self.state).conversation.is_some()
    }

    /// Returns whether [`FAILURES_MAX`] logins have failed.
    pub(crate) fn has_failed_too_often(&self) -> bool {
        lock(&self.state).failures >= FAILURES_MAX
    }

    fn fail(&self) -> CommandError {
        let mut state = lock(&self.state);
        state.failures = state.failures.saturating_add(1);
        state.conversation = None;
        CommandError::new(Code::AuthenticationFailed, "Authentication failed.")
    }
}

/// Begins a login.
pub(crate) async fn start(shared: &Shared, client: &Client, start: Start<'_>) -> CommandResult<Step> {
    if start.mechanism != MECHANISM {
        let text = format!("the mechanism '{}' is not supported; use {MECHANISM}", start.mechanism.escape_debug());
        return Err(CommandError::new(Code::MechanismUnavailable, text));
    }
    if start.database == EXTERNAL {
        let text = format!(
            "the mechanism {MECHANISM} is not enabled on {EXTERNAL}: name the database of the user as authSource"
        );
        return Err(CommandError::new(Code::MechanismUnavailable, text));
    }
    let since = shared.now();
    let first = ClientFirst::parse(start.payload);
    let named = first.and_then(|first| Some((UserName::new(start.database, &first.user).ok()?, first)));
    let Some((name, first)) = named else {
        warn!(connection = client.id, client = client.remote, "a login failed: its first message cannot be read");
        return Err(client.login.fail());
    };
    let generation = shared.users.generation();
    // Both are looked up for every name, so that a known name takes as long as an unknown one.
    let nobody = shared.users.credentials_of_unknown_user(&name.id()).await?;
    let user = shared.users.find(&name).await?;
    let credentials = user.as_ref().map_or(nobody, |user| user.credentials.clone());
    let user = user.map(|user| Arc::new(Authenticated { user, generation, token: None }));
    let (exchange, payload) = Exchange::begin(&first, credentials, &random()?);
    let skip_empty = start.skip_empty;
    let conversation = Conversation::Challenged { exchange, user, skip_empty, since };
    lock(&client.login.state).conversation = Some(conversation);
    Ok(Step { done: false, payload })
}

pub(crate) fn continue_login(shared: &Shared, client: &Client, payload: &[u8]) -> CommandResult<Step> {
    let now = shared.now();
    let conversation = lock(&client.login.state).conversation.take();
    let since = match &conversation {
        None => {
            return Err(CommandError::new(Code::ProtocolError, "No SASL session state found"));
        }
        Some(Conversation::Challenged { since, .. } | Conversation::Proved { since, .. }) => *since,
    };
    if now.saturating_sub(since) > LOGIN_TIME {
        warn!(connection = client.id, client = client.remote, "a login failed: it took too long");
        return Err(client.login.fail());
    }
    match conversation {
        Some(Conversation::Challenged { exchange, user: Some(user), skip_empty, .. }) => {
            let Some(payload) = exchange.finish(payload) else { return Err(refused(client, "a wrong password")) };
            if skip_empty {
                log_in(client, user)?;
            } else {
                lock(&client.login.state).conversation = Some(Conversation::Proved { user, since });
            }
            Ok(Step { done: skip_empty, payload })
        }
        Some(Conversation::Challenged { exchange, user: None, .. }) => {
            // This takes as long as for a user that exists.
            exchange.finish(payload);
            Err(refused(client, "no such user"))
        }
        Some(Conversation::Proved { user, .. }) if payload.is_empty() => {
            log_in(client, user)?;
            Ok(Step { done: true, payload: String::new() })
        }
        _ => Err(refused(client, "a message too many")),
    }
}

fn refused(client: &Client, why: &str) -> CommandError {
    warn!(connection = client.id, client = client.remote, why, "a login failed");
    client.login.fail()
}

fn log_in(client: &Client, user: Arc<Authenticated>) -> CommandResult<()> {
    let mut state = lock(&client.login.state);
    if state.user.as_ref().is_some_and(|before| before.user.id != user.user.id) {
        let text = "another user has logged in on this connection: log out first, or open a connection for this one";
        return Err(CommandError::new(Code::ProtocolError, text));
    }
    debug!(connection = client.id, user = %user.user.name, "logged in");
    state.user = Some(user);
    state.failures = 0;
    state.unauthenticated = None;
    Ok(())
}

#[cfg(test)]
mod tests;
