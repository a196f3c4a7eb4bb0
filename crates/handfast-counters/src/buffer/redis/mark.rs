//! The mark of a Redis: the key `hf:store`.

use handfast_store::Applied;

use super::identity::State;
use super::{Keys, RedisBuffer, text, unavailable};
use crate::buffer::Buffer as _;
use crate::storage::QueueRecord;
use crate::{Error, Result, hex};

/// The key of the mark.
pub(super) const STORE: &str = "hf:store";
/// Sets the mark if there is none, also while the memory of Redis is full: that refuses the first write of a script alone, and to delete needs none. Otherwise
/// the queue could not be saved, which makes room.
const SET_MARK: &str =
    "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) end";
/// The ids that a Redis has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) store: String,
    pub(super) queue: String,
    pub(super) replaced: Option<String>,
}

impl Mark {
    fn read(written: &str) -> Result<Self> {
        let mut parts = written.split('|');
        match [parts.next(), parts.next(), parts.next(), parts.next()] {
            [Some(store), Some(queue), Some(replaced), None] if !store.is_empty() && !queue.is_empty() => Ok(Mark {
                store: store.to_owned(),
                queue: queue.to_owned(),
                replaced: Some(replaced).filter(|replaced| !replaced.is_empty()).map(str::to_owned),
            }),
            _ => Err(Error::damaged(format!(
                "the key {STORE} of Redis has {written:?}, which names no store and no queue"
            ))),
        }
    }

    fn written(&self) -> String {
        format!("{}|{}|{}", self.store, self.queue, self.replaced.as_deref().unwrap_or_default())
    }
}

impl RedisBuffer {
    pub(super) async fn find_mark(&self) -> Result<Option<Mark>> {
        let found = self.servers.send(STORE, redis::cmd("GET").arg(STORE)).await?;
        text(&found).map(Mark::read).transpose()
    }

    /// Returns the mark; one that is not there is set: the one that this process has found right before, or a new one.
    pub(super) async fn mark(&self, state: &State, record: &QueueRecord) -> Result<Mark> {
        if let Some(mark) = self.find_mark().await? {
            return Ok(mark);
        }
        let mark = match state {
            State::Own(mark) => mark.clone(),
            _ => {
                self.ensure_no_kind_of_another_store().await?;
                Mark {
                    store: record.store.clone(),
                    queue: hex::encode(&self.sources.uuid()),
                    replaced: record.queue.clone(),
                }
            }
        };
        self.set_mark(&mark).await
    }

    /// Sets the mark if there is none, and returns the one that is there: of two instances at once, the first one's mark is for both.
    pub(super) async fn set_mark(&self, mark: &Mark) -> Result<Mark> {
        self.servers.send(STORE, redis::cmd("EVAL").arg(SET_MARK).arg(1).arg(STORE).arg(mark.written())).await?;
        self.find_mark().await?.ok_or_else(|| unavailable(format!("{STORE:?} gets lost again and again"), Applied::No))
    }

    /// Fails if an instance over another store has counted views here, which has not set its mark yet.
    async fn ensure_no_kind_of_another_store(&self) -> Result<()> {
        for kind in self.kinds().await? {
            let state = Keys::new(&kind).key("state");
            let store = self.servers.send(&state, redis::cmd("HGET").arg(&state).arg("store")).await?;
            if let Some(store) = text(&store) {
                self.ensure_same_store(store)?;
            }
        }
        Ok(())
    }

    /// Removes the mark of a Redis that was refused, so that it may become the queue of another store.
    pub(super) async fn remove_mark(&self, mark: &Mark) -> Result<()> {
        if self.find_mark().await?.as_ref() == Some(mark) {
            self.servers.send(STORE, redis::cmd("DEL").arg(STORE)).await?;
        }
        Ok(())
    }
}
