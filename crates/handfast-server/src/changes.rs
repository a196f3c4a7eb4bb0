//! The change streams of clients: each is a cursor that never ends by itself, and whose `getMore` waits for the next event.
//!
//! ```text
//! aggregate [{$changeStream: {}}]    cursor id, first events, resume token
//! getMore, maxTimeMS 1000            events at once; or waits, and returns the next event or nothing
//! ```
//!
//! Each reply has the token behind its events (`postBatchResumeToken`), also one without events, so that a client that resumes need not
//! read again what it was not shown.

use std::time::Duration;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::{BatchLimit, ChangePage, ChangeStream};
use handfast_wire::limits::DOCUMENT_BYTES_MAX;

use crate::auth::guard;
use crate::auth::role::Action;
use crate::batches::{FIRST_BATCH, FIRST_PAGE_BYTES, FRAME_BYTES_MAX, check_size};
use crate::commands::Call;
use crate::commands::get_more::bounded;
use crate::cursors::{Description, Results, TakenCursor};
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::transactions::labels::is_resumable;
use crate::writer::{Writer, decimal};

/// The time for which a `getMore` without `maxTimeMS` waits for an event; MongoDB's default.
const WAIT: Duration = Duration::from_secs(1);

/// An open change stream.
pub(crate) struct Changes {
    stream: Box<dyn ChangeStream>,
    /// The database that its user must be allowed to read if it shows more than one collection; empty for all databases.
    database: Option<String>,
}

impl Changes {
    pub(crate) fn new(stream: Box<dyn ChangeStream>, database: Option<String>) -> Self {
        Changes { stream, database }
    }

    async fn next(&mut self, documents: usize, wait: Duration) -> CommandResult<ChangePage> {
        let limit = BatchLimit { documents, bytes: FIRST_PAGE_BYTES };
        self.stream.next_events(limit, wait).await.map_err(of_stream)
    }
}

/// Marks an error of a change stream.
pub(crate) fn of_stream(error: impl Into<CommandError>) -> CommandError {
    let error = error.into();
    CommandError { resumable: Some(is_resumable(error.code)), ..error }
}

/// Replies with the first events of a new stream.
pub(crate) async fn first_batch(
    call: &Call<'_>,
    mut changes: Changes,
    namespace: String,
    batch_size: Option<u64>,
) -> CommandResult<Answer> {
    let page = changes.next(bounded(batch_size.unwrap_or(FIRST_BATCH as u64)), Duration::ZERO).await?;
    // An event that is too large leaves no cursor behind.
    check_sizes(&page)?;
    let id = if page.is_ended {
        0
    } else {
        let description = Description {
            namespace: namespace.clone(),
            session: call.request.session,
            transaction: None,
            connection: call.client.id,
            user: call.user_id(),
            no_timeout: false,
            time_left: None,
        };
        call.shared.cursors.open(changes, description, call.shared.now())?
    };
    answer(call, "firstBatch", &page, id, &namespace).await
}

/// Replies with the next events of a stream, for which it waits.
pub(crate) async fn next_batch(
    call: &Call<'_>,
    mut taken: TakenCursor,
    batch_size: Option<u64>,
) -> CommandResult<Answer> {
    let shared = call.shared;
    let Results::Changes(changes) = &mut taken.results else {
        return Err(CommandError::new(Code::InternalError, "a cursor of documents is no change stream"));
    };
    if let Some(database) = &changes.database {
        // The roles of its user may have changed since it was opened. Those on a single collection are checked for each getMore.
        guard::require(shared, call.client, call.request, Action::Find, database)?;
    }
    // 0 means the default.
    let documents = bounded(batch_size.filter(|size| *size > 0).unwrap_or(u64::MAX));
    let (began, wait) = (shared.now(), call.request.max_time.unwrap_or(WAIT));
    let page = tokio::select! {
        biased;
        page = changes.next(documents, wait) => page?,
        () = taken.killed.notified() => {
            let text = format!("cursor id {} was killed while it waited for changes", taken.id);
            return Err(CommandError::new(Code::CursorKilled, text));
        }
        () = shared.shutting_down() => {
            return Err(of_stream(CommandError::new(Code::InterruptedAtShutdown, "the server is shutting down")));
        }
    };
    // The roles may have changed while it waited. The cursor ends with the error.
    if let Some(command) = call.request.command {
        guard::check(shared, call.client, call.request, command).await?;
    }
    if let Some(database) = &changes.database {
        guard::require(shared, call.client, call.request, Action::Find, database)?;
    }
    check_sizes(&page)?;
    let (id, namespace, now) = (taken.id, taken.description.namespace.clone(), shared.now());
    if !page.is_ended && !shared.cursors.put_back(taken, now) {
        return Err(CommandError::new(Code::CursorKilled, format!("cursor id {id} was killed while it was read")));
    }
    let id = if page.is_ended { 0 } else { id };
    let answer = answer(call, "nextBatch", &page, id, &namespace).await?;
    Ok(Answer { more: id != 0, waited: now.saturating_sub(began), ..answer })
}

fn check_sizes(page: &ChangePage) -> CommandResult<()> {
    page.events.iter().try_for_each(|event| check_size(event)).map_err(of_stream)
}

async fn answer(
    call: &Call<'_>,
    batch: &'static str,
    page: &ChangePage,
    id: i64,
    namespace: &str,
) -> CommandResult<Answer> {
    let bytes = page.events.iter().map(|event| event.as_bytes().len()).sum::<usize>();
    let reserved = call.shared.replies.reserve(bytes.min(DOCUMENT_BYTES_MAX)).await;
    let mut writer = Writer::new();
    writer.reserve(bytes + FRAME_BYTES_MAX);
    writer.begin_document("cursor").begin_array(batch);
    let mut digits = [0; 20];
    for (place, event) in page.events.iter().enumerate() {
        writer.put(decimal(place, &mut digits), event);
    }
    writer.end().put::<&RawDocumentBuf>("postBatchResumeToken", &page.resume_token);
    writer.put("id", id).put("ns", namespace).end();
    Ok(Answer { reserved: Some(reserved), ..Answer::from(writer) })
}
