use std::sync::Arc;

use bson::rawdoc;
use handfast_store::{CollectionCheck, IndexCheck};

use crate::lock::lock;
use crate::options::Options;
use crate::testing::{AdjustableStore, ReplyFields, TestServer, insert, numbered};

#[tokio::test]
async fn a_sound_collection_is_valid() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let reply = client.run("d", rawdoc! { "validate": "c" }).await;
    assert_eq!((reply.flag("valid"), reply.int("nrecords")), (true, 3));
    assert_eq!(reply.get_document("keysPerIndex").unwrap().int("_id_"), 3);
    assert_eq!(client.refused("d", rawdoc! { "validate": "none" }).await.0, 26);
    for (full, background) in [(true, false), (false, true)] {
        let command = rawdoc! { "validate": "c", "full": full, "background": background };
        assert!(client.run("d", command).await.flag("valid"));
    }
    let both = rawdoc! { "validate": "c", "full": true, "background": true };
    assert_eq!(client.refused("d", both).await.0, 72);
}

#[tokio::test]
async fn an_index_that_contradicts_its_collection_is_not_valid() {
    let index = |name: &str, keys, valid| IndexCheck { name: name.to_owned(), keys, valid };
    let check = CollectionCheck {
        documents: 3,
        indexes: vec![index("_id_", 3, true), index("a_1", 2, false)],
        errors: vec!["index a_1 of d.c: an entry is missing".to_owned()],
        documents_damaged: 0,
    };
    let store = AdjustableStore::default();
    *lock(&store.check) = Some(check);
    let mut server = TestServer::new(Arc::new(store), Options::default());
    let reply = server.connect().run("d", rawdoc! { "validate": "c", "full": true }).await;
    let expected = rawdoc! {
        "ns": "d.c", "nInvalidDocuments": 0, "nrecords": 3, "nIndexes": 2, "keysPerIndex": { "_id_": 3, "a_1": 2 },
        "indexDetails": { "_id_": { "valid": true }, "a_1": { "valid": false } },
        "valid": false, "repaired": false, "warnings": [], "errors": ["index a_1 of d.c: an entry is missing"], "ok": 1.0,
    };
    assert_eq!(reply, expected);
}
