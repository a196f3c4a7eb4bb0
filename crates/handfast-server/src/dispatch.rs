//! Runs a request: finds its command, checks it, lists it as running, bounds its time, counts it and returns the reply.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawBsonRef, RawDocumentBuf, Timestamp};
use handfast_mql::Code;
use handfast_store::{Applied, OperationStatistics};
use tracing::{Instrument, debug, debug_span, info};

use crate::auth::guard;
use crate::cluster_time::ClusterTime;
use crate::commands::{self, Access, Call, Command, Counter, TimeLimit};
use crate::error::{CommandError, CommandResult};
use crate::fail_points;
use crate::memory_budget::MemoryReservation;
use crate::operations::Operation;
use crate::options::Topology;
use crate::reply::{Answer, failure, labelled_failure, put_unsatisfied, success, timed};
use crate::request::Request;
use crate::state::{Client, Shared};
use crate::transactions::{self, RequestContext, labels, rules};
use crate::writer::Writer;

pub(crate) struct CommandReply {
    pub(crate) document: RawDocumentBuf,
    pub(crate) more: bool,
    /// The memory reservation, which is held until the document is sent.
    pub(crate) _reserved: Option<MemoryReservation>,
}

impl From<&CommandError> for CommandReply {
    fn from(error: &CommandError) -> Self {
        CommandReply { document: failure(error), more: false, _reserved: None }
    }
}

/// Runs a command. Returns `None` if the connection is to be closed without a reply.
pub(crate) async fn run(shared: &Shared, client: &Client, request: &Request<'_>) -> Option<CommandReply> {
    match &shared.fail_points {
        None => Some(execute(shared, client, request).await),
        Some(points) => fail_points::command::run(points, shared, client, request).await,
    }
}

/// Runs a command without its fail points.
pub(crate) async fn execute(shared: &Shared, client: &Client, request: &Request<'_>) -> CommandReply {
    let Some(command) = find(shared, request) else {
        shared.metrics.count_unknown_command();
        let text = format!("no such command: '{}'", request.name);
        return CommandReply::from(&CommandError::new(Code::CommandNotFound, text));
    };
    let began = shared.now();
    let cluster_time = shared.cluster_time.as_ref().map(ClusterTime::now);
    // What becomes visible while a read runs may be missing in its answer.
    let read_at = shared.cluster_time.as_ref().map(ClusterTime::settled).filter(|_| request.access == Access::Read);
    let span = debug_span!("command", name = command.name, database = request.database, connection = client.id);
    // Pinned here so that the large future is not moved by the futures around it.
    let statistics = Arc::<OperationStatistics>::default();
    let outcome = statistics.observe(pin!(run_known(shared, client, request, command, began)).instrument(span)).await;
    // The time of a client that waits for changes of the topology says nothing about the command.
    let waits = matches!(request.body.get("maxAwaitTimeMS"), Ok(Some(_)));
    let waited = outcome.as_ref().map_or(Duration::ZERO, |answer| answer.waited);
    let took = if waits { Duration::ZERO } else { shared.now().saturating_sub(began).saturating_sub(waited) };
    let ended = EndedCommand { took, statistics: &statistics, error: outcome.as_ref().err() };
    count(shared, client, request, command, &ended);
    if took >= Duration::from_millis(shared.slow_millis()) {
        log_slow(shared, client, request, command, &ended);
    }
    if request.access.writes() && !outcome.as_ref().is_ok_and(|answer| answer.unchanged) {
        signal_write(shared, request, command);
    }
    let is_step = request.numbering.is_in_transaction() && !command.properties.in_transaction.is_end();
    match outcome {
        Ok(mut answer) => {
            note_written(shared, request, &mut answer.writer, cluster_time);
            if is_step && shared.options.topology == Topology::Mongos {
                put_recovery_token(&mut answer.writer);
            }
            let document = success(answer.writer, shared.cluster_time.as_ref(), read_at);
            CommandReply { document, more: answer.more, _reserved: answer.reserved }
        }
        Err(mut error) => {
            if is_step || !request.access.writes() {
                // A read changes nothing. A failed statement of a transaction ends it without effect.
                error.applied = Applied::No;
            }
            debug!(command = command.name, code = error.code.0, error = %error, "a command failed");
            if command.properties.time_limit == TimeLimit::OfCursor
                && request.subject.as_i64().is_some_and(|id| shared.cursors.is_change_stream(id))
            {
                error.resumable.get_or_insert(labels::is_resumable(error.code));
            }
            let labels = labels::of_error(request.numbering, command.properties.in_transaction, &error);
            let mut writer = labelled_failure(&error, &labels);
            // The command may have written something before it failed.
            note_written(shared, request, &mut writer, cluster_time);
            let document = timed(writer, shared.cluster_time.as_ref(), read_at);
            CommandReply { document, more: false, _reserved: None }
        }
    }
}

fn find(shared: &Shared, request: &Request<'_>) -> Option<&'static Command> {
    let for_tests = || commands::find_for_tests(request.name).filter(|_| shared.fail_points.is_some());
    request.command.or_else(for_tests)
}

/// Advances the cluster time after a command that writes, and adds the error of a write concern that cannot be satisfied.
fn note_written(shared: &Shared, request: &Request<'_>, writer: &mut Writer, began_at: Option<Timestamp>) {
    if !request.access.writes() {
        return;
    }
    if let (Some(time), Some(began_at)) = (&shared.cluster_time, began_at) {
        time.advance_from(began_at);
    }
    if let Some(code) = request.write_concern.unsatisfied
        && let Ok(concern) = request.body.get_document("writeConcern")
    {
        put_unsatisfied(writer, code, concern);
    }
}

/// Wakes those who wait for what the command may have written. The statements of a transaction write at its commit.
fn signal_write(shared: &Shared, request: &Request<'_>, command: &Command) {
    if command.properties.in_transaction.is_end() {
        shared.write_signals.send(None);
    } else if !request.numbering.is_in_transaction() {
        shared.write_signals.send(request.namespace().ok().as_ref());
    }
}

/// Writes the token that a client sends back at the end of its transaction, so that another router could find the outcome. There is
/// no other router, but drivers expect the token from one.
fn put_recovery_token(writer: &mut Writer) {
    writer.begin_document("recoveryToken").put("recoveryShardId", "handfast").end();
}

async fn run_known(
    shared: &Shared,
    client: &Client,
    request: &Request<'_>,
    command: &'static Command,
    began: Duration,
) -> CommandResult<Answer> {
    check_allowed(shared, request, command)?;
    guard::check(shared, client, request, command).await?;
    rules::check(shared, request, command)?;
    if let Some(session) = request.session {
        shared.sessions.touch(session, began)?;
    }
    let operation = shared.operations.begin(client, request, command, began);
    let limit = match command.properties.time_limit {
        TimeLimit::OfRequest => request.max_time,
        TimeLimit::OfCursor => None,
    };
    let time = CommandTime { began, limit };
    let work = async {
        tokio::select! {
            biased;
            answer = run_in_context(shared, client, request, command, &operation, time) => answer,
            () = operation.killed() => {
                Err(CommandError::new(Code::Interrupted, "operation was interrupted").maybe_applied())
            }
        }
    };
    within(time.limit, pin!(work)).await
}

/// The time at which a command began, and its limit.
#[derive(Clone, Copy)]
struct CommandTime {
    began: Duration,
    limit: Option<Duration>,
}

/// Runs a command in its context. If it is part of a transaction and fails or is cancelled, the transaction ends.
async fn run_in_context(
    shared: &Shared,
    client: &Client,
    request: &Request<'_>,
    command: &'static Command,
    operation: &Operation<'_>,
    time: CommandTime,
) -> CommandResult<Answer> {
    let context = transactions::enter(shared, request, command).await?;
    let mut leave = LeaveGuard { shared, context: &context, failed: true };
    let call = Call { shared, client, request, operation, context: &context };
    let answer = (command.run)(&call).await?;
    // A read that took too long has timed out. A write that was applied is reported.
    let late = time.limit.is_some_and(|limit| shared.now().saturating_sub(time.began) > limit);
    if late && request.access == Access::Read {
        return Err(time_is_over());
    }
    leave.failed = answer.refused;
    Ok(answer)
}

/// Leaves the transaction when it is dropped. Unless the command has succeeded, the transaction ends.
struct LeaveGuard<'a> {
    shared: &'a Shared,
    context: &'a RequestContext,
    failed: bool,
}

impl Drop for LeaveGuard<'_> {
    fn drop(&mut self) {
        transactions::leave(self.shared, self.context, self.failed);
    }
}

fn check_allowed(shared: &Shared, request: &Request<'_>, command: &Command) -> CommandResult<()> {
    if shared.is_shutting_down() {
        return Err(CommandError::new(Code::ShutdownInProgress, "the server is shutting down"));
    }
    if command.admin_only && request.database != "admin" {
        let text = format!("{} may only be run against the admin database.", command.name);
        return Err(CommandError::new(Code::Unauthorized, text));
    }
    if request.api_strict && !command.versioned {
        let text = format!("Provided apiStrict:true, but the command {} is not in API Version 1", command.name);
        return Err(CommandError::new(Code::APIStrictError, text));
    }
    Ok(())
}

/// Stops work that exceeds its time limit. The error says that its writes may have been applied.
pub(crate) async fn within<T>(
    bound: Option<Duration>,
    work: impl Future<Output = CommandResult<T>>,
) -> CommandResult<T> {
    match bound {
        None => work.await,
        Some(bound) => tokio::time::timeout(bound, work).await.unwrap_or_else(|_| Err(time_is_over().maybe_applied())),
    }
}

pub(crate) fn time_is_over() -> CommandError {
    CommandError::new(Code::MaxTimeMSExpired, "operation exceeded time limit")
}

/// The errors of requests that have used no collection: a missing login or right, and an invalid name.
const REFUSED: [Code; 3] = [Code::Unauthorized, Code::AuthenticationFailed, Code::InvalidNamespace];

fn count(shared: &Shared, client: &Client, request: &Request<'_>, command: &'static Command, ended: &EndedCommand<'_>) {
    let took = ended.took;
    shared.metrics.count_command(command.name, took, ended.error.is_some());
    let operations = &shared.metrics.operations;
    match command.properties.counter {
        Counter::PerStatement => {}
        Counter::Query => operations.query.add(1),
        Counter::GetMore => operations.getmore.add(1),
        Counter::Command => operations.command.add(1),
    }
    // A client that may not use a collection must not fill the table of collections.
    let is_refused = ended.error.is_some_and(|error| REFUSED.contains(&error.code));
    if request.access != Access::Server && !is_refused {
        let write = request.access == Access::Write;
        if command.properties.counter != Counter::GetMore {
            shared.metrics.count_latency(write, took);
        }
        let plans = ended.statistics.plan_summary();
        client.count(&shared.metrics, (request.database, collection(request)), write, took, &plans);
    }
}

/// Returns the namespace of a command for log messages: its collection, or `$cmd` of its database.
pub(crate) fn namespace(request: &Request<'_>) -> String {
    [request.database, ".", collection(request)].concat()
}

fn collection<'a>(request: &Request<'a>) -> &'a str {
    match request.subject {
        RawBsonRef::String(collection) => collection,
        // The subject of a getMore is the id of its cursor.
        _ => request.body.get_str("collection").unwrap_or("$cmd"),
    }
}

/// The facts about a command that has ended, which are counted, and which the log shows if it was slow.
struct EndedCommand<'c> {
    took: Duration,
    statistics: &'c OperationStatistics,
    error: Option<&'c CommandError>,
}

fn log_slow(shared: &Shared, client: &Client, request: &Request<'_>, command: &Command, ended: &EndedCommand<'_>) {
    let EndedCommand { took, statistics, error } = *ended;
    info!(
        command = command.name,
        namespace = namespace(request),
        connection = client.id,
        client = client.remote,
        millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        waited_millis = u64::try_from(statistics.waited().as_millis()).unwrap_or(u64::MAX),
        plan = statistics.plan_summary(),
        keys_examined = statistics.keys_examined(),
        docs_examined = statistics.documents_examined(),
        code = error.map_or(0, |error| error.code.0),
        threshold_millis = shared.slow_millis(),
        "slow operation"
    );
}
