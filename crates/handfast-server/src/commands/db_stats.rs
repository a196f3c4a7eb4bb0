//! `dbStats`: returns counts and sizes of a database.

use handfast_mql::Code;
use handfast_store::Namespace;

use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "dbStats",
    aliases: &["dbstats"],
    help: "tells counts and sizes of a database",
    access: Access::Read,
    needs: Needs::Database(Action::Statistics),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("dbStats");
    let scale = scale(&mut arguments)?;
    if arguments.lenient_flag("freeStorage")? == Some(true) {
        // A backend does not tell how much of its files is unused.
        let text = "the option 'dbStats.freeStorage' is not supported";
        return Err(CommandError::new(Code::NotImplemented, text));
    }
    arguments.finish()?;
    let database = call.request.database;
    let (mut collections, mut indexes, mut objects) = (0_i64, 0_i64, 0_u64);
    let (mut data, mut storage, mut index_bytes) = (0_u64, 0_u64, 0_u64);
    let mut views = 0_i64;
    for collection in call.store().list_collections(database).await? {
        if collection.options.view.is_some() {
            views += 1;
            continue;
        }
        let stats = call.store().collection_stats(&Namespace::new(database, collection.name)?).await?;
        collections += 1;
        indexes += i64::try_from(stats.index_bytes.len()).unwrap_or(i64::MAX);
        objects += stats.count;
        data += stats.size_bytes;
        storage += stats.storage_bytes;
        index_bytes += stats.index_bytes.iter().map(|(_, bytes)| bytes).sum::<u64>();
    }
    let mut writer = Writer::new();
    writer.put("db", database).put("collections", collections).put("views", views).put("objects", whole(objects));
    writer.put("avgObjSize", average(data, objects)).put("dataSize", scaled(data, scale));
    writer.put("storageSize", scaled(storage, scale)).put("indexes", indexes);
    writer.put("indexSize", scaled(index_bytes, scale)).put("totalSize", scaled(storage + index_bytes, scale));
    writer.put("scaleFactor", i64::try_from(scale).unwrap_or(i64::MAX));
    Ok(writer.into())
}

/// Reads `scale`, by which sizes are divided.
pub(super) fn scale(arguments: &mut Arguments<'_>) -> CommandResult<u64> {
    match arguments.integer("scale")? {
        None => Ok(1),
        Some(scale) => u64::try_from(scale).ok().filter(|scale| *scale > 0).ok_or_else(|| {
            CommandError::new(Code::BadValue, format!("BSON field 'scale' value must be >= 1, actual value '{scale}'"))
        }),
    }
}

/// Divides a size of a database; MongoDB returns it as a double.
fn scaled(bytes: u64, scale: u64) -> f64 {
    as_double(bytes / scale)
}

fn average(bytes: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { as_double(bytes) / as_double(count) }
}

#[expect(clippy::cast_precision_loss, reason = "sizes are shown, not counted with")]
fn as_double(number: u64) -> f64 {
    number as f64
}

pub(super) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{ReplyFields, TestServer, insert, numbered};

    #[tokio::test]
    async fn sizes_are_divided_by_the_scale() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(3)).await;
        let stats = client.run("d", rawdoc! { "dbStats": 1, "scale": 2 }).await;
        assert_eq!((stats.long("objects"), stats.double("dataSize")), (3, 21.0));
    }

    #[tokio::test]
    async fn arguments_are_checked() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        for (command, code) in [
            (rawdoc! { "dbStats": 1, "freeStorage": 0 }, 0),
            (rawdoc! { "dbStats": 1, "freeStorage": false, "scale": 1024.9 }, 0),
            (rawdoc! { "dbStats": 1, "freeStorage": 1 }, 238),
            (rawdoc! { "dbStats": 1, "freeStorage": "x" }, 14),
            (rawdoc! { "dbStats": 1, "scale": 0 }, 2),
            (rawdoc! { "dbStats": 1, "scale": -1 }, 2),
            (rawdoc! { "dbStats": 1, "scale": "x" }, 14),
            (rawdoc! { "dbStats": 1, "x": 1 }, 40_415),
            (rawdoc! { "collStats": "c", "scale": 0 }, 2),
            (rawdoc! { "collStats": "c", "scale": "x" }, 14),
            (rawdoc! { "collStats": "c", "x": 1 }, 40_415),
            (rawdoc! { "collStats": 1 }, 73),
        ] {
            let reply = client.run("d", command.clone()).await;
            assert_eq!(reply.get_i32("code").unwrap_or_default(), code, "{command:?}: {reply:?}");
        }
    }
}
