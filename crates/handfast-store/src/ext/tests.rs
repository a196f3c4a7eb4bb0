use bson::rawdoc;
use handfast_mql::Code;

use crate::{DocumentStore, IndexSpec, MemoryStore, Namespace, Sources, StoreExt};

#[tokio::test]
async fn short_forms_have_the_effect_of_their_requests() {
    let store: std::sync::Arc<dyn DocumentStore> = std::sync::Arc::new(MemoryStore::new(Sources::seeded(1)));
    let c = Namespace::valid("d", "c");
    store.create_index(&c, IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "k": 1 }) }).await.expect("created");
    for n in 0..5 {
        store.insert_one(&c, rawdoc! { "_id": n, "k": n }).await.expect("inserted");
    }
    assert_eq!(store.insert_one(&c, rawdoc! { "_id": 0 }).await.expect_err("taken").code(), Code::DuplicateKey);
    assert_eq!(store.find_one(&c, rawdoc! { "k": 3 }).await.expect("found"), Some(rawdoc! { "_id": 3, "k": 3 }));
    assert_eq!(store.find_one(&c, rawdoc! { "k": 9 }).await.expect("none"), None);
    let taken = store.update_one(&c, rawdoc! { "_id": 1 }, rawdoc! { "$set": { "k": 2 } }).await;
    assert_eq!(taken.expect_err("taken").code(), Code::DuplicateKey);
    let all = store.update_many(&c, rawdoc! {}, rawdoc! { "$set": { "a": 1 } }).await.expect("changed");
    assert_eq!(all.modified, 5);
    let made = store.upsert_one(&c, rawdoc! { "_id": 9 }, rawdoc! { "$set": { "k": 9 } }).await.expect("made");
    assert_eq!(made.upserted, [(0, 9.into())]);
    assert!(store.delete_one(&c, rawdoc! { "_id": 9 }).await.expect("deleted"));
    assert!(!store.delete_one(&c, rawdoc! { "_id": 9 }).await.expect("gone"));
    assert_eq!(store.count_matching(&c, rawdoc! { "k": { "$gt": 1 } }).await.expect("counted"), 3);
    assert_eq!(store.delete_many(&c, rawdoc! {}).await.expect("deleted"), 5);
    assert_eq!(store.delete_many(&c, rawdoc! { "$x": 1 }).await.expect_err("refused").code(), Code::BadValue);
}
