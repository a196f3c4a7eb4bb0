//! `serverStatus`: returns the server's counters.

use super::build_info::{MONGODB_VERSION, VERSION};
use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::lock::lock;
use crate::metrics::Counter;
use crate::reply::Answer;
use crate::writer::{Writer, decimal};
use handfast_store::Durations;
use std::sync::atomic::Ordering;

pub(crate) const COMMAND: Command = Command {
    name: "serverStatus",
    aliases: &[],
    help: "tells what the server counts",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    // Each field would switch a section on or off; the reply always has all sections.
    let shared = call.shared;
    let metrics = &shared.metrics;
    let uptime = shared.uptime();
    let mut writer = Writer::new();
    writer.put("host", super::host_info::host_name()).put("version", MONGODB_VERSION);
    writer.put("process", "handfast").put("pid", i64::from(std::process::id()));
    writer.begin_document("handfast").put("version", VERSION);
    if let Some(storage) = &shared.options.storage {
        writer.begin_document("storage").put("newestCommit", whole(u128::from(storage.newest_commit().0)));
        writer.put("oldestSnapshot", whole(u128::from(storage.oldest_snapshot().0)));
        put_durations(&mut writer, "sync", storage.sync_durations());
        writer.end();
    }
    let memory = &shared.sources.query_memory;
    let (used, written) = memory.spill.as_ref().map_or((0, 0), |spill| (spill.used(), spill.written()));
    writer.begin_document("stages").put("memoryBytes", whole(memory.total.held() as u128));
    writer.put("fileBytes", whole(u128::from(used))).put("fileBytesWritten", whole(u128::from(written))).end();
    writer.end();
    writer.put("uptime", uptime.as_secs_f64().floor()).put("uptimeMillis", whole(uptime.as_millis()));
    writer.put("uptimeEstimate", whole(u128::from(uptime.as_secs()))).put("localTime", shared.sources.clock.now());
    let open = shared.connections.load(Ordering::Acquire);
    let available = shared.options.connections.open_max.saturating_sub(open);
    writer.begin_document("connections").put("current", whole(open as u128)).put("available", whole(available as u128));
    writer.put("totalCreated", value(&metrics.connections_created));
    writer.put("rejected", value(&metrics.connections_refused)).put("broken", value(&metrics.connections_broken));
    writer.put("active", whole(shared.operations.list().len() as u128)).end();
    writer.begin_document("network").put("bytesIn", value(&metrics.bytes_in));
    writer.put("bytesOut", value(&metrics.bytes_out)).put("numRequests", value(&metrics.requests)).end();
    put_memory(&mut writer);
    let operations = &metrics.operations;
    writer.begin_document("opcounters").put("insert", value(&operations.insert));
    writer.put("query", value(&operations.query)).put("update", value(&operations.update));
    writer.put("delete", value(&operations.delete)).put("getmore", value(&operations.getmore));
    writer.put("command", value(&operations.command)).end();
    writer.begin_document("opLatencies");
    put_durations(&mut writer, "reads", &metrics.read_latencies);
    put_durations(&mut writer, "writes", &metrics.write_latencies);
    writer.end();
    put_transactions(call, &mut writer);
    writer.begin_document("logicalSessionRecordCache");
    writer.put("activeSessionsCount", whole(shared.sessions.len() as u128));
    let reaper = *lock(&metrics.reaper);
    writer.put("transactionReaperJobCount", whole(u128::from(reaper.count)));
    if let Some(last) = reaper.last {
        writer.put("lastTransactionReaperJobTimestamp", last);
        writer.put("lastTransactionReaperJobEntriesCleanedUp", whole(u128::from(reaper.last_removed)));
    }
    writer.end();
    writer.begin_document("storageEngine").put("name", call.store().name()).put("persistent", true).end();
    put_metrics(call, &mut writer);
    Ok(writer.into())
}

/// Writes the memory of this process in megabytes, if the system tells it.
fn put_memory(writer: &mut Writer) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let (resident, size) = (megabytes(&status, "VmRSS:"), megabytes(&status, "VmSize:"));
    writer.begin_document("mem").put("bits", i32::try_from(usize::BITS).unwrap_or(64));
    writer.put_some("resident", resident).put_some("virtual", size);
    writer.put("supported", resident.is_some() && size.is_some()).end();
}

/// Returns a size from the status of a process, which has lines such as `VmRSS:  5120 kB`.
fn megabytes(status: &str, name: &str) -> Option<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: i64 = line.split_whitespace().next()?.parse().ok()?;
    i32::try_from(kilobytes / 1024).ok()
}

fn put_transactions(call: &Call<'_>, writer: &mut Writer) {
    let counts = call.shared.database.counts();
    let number = |count: u64| whole(u128::from(count));
    let open = call.shared.sessions.transactions();
    let active = open.iter().filter(|open| open.turn.try_lock().is_err()).count() as u64;
    writer.begin_document("transactions");
    writer.put("currentActive", number(active)).put("currentInactive", number(open.len() as u64 - active));
    writer
        .put("currentSnapshots", number(counts.snapshots))
        .put("currentOpen", number(open.len() as u64))
        .put("totalStarted", number(counts.begun));
    writer.put("totalCommitted", number(counts.committed)).put("totalAborted", number(counts.rolled_back));
    writer.put("totalConflicts", number(counts.conflicts)).put("totalUnknown", number(counts.unknown));
    writer.put("retriedCommandsCount", value(&call.shared.metrics.retried_commands));
    writer.put("retriedStatementsCount", value(&call.shared.metrics.retried_statements)).end();
}

/// Writes the sum of durations in microseconds, and their distribution by buckets, each with its least duration.
fn put_durations(writer: &mut Writer, name: &str, durations: &Durations) {
    writer.begin_document(name).put("latency", whole(durations.sum().as_micros()));
    writer.put("ops", whole(u128::from(durations.count()))).begin_array("histogram");
    let mut digits = [0; 20];
    for (place, (micros, count)) in durations.buckets().enumerate() {
        writer.begin_document(decimal(place, &mut digits)).put("micros", whole(u128::from(micros)));
        writer.put("count", whole(u128::from(count))).end();
    }
    writer.end().end();
}

fn put_metrics(call: &Call<'_>, writer: &mut Writer) {
    let counts = call.shared.cursors.counts();
    writer.begin_document("metrics").begin_document("commands");
    writer.put("<UNKNOWN>", whole(u128::from(call.shared.metrics.unknown_commands())));
    for (name, count) in call.shared.metrics.commands() {
        writer.begin_document(name).put("failed", whole(u128::from(count.failed)));
        writer.put("total", whole(u128::from(count.total))).put("micros", whole(count.time.as_micros())).end();
    }
    writer.end().begin_document("cursor").put("timedOut", whole(u128::from(counts.timed_out)));
    writer.put("totalOpened", whole(u128::from(counts.opened))).begin_document("open");
    writer.put("noTimeout", whole(u128::from(counts.no_timeout))).put("pinned", whole(u128::from(counts.pinned)));
    writer.put("total", whole(u128::from(counts.open))).end().end().end();
}

fn value(counter: &Counter) -> i64 {
    whole(u128::from(counter.get()))
}

fn whole(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{ReplyFields, TestServer, insert, numbered};

    #[tokio::test]
    async fn operations_requests_and_commands_are_counted() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(3)).await;
        client.run("d", rawdoc! { "find": "c" }).await;
        let reply = client.run("admin", rawdoc! { "serverStatus": 1, "repl": 0 }).await;
        let operations = reply.get_document("opcounters").unwrap();
        assert_eq!((operations.long("insert"), operations.long("query")), (3, 1));
        assert_eq!(reply.get_document("network").unwrap().long("numRequests"), 3);
        let memory = reply.get_document("mem").unwrap();
        let supported = std::path::Path::new("/proc/self/status").exists();
        assert_eq!((memory.int("bits"), memory.get_bool("supported").unwrap()), (64, supported));
        assert!(!supported || (memory.int("resident") > 0 && memory.int("virtual") >= memory.int("resident")));
        let find =
            reply.get_document("metrics").unwrap().get_document("commands").unwrap().get_document("find").unwrap();
        assert_eq!((find.long("total"), find.long("failed")), (1, 0));
    }

    #[tokio::test]
    async fn the_durations_of_reads_and_writes_are_counted_in_buckets() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(3)).await;
        for _ in 0..3 {
            client.run("d", rawdoc! { "find": "c" }).await;
        }
        let reply = client.run("admin", rawdoc! { "serverStatus": 1 }).await;
        let latencies = reply.get_document("opLatencies").unwrap();
        for (name, expected) in [("reads", 3), ("writes", 1)] {
            let of = latencies.get_document(name).unwrap();
            let buckets = of.get_array("histogram").unwrap().into_iter();
            let counted: i64 = buckets.map(|bucket| bucket.unwrap().as_document().unwrap().long("count")).sum();
            assert_eq!((of.long("ops"), counted), (expected, expected), "{name}");
        }
    }
}
