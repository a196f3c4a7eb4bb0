//! A store that tries again what may be tried again: once, and never so that something counts twice.
//!
//! What to do follows from the error's [class](ErrorClass) and from whether the request
//! [may have been applied](Applied), never from a text (spec: resilience; seed 4):
//!
//! | the first try | what happens |
//! | --- | --- |
//! | an outage, or the store refused | the error goes to the caller: a retry would wait, or be refused, again |
//! | the network failed, and the request was not applied | every request is sent once more |
//! | the network failed, and it may have been applied | once more, if that does no harm: see below; otherwise the error goes to the caller |
//!
//! | request | the second try |
//! | --- | --- |
//! | reads | always; a cursor until it has shown something |
//! | insert | always. Documents without an `_id` get one before the first try; what is there already is in. Of a document whose `_id` the caller chose, that is so if the one that is there is equal; of another, nobody can tell whose it is: `DuplicateKey`, which says `maybe applied` |
//! | update | if [`is_idempotent`], and the filter chooses one document by its `_id` or another unique key, or the statement is for all that match |
//! | delete | by a unique key, or of all that match. It says how many the second try has deleted |
//! | find and modify | as an update, if it asks for the document after it; a removal by a unique key |
//! | with a ticket | always: the store does it once |
//! | indexes, collections | creating and changing, not dropping, not renaming |
//! | `$out`, `$merge` | no |
//!
//! A filter that asks for more than the key finds nothing if the first try changed what it asks for. So when the second
//! try finds nothing, the caller gets the first error, which says `maybe applied`.
//!
//! A caller that sends its requests again itself, because it knows better which of them may be sent again, says so
//! ([`repeated_by_caller`]): one of the two does it, and so each request is sent twice at most. The patterns do.
//!
//! The second try does not wait: that is for the store's own selection of a server (30 s with MongoDB's drivers,
//! `serverSelectionTimeoutMS`), after which it is an outage. It may meet what others have written meanwhile, as every request
//! may that is late. Where that matters, or the update counts, use exactly-once updates or a transaction.
//!
//! ```
//! use std::sync::Arc;
//! use bson::rawdoc;
//! use handfast_store::decorator::{Fault, Faulty, Plan, Resilient};
//! use handfast_store::{Applied, MemoryStore, Namespace, Sources, StoreExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> handfast_store::Result<()> {
//! let sources = Sources::seeded(1);
//! // The answers of the first and of the fourth request get lost.
//! let plan = Plan::explicit([(0, Fault::LoseReply), (3, Fault::LoseReply)]);
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
    /// Set within an attempt of a caller that makes the second one itself.
    static REPEATED_BY_CALLER: ();
}

/// Runs an attempt of a caller that makes the second one itself: a [`Resilient`] store sends each request of it once. What the attempt
/// leaves to other tasks is not meant.
pub async fn repeated_by_caller<F: Future>(attempt: F) -> F::Output {
    REPEATED_BY_CALLER.scope((), attempt).await
}

/// Whether the caller of this request sends it again itself.
fn is_repeated_by_caller() -> bool {
    REPEATED_BY_CALLER.try_with(|()| ()).is_ok()
}

/// A store that tries again what may be tried again. See the module's documentation.
pub struct Resilient<S: ?Sized> {
    store: Arc<S>,
    ids: Arc<dyn IdSource>,
}

impl<S: DocumentStore + ?Sized> Resilient<S> {
    /// Around a store; documents without an `_id` get one of these.
    pub fn new(store: Arc<S>, ids: Arc<dyn IdSource>) -> Self {
        Resilient { store, ids }
    }

    /// Runs a request, and once more what does no harm when it is done twice.
    async fn always<T, F>(&self, operation: Operation, call: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        let always = async || Repeat::Always;
        self.run(operation, call, |_| None, always, |_| true).await
    }

    /// Runs a request, and once more only if the first try was not applied for certain.
    async fn unless_applied<T, F>(&self, operation: Operation, call: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        let never = async || Repeat::Never;
        self.run(operation, call, |_| None, never, |_| true).await
    }

    /// Runs a request, and once more if it is told that this does no harm.
    ///
    /// `broken_off` is the failure of the network within an outcome, `repeat` what a second try would do, `found` whether an
    /// outcome says that a document was there to be changed.
    async fn run<T, F, R>(
        &self,
        operation: Operation,
        call: impl Fn() -> F + Send + Sync,
        broken_off: impl Fn(&T) -> Option<Error> + Send,
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
        let Some(error) = failure(&first, broken_off) else { return first };
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

    /// What a second try would do, where it matters which fields are unique: the store is only asked if that is so.
    async fn judge(&self, namespace: &Namespace, of: impl Fn(&dyn Fn(&str) -> bool) -> Repeat + Send) -> Repeat {
        let by_id = of(&|field| field == "_id");
        if by_id != Repeat::Never || of(&|_| true) == Repeat::Never {
            return by_id;
        }
        let Ok(indexes) = self.store.list_indexes(namespace).await else { return Repeat::Never };
        let unique: HashSet<String> = indexes.iter().filter_map(|index| unique_field(&index.spec)).collect();
        of(&|field| field == "_id" || unique.contains(field))
    }
}

/// What a first try failed of on the network, as a whole or, as `broken_off` says, within its outcome.
fn failure<T>(first: &Result<T>, broken_off: impl FnOnce(&T) -> Option<Error>) -> Option<Error> {
    let error = match first {
        Ok(outcome) => broken_off(outcome),
        Err(error) => Some(error.clone()),
    };
    error.filter(is_transient)
}

fn is_transient(error: &Error) -> bool {
    error.class() == ErrorClass::TransientNetwork
}

/// The failure of the network that broke off a request of several statements: those before it are done.
fn broken_off(errors: &[WriteError]) -> Option<Error> {
    errors.iter().map(|refused| &refused.error).find(|error| is_transient(error)).map(|error| error.clone().in_doubt())
}
