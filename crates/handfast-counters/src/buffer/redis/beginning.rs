//! How a kind is begun: see [the buffer](super), "When Redis starts again".

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use handfast_store::Applied;

use super::failure::{Failure, unavailable};
use super::server_connection::ServerConnection;
use super::servers::Attempts;
use super::{KINDS, Keys, RedisBuffer};
use crate::{Error, Kind, Result, SequenceNumber};

/// The largest number with which a kind begins: beyond, the numbers of Lua are not exact.
const NUMBER_MAX: SequenceNumber = 1 << 52;

/// How this process begins a kind: once for all requests that wait for it.
#[derive(Default)]
pub(super) struct Beginning {
    lock: tokio::sync::Mutex<()>,
    /// How often the kind was begun.
    count: AtomicU64,
    /// The largest next number that is known.
    pub(super) next: AtomicU64,
    /// Whether the set of all kinds has the kind.
    is_named: AtomicBool,
}

impl RedisBuffer {
    /// Begins a kind, after which its request is sent again.
    ///
    /// # Errors
    /// That of a request that was not applied.
    pub(super) async fn begin(&self, kind: &Kind, live: &ServerConnection, attempts: &mut Attempts) -> Result<()> {
        attempts.next(|| unavailable(format!("the queue of {kind} gets lost again and again"), Applied::No))?;
        let beginning = self.known(kind);
        let before = beginning.count.load(Ordering::SeqCst);
        let _lock = beginning.lock.lock().await;
        // If the server has not answered the one before, all who wait connect again and do not wait for it one after the other.
        if beginning.count.load(Ordering::SeqCst) > before || live.is_closed() {
            return Ok(());
        }
        match self.try_begin(kind, live, &beginning).await {
            Ok(()) => {
                beginning.count.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
            Err(failure) => self.servers.prepare_again(&Keys::new(kind).0, live, failure.not_applied(), attempts).await,
        }
    }

    async fn try_begin(&self, kind: &Kind, live: &ServerConnection, known: &Beginning) -> Result<(), Failure> {
        // Another instance may have begun the kind under the name that the run has now.
        if !live.has_same_run().await? {
            return Ok(());
        }
        let least = match tokio::time::timeout(self.options.last_number_timeout, self.storage.last_number(kind)).await {
            Ok(Ok(last)) => Some(last + 1),
            Ok(Err(error @ Error::Damaged { .. })) => return Err(error.into()),
            // What Redis has, its clock, and what this process has seen decide.
            Ok(Err(_)) | Err(_) => None,
        };
        if let Some(least) = least.filter(|least| *least > NUMBER_MAX) {
            let what = format!("the last number of {kind} in the store, {least}, is above {NUMBER_MAX}");
            return Err(Error::damaged(what).into());
        }
        self.check_before_beginning().await?;
        // Before the first event, so that each pass finds the kind.
        self.name(kind, known).await?;
        let epoch = (self.sources.random.next_u64() >> 2).max(1);
        tracing::info!(%kind, "the queue begins with a new epoch");
        let least = least.map_or_else(String::new, |least| least.to_string());
        let arguments = [&*least, &known.next.load(Ordering::SeqCst).to_string(), &epoch.to_string()];
        let answer = self.send(live, &Keys::new(kind), "begin", &arguments, Applied::No).await?;
        live.keep_generation(kind, Some(answer.text(1)?));
        Ok(())
    }

    /// Returns what this process knows of a kind.
    pub(super) fn known(&self, kind: &Kind) -> Arc<Beginning> {
        let known = self.kinds.read().unwrap_or_else(PoisonError::into_inner).get(kind).cloned();
        known.unwrap_or_else(|| {
            Arc::clone(self.kinds.write().unwrap_or_else(PoisonError::into_inner).entry(kind.clone()).or_default())
        })
    }

    /// Adds a kind to the set of all kinds, which may have lost it: in a cluster, the set is on a server of its own.
    async fn name(&self, kind: &Kind, known: &Beginning) -> Result<()> {
        self.servers.send(KINDS, redis::cmd("SADD").arg(KINDS).arg(kind.as_str())).await?;
        known.is_named.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Adds a kind to the set of all kinds, once in each process that writes to it.
    pub(super) async fn name_once(&self, kind: &Kind) -> Result<()> {
        let known = self.known(kind);
        match known.is_named.load(Ordering::SeqCst) {
            true => Ok(()),
            false => self.name(kind, &known).await.map_err(|error| Failure::from(error).not_applied().error),
        }
    }

    /// Looks for the generation of a kind, which most often was begun by another instance, and begins it otherwise; its request is sent again then.
    ///
    /// # Errors
    /// That of a request that was not applied.
    pub(super) async fn find_generation(
        &self,
        kind: &Kind,
        live: &ServerConnection,
        attempts: &mut Attempts,
    ) -> Result<()> {
        let keys = Keys::new(kind);
        match self.try_read(kind, &keys, &[], live).await {
            Ok(_) if live.generation(kind).is_some() => self.name_once(kind).await,
            Ok(_) => self.begin(kind, live, attempts).await,
            Err(failure) => self.servers.prepare_again(&keys.0, live, failure.not_applied(), attempts).await,
        }
    }
}
