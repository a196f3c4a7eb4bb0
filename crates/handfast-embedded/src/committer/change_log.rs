//! The log of changes, as the committer writes it: the records of an operation are staged together with its documents.
//!
//! ```text
//! operation    puts and removals of documents, changes of the catalog      each adds a record, if the log is on
//! its end      one moment of the cluster time for all of them; records staged under (commit, 0), (commit, 1), ..
//! ```
//!
//! An operation that fails leaves no record, and a batch has a change and its record, or neither. While the log is off, nothing is
//! computed and nothing is written.

use bson::RawDocumentBuf;
use handfast_store::change_stream::ChangePosition;
use handfast_store::source::cluster_clock::{bits, of_bits};
use handfast_store::{CommitTimestamp, Sources, Ticket, change_stream::record};

use super::Staged;
use crate::engine::{Direction, Keyspace, View};
use crate::error::{Error, Result};
use crate::format::{ChangeLogState, ChangeRecord, MetadataKey, Verify, change_key};

/// The log, while it is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogWriter {
    pub(super) state: ChangeLogState,
    /// The bytes of all records since the log began.
    total_bytes: u64,
}

/// The records of the running operation.
#[derive(Default)]
pub(super) struct Records {
    records: Vec<Record>,
    /// The place of the next records among those of the operation.
    pub(super) place: u32,
    /// The transaction that the operation commits.
    pub(super) transaction: Option<Ticket>,
}

struct Record {
    place: u32,
    collection: [u8; 16],
    content: RawDocumentBuf,
}

impl Records {
    pub(super) fn add(&mut self, collection: [u8; 16], mut content: RawDocumentBuf) {
        if let Some(transaction) = self.transaction {
            record::add_transaction(&mut content, transaction);
        }
        self.records.push(Record { place: self.place, collection, content });
    }
}

impl LogWriter {
    /// Reads the log of a store that is opened; `None` if it has none, or its end is damaged.
    pub(super) fn load(view: &dyn View, sources: &Sources) -> Result<Option<Self>> {
        let Some(state) = ChangeLogState::read(view)? else { return Ok(None) };
        let mut log = LogWriter { state, total_bytes: state.trimmed_bytes };
        let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let last = view.range(Keyspace::Changes, everything, Direction::Backward).next().map(|row| {
            let (key, value) = row?;
            ChangeRecord::open(&key, &value, Verify::Checksums).map(|(_, last)| (last.total_bytes, last.time))
        });
        match last.transpose() {
            Ok(Some((total_bytes, time))) => {
                log.total_bytes = log.total_bytes.max(total_bytes);
                sources.cluster_clock.pass(of_bits(time));
            }
            Ok(None) => {}
            Err(error @ Error::Corrupt(_)) => {
                tracing::error!(%error, "the log of changes is damaged, and ends: change streams begin anew");
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        sources.cluster_clock.pass(of_bits(state.since_time));
        Ok(Some(log))
    }

    /// Begins a log: the changes of later commits than this one are in it. A first record, which no reader sees, creates its map.
    pub(super) fn begin(id: u64, since: CommitTimestamp, staged: &mut Staged, sources: &Sources) -> Self {
        let now = sources.clock.now();
        sources.cluster_clock.reach(now);
        let time = bits(sources.cluster_clock.advance_held());
        let log = LogWriter { state: ChangeLogState { id, since, since_time: time, trimmed_bytes: 0 }, total_bytes: 0 };
        log.stage_state(staged);
        let key = change_key(ChangePosition::end_of(since));
        let wall_millis = now.timestamp_millis();
        let record = ChangeRecord { total_bytes: 0, time, wall_millis, collection: [0; 16], content: &[] }.encode(&key);
        staged.write(Keyspace::Changes, key, Some(record));
        log
    }

    pub(super) fn stage_state(&self, staged: &mut Staged) {
        staged.write(Keyspace::Metadata, MetadataKey::ChangeLog.encode(), Some(self.state.encode()));
    }

    /// Stages the records of an operation, which is this commit.
    pub(super) fn stage(&mut self, records: Records, commit: CommitTimestamp, staged: &mut Staged, sources: &Sources) {
        let mut records = records.records;
        if records.is_empty() {
            return;
        }
        // A stable sort: the records of one place stay in their order.
        records.sort_by_key(|record| record.place);
        let now = sources.clock.now();
        sources.cluster_clock.reach(now);
        let (time, wall_millis) = (bits(sources.cluster_clock.advance_held()), now.timestamp_millis());
        for (index, Record { collection, content, .. }) in records.into_iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX - 1);
            let key = change_key(ChangePosition { commit, index });
            self.total_bytes += (key.len() + content.as_bytes().len()) as u64;
            let total_bytes = self.total_bytes;
            let record = ChangeRecord { total_bytes, time, wall_millis, collection, content: content.as_bytes() };
            let value = record.encode(&key);
            staged.write(Keyspace::Changes, key, Some(value));
        }
    }

    /// Returns the bytes of the records that the log has.
    pub(super) fn bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.state.trimmed_bytes)
    }
}
