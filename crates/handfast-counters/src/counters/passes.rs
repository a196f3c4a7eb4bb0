//! The passes of an instance, one after the other, and what is said of those that fail.

use std::mem::Discriminant;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Counters, Flushed};
use crate::retention::Retention;
use crate::{Error, time_limit};

/// The time between two log lines about passes that go on to fail: there may be a pass every few milliseconds, and each may fail for another reason than the one before.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The error of a pass, by what it means for the views that are in the queue.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PassError {
    /// The queue is not that of the store, so no view is counted either.
    #[error("no views are counted or saved: {0}")]
    Refused(Error),
    /// The queue, or a part of it, does not answer, so nobody knows what is in it.
    #[error("the queue cannot be saved now, and views that are in it wait there: {0}")]
    QueueUnavailable(Error),
    /// The queue has views, or a batch that is not acknowledged.
    #[error("views could not be saved, and wait in the queue: {0}")]
    ViewsWait(Error),
    /// The queue is empty.
    #[error("nothing waits in the queue, but the last pass over it has failed: {0}")]
    NothingWaits(Error),
}

impl Counters {
    /// Saves views at once, then every [`CountersOptions::flush_interval`](super::CountersOptions::flush_interval), and earlier if there are many, until `stop` is canceled;
    /// then once more. Between the passes it removes daily figures that are older than
    /// [`CountersOptions::keep_days`](super::CountersOptions::keep_days), some at a time.
    ///
    /// # Errors
    /// That of the last pass.
    pub async fn run(&self, stop: CancellationToken) -> Result<Flushed, PassError> {
        let (mut retention, mut log) = (Retention::default(), PassLog::default());
        loop {
            match self.pass().await {
                Ok(_) if log.succeeded() => tracing::info!("views are saved again"),
                Ok(_) => {}
                Err(error) if log.failed(error.error(), self.sources.clock.elapsed()) => tracing::warn!("{error}"),
                Err(_) => {}
            }
            let pause = retention.pass(self).await;
            tokio::select! {
                () = stop.cancelled() => return self.pass().await,
                () = tokio::time::sleep(pause) => {}
                () = self.counted.are_many.notified() => {}
            }
        }
    }

    async fn pass(&self) -> Result<Flushed, PassError> {
        match self.flush().await {
            Ok(flushed) => Ok(flushed),
            Err(error @ Error::WrongQueue { .. }) => Err(PassError::Refused(error)),
            Err(error @ Error::Buffer { .. }) => Err(PassError::QueueUnavailable(error)),
            Err(error) => Err(match self.has_waiting_views().await {
                Some(true) => PassError::ViewsWait(error),
                Some(false) => PassError::NothingWaits(error),
                None => PassError::QueueUnavailable(error),
            }),
        }
    }

    /// Returns whether the queues have views that are not saved; `None` if not all of them answer.
    async fn has_waiting_views(&self) -> Option<bool> {
        let kinds = time_limit::of_buffer(self.options.read_time_max, self.buffer.kinds()).await.ok()?;
        let all = kinds.len();
        let queues = self.queues_of(kinds).await;
        if queues.iter().any(|queue| queue.depth.pending > 0 || queue.depth.batches > 0) {
            return Some(true);
        }
        (queues.len() == all).then_some(false)
    }
}

impl PassError {
    /// Returns what the pass has met.
    pub fn error(&self) -> &Error {
        match self {
            PassError::Refused(error)
            | PassError::QueueUnavailable(error)
            | PassError::ViewsWait(error)
            | PassError::NothingWaits(error) => error,
        }
    }
}

/// Decides which failed passes are logged: the first one of each kind since the last pass that succeeded, and then one in each [`LOG_INTERVAL`].
#[derive(Default)]
struct PassLog {
    /// The kinds of errors since then.
    met: Vec<Discriminant<Error>>,
    /// The time of the last line.
    logged: Duration,
}

impl PassLog {
    /// Takes a pass that has failed, and returns whether that is logged.
    fn failed(&mut self, error: &Error, now: Duration) -> bool {
        let kind = std::mem::discriminant(error);
        let is_new = !self.met.contains(&kind);
        if is_new {
            self.met.push(kind);
        }
        let is_logged = is_new || now.saturating_sub(self.logged) >= LOG_INTERVAL;
        if is_logged {
            self.logged = now;
        }
        is_logged
    }

    /// Takes a pass that has succeeded, and returns whether those before it had failed.
    fn succeeded(&mut self) -> bool {
        let had_failed = !self.met.is_empty();
        self.met.clear();
        had_failed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use handfast_store::Applied;

    use super::PassLog;
    use crate::Error;

    #[test]
    fn a_change_is_logged_at_once_and_what_stays_so_once_a_minute() {
        let away = |what: &str| Error::Buffer { what: what.to_owned(), applied: Applied::No };
        let (refused, late) = (away("connection refused"), away("no answer"));
        let other = Error::WrongQueue { what: "the queue of another store".to_owned() };
        let mut log = PassLog::default();
        let mut at = |second: u64, error: &Error| log.failed(error, Duration::from_secs(second));
        assert!(at(100, &refused), "the first one");
        assert!(!at(102, &late) && !at(104, &refused), "the text is another one, and the kind the same");
        assert!(at(110, &other), "another kind");
        assert!(!at(112, &refused) && !at(114, &other) && !at(169, &late), "two in turn");
        assert!(at(170, &late), "a minute after the last line");
        assert!(!at(171, &other));
        assert!(log.succeeded(), "it is over");
        assert!(!log.succeeded());
        assert!(log.failed(&refused, Duration::from_secs(173)), "it begins again");
    }
}
