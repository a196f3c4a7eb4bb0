//! The users of requests: each request has the name and the password of a user (`Authorization: Basic ..`), or a token of a user (`Bearer ..`), as its first
//! one, and as all others.
//!
//! A password is hashed thousands of times, which takes milliseconds. So the clients of a login are kept for its next requests, under a keyed hash of the header,
//! until a user is changed.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::{Document, RawDocumentBuf};
use handfast_store::{Clock, Sources};
use lru::LruCache;
use sha2::{Digest as _, Sha256};

use super::Result;
use super::command_server::{CommandClient, CommandServer};
use super::problems;
use crate::access::bearer;
use crate::problem::{Problem, ProblemKind};

/// Limit on the logins whose clients are kept.
const LOGINS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();
/// Limit on the clients of a login that are kept while no request uses them.
const IDLE_MAX: usize = 32;
/// The failed logins after which an address has to wait.
const FAILURES_MAX: u32 = 10;
/// The time that it has to wait.
const FAILURES_TIME: Duration = Duration::from_secs(10);
/// Limit on the addresses whose failed logins are counted.
const ADDRESSES_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// The database of a user whose name does not say it.
const DATABASE: &str = "admin";

type Key = [u8; 32];

/// The logins of all requests.
pub(super) struct Logins {
    server: Arc<dyn CommandServer>,
    /// A key for the hashes, so that the memory of the process has no hash of a password that could be guessed.
    secret: Key,
    kept: Arc<Mutex<LruCache<Key, Kept>>>,
    /// The failed logins of each address.
    failures: Mutex<LruCache<Option<IpAddr>, Failures>>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Failures {
    count: u32,
    /// The time of the clock until which the address may not log in.
    blocked_until: Option<Duration>,
}

/// A login whose password was right.
struct Kept {
    /// A client with the login.
    login: Box<dyn CommandClient>,
    idle: Vec<Box<dyn CommandClient>>,
}

/// A client for the time of a request.
pub(crate) struct RequestClient {
    /// It is there until it is given back.
    client: Option<Box<dyn CommandClient>>,
    logged_in: bool,
    key: Key,
    kept: Arc<Mutex<LruCache<Key, Kept>>>,
}

/// What a request logs in with.
enum Login {
    Password(Basic),
    Token(String),
}

/// The name of a user, and the password.
struct Basic {
    database: String,
    name: String,
    password: String,
}

impl Logins {
    pub(super) fn new(server: Arc<dyn CommandServer>, sources: &Sources) -> Self {
        let mut secret = Key::default();
        for bytes in secret.chunks_exact_mut(8) {
            bytes.copy_from_slice(&sources.random.next_u64().to_ne_bytes());
        }
        Logins {
            server,
            secret,
            kept: Arc::new(Mutex::new(LruCache::new(LOGINS_MAX))),
            failures: Mutex::new(LruCache::new(ADDRESSES_MAX)),
            clock: Arc::clone(&sources.clock),
        }
    }

    /// Returns whether requests need a login.
    pub(super) fn are_required(&self) -> bool {
        self.server.requires_login()
    }

    /// Checks the login of a request, before its body is read, and returns a client with it.
    ///
    /// # Errors
    /// `too-many-requests` for an address with too many failed logins.
    pub(super) async fn check(&self, headers: &HeaderMap, address: Option<IpAddr>) -> Result<RequestClient> {
        let blocked_until = lock(&self.failures).get(&address).and_then(|failures| failures.blocked_until);
        if let Some(left) =
            blocked_until.map(|until| until.saturating_sub(self.clock.elapsed())).filter(|left| !left.is_zero())
        {
            let detail = "too many logins from this address have failed: try again after Retry-After seconds";
            return Err(Problem { retry_after: Some(left), ..Problem::new(ProblemKind::TooManyRequests, detail) });
        }
        match self.client(headers).await {
            Ok(client) => Ok(client),
            Err(problem) => {
                if problem.kind == ProblemKind::Unauthorized && headers.contains_key(AUTHORIZATION) {
                    tracing::warn!(?address, "a login has failed");
                    self.count_failure(address);
                }
                Err(problem)
            }
        }
    }

    fn count_failure(&self, address: Option<IpAddr>) {
        let mut all = lock(&self.failures);
        let failures = all.get_or_insert_mut(address, Failures::default);
        failures.count += 1;
        if failures.count >= FAILURES_MAX {
            *failures = Failures { count: 0, blocked_until: Some(self.clock.elapsed() + FAILURES_TIME) };
        }
    }

    /// Returns a client with the login of a request.
    pub(super) async fn client(&self, headers: &HeaderMap) -> Result<RequestClient> {
        let login = if self.server.requires_login() { Some(login(headers)?) } else { None };
        let key = self.key(login.as_ref());
        if let Some(client) = self.kept_client(&key, login.is_some()) {
            return Ok(self.of_request(client, key));
        }
        let mut client = self.server.connect();
        let (logged_in, refusal) = match login {
            None => (Ok(true), ""),
            Some(Login::Password(Basic { database, name, password })) => {
                (client.log_in(&database, &name, &password).await, "there is no such user with this password")
            }
            Some(Login::Token(token)) => {
                (client.log_in_by_token(&token).await, "the token is unknown, or was revoked, or has expired")
            }
        };
        match logged_in {
            Ok(true) => {}
            Ok(false) => return Err(unauthorized(refusal)),
            Err(error) => {
                tracing::warn!(%error, "the users cannot be read");
                return Err(Problem::new(ProblemKind::Unavailable, "the users cannot be read"));
            }
        }
        let login = client.same_login();
        lock(&self.kept).put(key, Kept { login, idle: Vec::new() });
        Ok(self.of_request(client, key))
    }

    fn of_request(&self, client: Box<dyn CommandClient>, key: Key) -> RequestClient {
        RequestClient {
            client: Some(client),
            logged_in: self.server.requires_login(),
            key,
            kept: Arc::clone(&self.kept),
        }
    }

    /// Returns a client of a login that is kept, if no user was changed since.
    fn kept_client(&self, key: &Key, logged_in: bool) -> Option<Box<dyn CommandClient>> {
        let mut all = lock(&self.kept);
        let kept = all.get_mut(key)?;
        if logged_in && !kept.login.is_login_current() {
            all.pop(key);
            return None;
        }
        Some(kept.idle.pop().unwrap_or_else(|| kept.login.same_login()))
    }

    fn key(&self, login: Option<&Login>) -> Key {
        let mut hash = Sha256::new_with_prefix(self.secret);
        let parts = match login {
            None => Vec::new(),
            Some(Login::Password(Basic { database, name, password })) => vec!["password", database, name, password],
            Some(Login::Token(token)) => vec!["token", token],
        };
        for part in parts {
            hash.update(part.len().to_ne_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl RequestClient {
    /// Returns the id of the user, which no other user has.
    pub(super) fn user_id(&self) -> Option<[u8; 16]> {
        self.client.as_ref().and_then(|client| client.user_id())
    }

    /// Returns whether no user has been changed since the login.
    pub(super) fn is_login_current(&self) -> bool {
        !self.logged_in || self.client.as_ref().is_some_and(|client| client.is_login_current())
    }

    /// Returns the client itself, which makes and revokes tokens.
    pub(super) fn tokens(&mut self) -> Result<&mut dyn CommandClient> {
        match &mut self.client {
            Some(client) => Ok(&mut **client),
            None => Err(Problem::new(ProblemKind::Failed, "the request has ended")),
        }
    }

    /// Runs a command, and returns its reply, or the problem that its error is.
    pub(super) async fn run(&mut self, database: &str, command: &Document) -> Result<Document> {
        let reply = self.reply(database, command).await?;
        if problems::is_success(&reply) { Ok(reply) } else { Err(problems::of_reply(&reply)) }
    }

    /// Runs a command, and returns its reply, also if it has failed.
    pub(super) async fn reply(&mut self, database: &str, command: &Document) -> Result<Document> {
        let command = RawDocumentBuf::try_from(command)
            .map_err(|error| Problem::invalid(format!("the request cannot be written as BSON: {error}")))?;
        let Some(client) = &mut self.client else {
            return Err(Problem::new(ProblemKind::Failed, "the request has ended"));
        };
        let reply = client.run(database, &command).await;
        // The command may have changed something.
        Document::try_from(&*reply)
            .map_err(|error| Problem::new(ProblemKind::OutcomeUnknown, format!("the reply cannot be read: {error}")))
    }
}

impl Drop for RequestClient {
    fn drop(&mut self) {
        // One whose user was changed meanwhile would be of no use to the next request.
        if let (Some(client), Some(kept)) = (self.client.take(), lock(&self.kept).get_mut(&self.key))
            && kept.idle.len() < IDLE_MAX
            && (!self.logged_in || client.is_login_current())
        {
            kept.idle.push(client);
        }
    }
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(ProblemKind::Unauthorized, detail)
}

/// Reads `Authorization: Basic ..` or `Authorization: Bearer TOKEN`.
fn login(headers: &HeaderMap) -> Result<Login> {
    match headers.get(AUTHORIZATION).and_then(bearer) {
        Some(token) => Ok(Login::Token(token.to_owned())),
        None => basic(headers).map(Login::Password),
    }
}

/// Reads `Authorization: Basic base64(user:password)`. The user is `name` or `name@database`.
fn basic(headers: &HeaderMap) -> Result<Basic> {
    let header = headers.get(AUTHORIZATION);
    let header = header
        .ok_or_else(|| unauthorized("send the header Authorization: Basic base64(USER:PASSWORD), or Bearer TOKEN"))?;
    let read = || {
        let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
        let encoded = scheme.eq_ignore_ascii_case("basic").then(|| encoded.trim())?;
        let text = String::from_utf8(BASE64.decode(encoded).ok()?).ok()?;
        let (user, password) = text.split_once(':')?;
        let (name, database) = name_and_database(user);
        Some(Basic { database: database.to_owned(), name: name.to_owned(), password: password.to_owned() })
    };
    read().ok_or_else(|| {
        unauthorized(
            "the header Authorization must be Basic base64(USER:PASSWORD), USER a name or NAME@DATABASE, or Bearer TOKEN",
        )
    })
}

/// Returns the parts of `NAME@DATABASE`, or of `NAME`, which is a user of `admin`.
pub(super) fn name_and_database(user: &str) -> (&str, &str) {
    user.rsplit_once('@').unwrap_or((user, DATABASE))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
