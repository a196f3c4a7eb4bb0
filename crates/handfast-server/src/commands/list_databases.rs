//! `listDatabases`: lists the databases that have a collection, with their sizes.

use bson::RawDocumentBuf;
use handfast_store::Namespace;

use super::list_filter::ListFilter;
use super::{Access, Call, Command, Properties};
use crate::auth::guard::{self, Needs};
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "listDatabases",
    aliases: &[],
    help: "lists databases",
    access: Access::Read,
    needs: Needs::Login,
    admin_only: true,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("listDatabases");
    let filter = arguments.document_or_empty("filter")?;
    let name_only = arguments.lenient_flag("nameOnly")?.unwrap_or(false);
    // A user who may not list all databases always gets those on which the user has a role.
    arguments.ignored(&["authorizedDatabases"])?;
    arguments.finish()?;
    let filter = ListFilter::compile(call.shared, &filter)?;
    let mut databases = Vec::new();
    let mut total: u64 = 0;
    for name in call.store().list_databases().await? {
        if !may_see(call, &name) {
            continue;
        }
        let mut writer = Writer::new();
        writer.put("name", &name);
        let mut size = 0;
        if !name_only {
            size = size_of(call, &name).await?;
            writer.put("sizeOnDisk", i64::try_from(size).unwrap_or(i64::MAX)).put("empty", false);
        }
        let document = writer.finish();
        if filter.matches(&document)? {
            total = total.saturating_add(size);
            databases.push(document);
        }
    }
    let mut writer = Writer::new();
    writer.array("databases", databases.iter().map(RawDocumentBuf::as_ref));
    if !name_only {
        writer.put("totalSize", i64::try_from(total).unwrap_or(i64::MAX));
        writer.put("totalSizeMb", i64::try_from(total / (1024 * 1024)).unwrap_or(i64::MAX));
    }
    Ok(writer.into())
}

fn may_see(call: &Call<'_>, database: &str) -> bool {
    let may = |action| guard::require(call.shared, call.client, call.request, action, database).is_ok();
    may(Action::ListDatabases) || may(Action::List)
}

async fn size_of(call: &Call<'_>, database: &str) -> CommandResult<u64> {
    let mut bytes: u64 = 0;
    for collection in call.store().list_collections(database).await? {
        let namespace = Namespace::new(database, collection.name)?;
        let stats = call.store().collection_stats(&namespace).await?;
        let indexes: u64 = stats.index_bytes.iter().map(|(_, bytes)| bytes).sum();
        bytes = bytes.saturating_add(stats.storage_bytes).saturating_add(indexes);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, insert, numbered};

    #[tokio::test]
    async fn databases_are_listed_with_sizes_and_with_filter() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "b", &numbered(1)).await;
        insert(&mut client, "a", &numbered(1)).await;
        let reply = client.run("admin", rawdoc! { "listDatabases": 1 }).await;
        let expected = rawdoc! {
            "databases": [{ "name": "d", "sizeOnDisk": 8392_i64, "empty": false }],
            "totalSize": 8392_i64, "totalSizeMb": 0_i64, "ok": 1.0,
        };
        assert_eq!(reply, expected);
        let reply =
            client.run("admin", rawdoc! { "listDatabases": 1, "nameOnly": true, "filter": { "name": "x" } }).await;
        assert_eq!(reply, rawdoc! { "databases": [], "ok": 1.0 });
    }
}
