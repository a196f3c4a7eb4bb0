use std::time::Duration;

use bson::rawdoc;

use crate::testing::{TestServer, batch, cursor_id, insert, lsid, numbered};

#[tokio::test]
async fn the_batches_of_a_cursor_hold_all_documents() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(250)).await;
    let first = client.run("d", rawdoc! { "find": "c" }).await;
    assert_eq!(batch(&first).len(), 101);
    let id = cursor_id(&first);
    assert_ne!(id, 0);
    let second = client.run("d", rawdoc! { "getMore": id, "collection": "c", "batchSize": 100 }).await;
    assert_eq!((batch(&second).len(), cursor_id(&second)), (100, id));
    let third = client.run("d", rawdoc! { "getMore": id, "collection": "c" }).await;
    assert_eq!((batch(&third).len(), cursor_id(&third)), (49, 0));
    let all = [batch(&first), batch(&second), batch(&third)].concat();
    assert_eq!(all, numbered(250));
    let expected = (43, "CursorNotFound".to_owned(), format!("cursor id {id} not found"));
    assert_eq!(client.refused("d", rawdoc! { "getMore": id, "collection": "c" }).await, expected);
}

#[tokio::test]
async fn invalid_arguments_are_refused() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (body, code) in [
        (rawdoc! { "getMore": "x", "collection": "c" }, 14),
        (rawdoc! { "getMore": 1_i64 }, 40_414),
        (rawdoc! { "getMore": 1_i64, "collection": "c", "maxTimeMS": 1 }, 43),
    ] {
        assert_eq!(client.refused("d", body.clone()).await.0, code, "{body:?}");
    }
}

#[tokio::test]
async fn an_idle_cursor_is_closed_unless_it_has_no_timeout() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let idle = cursor_id(&client.run("d", rawdoc! { "find": "c", "batchSize": 1 }).await);
    server.advance(Duration::from_secs(601));
    assert_eq!(client.refused("d", rawdoc! { "getMore": idle, "collection": "c" }).await.0, 43);
    let forever = rawdoc! { "find": "c", "batchSize": 1, "noCursorTimeout": true };
    let forever = cursor_id(&client.run("d", forever).await);
    server.advance(Duration::from_secs(601));
    assert_eq!(batch(&client.run("d", rawdoc! { "getMore": forever, "collection": "c" }).await).len(), 9);
}

#[tokio::test]
async fn a_cursor_belongs_to_its_session_and_ends_with_it() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let find = rawdoc! { "find": "c", "batchSize": 1, "lsid": lsid(1) };
    let cursor = cursor_id(&client.run("d", find).await);
    assert_eq!(client.refused("d", rawdoc! { "getMore": cursor, "collection": "c" }).await.0, 50_737);
    client.run("admin", rawdoc! { "endSessions": [lsid(1)] }).await;
    let more = rawdoc! { "getMore": cursor, "collection": "c", "lsid": lsid(1) };
    assert_eq!(client.refused("d", more).await.0, 43);
}
