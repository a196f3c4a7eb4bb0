//! `top`: returns how often each collection was read and written, and the time it took.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::metrics::CountAndTime;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "top",
    aliases: &[],
    help: "tells how much each collection is used",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("top").finish()?;
    let mut writer = Writer::new();
    writer.begin_document("totals").put("note", "all times in microseconds");
    for (namespace, used) in call.shared.metrics.namespaces() {
        let (reads, writes) = (used.reads, used.writes);
        writer.begin_document(&namespace);
        let total = CountAndTime { count: reads.count + writes.count, time: reads.time + writes.time };
        put(&mut writer, "total", total);
        put(&mut writer, "readLock", reads);
        put(&mut writer, "writeLock", writes);
        writer.end();
    }
    writer.end();
    Ok(writer.into())
}

fn put(writer: &mut Writer, name: &str, used: CountAndTime) {
    writer.begin_document(name).put("time", i64::try_from(used.time.as_micros()).unwrap_or(i64::MAX));
    writer.put("count", i64::try_from(used.count).unwrap_or(i64::MAX)).end();
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{ReplyFields, TestServer, insert, numbered};

    #[tokio::test]
    async fn writes_are_counted_per_collection() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(3)).await;
        let top = client.run("admin", rawdoc! { "top": 1 }).await;
        let used = top.get_document("totals").unwrap().get_document("d.c").unwrap();
        assert_eq!(used.get_document("writeLock").unwrap().long("count"), 1);
    }
}
