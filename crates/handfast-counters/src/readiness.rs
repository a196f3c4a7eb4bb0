//! The state of the parts that the counters need: whether views can be counted, read and saved.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Counters, Error, ItemId, Kind, Result};

/// The item that is read to see whether the store answers; it need not be there.
const PROBE: (&str, &str) = ("probe", "probe");

/// The errors of the parts of the counters that do not work.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// The error of the cache and the queue: no view can be counted.
    pub queue: Option<Error>,
    /// The error of the store: a total that is not in the cache cannot be read, and views wait in the queue.
    pub store: Option<Error>,
    /// The error of the last pass that saved views, if it failed.
    pub saving: Option<Error>,
}

/// The error of the last pass, which clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastPass(Arc<Mutex<Option<Error>>>);

impl Readiness {
    /// Returns whether views can be counted.
    pub fn takes_views(&self) -> bool {
        self.queue.is_none()
    }

    /// Returns the names of the parts that do not work, with their errors.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, &Error)> {
        let parts = [("queue", &self.queue), ("store", &self.store), ("saving", &self.saving)];
        parts.into_iter().filter_map(|(part, error)| error.as_ref().map(|error| (part, error)))
    }
}

impl LastPass {
    /// Keeps the result of a pass.
    pub(crate) fn keep<T>(&self, result: &Result<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = result.as_ref().err().cloned();
    }

    fn error(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Counters {
    /// Asks each part whether it works.
    pub async fn readiness(&self) -> Readiness {
        let store = async {
            let (kind, id) = (Kind::new(PROBE.0)?, ItemId::new(PROBE.1)?);
            self.storage().totals(&kind, &[id]).await
        };
        let (queue, store) = tokio::join!(self.buffer().check(), store);
        Readiness { queue: queue.err(), store: store.err(), saving: self.last_pass().error() }
    }
}
