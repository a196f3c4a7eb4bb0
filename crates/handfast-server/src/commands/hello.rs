//! `hello` and its legacy name `isMaster`: describe the server, its features and its limits.
//!
//! A client that sends its known `topologyVersion` and `maxAwaitTimeMS` gets the reply when that version changes or after that time. The
//! version never changes while the server runs, so that the client only learns whether it still runs. With the exhaust flag the
//! server sends further replies without further requests.

use std::time::Duration;

use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_wire::limits::{DOCUMENT_BYTES_MAX, MESSAGE_BYTES_MAX, WRITE_BATCH_MAX};

use super::{Access, Call, Command, Properties, Running, sasl};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::login::{self, Step};
use crate::auth::scram::MECHANISM;
use crate::error::{CommandError, CommandResult};
use crate::options::Topology;
use crate::reply::Answer;
use crate::sessions::SESSION_TIMEOUT_MINUTES;
use crate::writer::Writer;

/// The wire version of MongoDB 8.0, the first one with `bulkWrite`.
const WIRE_VERSION_MAX: i32 = 25;
/// The largest metadata of a driver in bytes, by MongoDB's handshake specification.
const METADATA_BYTES_MAX: usize = 512;

pub(crate) const COMMAND: Command = Command {
    name: "hello",
    aliases: &[],
    help: "says what the server is and what it can do",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: true,
    versioned: true,
    properties: Properties { legacy_query: true, ..Properties::DEFAULT },
    run: |call| run(call, "hello", "isWritablePrimary"),
};

pub(crate) const LEGACY: Command = Command {
    name: "isMaster",
    aliases: &["ismaster"],
    help: "the old name of hello",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: true,
    versioned: false,
    properties: Properties { legacy_query: true, ..Properties::DEFAULT },
    run: |call| run(call, "isMaster", "ismaster"),
};

fn run<'a>(call: &'a Call<'a>, path: &'static str, primary: &'static str) -> Running<'a> {
    Box::pin(async move {
        let mut arguments = call.arguments(path);
        let metadata = arguments.document("client")?;
        let compressors = compressors(call, &mut arguments)?;
        let known = arguments.document("topologyVersion")?;
        let await_time = arguments.unsigned("maxAwaitTimeMS")?;
        let login = arguments.document("speculativeAuthenticate")?;
        let user = arguments.text("saslSupportedMechs")?;
        // Unknown fields of the handshake are ignored: they are features that a client offers and does not require.
        drop(arguments);
        if let Some(metadata) = metadata {
            introduce(call, metadata)?;
        }
        let more = match (known, await_time) {
            (None, None) => false,
            (Some(known), Some(millis)) => wait(call, known, Duration::from_millis(millis)).await?,
            _ => {
                let text = "A request with a 'topologyVersion' must include 'maxAwaitTimeMS', and the reverse";
                return Err(CommandError::new(TOPOLOGY_VERSION_ALONE, text));
            }
        };
        let mut writer = Writer::new();
        describe(call, primary, &compressors, &mut writer);
        if user.is_some() {
            // The list is the same for every user name, also for users that do not exist.
            writer.array("saslSupportedMechs", [MECHANISM]);
        }
        if let Some(step) = speculate(call, login).await {
            writer.put("speculativeAuthenticate", sasl::answer(&step).finish());
        }
        Ok(Answer { more, ..Answer::from(writer) })
    })
}

/// Begins a login with the handshake. If it fails, the reply does not mention it, and the client begins another login.
async fn speculate(call: &Call<'_>, login: Option<&RawDocument>) -> Option<Step> {
    let mut arguments = Arguments::of_document("speculativeAuthenticate", login?).ok()?;
    let database = arguments.text("db").ok()?.unwrap_or(call.request.database);
    let start = sasl::read_start(&mut arguments, database).ok()?;
    login::start(call.shared, call.client, start).await.ok()
}

const TOPOLOGY_VERSION_ALONE: Code = Code(31_368);

fn introduce(call: &Call<'_>, metadata: &RawDocument) -> CommandResult<()> {
    if metadata.as_bytes().len() > METADATA_BYTES_MAX {
        let text = format!("The client metadata document must be less then or equal to {METADATA_BYTES_MAX} bytes");
        return Err(CommandError::new(Code(186), text));
    }
    call.client.introduce(metadata);
    Ok(())
}

/// Returns the compressors that both sides support, in the client's order.
fn compressors(call: &Call<'_>, arguments: &mut Arguments<'_>) -> CommandResult<Vec<&'static str>> {
    let mut common: Vec<&'static str> = Vec::new();
    if let Some(offered) = arguments.array("compression")? {
        for name in offered {
            let Some(name) = name?.as_str() else { continue };
            let known = call.shared.options.compressors.iter().find(|compressor| compressor.name() == name);
            if let Some(known) = known.filter(|known| !common.contains(&known.name())) {
                common.push(known.name());
            }
        }
    }
    Ok(common)
}

/// The longest wait. Drivers request the interval of their heartbeat, which is ten seconds.
const AWAIT_MAX: Duration = Duration::from_secs(60);
/// The shortest wait between the replies of a stream: a fifth of the shortest heartbeat that drivers may have.
const STREAM_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Waits if the client knows the current version, and returns whether it does. A client with another version gets one reply at once; a
/// stream to it would repeat the same reply without a pause.
async fn wait(call: &Call<'_>, known: &RawDocument, time: Duration) -> CommandResult<bool> {
    let process = known.get("processId")?.and_then(RawBsonRef::as_object_id);
    if process != Some(call.shared.process_id) {
        return Ok(false);
    }
    let shortest = if call.request.exhaust { STREAM_INTERVAL_MIN } else { Duration::ZERO };
    tokio::select! {
        () = tokio::time::sleep(time.clamp(shortest, AWAIT_MAX)) => Ok(true),
        () = call.shared.shutting_down() => {
            Err(CommandError::new(Code::ShutdownInProgress, "the server is shutting down"))
        }
    }
}

fn describe(call: &Call<'_>, primary: &str, compressors: &[&'static str], writer: &mut Writer) {
    let shared = call.shared;
    writer.put("helloOk", true).put(primary, true);
    match &shared.options.topology {
        Topology::Standalone => {}
        Topology::Mongos => {
            writer.put("msg", "isdbgrid");
        }
        Topology::ReplicaSet { name, advertise } => {
            let host = advertise.as_deref().unwrap_or(call.client.address());
            writer.array("hosts", [host]).put("setName", name).put("setVersion", 1).put("secondary", false);
            // There is no electionId, because a set of one member holds no elections, and drivers take a primary with a lower one for stale.
            writer.put("primary", host).put("me", host);
        }
    }
    writer.begin_document("topologyVersion").put("processId", shared.process_id).put("counter", 0_i64).end();
    writer.put("maxBsonObjectSize", bounded(DOCUMENT_BYTES_MAX));
    writer.put("maxMessageSizeBytes", bounded(MESSAGE_BYTES_MAX));
    writer.put("maxWriteBatchSize", bounded(WRITE_BATCH_MAX));
    writer.put("localTime", shared.sources.clock.now());
    writer.put("logicalSessionTimeoutMinutes", SESSION_TIMEOUT_MINUTES);
    writer.put("connectionId", bounded(usize::try_from(call.client.id).unwrap_or(usize::MAX)));
    writer.put("minWireVersion", 0).put("maxWireVersion", WIRE_VERSION_MAX).put("readOnly", false);
    if !compressors.is_empty() {
        writer.array("compression", compressors.iter().copied());
    }
}

fn bounded(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
