//! `collStats`: counts and sizes of a collection.

use super::db_stats::{scale, whole};
use super::{Access, Call, Command};
use crate::error::Outcome;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "collStats",
    aliases: &["collstats"],
    help: "tells counts and sizes of a collection",
    access: Access::Read,
    admin_only: false,
    versioned: false,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("collStats")?;
    let scale = scale(&mut arguments)?;
    arguments.finish()?;
    let stats = call.store().collection_stats(&namespace).await?;
    let index_bytes: u64 = stats.index_bytes.iter().map(|(_, bytes)| bytes).sum();
    let mut writer = Writer::new();
    writer.put("ns", namespace.to_string());
    put_count(&mut writer, "size", stats.size_bytes / scale);
    put_count(&mut writer, "count", stats.count);
    if let Some(average) = stats.size_bytes.checked_div(stats.count) {
        put_count(&mut writer, "avgObjSize", average);
    }
    put_count(&mut writer, "storageSize", stats.storage_bytes / scale);
    writer.put("capped", false).put("nindexes", i32::try_from(stats.index_bytes.len()).unwrap_or(i32::MAX));
    put_count(&mut writer, "totalIndexSize", index_bytes / scale);
    put_count(&mut writer, "totalSize", (stats.storage_bytes + index_bytes) / scale);
    writer.begin_document("indexSizes");
    for (name, bytes) in &stats.index_bytes {
        put_count(&mut writer, name, bytes / scale);
    }
    writer.end().put("scaleFactor", whole(scale));
    Ok(writer.into())
}
