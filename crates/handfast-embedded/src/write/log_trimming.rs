//! Begins and ends the log of changes, and removes its oldest records, in the background.
//!
//! The log is bounded by the age and by the bytes of its records. A commit's records are removed together, so the log begins between two
//! commits. The new beginning and the removals are one operation: a reader of an older snapshot reads on, and a later one learns that its
//! place is gone.

use std::ops::Bound;
use std::time::Duration;

use handfast_store::change_stream::ChangePosition;
use handfast_store::{Result as StoreResult, Sources};

use super::context::WriteContext;
use crate::committer::{AnswerAfter, Writer};
use crate::engine::{Direction, Keyspace, View};
use crate::error::Result;
use crate::format::{ChangeLogState, ChangeRecord, Verify, change_key, change_position};
use crate::options::{ChangeLog, Options};

/// Begins the log, unless it is on.
pub(crate) async fn begin(context: &WriteContext) -> StoreResult<()> {
    let id = context.sources.random.next_u64();
    context
        .change_catalog(move |writer| {
            writer.begin_log(id);
            Ok(())
        })
        .await
}

/// Ends the log. Its records are removed by [`trim`].
pub(crate) async fn end(context: &WriteContext) -> StoreResult<()> {
    context
        .change_catalog(|writer| {
            writer.end_log();
            Ok(())
        })
        .await
}

/// Ends the log if nobody has read it for so long that all tokens are older than its records may be, and removes the records that are
/// too old or too many.
pub(crate) async fn trim(context: &WriteContext) -> StoreResult<()> {
    let Options { change_log, change_log_age_max: age_max, .. } = context.options;
    if is_on(context)? && change_log == ChangeLog::OnDemand && context.log_unread_for() > age_max {
        end(context).await?;
        tracing::info!("no change stream was read for change-log-age: changes are not logged until one is opened");
    }
    let mut trimmed = false;
    while !context.is_closing() {
        let (view, sources, options) = (context.latest().view, context.sources.clone(), context.options.clone());
        let found = tokio::task::spawn_blocking(move || oldest(&*view, &sources, &options)).await;
        let found = match found.map_err(|error| crate::Error::Engine(error.to_string()))? {
            Err(error @ crate::Error::Corrupt(_)) if is_on(context)? => {
                // Otherwise it would grow without a bound.
                tracing::error!(%error, "the log of changes is damaged, and ends: change streams begin anew");
                end(context).await?;
                continue;
            }
            found => found?,
        };
        let Some(Trim { keys, state }) = found else { break };
        let bytes = keys.iter().map(Vec::len).sum();
        let remove = move |writer: &mut Writer<'_>| {
            writer.trim_log(keys, state);
            Ok(())
        };
        context.committer.submit(AnswerAfter::Applied, bytes, remove).await?;
        trimmed = true;
    }
    // Readers learn of it also if nothing is written any more.
    if trimmed { context.committer.barrier(AnswerAfter::Published).await } else { Ok(()) }
}

fn is_on(context: &WriteContext) -> StoreResult<bool> {
    Ok(ChangeLogState::read(&*context.latest().view)?.is_some())
}

/// Records to remove, and the state of the log without them.
struct Trim {
    keys: Vec<Vec<u8>>,
    state: Option<ChangeLogState>,
}

/// Returns the oldest records that are to be removed, at most as many as one operation should remove.
fn oldest(view: &dyn View, sources: &Sources, options: &Options) -> Result<Option<Trim>> {
    let step = options.step_documents_max.max(1);
    let everything = (Bound::Unbounded, Bound::Unbounded);
    let Some(state) = ChangeLogState::read(view)? else {
        let rows = view.range(Keyspace::Changes, everything, Direction::Forward).take(step);
        let keys = rows.map(|row| row.map(|(key, _)| key.to_vec())).collect::<Result<Vec<_>>>()?;
        return Ok((!keys.is_empty()).then_some(Trim { keys, state: None }));
    };
    let Some(newest) = view.range(Keyspace::Changes, everything.clone(), Direction::Backward).next() else {
        return Ok(None);
    };
    let (key, value) = newest?;
    let newest = change_position(&key)?;
    // The values of an earlier log may be damaged, which does not matter to this one.
    let total_bytes = match newest.commit > state.since {
        true => ChangeRecord::open(&key, &value, Verify::Checksums)?.1.total_bytes,
        false => state.trimmed_bytes,
    };
    let oldest_millis = sources.clock.now().timestamp_millis().saturating_sub(millis(options.change_log_age_max));
    // The first record of this log, records of whole commits, and those of the commit that is read.
    let (mut first, mut keys, mut of_commit) = (None, Vec::new(), Vec::new());
    // The state without the whole commits, and without each record so far.
    let (mut whole, mut without) = (state, state);
    for row in view.range(Keyspace::Changes, everything, Direction::Forward) {
        let (key, value) = row?;
        let position = change_position(&key)?;
        if position == ChangePosition::end_of(state.since) {
            first = Some(key.to_vec());
            continue;
        }
        if position.commit <= state.since {
            // What is left of an earlier log.
            keys.push(key.to_vec());
            if keys.len() >= step {
                break;
            }
            continue;
        }
        let (_, record) = ChangeRecord::open(&key, &value, Verify::Checksums)?;
        if position.commit != without.since {
            keys.append(&mut of_commit);
            whole = without;
            if keys.len() >= step {
                break;
            }
        }
        // The newest commit stays whatever its size and age: a reader that keeps up gets it, and its token is good as long as nothing
        // was written after it.
        let kept_bytes = total_bytes.saturating_sub(whole.trimmed_bytes);
        let is_excess = kept_bytes > options.change_log_bytes_max;
        if position.commit == newest.commit || (!is_excess && record.wall_millis >= oldest_millis) {
            break;
        }
        of_commit.push(key.to_vec());
        let (since, since_time, trimmed_bytes) = (position.commit, record.time + 1, record.total_bytes);
        without = ChangeLogState { since, since_time, trimmed_bytes, ..state };
    }
    if whole != state {
        keys.extend(first);
    }
    Ok((!keys.is_empty()).then_some(Trim { keys, state: Some(whole) }))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the bound of the records after a position.
pub(crate) fn after(position: ChangePosition) -> Bound<Vec<u8>> {
    Bound::Excluded(change_key(position))
}
