//! The users of requests: each request has the name and the password of a user (`Authorization: Basic ..`), as its first one, and as all others.
//!
//! A password is hashed thousands of times, which takes milliseconds. So the clients of a login are kept for its next requests, under a keyed hash of the header,
//! until a user is changed.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::{Document, RawDocumentBuf};
use handfast_store::Random;
use lru::LruCache;
use sha2::{Digest as _, Sha256};

use super::Result;
use super::command_server::{CommandClient, CommandServer};
use super::problems;
use crate::problem::{Problem, ProblemKind};

/// Limit on the logins whose clients are kept.
const LOGINS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();
/// Limit on the clients of a login that are kept while no request uses them.
const IDLE_MAX: usize = 32;
/// The database of a user whose name does not say it.
const DATABASE: &str = "admin";

type Key = [u8; 32];

/// The logins of all requests.
pub(super) struct Logins {
    server: Arc<dyn CommandServer>,
    /// A key for the hashes, so that the memory of the process has no hash of a password that could be guessed.
    secret: Key,
    kept: Arc<Mutex<LruCache<Key, Kept>>>,
}

/// A login whose password was right.
struct Kept {
    user: String,
    /// A client with the login.
    login: Box<dyn CommandClient>,
    idle: Vec<Box<dyn CommandClient>>,
}

/// A client for the time of a request.
pub(super) struct RequestClient {
    /// The user, `name@database`; empty without logins.
    pub(super) user: String,
    /// It is there until it is given back.
    client: Option<Box<dyn CommandClient>>,
    key: Key,
    kept: Arc<Mutex<LruCache<Key, Kept>>>,
}

/// The name of a user, and the password.
struct Basic {
    database: String,
    name: String,
    password: String,
}

impl Logins {
    pub(super) fn new(server: Arc<dyn CommandServer>, random: &dyn Random) -> Self {
        let mut secret = Key::default();
        for bytes in secret.chunks_exact_mut(8) {
            bytes.copy_from_slice(&random.next_u64().to_ne_bytes());
        }
        Logins { server, secret, kept: Arc::new(Mutex::new(LruCache::new(LOGINS_MAX))) }
    }

    /// Returns a client with the login of a request.
    pub(super) async fn client(&self, headers: &HeaderMap) -> Result<RequestClient> {
        let basic = if self.server.requires_login() { Some(basic(headers)?) } else { None };
        let key = self.key(basic.as_ref());
        if let Some((user, client)) = self.kept_client(&key, basic.is_some()) {
            return Ok(self.of_request(user, client, key));
        }
        let mut client = self.server.connect();
        let mut user = String::new();
        if let Some(Basic { database, name, password }) = basic {
            user = format!("{name}@{database}");
            match client.log_in(&database, &name, &password).await {
                Ok(true) => {}
                Ok(false) => return Err(unauthorized("there is no such user with this password")),
                Err(error) => {
                    tracing::warn!(%error, "the users cannot be read");
                    return Err(Problem::new(ProblemKind::Unavailable, "the users cannot be read"));
                }
            }
        }
        let login = client.same_login();
        lock(&self.kept).put(key, Kept { user: user.clone(), login, idle: Vec::new() });
        Ok(self.of_request(user, client, key))
    }

    fn of_request(&self, user: String, client: Box<dyn CommandClient>, key: Key) -> RequestClient {
        RequestClient { user, client: Some(client), key, kept: Arc::clone(&self.kept) }
    }

    /// Returns a client of a login that is kept, if no user was changed since.
    fn kept_client(&self, key: &Key, logged_in: bool) -> Option<(String, Box<dyn CommandClient>)> {
        let mut all = lock(&self.kept);
        let kept = all.get_mut(key)?;
        if logged_in && !kept.login.is_login_current() {
            all.pop(key);
            return None;
        }
        let client = kept.idle.pop().unwrap_or_else(|| kept.login.same_login());
        Some((kept.user.clone(), client))
    }

    fn key(&self, basic: Option<&Basic>) -> Key {
        let mut hash = Sha256::new_with_prefix(self.secret);
        if let Some(Basic { database, name, password }) = basic {
            for part in [database, name, password] {
                hash.update(part.len().to_ne_bytes());
                hash.update(part);
            }
        }
        hash.finalize().into()
    }
}

impl RequestClient {
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
        Document::try_from(&*reply)
            .map_err(|error| Problem::new(ProblemKind::Failed, format!("the reply cannot be read: {error}")))
    }
}

impl Drop for RequestClient {
    fn drop(&mut self) {
        if let (Some(client), Some(kept)) = (self.client.take(), lock(&self.kept).get_mut(&self.key))
            && kept.idle.len() < IDLE_MAX
        {
            kept.idle.push(client);
        }
    }
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(ProblemKind::Unauthorized, detail)
}

/// Reads `Authorization: Basic base64(user:password)`. The user is `name` or `name@database`.
fn basic(headers: &HeaderMap) -> Result<Basic> {
    let header = headers.get(AUTHORIZATION);
    let header = header.ok_or_else(|| unauthorized("send the header Authorization: Basic base64(USER:PASSWORD)"))?;
    let read = || {
        let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
        let encoded = scheme.eq_ignore_ascii_case("basic").then(|| encoded.trim())?;
        let text = String::from_utf8(BASE64.decode(encoded).ok()?).ok()?;
        let (user, password) = text.split_once(':')?;
        let (name, database) = user.rsplit_once('@').unwrap_or((user, DATABASE));
        Some(Basic { database: database.to_owned(), name: name.to_owned(), password: password.to_owned() })
    };
    read().ok_or_else(|| {
        unauthorized("the header Authorization must be Basic base64(USER:PASSWORD), USER a name or NAME@DATABASE")
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
