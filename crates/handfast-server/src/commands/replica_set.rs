//! `replSetGetStatus` and `replSetGetConfig`: describe the replica set, of which this server is the only member.
//!
//! There are no elections and no other copies of the data. So the member is the primary since the server was started, and each optime is
//! the newest moment of which all changes are visible.

use bson::{DateTime, Timestamp, rawdoc};
use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::cluster_time::ClusterTime;
use crate::error::{COMMAND_FAILED, CommandError, CommandResult, NO_REPLICATION_ENABLED};
use crate::options::Topology;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const STATUS: Command = Command {
    name: "replSetGetStatus",
    aliases: &[],
    help: "describes the state of the replica set, of which this server is the only member",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(status(call)),
};

pub(crate) const CONFIG: Command = Command {
    name: "replSetGetConfig",
    help: "returns the configuration of the replica set, of which this server is the only member",
    run: |call| Box::pin(config(call)),
    ..STATUS
};

/// The version of the configuration and its term; `hello` shows the version as `setVersion`.
const CONFIG_VERSION: i32 = 1;
const TERM: i64 = 1;
/// MongoDB's number of the state PRIMARY.
const PRIMARY: i32 = 1;

/// Returns the name of the set and the address of its member.
///
/// # Errors
/// `NoReplicationEnabled` (76) for a standalone, and the given error for a mongos.
fn member<'a>(call: &'a Call<'_>, of_mongos: impl FnOnce() -> CommandError) -> CommandResult<(&'a str, &'a str)> {
    match &call.shared.options.topology {
        Topology::Standalone => Err(CommandError::new(NO_REPLICATION_ENABLED, "not running with --replSet")),
        Topology::Mongos => Err(of_mongos()),
        Topology::ReplicaSet { name, advertise } => Ok((name, advertise.as_deref().unwrap_or(call.client.address()))),
    }
}

async fn status(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("replSetGetStatus");
    // There is no initial sync that it could show.
    arguments.ignored(&["initialSync"])?;
    arguments.finish()?;
    let (name, host) = member(call, || {
        let text = "replSetGetStatus is not supported through mongos";
        CommandError { details: Some(rawdoc! { "info": "mongos" }), ..CommandError::new(COMMAND_FAILED, text) }
    })?;
    let shared = call.shared;
    let now = shared.sources.clock.now();
    let newest = shared.cluster_time.as_ref().map_or(Timestamp { time: 0, increment: 0 }, ClusterTime::settled);
    let newest_date = DateTime::from_millis(i64::from(newest.time).saturating_mul(1_000));
    let uptime = shared.uptime();
    let elected = shared.started_at();
    let elected_at = Timestamp {
        time: u32::try_from(elected.timestamp_millis().div_euclid(1_000)).unwrap_or_default(),
        increment: 1,
    };
    let mut writer = Writer::new();
    writer.put("set", name).put("date", now).put("myState", PRIMARY).put("term", TERM);
    writer.put("syncSourceHost", "").put("syncSourceId", -1).put("heartbeatIntervalMillis", HEARTBEAT_MILLIS);
    for count in ["majorityVoteCount", "writeMajorityCount", "votingMembersCount", "writableVotingMembersCount"] {
        writer.put(count, 1);
    }
    writer.begin_document("optimes");
    for (time, date) in [
        ("lastCommittedOpTime", Some("lastCommittedWallTime")),
        ("readConcernMajorityOpTime", None),
        ("appliedOpTime", Some("lastAppliedWallTime")),
        ("durableOpTime", Some("lastDurableWallTime")),
    ] {
        put_optime(&mut writer, time, newest);
        if let Some(date) = date {
            writer.put(date, newest_date);
        }
    }
    writer.end().begin_array("members").begin_document("0");
    writer.put("_id", 0).put("name", host).put("health", 1.0).put("state", PRIMARY).put("stateStr", "PRIMARY");
    writer.put("uptime", i32::try_from(uptime.as_secs()).unwrap_or(i32::MAX));
    put_optime(&mut writer, "optime", newest);
    writer.put("optimeDate", newest_date).put("lastAppliedWallTime", newest_date);
    writer.put("lastDurableWallTime", newest_date).put("syncSourceHost", "").put("syncSourceId", -1);
    writer.put("infoMessage", "").put("electionTime", elected_at).put("electionDate", elected);
    writer.put("configVersion", CONFIG_VERSION).put("configTerm", TERM).put("self", true);
    writer.put("lastHeartbeatMessage", "").end().end();
    Ok(writer.into())
}

fn put_optime(writer: &mut Writer, name: &str, moment: Timestamp) {
    writer.begin_document(name).put("ts", moment).put("t", TERM).end();
}

async fn config(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("replSetGetConfig");
    let with_commitment = arguments.lenient_flag("commitmentStatus")?.unwrap_or(false);
    arguments.finish()?;
    let (name, host) =
        member(call, || CommandError::new(Code::CommandNotFound, "no such command: 'replSetGetConfig'"))?;
    let mut writer = Writer::new();
    writer.begin_document("config").put("_id", name).put("version", CONFIG_VERSION).put("term", TERM);
    writer.begin_array("members").begin_document("0").put("_id", 0).put("host", host);
    writer.put("arbiterOnly", false).put("buildIndexes", true).put("hidden", false).put("priority", 1.0);
    writer.begin_document("tags").end().put("secondaryDelaySecs", 0_i64).put("votes", 1).end().end();
    writer.put("protocolVersion", 1_i64).put("writeConcernMajorityJournalDefault", true);
    writer.begin_document("settings").put("chainingAllowed", true);
    writer.put("heartbeatIntervalMillis", HEARTBEAT_MILLIS).put("heartbeatTimeoutSecs", 10);
    writer.put("electionTimeoutMillis", 10_000).put("catchUpTimeoutMillis", -1);
    writer.put("catchUpTakeoverDelayMillis", 30_000).begin_document("getLastErrorModes").end();
    writer.begin_document("getLastErrorDefaults").put("w", 1).put("wtimeout", 0).end();
    writer.end().end();
    if with_commitment {
        writer.put("commitmentStatus", true);
    }
    Ok(writer.into())
}

/// MongoDB's default interval of heartbeats. There is no other member to send one to.
const HEARTBEAT_MILLIS: i32 = 2_000;

#[cfg(test)]
mod tests;
