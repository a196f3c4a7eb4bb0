//! `collStats`: returns counts and sizes of a collection.

use bson::raw::{RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{CollectionStats, Namespace};

use super::db_stats::{scale, whole};
use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
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
pub(super) async fn stage(
    call: &Call<'_>,
    namespace: &Namespace,
    options: &RawDocument,
) -> CommandResult<RawDocumentBuf> {
    let mut arguments = Arguments::of_document("$collStats", options)?;
    let storage = arguments.document("storageStats")?;
    let count = arguments.document("count")?;
    arguments.unsupported(&["latencyStats", "queryExecStats"])?;
    arguments.finish()?;
    call.refuse_view(namespace).await?;
    let stats = call.store().collection_stats(namespace).await?;
    if !stats.exists {
        let text = format!(
            "Unable to retrieve storageStats in $collStats stage :: caused by :: Collection [{namespace}] not found."
        );
        return Err(CommandError::new(Code::NamespaceNotFound, text));
    }
    let mut writer = Writer::new();
    writer.put("ns", namespace.to_string()).put("host", super::host_info::host_name());
    writer.put("localTime", call.shared.sources.clock.now());
    if let Some(storage) = storage {
        let mut arguments = Arguments::of_document("$collStats.storageStats", storage)?;
        let scale = scale(&mut arguments)?;
        arguments.finish()?;
        writer.begin_document("storageStats");
        put_statistics(&mut writer, &stats, scale);
        writer.end();
    }
    if count.is_some() {
        put_count(&mut writer, "count", stats.count);
    }
    Ok(writer.finish())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{ReplyFields, TestServer, insert, numbered};

    #[tokio::test]
    async fn documents_and_their_average_size_are_counted() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(3)).await;
        let stats = client.run("d", rawdoc! { "collStats": "c" }).await;
        assert_eq!((stats.int("count"), stats.int("avgObjSize")), (3, 14));
    }
}
