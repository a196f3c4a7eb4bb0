//! Dropping collections, and what has to be done before the store drops or renames one: it is closed ([`super::closures`]), and the
//! locks are resolved that are decided in it.
//!
//! ```text
//! lock                                          when the collection is dropped      when it is renamed
//! elsewhere, decided in the collection          resolved: it could not ask later    resolved
//! in the collection, decided there              goes, with all that knows of it     resolved: it would ask under the old name
//! in the collection, decided elsewhere          goes; the others do not need it     resolved: it would be taken for gone
//! ```
//!
//! A row in a collection that is dropped can be as damaged as it likes, so long as nobody has to ask it. A lock elsewhere of which its
//! primary in the collection cannot tell what becomes is for the operator to decide: once the collection is gone, nobody could.
//!
//! A collection that is dropped loses its unique indexes first: if the process dies in between, it is still there without
//! them, and has to be dropped again. The other way round, its keys would be taken in one of the same name.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Applied, Error as StoreError, ErrorClass, Namespace, Result as StoreResult, check_database_name};

use super::catalog::Catalog;
use super::closures::{ClosingId, Part, over_after, to_be_sent_within};
use super::core::{Core, conflict};
use super::resolver::Resolved;
use super::row::Timestamp;
use super::rows::locked;
use super::scan::{Found, next_found};
use super::{SETTLE_LOOKS_MAX, SETTLE_PAUSE};

/// How long the background work of this process is waited for before what it has left is looked for.
const BACKGROUND_WAIT: Duration = Duration::from_secs(1);

/// What goes away, in one of two ways.
pub(super) struct Going {
    /// All of it.
    pub(super) of: Vec<Part>,
    /// What of it is dropped with its rows.
    pub(super) dropped: Vec<Part>,
}

/// What is closed now.
pub(super) struct Closed {
    id: ClosingId,
    /// On our stopwatch, before it was.
    since: Duration,
    /// The store may still do what it was asked for.
    is_in_doubt: bool,
}

impl Closed {
    /// Notes what came of the request for which it is closed.
    pub(super) fn sent<T>(&mut self, result: StoreResult<T>) -> StoreResult<T> {
        self.is_in_doubt = result.as_ref().is_err_and(|error| error.applied() == Applied::Maybe);
        result
    }
}

impl Core {
    pub(super) async fn drop_collection(self: &Arc<Self>, namespace: &Namespace) -> StoreResult<bool> {
        let is_there = self.is_there(namespace).await?;
        if !is_there && self.newest_catalog().await?.staying(|of| of == namespace).next().is_none() {
            return Ok(false);
        }
        self.drop_part(Part::Collection(namespace.clone())).await
    }

    pub(super) async fn drop_database(self: &Arc<Self>, database: &str) -> StoreResult<bool> {
        // Others read the name in the catalog.
        check_database_name(database)?;
        self.drop_part(Part::Database(database.to_owned())).await
    }

    /// Drops it to the end, also if nobody waits for that any more.
    async fn drop_part(self: &Arc<Self>, part: Part) -> StoreResult<bool> {
        let core = Arc::clone(self);
        to_the_end(async move {
            let mut closed = core.close(std::slice::from_ref(&part)).await?;
            let dropped = core.drop_closed(part, &mut closed).await;
            core.open(closed).await;
            core.remove_what_was_let_go().await;
            dropped
        })
        .await
    }

    async fn drop_closed(&self, part: Part, closed: &mut Closed) -> StoreResult<bool> {
        let going = Going { of: vec![part.clone()], dropped: vec![part.clone()] };
        self.settle_going(&going).await?;
        // The indexes go first: not if it is open again by then, and somebody relies on them.
        self.check_in_time(closed)?;
        self.let_go_of(&part).await?;
        self.check_in_time(closed)?;
        closed.sent(match &part {
            Part::Collection(namespace) => self.rows.store.drop_collection(namespace).await,
            Part::Database(database) => self.rows.store.drop_database(database).await,
        })
    }

    /// Lets the indexes of collections go, if there are any.
    async fn let_go_of(&self, part: &Part) -> StoreResult<()> {
        if self.newest_catalog().await?.staying(|of| part.holds(of)).next().is_none() {
            return Ok(());
        }
        self.let_go(|kept| part.holds(&kept.namespace)).await
    }

    /// Removes the rows of indexes that went with their collection. What fails is the cleaner's to go on with: nobody knows of
    /// these indexes any more.
    pub(super) async fn remove_what_was_let_go(&self) {
        if let Err(error) = self.remove_dropped().await {
            tracing::warn!(%error, "keys of indexes that were dropped are left: the cleaner goes on");
        }
    }

    /// Whether a collection is there.
    pub(super) async fn is_there(&self, namespace: &Namespace) -> StoreResult<bool> {
        let collections = self.rows.store.list_collections(namespace.database()).await?;
        Ok(collections.iter().any(|info| info.name == namespace.collection()))
    }

    /// Closes collections: who fetches a commit timestamp after this does not commit in them.
    pub(super) async fn close(&self, of: &[Part]) -> StoreResult<Closed> {
        let closed = Closed { id: self.sources.uuid(), since: self.elapsed(), is_in_doubt: false };
        let now = self.oracle.next().await?;
        let close = |catalog: &mut Catalog| {
            catalog.closures.close(closed.id, of, now);
            Ok(())
        };
        match self.change_catalog(close).await {
            Ok(()) => Ok(closed),
            Err(error) => {
                self.open(closed).await;
                Err(error)
            }
        }
    }

    /// Opens what was closed; or leaves it for a cleaner to open when nothing can be on its way any more.
    pub(super) async fn open(&self, closed: Closed) {
        if closed.is_in_doubt {
            tracing::warn!(
                "whether the store drops or renames what it was asked to is unknown: it stays closed for a while"
            );
            return;
        }
        let open = |catalog: &mut Catalog| {
            let version = catalog.version;
            catalog.closures.open(closed.id, version);
            Ok(())
        };
        if let Err(error) = self.change_catalog(open).await {
            tracing::warn!(%error, "what was closed to drop or rename it stays closed for a while");
        }
    }

    /// Opens what was closed by those who are no more.
    pub(super) async fn clean_closed(&self, now: Timestamp) -> StoreResult<()> {
        let than = now.minus(over_after(self.options.retention));
        let open = |catalog: &mut Catalog| {
            let version = catalog.version;
            catalog.closures.open_older(than, version);
            Ok(())
        };
        self.change_catalog(open).await
    }

    /// Whether what is sent now can have arrived before others open what was closed for it.
    pub(super) fn check_in_time(&self, closed: &Closed) -> StoreResult<()> {
        let taken = self.elapsed().saturating_sub(closed.since);
        if taken <= to_be_sent_within(self.options.retention) {
            return Ok(());
        }
        Err(conflict(format_args!("the transactions that are decided there took {taken:?} to end: it was given up")))
    }

    /// Returns once no lock is left that needs what goes away. It is closed: there will be no more that may commit.
    ///
    /// # Errors
    /// Those of the store; `WriteConflict` (112) for a transaction that does not end; `OperationFailed` (96) for a lock of which
    /// nobody can tell what becomes.
    pub(super) async fn settle_going(&self, going: &Going) -> StoreResult<()> {
        // What this process does in the background needs not be looked for, if it ends soon; an index that is built takes hours.
        let _ = tokio::time::timeout(BACKGROUND_WAIT, self.background.idle()).await;
        for _ in 0..SETTLE_LOOKS_MAX {
            let mut is_settled = true;
            for namespace in self.namespaces().await? {
                if let Some(filter) = going.needed(&namespace) {
                    is_settled &= self.settle_in(&namespace, filter, going).await?;
                }
            }
            if is_settled {
                return Ok(());
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
        Err(conflict(format_args!("a transaction that does not end is decided in {going}")))
    }

    /// Resolves the locks of rows that match; whether none of them is alive.
    async fn settle_in(&self, namespace: &Namespace, filter: RawDocumentBuf, going: &Going) -> StoreResult<bool> {
        let mut is_settled = true;
        let mut locked = self.scan(namespace, &filter).await?;
        while let Some(page) = next_found(&mut *locked, namespace).await? {
            for found in page {
                match found {
                    Found::Row(key, row) => match self.resolve_one(&key, row).await {
                        Ok((resolved, _)) => is_settled &= matches!(resolved, Resolved::Free(_)),
                        Err(error) if error.class() != ErrorClass::Command => return Err(error),
                        Err(error) if error.code() == Code::WriteConflict => return Err(error),
                        Err(error) => return Err(going.held_up_by(&key, error)),
                    },
                    Found::Damaged { error, .. } => return Err(going.held_up_by(namespace, error)),
                }
            }
        }
        Ok(is_settled)
    }
}

impl Going {
    /// The rows of a collection whose locks have to be resolved first; none if none have to.
    fn needed(&self, namespace: &Namespace) -> Option<RawDocumentBuf> {
        let holds = |parts: &[Part]| parts.iter().any(|part| part.holds(namespace));
        if holds(&self.dropped) {
            return None;
        }
        let mut filter = locked();
        if !holds(&self.of) {
            let there = |part: &Part| RawBson::Document(rawdoc! { "_hf.lock.primary.ns": part.names() });
            filter.append(bson::raw::cstr!("$or"), self.of.iter().map(there).collect::<RawArrayBuf>());
        }
        Some(filter)
    }

    fn held_up_by(&self, what: &dyn std::fmt::Display, error: StoreError) -> StoreError {
        let text = format!(
            "{what} is locked by a transaction that is decided in {self}, or is to go with it, and cannot be freed: {error}; mend the \
             documents that are named, or decide by hand and take the lock ('_hf.lock') out of the one that has it, then try again"
        );
        StoreError::command(Code::OperationFailed, text).with_source(error)
    }
}

impl std::fmt::Display for Going {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.of.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(" and "))
    }
}

/// Does what is not to be broken off half way if nobody waits for it any more.
pub(super) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = StoreResult<T>> + Send + 'static,
) -> StoreResult<T> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(StoreError::command(Code::InternalError, "it broke off half way").in_doubt()))
}
