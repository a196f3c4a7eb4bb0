//! A stream: from the records of a log to the events that a client sees.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawDocument, RawDocumentBuf, Timestamp};
use handfast_mql::context::StopOnDrop;
use handfast_mql::expression::may_take_long;
use handfast_mql::pipeline::{Pipeline, Stage};
use handfast_mql::{Code, CompileOptions, Context, text};

use super::event::{self, Document};
use super::record::Fields;
use super::token::{ChangePosition, LogId, ResumeToken, TokenKind};
use super::{LogExtent, LoggedChange, SharedLog, history_lost};
use crate::{
    BatchLimit, ChangePage, ChangeStream, CommitTimestamp, Error, FullDocument, FullDocumentBefore, Namespace, Result,
    Sources, Watch, WatchScope, WatchStart, blocking_if,
};

/// The changes that are read from the log at once.
const PAGE: BatchLimit = BatchLimit { documents: 1000, bytes: 1024 * 1024 };

/// Opens a stream over a log. The first events are read when they are asked for.
///
/// # Errors
/// `ChangeStreamHistoryLost` (286), also for a token of another log, `ChangeStreamFatalError` (280) for one of no change, `InvalidResumeToken` (260) for the
/// token of an invalidation, `IllegalOperation` (20) for a stage that a stream cannot have, and the errors of the stages.
pub async fn open(log: SharedLog, sources: &Sources, request: Watch) -> Result<Box<dyn ChangeStream>> {
    let options = CompileOptions::with_variables(&request.variables)?;
    let pipeline = Pipeline::compile(&request.pipeline, &options)?;
    if let Some(stage) = pipeline.stages().iter().find(|stage| !is_allowed(stage)) {
        let text = format!("{} is not permitted in a $changeStream pipeline", stage.name());
        return Err(Error::command(Code::IllegalOperation, text));
    }
    let context = sources.context(&request.variables);
    let extent = log.extent().await?;
    let (position, not_before) = start(&log, extent, &request.start).await?;
    let mut stream = Stream {
        stop: context.interrupt.stop_on_drop(),
        stages: Arc::new(Stages { pipeline, context }),
        loops: request.pipeline.iter().any(|stage| may_take_long(stage)),
        log_id: extent.id,
        scope: request.scope,
        full_document: request.full_document,
        full_document_before: request.full_document_before,
        expanded: request.expanded,
        log,
        position,
        not_before,
        waiting: VecDeque::new(),
        read_until: position,
        is_end: false,
        invalidation: None,
        is_ended: false,
    };
    stream.check_token(&request.start).await?;
    Ok(Box::new(stream))
}

/// Returns whether a stream can have a stage: it must work on one event by itself.
fn is_allowed(stage: &Stage) -> bool {
    matches!(stage, Stage::Match(_) | Stage::Project(_) | Stage::ReplaceRoot(_) | Stage::Redact(_))
}

/// Returns the position after which a stream begins, and the moment before which it shows nothing.
async fn start(log: &SharedLog, extent: LogExtent, start: &WatchStart) -> Result<(ChangePosition, Option<Timestamp>)> {
    let token = match start {
        WatchStart::Now => return Ok((ChangePosition::end_of(extent.until), None)),
        WatchStart::At(time) if *time < extent.since_time => return Err(history_lost()),
        WatchStart::At(time) => return Ok((log.position_at(*time).await?, Some(*time))),
        WatchStart::ResumeAfter(token) | WatchStart::StartAfter(token) => ResumeToken::read(token)?,
    };
    if token.kind == TokenKind::Invalidation && matches!(start, WatchStart::ResumeAfter(_)) {
        let text =
            "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.";
        return Err(Error::command(Code::InvalidResumeToken, text));
    }
    if token.log != extent.id {
        // The log of this store was started anew, or the token is of another store.
        return Err(history_lost());
    }
    if token.position < ChangePosition::end_of(extent.since) {
        return Err(history_lost());
    }
    if token.position.commit > extent.until {
        return Err(not_found());
    }
    Ok((token.position, None))
}

fn not_found() -> Error {
    let text = "cannot resume stream; the resume token was not found. Read the collection anew and open a new stream";
    Error::command(Code::ChangeStreamFatalError, text)
}

/// The stages after `$changeStream`, compiled.
struct Stages {
    pipeline: Pipeline,
    context: Context,
}

impl Stages {
    /// Returns what the stages make of an event; `None` if they leave it out.
    fn run(&self, event: RawDocumentBuf) -> Result<Option<RawDocumentBuf>> {
        if self.pipeline.stages().is_empty() {
            return Ok(Some(event));
        }
        let token = id(&event)?.to_owned();
        let Some(made) = self.pipeline.run([event], &self.context)?.pop() else { return Ok(None) };
        if id(&made).is_ok_and(|id| id.as_bytes() == token.as_bytes()) {
            return Ok(Some(made));
        }
        let found = made.get("_id").ok().flatten().map_or_else(|| "{}".to_owned(), text::value);
        let text = format!(
            "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying \
             the _id field of an event makes it impossible to resume the stream from that point. Only transformations that \
             retain the unmodified _id field are allowed. Expected: {}, but found: {found}",
            text::document(&token)
        );
        Err(Error::command(Code::ChangeStreamFatalError, text))
    }
}

fn id(event: &RawDocument) -> Result<&RawDocument> {
    Ok(event.get_document("_id").map_err(|_| handfast_mql::Error::new(Code::InvalidBSON, "an event without _id"))?)
}

struct Stream {
    log: SharedLog,
    log_id: LogId,
    scope: WatchScope,
    full_document: FullDocument,
    full_document_before: FullDocumentBefore,
    expanded: bool,
    stages: Arc<Stages>,
    loops: bool,
    /// The position up to which everything was returned.
    position: ChangePosition,
    not_before: Option<Timestamp>,
    /// Changes that were read and not returned.
    waiting: VecDeque<LoggedChange>,
    /// The position up to which the log was read.
    read_until: ChangePosition,
    /// Whether the log had no more when it was read.
    is_end: bool,
    /// The last event.
    invalidation: Option<RawDocumentBuf>,
    is_ended: bool,
    /// Ends an evaluation when the stream is dropped.
    #[expect(dead_code, reason = "held for its drop")]
    stop: StopOnDrop,
}

impl Stream {
    /// Looks for the change of a token. If it is one that ends the stream, the invalidation follows.
    async fn check_token(&mut self, start: &WatchStart) -> Result<()> {
        let (WatchStart::ResumeAfter(token) | WatchStart::StartAfter(token)) = start else { return Ok(()) };
        let ResumeToken { position, kind, .. } = ResumeToken::read(token)?;
        if kind == TokenKind::ReadUpTo {
            return Ok(());
        }
        let before = match position.index.checked_sub(1) {
            Some(index) => ChangePosition { index, ..position },
            None => ChangePosition::end_of(CommitTimestamp(position.commit.0.saturating_sub(1))),
        };
        let page = self.log.read(before, BatchLimit { documents: 1, bytes: 0 }).await?;
        let Some(change) = page.changes.first().filter(|change| change.position == position) else {
            return Err(not_found());
        };
        let fields = Fields::of(&change.content)?;
        let is_shown = event::is_shown(&self.scope, self.expanded, &fields);
        if kind == TokenKind::Event && is_shown && event::invalidates(&self.scope, &fields) {
            self.invalidation = self.evaluated(event::of_invalidation(change, self.log_id)).await?;
            self.is_ended = self.invalidation.is_none();
        }
        Ok(())
    }

    async fn evaluated(&self, event: RawDocumentBuf) -> Result<Option<RawDocumentBuf>> {
        let stages = Arc::clone(&self.stages);
        blocking_if(self.loops, move || stages.run(event)).await
    }

    /// Returns the event of a change, if the stream shows it, and the last event of the stream if the change ends it.
    async fn shown(&self, change: &LoggedChange) -> Result<(Option<RawDocumentBuf>, bool)> {
        let fields = Fields::of(&change.content)?;
        let is_early = self.not_before.is_some_and(|moment| change.time < moment);
        if is_early || !event::is_shown(&self.scope, self.expanded, &fields) {
            return Ok((None, false));
        }
        let found = match (fields.kind, self.full_document, fields.id, fields.collection) {
            ("u", FullDocument::UpdateLookup, Some(id), Some(collection)) => {
                self.log.document(&Namespace::new(fields.database, collection)?, id).await?
            }
            _ => None,
        };
        let after = match (fields.kind, self.full_document) {
            ("i" | "r", _) => Document::Shown(fields.after),
            ("u", FullDocument::UpdateLookup) => Document::Shown(found.as_deref()),
            ("u", FullDocument::WhenAvailable) => Document::Shown(fields.after),
            ("u", FullDocument::Required) if fields.after.is_none() => return Err(event::missing_image("post-image")),
            ("u", FullDocument::Required) => Document::Shown(fields.after),
            _ => Document::Absent,
        };
        let before = event::document_before(&fields, self.full_document_before)?;
        let event = event::of_change(change, &fields, self.log_id, self.expanded, [after, before]);
        Ok((self.evaluated(event).await?, event::invalidates(&self.scope, &fields)))
    }

    /// Reads the next changes of the log if all that were read are returned.
    async fn fill(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            let page = self.log.read(self.position, PAGE).await?;
            (self.read_until, self.is_end) = (page.until, page.is_end);
            self.waiting.extend(page.changes);
        }
        Ok(())
    }

    /// Moves events from the changes that were read into a page, until it is full or the stream ends.
    async fn move_events(&mut self, page: &mut Events) -> Result<()> {
        while let Some(change) = self.waiting.pop_front() {
            let (event, is_last) = self.shown(&change).await?;
            if let Some(event) = event
                && let Err(event) = page.add(event)
            {
                drop(event);
                self.waiting.push_front(change);
                return Ok(());
            }
            self.position = change.position;
            if is_last {
                self.waiting.clear();
                self.invalidation = self.evaluated(event::of_invalidation(&change, self.log_id)).await?;
                self.is_ended = self.invalidation.is_none();
                return Ok(());
            }
        }
        self.position = self.read_until;
        Ok(())
    }

    /// Moves the last event into a page.
    fn move_invalidation(&mut self, page: &mut Events) {
        let Some(event) = self.invalidation.take() else { return };
        match page.add(event) {
            Ok(()) => self.is_ended = true,
            Err(event) => self.invalidation = Some(event),
        }
    }

    fn finish(&self, page: Events) -> ChangePage {
        let last = page.events.last().and_then(|event| id(event).ok()).map(RawDocument::to_owned);
        let is_behind = !self.waiting.is_empty() || self.is_ended || self.invalidation.is_some();
        // Of a change that ends the stream, the token says that its last event follows.
        let kind = if self.invalidation.is_some() { TokenKind::Event } else { TokenKind::ReadUpTo };
        let read = ResumeToken { position: self.position, kind, log: self.log_id };
        // Everything up to the position was read. Within a commit, the token of the last event says so.
        let is_whole = self.position.index == u32::MAX;
        let resume_token = match last {
            Some(last) if is_behind || !is_whole => last,
            _ => read.to_document(),
        };
        ChangePage { events: page.events, resume_token, is_ended: self.is_ended }
    }
}

#[async_trait]
impl ChangeStream for Stream {
    async fn next_events(&mut self, limit: BatchLimit, wait: Duration) -> Result<ChangePage> {
        let mut page = Events { events: Vec::new(), bytes: 0, limit };
        if limit.documents == 0 {
            return Ok(self.finish(page));
        }
        let mut is_over = wait.is_zero();
        let mut time = pin!(tokio::time::sleep(wait));
        loop {
            self.move_invalidation(&mut page);
            if self.is_ended || self.invalidation.is_some() {
                return Ok(self.finish(page));
            }
            self.fill().await?;
            self.move_events(&mut page).await?;
            let is_full = !self.waiting.is_empty();
            if self.invalidation.is_some() || self.is_ended {
                continue;
            }
            if is_full || is_over || (self.is_end && !page.events.is_empty()) {
                return Ok(self.finish(page));
            }
            if self.is_end {
                let commit = self.position.commit;
                tokio::select! {
                    () = self.log.committed_after(commit) => {}
                    () = &mut time => is_over = true,
                }
            } else {
                // A long stretch without events for this stream: its reader gets a token on time.
                // The timer begins when it is polled.
                tokio::select! {
                    biased;
                    () = &mut time => is_over = true,
                    () = tokio::task::yield_now() => {}
                }
            }
        }
    }
}

/// The events of a page that is being filled.
struct Events {
    events: Vec<RawDocumentBuf>,
    bytes: usize,
    limit: BatchLimit,
}

impl Events {
    /// Adds an event, or returns it if the page is full. The first event fits whatever its size.
    fn add(&mut self, event: RawDocumentBuf) -> std::result::Result<(), RawDocumentBuf> {
        let bytes = self.bytes.saturating_add(event.as_bytes().len());
        let fits = self.events.len() < self.limit.documents && bytes <= self.limit.bytes;
        if !fits && !self.events.is_empty() {
            return Err(event);
        }
        self.bytes = bytes;
        self.events.push(event);
        Ok(())
    }
}
