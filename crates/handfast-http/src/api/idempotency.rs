//! Requests that are carried out once for each key (`Idempotency-Key`), however often they are sent.
//!
//! A record of the reply is written in the transaction of the command, so there is no moment at which only one of them exists:
//!
//! ```text
//! shop.handfast.requests  {_id: {user: <id>, key: "k7"}, request: <hash>, reply: {_id: "order 7", posted: true, ..}, at: <date>}
//!
//! look for the record               there it is: its reply; with the hash of another request: a problem
//!   begin, command, insert, commit  a conflict, or the record is there now: look again
//! ```
//!
//! | at | what happens |
//! | --- | --- |
//! | the answer is lost | the request is sent again, and answered from the record |
//! | the process dies before the commit | nothing was done: the request that is sent again does it |
//! | the outcome of the commit is unknown | it is committed again; if that fails, too, the client sends the request again, which finds the record or not |
//! | two requests with one key at once | the `_id` of the record lets one commit; the other one is answered from the record |
//! | the step was made by a request without the key | its reply says so, and nothing is recorded |
//! | the command fails | nothing is recorded, and the request may be sent again |
//! | the record cannot be read, or others conflict at each attempt | the outcome is unknown: an earlier request with the key may have been carried out |
//!
//! Records are removed by an index with a time to live after a day.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use handfast_store::Sources;
use lru::LruCache;
use sha2::{Digest as _, Sha256};

use super::login::RequestClient;
use super::problems::{code, has_label, is_success, of_reply};
use super::{DRIVER_FIELDS, Result};
use crate::problem::{Problem, ProblemKind};

/// The collection of the records, in the database of the requests.
const COLLECTION: &str = "handfast.requests";
/// The time for which a record is kept.
const KEPT_SECONDS: i32 = 24 * 60 * 60;
/// The maximum length of a key, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 256;
/// Attempts at a transaction that conflicts with others.
const ATTEMPTS: u32 = 20;
/// Attempts at a commit whose outcome is unknown.
const COMMIT_ATTEMPTS: u32 = 3;
/// The pause after a conflict, which grows with each further one, and of which a part is left to chance.
const PAUSE: Duration = Duration::from_millis(2);
/// The time after which the index is created again, as another program may have dropped it with its collection.
const INDEX_TIME_MAX: Duration = Duration::from_secs(10);
/// Limit on the databases whose index is known to exist.
const DATABASES_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// The client may run the transaction again.
const TRANSIENT: &str = "TransientTransactionError";
/// The client may commit again.
const COMMIT_UNKNOWN: &str = "UnknownTransactionCommitResult";
const DUPLICATE_KEY: i32 = 11_000;
const TRANSACTION_COMMITTED: i32 = 256;
const ILLEGAL_OPERATION: i32 = 20;
/// The beginning of the error of a server without transactions, from which drivers tell it, too.
const NO_TRANSACTIONS: &str = "Transaction numbers are only allowed";

pub(super) struct Idempotency {
    sources: Sources,
    /// The databases whose index exists, and since when it is known to.
    indexed: Mutex<LruCache<String, Duration>>,
}

/// A request with a key.
struct Keyed<'a> {
    database: &'a str,
    command: &'a Document,
    id: Document,
    hash: Binary,
}

/// The result of an attempt.
enum Attempt {
    Done(Document),
    /// Another transaction was faster, and nothing was done.
    Conflict,
}

impl Idempotency {
    pub(super) fn new(sources: Sources) -> Self {
        Idempotency { sources, indexed: Mutex::new(LruCache::new(DATABASES_MAX)) }
    }

    /// Runs a command, unless a request with this key was carried out; returns the reply.
    pub(super) async fn run(
        &self,
        client: &mut RequestClient,
        database: &str,
        key: &str,
        command: &Document,
    ) -> Result<Document> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            let text =
                format!("the header Idempotency-Key must have 1 to {KEY_BYTES_MAX} characters, and has {}", key.len());
            return Err(Problem::invalid(text));
        }
        let user = client.user_id().map(|id| Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() });
        let request = Keyed { database, command, id: doc! { "user": user, "key": key }, hash: hash(command)? };
        self.create_index(client, database).await.map_err(unknown)?;
        for attempt in 0..ATTEMPTS {
            if let Some(reply) = recorded(client, &request).await? {
                return Ok(reply);
            }
            match self.attempt(client, &request).await? {
                Attempt::Done(reply) => return Ok(reply),
                Attempt::Conflict => {}
            }
            let part = u32::from(self.sources.random.next_u64().to_ne_bytes()[0]);
            tokio::time::sleep((PAUSE * (attempt + 1)).mul_f64(0.5 + f64::from(part) / 256.0)).await;
        }
        let text = "others changed the same data at each attempt; send the request again with its key";
        Err(Problem::new(ProblemKind::OutcomeUnknown, text))
    }

    /// Runs the command and records its reply, in a transaction.
    async fn attempt(&self, client: &mut RequestClient, request: &Keyed<'_>) -> Result<Attempt> {
        let session = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: self.session().to_vec() } };
        let result = self.in_transaction(client, request, &session).await;
        // Also if it failed. What is left of a session expires otherwise.
        let _reply = client.reply("admin", &doc! { "endSessions": [session] }).await;
        result
    }

    async fn in_transaction(
        &self,
        client: &mut RequestClient,
        request: &Keyed<'_>,
        session: &Document,
    ) -> Result<Attempt> {
        let numbered = |mut command: Document| {
            command.extend(doc! { "lsid": session, "txnNumber": 1_i64, "autocommit": false });
            command
        };
        let mut first = numbered(request.command.clone());
        first.insert("startTransaction", true);
        let mut reply = client.reply(request.database, &first).await?;
        if let Some(problem) = failed(&reply) {
            return match code(&reply) {
                // An earlier request has made the step, without a key or with one that is forgotten. The step itself knows that it was made, and replies so.
                TRANSACTION_COMMITTED => Ok(Attempt::Done(client.run(request.database, request.command).await?)),
                ILLEGAL_OPERATION if problem.detail.starts_with(NO_TRANSACTIONS) => Err(Problem::invalid(
                    "the server has no transactions (--topology standalone), so that requests take no Idempotency-Key",
                )),
                _ => ended(&reply, problem),
            };
        }
        for name in DRIVER_FIELDS {
            reply.remove(name);
        }
        let record =
            doc! { "_id": &request.id, "request": &request.hash, "reply": &reply, "at": self.sources.clock.now() };
        let inserted =
            client.reply(request.database, &numbered(doc! { "insert": COLLECTION, "documents": [record] })).await?;
        if let Some(problem) = failed(&inserted) {
            return ended(&inserted, problem);
        }
        let commit = numbered(doc! { "commitTransaction": 1 });
        let mut is_unknown = false;
        for attempt in 0..COMMIT_ATTEMPTS {
            let committed = client.reply("admin", &commit).await?;
            let Some(problem) = failed(&committed) else { return Ok(Attempt::Done(reply)) };
            is_unknown |= has_label(&committed, COMMIT_UNKNOWN);
            // A transaction that is gone was not committed before either.
            if !is_unknown || has_label(&committed, TRANSIENT) {
                return ended(&committed, problem);
            }
            tokio::time::sleep(PAUSE * (attempt + 1)).await;
        }
        Err(Problem::new(
            ProblemKind::OutcomeUnknown,
            "the outcome of the commit is unknown; send the request again with its key",
        ))
    }

    /// Returns the id of a session of the transaction, a UUID of version 4.
    fn session(&self) -> [u8; 16] {
        let (high, low) = (self.sources.random.next_u64(), self.sources.random.next_u64());
        let mut id = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
        id[6] = (id[6] & 0x0f) | 0x40;
        id[8] = (id[8] & 0x3f) | 0x80;
        id
    }

    /// Creates the index that removes old records.
    async fn create_index(&self, client: &mut RequestClient, database: &str) -> Result<()> {
        let indexed = || self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.sources.clock.elapsed();
        if indexed().get(database).is_some_and(|since| now.saturating_sub(*since) < INDEX_TIME_MAX) {
            return Ok(());
        }
        let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": KEPT_SECONDS };
        client.run(database, &doc! { "createIndexes": COLLECTION, "indexes": [index] }).await?;
        indexed().put(database.to_owned(), now);
        Ok(())
    }
}

/// Returns the reply of an earlier request with the key.
async fn recorded(client: &mut RequestClient, request: &Keyed<'_>) -> Result<Option<Document>> {
    let find = doc! { "find": COLLECTION, "filter": { "_id": &request.id }, "singleBatch": true, "limit": 1 };
    let found = client.run(request.database, &find).await.map_err(unknown)?;
    let first = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).ok();
    let Some(Bson::Document(record)) = first.and_then(|batch| batch.first()) else { return Ok(None) };
    if record.get("request") != Some(&Bson::Binary(request.hash.clone())) {
        let text = "another request has this Idempotency-Key: send each request with a key of its own";
        return Err(Problem::new(ProblemKind::KeyReused, text));
    }
    match record.get_document("reply") {
        Ok(reply) => Ok(Some(reply.clone())),
        Err(_) => {
            let text = format!("the record {} of {}.{COLLECTION} has no reply", request.id, request.database);
            Err(Problem::new(ProblemKind::Failed, text))
        }
    }
}

/// Returns the problem of a request whose record cannot be looked for: an earlier request with the key may have been carried out.
fn unknown(problem: Problem) -> Problem {
    match problem.kind {
        ProblemKind::Unavailable | ProblemKind::Contended | ProblemKind::Failed => {
            Problem { kind: ProblemKind::OutcomeUnknown, ..problem }
        }
        _ => problem,
    }
}

/// Returns the problem of a command or of its only write; `None` if they succeeded.
fn failed(reply: &Document) -> Option<Problem> {
    if !is_success(reply) {
        return Some(of_reply(reply));
    }
    match reply.get_array("writeErrors").ok()?.first() {
        Some(Bson::Document(error)) => Some(of_reply(error)),
        _ => None,
    }
}

/// Returns the end of an attempt whose transaction was aborted with this reply.
fn ended(reply: &Document, problem: Problem) -> Result<Attempt> {
    let is_duplicate = reply
        .get_array("writeErrors")
        .is_ok_and(|errors| errors.iter().filter_map(Bson::as_document).any(|error| code(error) == DUPLICATE_KEY));
    // A command that finds a duplicate of its own fails as a whole, not with an error of a write.
    if has_label(reply, TRANSIENT) || is_duplicate { Ok(Attempt::Conflict) } else { Err(problem) }
}

/// Returns the SHA-256 of a command.
fn hash(command: &Document) -> Result<Binary> {
    let bytes = bson::serialize_to_vec(command)
        .map_err(|error| Problem::invalid(format!("the request cannot be written as BSON: {error}")))?;
    Ok(Binary { subtype: BinarySubtype::Generic, bytes: Sha256::digest(bytes).to_vec() })
}
