//! `getMore`: returns the next batch of a cursor. The functions for the first batch are shared by all commands that open a cursor.

use std::time::Duration;

use handfast_mql::Code;
use handfast_store::Cursor;

use super::{Access, Call, Command, Counter, InTransaction, Properties, SnapshotSupport, TimeLimit};
use crate::auth::guard::{Needs, Target, Visitor};
use crate::auth::role::Action;
use crate::batches::{Batches, FIRST_BATCH};
use crate::changes;
use crate::cursors::{Description, Results};
use crate::dispatch::{time_is_over, within};
use crate::error::{CommandError, CommandResult};
use crate::fail_points::FailPoints;
use crate::fail_points::cursor::fail_get_more;
use crate::memory_budget::MemoryReservation;
use crate::reply::Answer;
use crate::request::Request;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "getMore",
    aliases: &[],
    help: "continues a cursor",
    access: Access::Read,
    needs: Needs::Visited(needs),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties {
        counter: Counter::GetMore,
        in_transaction: InTransaction::NotFirst,
        snapshots: SnapshotSupport::OfCursor,
        time_limit: TimeLimit::OfCursor,
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

/// Visits the collection of the cursor, so that a cursor cannot be read after its user has lost the role. Cursors of `$cmd` hold lists
/// that were made when they were opened.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    match request.body.get_str("collection") {
        Ok(collection) if !collection.starts_with("$cmd") => {
            visitor(Action::Find, Target { database: request.database, collection })
        }
        _ => Ok(()),
    }
}

/// The options of a new cursor.
pub(super) struct Opening {
    /// The namespace in the reply.
    pub(super) namespace: String,
    /// The number of documents in the first batch.
    pub(super) batch_size: Option<u64>,
    /// Whether the cursor is closed after the first batch.
    pub(super) single_batch: bool,
    /// Whether the cursor has no idle time-out.
    pub(super) no_timeout: bool,
}

/// Replies with the first batch of a new cursor, and keeps the cursor if there may be more.
pub(super) async fn first_batch(
    call: &Call<'_>,
    cursor: Box<dyn Cursor>,
    opening: Opening,
    began: Duration,
) -> CommandResult<Answer> {
    let mut writer = Writer::new();
    let reserved = put_first_batch(call, &mut writer, cursor, opening, began).await?;
    Ok(Answer { reserved, ..Answer::from(writer) })
}

/// Writes the field `cursor` with the first batch of a new cursor, and keeps the cursor if there may be more.
pub(super) async fn put_first_batch(
    call: &Call<'_>,
    writer: &mut Writer,
    cursor: Box<dyn Cursor>,
    opening: Opening,
    began: Duration,
) -> CommandResult<Option<MemoryReservation>> {
    let mut batches = Batches::new(cursor);
    writer.begin_document("cursor").begin_array("firstBatch");
    let documents_max = bounded(opening.batch_size.unwrap_or(FIRST_BATCH as u64));
    let reserved = batches.fill(writer, documents_max, &call.shared.replies).await?;
    writer.end();
    let mut id = 0;
    if !opening.single_batch && !batches.is_exhausted() {
        let now = call.shared.now();
        let description = Description {
            namespace: opening.namespace.clone(),
            session: call.request.session,
            transaction: call.transaction_number(),
            connection: call.client.id,
            user: call.user_id(),
            no_timeout: opening.no_timeout,
            time_left: call.request.max_time.map(|time| time.saturating_sub(now.saturating_sub(began))),
        };
        id = call.shared.cursors.open(batches, description, now)?;
    }
    writer.put("id", id).put("ns", &opening.namespace).put_some("atClusterTime", call.snapshot_at()).end();
    Ok(reserved)
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("getMore");
    let id = call.request.subject.as_i64().ok_or_else(|| {
        CommandError::new(Code::TypeMismatch, "BSON field 'getMore.getMore' is the wrong type, expected type 'long'")
    })?;
    let collection = arguments.text("collection")?;
    let collection = arguments.required("collection", collection)?;
    let batch_size = arguments.unsigned("batchSize")?;
    // These are about the elections and the log of a replica set.
    arguments.ignored(&["term", "lastKnownCommittedOpTime"])?;
    arguments.finish()?;
    if collection.is_empty() {
        return Err(CommandError::new(Code::InvalidNamespace, "Collection names cannot be empty"));
    }
    let namespace = format!("{}.{collection}", call.request.database);
    next_batch(call, id, namespace, batch_size).await
}

async fn next_batch(call: &Call<'_>, id: i64, namespace: String, batch_size: Option<u64>) -> CommandResult<Answer> {
    let shared = call.shared;
    let began = shared.now();
    let (session, transaction) = (call.request.session, call.transaction_number());
    let mut taken = shared.cursors.take(id, &namespace, session, transaction, call.user_id())?;
    let failure = fail_get_more(shared.fail_points.as_ref());
    let Results::Documents(batches) = &mut taken.results else {
        return match failure {
            Some(error) => Err(changes::of_stream(error)),
            None => changes::next_batch(call, taken, batch_size).await,
        };
    };
    if let Some(error) = failure {
        return Err(error);
    }
    if call.request.max_time.is_some() {
        shared.cursors.put_back(taken, began);
        let text = "cannot set maxTimeMS on getMore command for a non-awaitData cursor";
        return Err(CommandError::new(Code::BadValue, text));
    }
    let is_bounded = taken.description.time_left.is_some();
    if is_bounded && shared.fail_points.as_ref().is_some_and(FailPoints::times_out) {
        return Err(time_is_over());
    }
    let mut writer = Writer::new();
    writer.begin_document("cursor").begin_array("nextBatch");
    // 0 means the default.
    let documents_max = bounded(batch_size.filter(|size| *size > 0).unwrap_or(u64::MAX));
    let work = batches.fill(&mut writer, documents_max, &shared.replies);
    // On an error the cursor is closed, because the documents that were read are lost.
    let reserved = within(taken.description.time_left, work).await?;
    let now = shared.now();
    if let Some(left) = &mut taken.description.time_left {
        *left = left.checked_sub(now.saturating_sub(began)).ok_or_else(time_is_over)?;
    }
    let open = !batches.is_exhausted();
    if open && !shared.cursors.put_back(taken, now) {
        // A client would take a reply without a cursor for the end of the results.
        return Err(CommandError::new(Code::CursorKilled, format!("cursor id {id} was killed while it was read")));
    }
    writer.end().put("id", if open { id } else { 0 }).put("ns", &namespace).end();
    Ok(Answer { more: open, reserved, ..Answer::from(writer) })
}

pub(crate) fn bounded(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
