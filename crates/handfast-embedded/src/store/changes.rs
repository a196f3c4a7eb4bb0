//! The log of changes for the streams that read it.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{DateTime, RawBsonRef, RawDocumentBuf, Timestamp};
use handfast_store::change_stream::{
    ChangeLog as ReadableLog, ChangePosition, LogExtent, LogId, LogPage, LoggedChange, NO_CHANGE_LOG, history_lost,
};
use handfast_store::source::cluster_clock::{bits, of_bits};
use handfast_store::view::ViewCatalog as _;
use handfast_store::{
    BatchLimit, ChangeStream, CommitTimestamp, Durability, Error as StoreError, Namespace, Result, Watch, WatchScope,
    blocking, change_stream, view,
};

use super::EmbeddedStore;
use crate::committer::{Snapshot, Writer};
use crate::engine::{Direction, Keyspace, View};
use crate::format::{ChangeLogState, ChangeRecord, Verify};
use crate::options::ChangeLog;
use crate::write::log_trimming::{self, after};

impl EmbeddedStore {
    pub(super) async fn open_stream(&self, request: Watch) -> Result<Box<dyn ChangeStream>> {
        if let WatchScope::Collection(namespace) = &request.scope {
            let snapshot = self.context.snapshot();
            snapshot.catalog().options(namespace).map_or(Ok(()), |options| view::refuse(namespace, options))?;
        }
        let log = Arc::new(StoreLog { store: self.clone() });
        change_stream::open(log, &self.context.sources, request).await
    }

    /// Begins or ends the log, as the options of the opened store say.
    pub(super) async fn prepare_log(&self) -> Result<()> {
        let is_on = || -> Result<bool> { Ok(ChangeLogState::read(&*self.context.snapshot().view()?)?.is_some()) };
        if is_on()? {
            let end_unread = |writer: &mut Writer<'_>| {
                writer.end_unread_log();
                Ok(())
            };
            self.context.change_catalog(end_unread).await?;
        }
        let is_on = is_on()?;
        match (self.context.options.change_log, is_on) {
            (ChangeLog::On, false) => log_trimming::begin(&self.context).await,
            (ChangeLog::Off, true) => log_trimming::end(&self.context).await,
            _ => Ok(()),
        }
    }

    /// Removes the records of the log of changes that are too old or too many, for all later reads.
    ///
    /// # Errors
    /// Returns the error of a write.
    pub async fn trim_change_log(&self) -> Result<()> {
        log_trimming::trim(&self.context).await?;
        self.context.wait_until_durable(Durability::Journaled).await
    }
}

/// The log of a store, which it keeps open.
struct StoreLog {
    store: EmbeddedStore,
}

impl StoreLog {
    fn extent_of(snapshot: &Snapshot) -> Result<Option<LogExtent>> {
        let state = ChangeLogState::read(&*snapshot.view()?)?;
        Ok(state.map(|state| LogExtent {
            id: LogId(state.id),
            since: state.since,
            since_time: of_bits(state.since_time),
            until: snapshot.timestamp(),
        }))
    }
}

#[async_trait]
impl ReadableLog for StoreLog {
    async fn extent(&self) -> Result<LogExtent> {
        let context = &self.store.context;
        context.note_log_read();
        if let Some(extent) = Self::extent_of(&context.snapshot())? {
            return Ok(extent);
        }
        if context.options.change_log == ChangeLog::Off {
            let text = "The $changeStream stage is only supported where changes are logged: the server was started with \
                        --change-streams off";
            return Err(StoreError::command(NO_CHANGE_LOG, text));
        }
        log_trimming::begin(context).await?;
        Self::extent_of(&context.snapshot())?.ok_or_else(history_lost)
    }

    async fn read(&self, position: ChangePosition, limit: BatchLimit) -> Result<LogPage> {
        let context = &self.store.context;
        context.note_log_read();
        let (snapshot, verify) = (context.snapshot(), context.shared().verify);
        let extent = Self::extent_of(&snapshot)?.ok_or_else(history_lost)?;
        if position < ChangePosition::end_of(extent.since) {
            return Err(history_lost());
        }
        if position >= ChangePosition::end_of(extent.until) {
            return Ok(LogPage { changes: Vec::new(), until: position, is_end: true });
        }
        blocking(move || page(&*snapshot.view()?, verify, position, extent.until, limit)).await
    }

    async fn position_at(&self, time: Timestamp) -> Result<ChangePosition> {
        let snapshot = self.store.context.snapshot();
        let verify = self.store.context.shared().verify;
        blocking(move || {
            let view = snapshot.view()?;
            let state = ChangeLogState::read(&*view)?.ok_or_else(history_lost)?;
            first_at(&*view, verify, [state.since, snapshot.timestamp()], bits(time))
        })
        .await
    }

    async fn committed_after(&self, commit: CommitTimestamp) {
        let mut published = self.store.context.shared().published.subscribe();
        // The sender lives as long as the store, which this log keeps open.
        let _ = published.wait_for(|published| *published > commit).await;
    }

    async fn document(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.store.reader().get(namespace, id)
    }
}

/// Reads the records after a position.
fn page(
    view: &dyn View,
    verify: Verify,
    position: ChangePosition,
    until: CommitTimestamp,
    limit: BatchLimit,
) -> Result<LogPage> {
    let (mut changes, mut bytes): (Vec<LoggedChange>, usize) = (Vec::new(), 0);
    for row in view.range(Keyspace::Changes, (after(position), std::ops::Bound::Unbounded), Direction::Forward) {
        let (key, value) = row?;
        if let Some(last) = changes.last()
            && (changes.len() >= limit.documents || bytes + value.len() > limit.bytes)
        {
            let until = last.position;
            return Ok(LogPage { changes, until, is_end: false });
        }
        bytes += value.len();
        let (position, record) = ChangeRecord::open(&key, &value, verify)?;
        changes.push(LoggedChange {
            position,
            time: of_bits(record.time),
            wall_time: DateTime::from_millis(record.wall_millis),
            collection: record.collection,
            content: RawDocumentBuf::from_bytes(record.content.to_vec()).map_err(handfast_mql::Error::from)?,
        });
    }
    Ok(LogPage { changes, until: ChangePosition::end_of(until), is_end: true })
}

/// Returns the position before the first record at or after a moment, by halves: records are in the order of time. The records of commits
/// after the first one and up to the second one are searched.
fn first_at(
    view: &dyn View,
    verify: Verify,
    [since, until]: [CommitTimestamp; 2],
    time: u64,
) -> Result<ChangePosition> {
    // All records up to `early` are before the moment, and none after `late` is.
    let (mut early, mut late) = (since.0, until.0);
    while early < late {
        let middle = early + (late - early) / 2;
        let start = after(ChangePosition::end_of(CommitTimestamp(middle)));
        let next = view.range(Keyspace::Changes, (start, std::ops::Bound::Unbounded), Direction::Forward).next();
        let next = next.transpose()?;
        let record = next.as_ref().map(|(key, value)| ChangeRecord::open(key, value, verify)).transpose()?;
        match record {
            Some((position, record)) if record.time < time => early = position.commit.0.min(late),
            _ => late = middle,
        }
    }
    Ok(ChangePosition::end_of(CommitTimestamp(early)))
}
