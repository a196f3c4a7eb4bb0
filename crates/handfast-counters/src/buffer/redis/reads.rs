//! Reading totals without a script.
//!
//! A script costs Redis several times as much as a plain command. So totals are read by one `MGET` of their entries, as long as all of them are whole
//! and of the generation of the kind that this connection has found before. Redis begins no kind anew while it runs, unless the state of the
//! kind was lost; the entries were not, then, and are right. The generation is read with them, as another server may have had the kind in between.
//!
//! Otherwise the stored total of an item will be read, behind a fence, and the request is made again by a pipeline: the state of the kind first, which has
//! the epoch, then the generation and the entries. Redis may carry out steps of others between two commands of a pipeline:
//!
//! ```text
//!   pipeline                                     steps of others, in between
//!   HMGET state: run, epoch 40
//!                                                views, claims, acknowledgements, deletions
//!   GET generation: 7
//!                                                views, claims, acknowledgements, deletions
//!   MGET item:a item:b: 2 pending, 5 stored, generation 7; nothing
//! ```
//!
//! - *An entry that is there* is right at the moment of its command; no total is older than the request. If it is compared with a later generation than
//!   the fence's, it can only be partial instead of whole.
//! - *An item without an entry.* At the moment of its own command the stored total was all of it, so a stored total that is read later has at least
//!   the views that any reader was shown before this request.
//! - *The epoch* is the oldest value of the pipeline. [`Buffer::fill`](crate::Buffer::fill) and [`Buffer::upsert`](crate::Buffer::upsert) compare it at the moment of their own step,
//!   and look for the entry there again: if the epoch is the same and there is no entry, no batch was claimed or acknowledged since before the stored
//!   total was read, and none with views of the item was waiting for its acknowledgement. So the stored total is all of it, wherever the command
//!   for the entry stood. An epoch that was read after the entries would not show that: a batch may be acknowledged, and its entry expire, between the
//!   two.
//! - *The run* in the state is compared with that of the connection. If it differs, the kind is begun, and all is read again.
//! - *The store* in the state is compared with that of this process: two stores may share a Redis that was away when they started.

use redis::Value;

use super::answer::{self, Entry, Row};
use super::failure::Failure;
use super::server_connection::ServerConnection;
use super::{Keys, NOT_BEGUN, RedisBuffer};
use crate::buffer::{Fence, Reading};
use crate::{Error, ItemId, Kind, Result};

impl RedisBuffer {
    /// Reads totals by one command; nothing if one is not whole.
    async fn read_whole(
        &self,
        kind: &Kind,
        keys: &Keys,
        ids: &[ItemId],
        live: &ServerConnection,
    ) -> Result<Option<Reading>, Failure> {
        let Some(generation) = live.generation(kind).filter(|_| !ids.is_empty()) else { return Ok(None) };
        let mut command = redis::cmd("MGET");
        command.arg(keys.key("generation")).arg(keys.items(ids));
        let answer = live.send(&command).await?;
        let Some((present, entries)) = answer::values(&answer)?.split_first() else { return Ok(None) };
        if answer::generation(present)?.is_none_or(|(present, _)| present != &*generation) {
            return Ok(None);
        }
        let mut totals = Vec::with_capacity(ids.len());
        for entry in entries {
            match Entry::total_of(entry, &generation)? {
                Some(total) if !total.partial => totals.push(Some(total)),
                _ => return Ok(None),
            }
        }
        Ok(Some(Reading { totals, fence: Fence::NONE }))
    }

    /// Reads totals by plain commands; nothing if the kind must be begun.
    pub(super) async fn try_read(
        &self,
        kind: &Kind,
        keys: &Keys,
        ids: &[ItemId],
        live: &ServerConnection,
    ) -> Result<Option<Reading>, Failure> {
        if let Some(reading) = self.read_whole(kind, keys, ids, live).await? {
            return Ok(Some(reading));
        }
        let mut pipeline = redis::pipe();
        // First: see the description of this module.
        pipeline.cmd("HMGET").arg(keys.key("state")).arg(&["run", "epoch", "store"]);
        pipeline.cmd("GET").arg(keys.key("generation"));
        if !ids.is_empty() {
            pipeline.cmd("MGET").arg(keys.items(ids));
        }
        let answers = live.read(&pipeline).await?;
        let mut answers = answers.iter();
        let [Some(state), Some(present)] = [(); 2].map(|()| answers.next()) else {
            return Err(Error::damaged("Redis has answered fewer commands than it was sent").into());
        };
        let (state, present) = (Row::new(state)?, answer::generation(present)?);
        if let Some(store) = state.text(2)? {
            self.ensure_same_store(store)?;
        }
        let generation = match (state.text(0)?, present) {
            (Some(run), Some((generation, _))) if run == &*live.run => generation,
            (None, None) => {
                // A kind that nobody has written to is not begun by a reader.
                let mut exists = redis::cmd("EXISTS");
                exists.arg(keys.key("pending")).arg(keys.key("since"));
                return match live.send(&exists).await? {
                    Value::Int(0) => Ok(Some(Reading { totals: vec![None; ids.len()], fence: NOT_BEGUN })),
                    _ => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        live.keep_generation(kind, Some(generation));
        let entries = answers.next().map_or(Ok(&[][..]), answer::values)?;
        let totals = entries.iter().map(|entry| Entry::total_of(entry, generation)).collect::<Result<Vec<_>>>()?;
        Ok(Some(Reading { totals, fence: Fence(state.number(1)?.unwrap_or(0)) }))
    }
}
