//! `listCollections`: opens a cursor over the collections of a database.

use bson::RawDocumentBuf;
use handfast_store::view::DEFINITIONS;
use handfast_store::{CollectionInfo, CollectionOptions};

use super::get_more::{Opening, first_batch};
use super::list_filter::ListFilter;
use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::batches::ListCursor;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::{Uuid, Writer};

pub(crate) const COMMAND: Command = Command {
    name: "listCollections",
    aliases: &[],
    help: "lists the collections of a database",
    access: Access::Read,
    needs: Needs::Database(Action::List),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("listCollections");
    let filter = arguments.document_or_empty("filter")?;
    let name_only = arguments.lenient_flag("nameOnly")?.unwrap_or(false);
    arguments.ignored(&["authorizedCollections"])?;
    let batch_size = batch_size(&mut arguments, "listCollections.cursor")?;
    arguments.finish()?;
    let filter = ListFilter::compile(call.shared, &filter)?;
    let mut documents = Vec::new();
    let mut collections = call.store().list_collections(call.request.database).await?;
    if collections.iter().any(|collection| collection.options.view.is_some()) {
        let place = collections.partition_point(|collection| collection.name.as_str() < DEFINITIONS);
        collections.insert(place, definitions());
    }
    for collection in collections {
        let document = describe(&collection, name_only);
        if filter.matches(&document)? {
            documents.push(document);
        }
    }
    let namespace = format!("{}.$cmd.listCollections", call.request.database);
    let opening = Opening { namespace, batch_size, single_batch: false, no_timeout: false };
    first_batch(call, Box::new(ListCursor::new(documents)), opening, call.shared.now()).await
}

/// Returns the collection that shows the definitions of views.
fn definitions() -> CollectionInfo {
    CollectionInfo { name: DEFINITIONS.to_owned(), options: CollectionOptions::default(), uuid: [0; 16] }
}

fn describe(collection: &CollectionInfo, name_only: bool) -> RawDocumentBuf {
    let mut writer = Writer::new();
    let is_view = collection.options.view.is_some();
    writer.put("name", &collection.name).put("type", if is_view { "view" } else { "collection" });
    if !name_only && is_view {
        writer.put("options", collection.options.to_document());
        writer.begin_document("info").put("readOnly", true).end();
    } else if !name_only {
        writer.put("options", collection.options.to_document());
        writer.begin_document("info").put("readOnly", false).put("uuid", Uuid(collection.uuid)).end();
        writer
            .begin_document("idIndex")
            .put("v", 2)
            .begin_document("key")
            .put("_id", 1)
            .end()
            .put("name", "_id_")
            .put_some("collation", collection.options.collation.as_ref())
            .end();
    }
    writer.finish()
}

/// Reads `cursor: {batchSize}`.
pub(super) fn batch_size(arguments: &mut Arguments<'_>, path: &'static str) -> CommandResult<Option<u64>> {
    let Some(cursor) = arguments.document("cursor")? else { return Ok(None) };
    let mut cursor = Arguments::of_document(path, cursor)?;
    let size = cursor.unsigned("batchSize")?;
    cursor.finish()?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use bson::spec::BinarySubtype;

    use crate::testing::{ReplyFields, TestServer, batch, cursor_id, insert, numbered};

    #[tokio::test]
    async fn collections_are_listed_with_filter_and_in_batches() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "b", &numbered(1)).await;
        insert(&mut client, "a", &numbered(1)).await;
        let reply = client.run("d", rawdoc! { "listCollections": 1, "filter": { "name": "b" } }).await;
        let collections = batch(&reply);
        assert_eq!(collections.len(), 1);
        assert_eq!(collections[0].text("name"), "b");
        let info = collections[0].get_document("info").unwrap();
        assert_eq!(info.get_binary("uuid").unwrap().subtype, BinarySubtype::Uuid);
        let names =
            client.run("d", rawdoc! { "listCollections": 1, "nameOnly": true, "cursor": { "batchSize": 1 } }).await;
        assert_eq!(batch(&names), [rawdoc! { "name": "a", "type": "collection" }]);
        let more = rawdoc! { "getMore": cursor_id(&names), "collection": "$cmd.listCollections" };
        assert_eq!(batch(&client.run("d", more).await), [rawdoc! { "name": "b", "type": "collection" }]);
    }
}
