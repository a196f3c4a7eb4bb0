//! Server-sent events (`GET /v1/events`): the rates of the server, and the jobs of a queue by state, once a second.
//!
//! ```text
//! viewer 1 ──┐ each second: the last reading, or a new one if that is a second old
//! viewer 2 ──┼─> Reading of the server    serverStatus            at most once a second, however many viewers there are
//! viewer 3 ──┘   Reading of shop.mails    handfastQueueDepth      less often if it takes long
//! ```
//!
//! There is no task that reads: the viewer that comes first reads for all, with its own login. Each viewer has run the same commands with its own login before it
//! gets the readings of others, and ends when a user is changed; browsers then connect again. A viewer that does not read misses readings, and delays none.

pub(super) mod figures;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use bson::{Bson, Document, doc};
use handfast_store::Clock;
use hyper::body::Frame;
use lru::LruCache;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use self::figures::Figures;
use super::login::RequestClient;
use super::{Api, DRIVER_FIELDS, Result};
use crate::id::extended_json;
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

pub(super) const MEDIA_TYPE: &str = "text/event-stream";
/// The time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// A reading that takes long is repeated after this many times its duration, so that it takes at most 1 % of the time.
const PAUSE_FACTOR: u32 = 100;
/// Limit on the viewers at a time.
const VIEWERS_MAX: usize = 256;
/// The time of the readings that a new viewer gets.
const HISTORY_TIME: Duration = Duration::from_secs(300);
/// Limit on those readings.
const HISTORY_MAX: usize = 300;
/// The time without a reading after which the next one begins anew: its rates would be those of the whole time.
const GAP_MAX: Duration = Duration::from_secs(30);
/// Limit on the queues whose readings are kept.
const SUBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(100).unwrap();

/// The readings that viewers share.
pub(super) struct Events {
    clock: Arc<dyn Clock>,
    readings: Mutex<LruCache<Subject, Arc<tokio::sync::Mutex<Reading>>>>,
    viewers: Arc<Semaphore>,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Server,
    Queue { database: String, queue: String },
}

/// The last readings of a subject.
#[derive(Default)]
struct Reading {
    /// The time of the clock when it was made, and the time that it took.
    made: Option<(Duration, Duration)>,
    /// The number of readings so far.
    number: u64,
    figures: Figures,
    /// The last readings, each with the time of the clock at which it began.
    history: VecDeque<(Duration, Arc<str>)>,
}

/// The body of an answer: events, as the viewer reads them.
struct EventBody(mpsc::Receiver<Bytes>);

/// A client that is sent events.
struct Viewer {
    events: Arc<Events>,
    client: RequestClient,
    /// What it sees, with the number of the last reading that it was sent.
    subjects: Vec<(Subject, u64)>,
    sender: mpsc::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl Subject {
    fn event(&self) -> &'static str {
        match self {
            Subject::Server => "server",
            Subject::Queue { .. } => "jobs",
        }
    }

    fn command(&self) -> (&str, Document) {
        match self {
            Subject::Server => ("admin", doc! { "serverStatus": 1 }),
            Subject::Queue { database, queue } => (database, doc! { "handfastQueueDepth": queue }),
        }
    }
}

impl Events {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let readings = Mutex::new(LruCache::new(SUBJECTS_MAX));
        Events { clock, readings, viewers: Arc::new(Semaphore::new(VIEWERS_MAX)) }
    }

    fn reading_of(&self, subject: &Subject) -> Arc<tokio::sync::Mutex<Reading>> {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(readings.get_or_insert(subject.clone(), Arc::default))
    }

    /// Returns the readings after the one with this number: the last one, or all that are kept if it is 0.
    async fn after(&self, subject: &Subject, number: u64, client: &mut RequestClient) -> Result<(u64, Vec<Arc<str>>)> {
        let reading = self.reading_of(subject);
        let mut reading = reading.lock().await;
        let begun = self.clock.elapsed();
        let is_due = reading.made.is_none_or(|(at, took)| {
            // A timer may be a little early.
            let age = begun.saturating_sub(at) + INTERVAL / 20;
            age >= INTERVAL.max(took.saturating_mul(PAUSE_FACTOR))
        });
        if is_due {
            let (database, command) = subject.command();
            let mut reply = client.run(database, &command).await?;
            for name in DRIVER_FIELDS {
                reply.remove(name);
            }
            if reading.made.is_some_and(|(at, _)| begun.saturating_sub(at) > GAP_MAX) {
                reading.figures = Figures::default();
            }
            let figures = match subject {
                Subject::Server => reading.figures.read(&reply, begun),
                Subject::Queue { .. } => extended_json(&Bson::Document(reply)),
            };
            reading.add(figures, begun, self.clock.elapsed());
        }
        let mut shown = reading.history.iter().map(|(_, figures)| Arc::clone(figures));
        let shown = if number == reading.number {
            Vec::new()
        } else if number == 0 {
            shown.collect()
        } else {
            // The number is higher if the readings of the subject were forgotten meanwhile.
            shown.next_back().into_iter().collect()
        };
        Ok((reading.number, shown))
    }
}

impl Reading {
    fn add(&mut self, figures: Value, begun: Duration, ended: Duration) {
        self.made = Some((begun, ended.saturating_sub(begun)));
        self.number += 1;
        let is_old = |at: Duration| begun.saturating_sub(at) > HISTORY_TIME;
        while self.history.len() >= HISTORY_MAX || self.history.front().is_some_and(|(at, _)| is_old(*at)) {
            self.history.pop_front();
        }
        self.history.push_back((begun, figures.to_string().into()));
    }
}

/// Answers with events until the viewer ends, a user is changed, or the server stops.
pub(super) async fn events(api: &Api, call: Call) -> Result<Response> {
    let mut subjects = vec![Subject::Server];
    match (call.query("database"), call.query("queue")) {
        (Some(database), Some(queue)) => {
            // The figures of the server need another role than those of a queue.
            subjects = vec![Subject::Queue { database: database.to_owned(), queue: queue.to_owned() }];
        }
        (None, None) => {}
        _ => return Err(Problem::invalid("database and queue belong together: the events of a queue name both")),
    }
    let mut client = api.client(&call).await?;
    let place = Arc::clone(&api.events.viewers).try_acquire_owned().map_err(|_| {
        Problem::new(ProblemKind::Unavailable, format!("there are {VIEWERS_MAX} viewers of events, their limit"))
    })?;
    for subject in &subjects {
        let (database, command) = subject.command();
        client.run(database, &command).await?;
    }
    let (sender, receiver) = mpsc::channel(1);
    let subjects = subjects.into_iter().map(|subject| (subject, 0)).collect();
    let viewer = Viewer { events: Arc::clone(&api.events), client, subjects, sender, _place: place };
    let stop = api.stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(viewer.run()).await });
    let headers = [(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(EventBody(receiver))).into_response())
}

impl Viewer {
    /// Sends a reading each second.
    async fn run(mut self) {
        loop {
            for place in 0..self.subjects.len() {
                if let Err(problem) = self.send(place).await {
                    tracing::debug!(detail = %problem.detail, "the events of a viewer end");
                    return;
                }
            }
            tokio::select! {
                () = self.sender.closed() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            if !self.client.is_login_current() {
                return;
            }
        }
    }

    /// Sends the readings that the viewer does not have.
    async fn send(&mut self, place: usize) -> Result<()> {
        let Some((subject, number)) = self.subjects.get_mut(place) else { return Ok(()) };
        let (last, readings) = self.events.after(subject, *number, &mut self.client).await?;
        let event = subject.event();
        let mut text: String = readings.iter().map(|reading| format!("event: {event}\ndata: {reading}\n\n")).collect();
        if text.is_empty() {
            // A comment: the connection finds out that the viewer is gone.
            text.push_str(":\n\n");
        }
        // A viewer that has not read the one before gets the next one.
        if self.sender.try_send(text.into()).is_ok() {
            *number = last;
        }
        Ok(())
    }
}

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| Some(Ok(Frame::data(bytes?))))
    }
}
