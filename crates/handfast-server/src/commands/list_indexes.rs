//! `listIndexes`: opens a cursor over the indexes of a collection.

use bson::RawDocumentBuf;
use handfast_store::{IndexInfo, IndexSpec};

use super::get_more::{Opening, first_batch};
use super::list_collections::batch_size;
use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::batches::ListCursor;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "listIndexes",
    aliases: &[],
    help: "lists the indexes of a collection",
    access: Access::Read,
    needs: Needs::Collection(&[Action::List]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("listIndexes");
    let batch_size = batch_size(&mut arguments, "listIndexes.cursor")?;
    arguments.flag("includeIndexBuildInfo")?;
    arguments.finish()?;
    let indexes = call.store().list_indexes(&namespace).await?;
    let documents = indexes.iter().map(describe).collect();
    let opening = Opening { namespace: namespace.to_string(), batch_size, single_batch: false, no_timeout: false };
    first_batch(call, Box::new(ListCursor::new(documents)), opening, call.shared.now()).await
}

/// Returns the definition of an index.
pub(super) fn describe(index: &IndexInfo) -> RawDocumentBuf {
    let IndexSpec { name, key, unique, sparse, partial_filter, expire_after_seconds, hidden, collation, background } =
        &index.spec;
    let mut writer = Writer::new();
    writer.put("v", 2).put("key", key).put("name", name);
    for (field, set) in [("unique", *unique), ("sparse", *sparse), ("hidden", *hidden)] {
        writer.put_some(field, set.then_some(true));
    }
    writer.put_some("collation", collation.as_ref());
    writer.put_some("background", *background);
    writer.put_some("partialFilterExpression", partial_filter.as_ref());
    match expire_after_seconds.map(i32::try_from) {
        None => {}
        Some(Ok(seconds)) => {
            writer.put("expireAfterSeconds", seconds);
        }
        Some(Err(_)) => {
            writer.put_some("expireAfterSeconds", *expire_after_seconds);
        }
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, batch, insert, numbered};

    #[tokio::test]
    async fn a_collection_has_an_index_on_its_ids() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "a", &numbered(1)).await;
        let reply = client.run("d", rawdoc! { "listIndexes": "a" }).await;
        assert_eq!(batch(&reply), [rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }]);
        assert_eq!(client.refused("d", rawdoc! { "listIndexes": "none" }).await.0, 26);
    }
}
