//! Forwards the messages of a connection, and does to it what a rule decides.

use std::future::pending;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_wire::{Flags, OpMsg};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tracing::debug;

use super::late::{LateRequest, send_copy};
use super::plan::{ReplyHandling, ReplyPlan, ReplyPlans};
use super::recorder::{self, RecordedReply};
use super::stream::{AcceptedConnection, Acceptor, Reader, Writer, send};
use super::warning::Warning;
use super::{Decided, Shared, throttle};
use crate::fault::{Direction, ErrorReply};
use crate::frame::{ReadError, read};
use crate::hello;
use crate::request::{ApplicationRequest, Request, with_single_reply};
use crate::{Decision, Injection};

type Relayed = std::result::Result<(), ReadError>;
type ClientWriter = tokio::sync::Mutex<Writer>;

/// Forwards the messages of a connection until one side closes it or a fault does, and then sends the copies of its requests.
pub(super) async fn serve(client: TcpStream, acceptor: Acceptor, shared: Arc<Shared>) {
    let connection = Connection::new(shared);
    if let Err(error) = relay(client, &acceptor, &connection).await {
        Warning::of(&error).into_iter().for_each(|warning| connection.shared.warnings.report(warning));
        debug!(%error, "a connection ended");
    }
    let Connection { tasks, plans, late_without_reply, .. } = connection;
    // No reply arrives any more.
    drop((plans, late_without_reply));
    let mut tasks = tasks.into_inner().unwrap_or_else(PoisonError::into_inner);
    while tasks.join_next().await.is_some() {}
}

/// Relays a connection, and closes both sockets at the end.
async fn relay(client: TcpStream, acceptor: &Acceptor, connection: &Connection) -> Relayed {
    // The driver reaches the proxy at the address by which it connected.
    let AcceptedConnection { reader: from_client, writer: to_client, address } = acceptor.accept(client).await?;
    let (from_server, to_server) = connection.shared.server.connect().await?;
    let to_client = ClientWriter::new(to_client);
    tokio::select! {
        ended = connection.forward_requests(from_client, to_server, &to_client) => ended,
        ended = connection.forward_replies(from_server, &to_client, &address) => ended,
        () = connection.state_change_of_monitored_server() => Ok(()),
    }
}

struct Connection {
    shared: Arc<Shared>,
    /// Its number in the recording, from 1.
    number: u64,
    plans: ReplyPlans,
    /// The unacknowledged writes that are late. The server has executed them when it answers a later request, or when it closes the
    /// connection after the proxy has.
    late_without_reply: Mutex<Option<LateRequest>>,
    /// No further request is sent to the server.
    is_shut_down: AtomicBool,
    is_monitoring: AtomicBool,
    /// Copies of requests, and pauses.
    tasks: Mutex<JoinSet<()>>,
}

/// The next step of a request.
enum Next {
    Forward,
    ForwardSlowly(NonZeroU32),
    /// The request does not reach the server, and the connection goes on.
    Skip,
    Close,
    /// It is forwarded, and nothing after it: its reply ends the connection.
    ForwardLast,
    /// It is forwarded, and nothing after it until the client closes the connection.
    ForwardIntoSilence,
}

impl Connection {
    fn new(shared: Arc<Shared>) -> Self {
        let number = 1 + shared.connection_count.fetch_add(1, Ordering::Relaxed);
        Connection {
            shared,
            number,
            plans: ReplyPlans::default(),
            late_without_reply: Mutex::default(),
            is_shut_down: AtomicBool::new(false),
            is_monitoring: AtomicBool::new(false),
            tasks: Mutex::default(),
        }
    }

    /// Forwards requests until one is lost. After the last one it waits, because replies may still arrive.
    async fn forward_requests(&self, client: Reader, mut server: Writer, to_client: &ClientWriter) -> Relayed {
        let mut client = BufReader::new(client);
        loop {
            self.plans.place().await;
            let frame = match read(&mut client, &self.shared.limits).await {
                Ok(Some(frame)) => frame,
                // The client has gone, but its late request still has to be executed.
                Err(_) if self.is_any_reply_needed() => break,
                Ok(None) => break,
                Err(error) => return Err(error),
            };
            let mut single_reply = None;
            let next = match Request::of_frame(&frame.bytes, &self.shared.limits)? {
                Request::Application(request) => {
                    if self.shared.recorder.is_recording() {
                        // A recording has one reply to each request. The client asks for the further batches of its exhaust cursor then.
                        single_reply = with_single_reply(&frame.bytes, &self.shared.limits);
                    }
                    self.decide(request, frame.header.request_id, to_client).await?
                }
                Request::Driver { is_handshake, is_monitoring, has_reply } => {
                    self.is_monitoring.fetch_or(is_monitoring, Ordering::Relaxed);
                    let is_recorded = is_handshake && self.shared.recorder.needs_hello();
                    let recorded = is_recorded.then_some(RecordedReply::Hello);
                    if has_reply {
                        self.plans.push(ReplyPlan { recorded, ..ReplyPlan::forward(frame.header.request_id) });
                    }
                    Next::Forward
                }
            };
            let bytes = single_reply.as_ref().unwrap_or(&frame.bytes);
            match next {
                Next::Forward => send(&mut server, bytes).await?,
                Next::ForwardSlowly(rate) => throttle::write(&mut server, bytes, rate).await?,
                Next::Skip => {}
                Next::Close => return Ok(()),
                Next::ForwardLast => {
                    send(&mut server, bytes).await?;
                    // Bytes that nobody reads would reset the connection when it is closed.
                    let _client_has_gone = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
                    break;
                }
                Next::ForwardIntoSilence => {
                    send(&mut server, bytes).await?;
                    tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
                    return Ok(());
                }
            }
        }
        // Set first: the server may close the connection at once.
        self.is_shut_down.store(true, Ordering::Relaxed);
        server.shutdown().await?;
        pending().await
    }

    /// Asks the rules about a request, and prepares what they decide.
    async fn decide(
        &self,
        request: ApplicationRequest<'_>,
        request_id: i32,
        to_client: &ClientWriter,
    ) -> std::result::Result<Next, ReadError> {
        let Decided { decision, mut late, held, overtaking } = self.shared.decide(&request.operation());
        let has_reply = request.has_reply;
        let recorded = self.shared.recorder.request(self.number, &request.plain, has_reply);
        let mut plan = ReplyPlan { overtaking, recorded, ..ReplyPlan::forward(request_id) };
        let mut next = Next::Forward;
        match decision {
            Decision::Forward => {}
            Decision::Inject(injection) => match injection {
                Injection::LoseRequest => {
                    self.plans.all_taken().await;
                    return Ok(Next::Close);
                }
                Injection::LoseReply => (next, plan.handling) = (Next::ForwardLast, ReplyHandling::Lose),
                Injection::Cut => (next, plan.handling) = (Next::ForwardLast, ReplyHandling::Cut),
                Injection::Delay(time) => {
                    if let Some(late) = &late {
                        late.wait(Some(time)).await;
                    }
                }
                Injection::Error(error) => {
                    self.plans.all_taken().await;
                    if let Some(recorded) = recorded {
                        self.shared.recorder.reply(self.number, recorded, &error.document());
                    }
                    self.answer(&error, request_id, to_client).await?;
                    return Ok(Next::Skip);
                }
                Injection::Duplicate { after } => self.copy(request, late.take(), after),
                Injection::HalfOpen => (next, plan.handling) = (Next::ForwardIntoSilence, ReplyHandling::Silence),
                Injection::Throttle { direction, bytes_per_second } => match direction {
                    Direction::Request => next = Next::ForwardSlowly(bytes_per_second),
                    Direction::Reply => plan.handling = ReplyHandling::Throttle(bytes_per_second),
                },
                Injection::Reorder { within } => {
                    if let (Some(held), Some(late)) = (held, &late) {
                        held.wait(late, within).await;
                    }
                }
            },
        }
        if has_reply {
            self.plans.push(ReplyPlan { late, ..plan });
        } else if let Some(mut late) = late {
            let mut without_reply = locked(&self.late_without_reply);
            if let Some(earlier) = without_reply.take() {
                late.join(earlier);
            }
            *without_reply = Some(late);
        }
        Ok(next)
    }

    async fn answer(&self, error: &ErrorReply, request_id: i32, to_client: &ClientWriter) -> Relayed {
        let mut bytes = Vec::new();
        OpMsg::new(Flags::default(), &error.document()).encode(0, request_id, &mut bytes);
        send(&mut *to_client.lock().await, &bytes).await?;
        if error.is_state_change() {
            let shared = Arc::clone(&self.shared);
            // The next request of the connection does not wait for it.
            self.spawn(async move {
                tokio::time::sleep(shared.state_change_pause).await;
                shared.state_change.notify_waiters();
            });
        }
        Ok(())
    }

    /// Sends a request once more later, on a connection of its own.
    fn copy(&self, request: ApplicationRequest<'_>, late: Option<LateRequest>, after: Option<Duration>) {
        let Some(mut late) = late else { return };
        let Some(memory) = self.shared.late.copy_memory(request.plain.len()) else {
            self.shared.warnings.report(Warning::TooManyCopies);
            late.set_failed("there was no memory for its copy");
            return;
        };
        let shared = Arc::clone(&self.shared);
        let (bytes, has_reply) = (request.plain.into_owned(), request.has_reply);
        let copy = async move {
            late.wait(after).await;
            match send_copy(&bytes, has_reply, &shared).await {
                Ok(true) => late.set_answered(),
                Ok(false) => late.set_failed("the server refused its copy, which is sent without a login"),
                Err(error) => late.set_failed(format!("its copy was not answered: {error}")),
            }
            drop((late, memory));
        };
        self.spawn(copy);
    }

    /// Runs a task that may outlive the sockets of the connection, and forgets those that have ended.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Forwards replies until one is lost or the server closes the connection.
    async fn forward_replies(&self, server: Reader, to_client: &ClientWriter, address: &str) -> Relayed {
        let mut server = BufReader::new(server);
        let mut last_reply = None;
        while let Some(frame) = read(&mut server, &self.shared.limits).await? {
            let response_to = frame.header.response_to;
            let plan = self.plans.take(response_to, last_reply).unwrap_or_else(|| ReplyPlan::forward(response_to));
            last_reply = Some(frame.header.request_id);
            // The request is late until the client has its reply, so that the proxy does not end before.
            let ReplyPlan { handling, mut late, overtaking, recorded, .. } = plan;
            late.iter_mut().for_each(LateRequest::set_answered);
            self.end_late_without_reply();
            if let (Some(recorded), ReplyHandling::Forward | ReplyHandling::Throttle(_)) = (recorded, &handling)
                && let Some(reply) = recorder::document_of(&frame.bytes, &self.shared.limits)
            {
                self.shared.recorder.reply(self.number, recorded, &reply);
            }
            match handling {
                ReplyHandling::Lose => return Ok(()),
                ReplyHandling::Cut => {
                    let half = frame.bytes.get(..frame.bytes.len() / 2).unwrap_or_default();
                    return Ok(send(&mut *to_client.lock().await, half).await?);
                }
                ReplyHandling::Silence => {
                    drop(overtaking);
                    while let Ok(Some(_)) = read(&mut server, &self.shared.limits).await {}
                    return pending().await;
                }
                ReplyHandling::Throttle(rate) => {
                    throttle::write(&mut *to_client.lock().await, &frame.bytes, rate).await?;
                }
                ReplyHandling::Forward => {
                    let hello = hello::with_address(&frame.bytes, address, &self.shared.limits);
                    send(&mut *to_client.lock().await, hello.as_ref().unwrap_or(&frame.bytes)).await?;
                }
            }
        }
        if self.is_shut_down.load(Ordering::Relaxed) {
            self.end_late_without_reply();
        }
        Ok(())
    }

    /// Notes that the server has executed the unacknowledged writes before.
    fn end_late_without_reply(&self) {
        locked(&self.late_without_reply).take().iter_mut().for_each(LateRequest::set_answered);
    }

    /// Returns when the driver has to ask for the state of the server anew, if this is the connection by which it does.
    async fn state_change_of_monitored_server(&self) {
        loop {
            self.shared.state_change.notified().await;
            if self.is_monitoring.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn is_any_reply_needed(&self) -> bool {
        self.plans.is_any_needed() || locked(&self.late_without_reply).is_some()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
