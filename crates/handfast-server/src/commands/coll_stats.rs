//! `collStats`: returns counts and sizes of a collection.

use bson::raw::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{CollectionStats, Namespace, PlanSummary};

use super::db_stats::{scale, whole};
use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::metrics::{CountAndTime, NamespaceUse};
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "collStats",
    aliases: &["collstats"],
    help: "tells counts and sizes of a collection",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Statistics]),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("collStats");
    let scale = scale(&mut arguments)?;
    arguments.finish()?;
    call.refuse_view(&namespace).await?;
    let stats = call.store().collection_stats(&namespace).await?;
    let mut writer = Writer::new();
    writer.put("ns", namespace.to_string());
    put_statistics(&mut writer, &stats, scale);
    Ok(writer.into())
}

fn put_statistics(writer: &mut Writer, stats: &CollectionStats, scale: u64) {
    let index_bytes: u64 = stats.index_bytes.iter().map(|(_, bytes)| bytes).sum();
    put_count(writer, "size", stats.size_bytes / scale);
    put_count(writer, "count", stats.count);
    if let Some(average) = stats.size_bytes.checked_div(stats.count) {
        put_count(writer, "avgObjSize", average);
    }
    put_count(writer, "storageSize", stats.storage_bytes / scale);
    writer.put("capped", false).put("nindexes", i32::try_from(stats.index_bytes.len()).unwrap_or(i32::MAX));
    put_count(writer, "totalIndexSize", index_bytes / scale);
    put_count(writer, "totalSize", (stats.storage_bytes + index_bytes) / scale);
    writer.begin_document("indexSizes");
    for (name, bytes) in &stats.index_bytes {
        put_count(writer, name, bytes / scale);
    }
    writer.end().put("scaleFactor", whole(scale));
}

/// Returns the document of the aggregation stage `$collStats`, whose options select its parts.
///
/// # Errors
/// `NamespaceNotFound` (26) for the sizes or the count of a collection that does not exist; `CommandNotSupportedOnView` (166); the errors
/// of the options and of the store.
pub(super) async fn stage(
    call: &Call<'_>,
    namespace: &Namespace,
    options: &RawDocument,
) -> CommandResult<RawDocumentBuf> {
    let options = StageOptions::read(options)?;
    call.refuse_view(namespace).await?;
    let stats = call.store().collection_stats(namespace).await?;
    let missing = |part: &str| {
        let text = format!(
            "Unable to retrieve {part} in $collStats stage :: caused by :: Collection [{namespace}] not found."
        );
        CommandError::new(Code::NamespaceNotFound, text)
    };
    let full = namespace.to_string();
    let mut writer = Writer::new();
    writer.put("ns", &full).put("host", super::host_info::host_name());
    writer.put("localTime", call.shared.sources.clock.now());
    if options.latencies {
        put_latencies(&mut writer, call.shared.metrics.namespace_use(&full));
    }
    if let Some(scale) = options.storage_scale {
        if !stats.exists {
            return Err(missing("storageStats"));
        }
        writer.begin_document("storageStats");
        put_statistics(&mut writer, &stats, scale);
        writer.end();
    }
    if options.count {
        if !stats.exists {
            return Err(missing("count"));
        }
        put_count(&mut writer, "count", stats.count);
    }
    if options.queries {
        let scans = call.shared.metrics.plans(&full).unwrap_or_default().of(&PlanSummary::CollectionScan);
        writer.begin_document("queryExecStats").begin_document("collectionScans");
        // There are no tailable cursors.
        writer.put("total", whole(scans)).put("nonTailable", whole(scans)).end().end();
    }
    Ok(writer.finish())
}

/// The options of the stage.
struct StageOptions {
    latencies: bool,
    /// The number by which the sizes are divided, if they are asked for.
    storage_scale: Option<u64>,
    count: bool,
    queries: bool,
}

impl StageOptions {
    fn read(options: &RawDocument) -> CommandResult<Self> {
        let mut arguments = Arguments::of_document("$collStats", options)?;
        let latencies = arguments.document("latencyStats")?;
        let storage = arguments.document("storageStats")?;
        let count = arguments.document("count")?;
        let queries = arguments.document("queryExecStats")?;
        arguments.finish()?;
        if let Some(latencies) = latencies {
            let mut arguments = Arguments::of_document("$collStats.latencyStats", latencies)?;
            // The times of one collection are summed up, not counted by their length.
            arguments.unsupported(&["histograms"])?;
            arguments.finish()?;
        }
        let storage_scale = match storage {
            Some(storage) => {
                let mut arguments = Arguments::of_document("$collStats.storageStats", storage)?;
                let scale = scale(&mut arguments)?;
                arguments.finish()?;
                Some(scale)
            }
            None => None,
        };
        for (path, part) in [("$collStats.count", count), ("$collStats.queryExecStats", queries)] {
            if let Some(part) = part {
                Arguments::of_document(path, part)?.finish()?;
            }
        }
        Ok(StageOptions {
            latencies: latencies.is_some(),
            storage_scale,
            count: count.is_some(),
            queries: queries.is_some(),
        })
    }
}

/// Writes the number of commands on a collection and the microseconds that they took. Commands that change the collection itself, such
/// as `createIndexes`, count as writes, and transactions are not counted as a whole.
fn put_latencies(writer: &mut Writer, used: NamespaceUse) {
    writer.begin_document("latencyStats");
    for (name, used) in [
        ("reads", used.reads),
        ("writes", used.writes),
        ("commands", CountAndTime::default()),
        ("transactions", CountAndTime::default()),
    ] {
        writer.begin_document(name).put("latency", i64::try_from(used.time.as_micros()).unwrap_or(i64::MAX));
        writer.put("ops", whole(used.count)).end();
    }
    writer.end();
}

#[cfg(test)]
mod tests;
