//! `killCursors`: closes cursors.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, InTransaction, Properties};
use crate::auth::guard::Needs;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "killCursors",
    aliases: &[],
    help: "closes cursors",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties { in_transaction: InTransaction::NotFirst, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("killCursors");
    let RawBsonRef::String(collection) = call.request.subject else {
        let text = "BSON field 'killCursors.killCursors' is the wrong type, expected type 'string'";
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let cursors = arguments.array("cursors")?;
    let cursors = arguments.required("cursors", cursors)?;
    arguments.finish()?;
    let namespace = format!("{}.{collection}", call.request.database);
    let (mut killed, mut unknown) = (Vec::new(), Vec::new());
    for id in cursors {
        let Some(id) = id?.as_i64() else {
            let text = "BSON field 'killCursors.cursors' holds the wrong type, expected type 'long'";
            return Err(CommandError::new(Code::TypeMismatch, text));
        };
        let list = if call.shared.cursors.kill(id, &namespace, call.user_id()) { &mut killed } else { &mut unknown };
        list.push(id);
    }
    let none = || std::iter::empty::<i64>();
    let mut writer = Writer::new();
    writer.array("cursorsKilled", killed).array("cursorsNotFound", unknown);
    writer.array("cursorsAlive", none()).array("cursorsUnknown", none());
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bson::rawdoc;

    use crate::options::Options;
    use crate::testing::{AdjustableStore, TestServer, cursor_id, insert, numbered};

    #[tokio::test]
    async fn the_reply_lists_the_cursors_by_what_became_of_them() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(10)).await;
        let cursor = cursor_id(&client.run("d", rawdoc! { "find": "c", "batchSize": 1 }).await);
        let reply = client.run("d", rawdoc! { "killCursors": "c", "cursors": [cursor, 7_i64] }).await;
        let expected = rawdoc! {
            "cursorsKilled": [cursor], "cursorsNotFound": [7_i64], "cursorsAlive": [], "cursorsUnknown": [], "ok": 1.0,
        };
        assert_eq!(reply, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_getmore_whose_cursor_is_killed_meanwhile_fails() {
        let store = Arc::new(AdjustableStore::default());
        let mut server = TestServer::new(store.clone(), Options::default());
        let (mut client, mut admin) = (server.connect(), server.connect());
        let documents: Vec<_> = (0..5).map(|id| rawdoc! { "_id": id }).collect();
        let documents = bson::RawArrayBuf::from_iter(documents);
        client.run("d", rawdoc! { "insert": "c", "documents": documents }).await;
        let reply = client.run("d", rawdoc! { "find": "c", "batchSize": 2 }).await;
        let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        *store.page_delay.lock().unwrap() = Duration::from_secs(5);
        let killed = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            admin.run("d", rawdoc! { "killCursors": "c", "cursors": [id] }).await
        };
        let (reply, _) =
            tokio::join!(client.refused("d", rawdoc! { "getMore": id, "collection": "c", "batchSize": 1 }), killed);
        assert_eq!(reply.0, 237);
    }
}
