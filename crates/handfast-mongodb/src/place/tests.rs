use bson::rawdoc;
use handfast_store::{Insert, MemoryStore, Sources, StoreExt};

use super::*;

fn named(database: &str, collection: &str) -> Namespace {
    Namespace::new(database, collection).expect("a valid name")
}

#[test]
fn what_belongs_to_the_server_is_left_alone() {
    let check = |database: &str, collection: &str, expected: &str| {
        assert_eq!(kept(named(database, collection)).expect("a valid name").to_string(), expected);
    };
    check("app", "orders", "app.orders");
    check("config", "transactions", "handfast.config.transactions");
    check("admin", "a.b", "handfast.admin.a.b");
    check("handfast", "oracle", "handfast.oracle");
    assert!(is_of_another("handfast", "config.transactions"));
    assert!(!is_of_another("handfast", "oracle") && !is_of_another("app", "config.x"));
    assert!(kept(named("config", &"x".repeat(239))).is_ok());
    assert!(kept(named("config", &"x".repeat(240))).is_err(), "the whole name and a database's are too long together");
}

#[tokio::test]
async fn databases_look_as_if_they_were_there() {
    let store = MemoryStore::new(Sources::seeded(1));
    let placed = Placed::new(store.clone());
    for (database, collection) in [("config", "transactions"), ("handfast", "oracle"), ("app", "c"), ("admin", "x.y")] {
        placed
            .insert(Insert::new(named(database, collection), vec![rawdoc! { "_id": database }]))
            .await
            .expect("insert");
        let found = placed.find_one(&named(database, collection), rawdoc! {}).await.expect("find");
        assert_eq!(found, Some(rawdoc! { "_id": database }));
    }
    assert_eq!(store.list_databases().await.expect("databases"), ["app", "handfast"]);
    assert_eq!(placed.list_databases().await.expect("databases"), ["admin", "app", "config", "handfast"]);
    let names = async |database: &str| {
        let infos = placed.list_collections(database).await.expect("collections");
        infos.into_iter().map(|info| info.name).collect::<Vec<_>>()
    };
    assert_eq!(names("handfast").await, ["oracle"]);
    assert_eq!(names("config").await, ["transactions"]);
    assert_eq!(names("admin").await, ["x.y"]);
    assert!(placed.drop_database("config").await.expect("dropped"));
    assert!(!placed.drop_database("config").await.expect("it was gone"));
    assert_eq!(placed.list_databases().await.expect("databases"), ["admin", "app", "handfast"]);
    assert!(placed.drop_database("handfast").await.expect("dropped"));
    assert_eq!(names("admin").await, ["x.y"], "that of another database stays");
}
