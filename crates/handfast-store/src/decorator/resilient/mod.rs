//! A decorator that retries requests once, and only where nothing can be applied twice.
//!
//! The decision depends on the [class](ErrorClass) of the error and on whether the request
//! [may have been applied](Applied), never on a message (spec: resilience; seed 4):
//!
//! | the first attempt | effect |
//! | --- | --- |
//! | met an outage, or was refused | the caller gets the error, as a retry would wait, or be refused, again |
//! | met a network failure, and was not applied | the request is repeated |
//! | met a network failure, and may have been applied | the request is repeated if that is safe (see below); otherwise the caller gets the error |
//!
//! | request | repeated |
//! | --- | --- |
//! | reads | always; a cursor until its first page |
//! | insert | always. Documents without an `_id` get one before the first attempt, and those that it has stored count as inserted. If the caller chose the `_id` and the stored document differs, its origin is unknown: the error is `DuplicateKey` with `maybe applied` |
//! | update | if [`is_idempotent`], and the filter selects one document by its `_id` or another unique key, or all that match |
//! | delete | by a unique key, or of all that match. The outcome counts the deletions of the second attempt |
//! | find and modify | as an update, if it returns the document after the change; a removal by a unique key |
//! | with a ticket | always: the store applies it once |
//! | indexes, collections | creations and changes, not drops, not renames |
//! | `$out`, `$merge` | never |
//!
//! A filter with more conditions than the key finds nothing if the first attempt changed the fields of these conditions. So when
//! the second attempt finds nothing, the caller gets the first error, which says `maybe applied`.
//!
//! A caller that repeats requests itself, because it knows better which of them are safe, declares this
//! ([`repeated_by_caller`]), so that each request is sent twice at most. The patterns do.
//!
//! The second attempt does not wait: the store's own server selection waits (30 s with MongoDB's drivers,
//! `serverSelectionTimeoutMS`) and then reports an outage. As every late request, it may meet newer writes of others. Where that
//! matters, or the update counts, use exactly-once updates or a transaction.
//!
//! ```
//! use std::sync::Arc;
//! use bson::rawdoc;
//! use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan, Resilient};
//! use handfast_store::{Applied, MemoryStore, Namespace, Sources, StoreExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> handfast_store::Result<()> {
//! let sources = Sources::seeded(1);
//! // The answers to the first insert and to the first update get lost.
//! let lost = [Operation::Insert, Operation::Update].map(|operation| (Address::first(operation), Fault::LoseReply));
//! let plan = Plan::at_requests(lost);
//! let network = Arc::new(Faulty::new(Arc::new(MemoryStore::new(sources.clone())), plan));
//! let store = Resilient::new(network, Arc::clone(&sources.ids));
//! let days = Namespace::new("site", "days")?;
//!
//! store.insert_one(&days, rawdoc! { "_id": "2016-06-28", "counter": 0 }).await?;
//!
//! let day = || rawdoc! { "_id": "2016-06-28" };
//! let counted = store.update_one(&days, day(), rawdoc! { "$inc": { "counter": 1 } }).await;
//! assert_eq!(counted.expect_err("nobody knows whether it counted").applied(), Applied::Maybe);
//! # Ok(())
//! # }
//! ```

mod cursor;
mod inserts;
mod repeat;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use self::repeat::{Repeat, unique_field};
use super::Operation;
use crate::{Applied, DocumentStore, Error, ErrorClass, IdSource, Namespace, Result, WriteError};

pub use self::repeat::is_idempotent;

tokio::task_local! {
    /// Set within an attempt of a caller that repeats requests itself.
    static REPEATED_BY_CALLER: ();
}

/// Runs an attempt of a caller that repeats requests itself: a [`Resilient`] store sends each request of it once. This does not
/// extend to other tasks that the attempt spawns.
pub async fn repeated_by_caller<F: Future>(attempt: F) -> F::Output {
    REPEATED_BY_CALLER.scope((), attempt).await
}

/// Returns whether the caller of this request repeats it itself.
fn is_repeated_by_caller() -> bool {
    REPEATED_BY_CALLER.try_with(|()| ()).is_ok()
}

/// A decorator that retries requests where that is safe. See the module's documentation.
pub struct Resilient<S: ?Sized> {
    store: Arc<S>,
    ids: Arc<dyn IdSource>,
}

impl<S: DocumentStore + ?Sized> Resilient<S> {
    /// Wraps a store. Inserted documents without an `_id` get one from `ids`.
    pub fn new(store: Arc<S>, ids: Arc<dyn IdSource>) -> Self {
        Resilient { store, ids }
    }

    /// Runs a request, and repeats it once after a network failure.
    async fn always<T, F>(&self, operation: Operation, call: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        let always = async || Repeat::Always;
        self.run(operation, call, |_| None, always, |_| true).await
    }

    /// Runs a request, and repeats it once if the first attempt was certainly not applied.
    async fn unless_applied<T, F>(&self, operation: Operation, call: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        let never = async || Repeat::Never;
        self.run(operation, call, |_| None, never, |_| true).await
    }

    /// Runs a request, and repeats it once if `repeat` allows it.
    ///
    /// `network_failure` returns the network failure within an outcome, `repeat` the effect of a second attempt, and `found` whether
    /// an outcome has found a document to change.
    async fn run<T, F, R>(
        &self,
        operation: Operation,
        call: impl Fn() -> F + Send + Sync,
        network_failure: impl Fn(&T) -> Option<Error> + Send,
        repeat: impl FnOnce() -> R + Send,
        found: impl FnOnce(&T) -> bool + Send,
    ) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
        R: Future<Output = Repeat> + Send,
    {
        let first = call().await;
        if is_repeated_by_caller() {
            return first;
        }
        let Some(error) = failure(&first, network_failure) else { return first };
        let in_doubt = error.applied() == Applied::Maybe;
        let repeat = if in_doubt { repeat().await } else { Repeat::Always };
        if repeat == Repeat::Never {
            return first;
        }
        tracing::debug!(%operation, %error, in_doubt, "the request is sent once more");
        match call().await {
            Err(second) if in_doubt => Err(second.in_doubt()),
            Ok(outcome) if repeat == Repeat::IfMatched && !found(&outcome) => Err(error),
            second => second,
        }
    }

    /// Returns the effect of a second attempt. It reads the unique indexes from the store only if they matter.
    async fn repeat_effect(
        &self,
        namespace: &Namespace,
        of: impl Fn(&dyn Fn(&str) -> bool) -> Repeat + Send,
    ) -> Repeat {
        let by_id = of(&|field| field == "_id");
        if by_id != Repeat::Never || of(&|_| true) == Repeat::Never {
            return by_id;
        }
        let Ok(indexes) = self.store.list_indexes(namespace).await else { return Repeat::Never };
        let unique: HashSet<String> = indexes.iter().filter_map(|index| unique_field(&index.spec)).collect();
        of(&|field| field == "_id" || unique.contains(field))
    }
}

/// Returns the network failure of a first attempt, as a whole or within its outcome (`network_failure`).
fn failure<T>(first: &Result<T>, network_failure: impl FnOnce(&T) -> Option<Error>) -> Option<Error> {
    let error = match first {
        Ok(outcome) => network_failure(outcome),
        Err(error) => Some(error.clone()),
    };
    error.filter(is_transient)
}

fn is_transient(error: &Error) -> bool {
    error.class() == ErrorClass::TransientNetwork
}

/// Returns the network failure that stopped a request of several statements; those before it were applied.
fn network_failure(errors: &[WriteError]) -> Option<Error> {
    errors.iter().map(|refused| &refused.error).find(|error| is_transient(error)).map(|error| error.clone().in_doubt())
}
