use bson::rawdoc;
use handfast_store::{DocumentStore, Insert, MemoryStore, Namespace, Sources, StoreExt};

use super::{NamespaceMapping, belongs_to_other_database, mapped};

fn named(database: &str, collection: &str) -> Namespace {
    Namespace::new(database, collection).expect("a valid name")
}

#[test]
fn collections_in_system_databases_are_mapped() {
    let check = |database: &str, collection: &str, expected: &str| {
        assert_eq!(mapped(named(database, collection)).expect("a valid name").to_string(), expected);
    };
    check("app", "orders", "app.orders");
    check("config", "transactions", "handfast.config.transactions");
    check("admin", "a.b", "handfast.admin.a.b");
    check("handfast", "oracle", "handfast.oracle");
    assert!(belongs_to_other_database("handfast", "config.transactions"));
    assert!(!belongs_to_other_database("handfast", "oracle") && !belongs_to_other_database("app", "config.x"));
    assert!(mapped(named("config", &"x".repeat(239))).is_ok());
    assert!(
        mapped(named("config", &"x".repeat(240))).is_err(),
        "the whole name and a database's are too long together"
    );
}

#[tokio::test]
async fn mapped_databases_are_listed_under_their_names() {
    let store = MemoryStore::new(Sources::seeded(1));
    let mapping = NamespaceMapping::new(store.clone());
    for (database, collection) in [("config", "transactions"), ("handfast", "oracle"), ("app", "c"), ("admin", "x.y")] {
        mapping
            .insert(Insert::new(named(database, collection), vec![rawdoc! { "_id": database }]))
            .await
            .expect("insert");
        let found = mapping.find_one(&named(database, collection), rawdoc! {}).await.expect("find");
        assert_eq!(found, Some(rawdoc! { "_id": database }));
    }
    assert_eq!(store.list_databases().await.expect("databases"), ["app", "handfast"]);
    assert_eq!(mapping.list_databases().await.expect("databases"), ["admin", "app", "config", "handfast"]);
    let names = async |database: &str| {
        let infos = mapping.list_collections(database).await.expect("collections");
        infos.into_iter().map(|info| info.name).collect::<Vec<_>>()
    };
    assert_eq!(names("handfast").await, ["oracle"]);
    assert_eq!(names("config").await, ["transactions"]);
    assert_eq!(names("admin").await, ["x.y"]);
    assert!(mapping.drop_database("config").await.expect("dropped"));
    assert!(!mapping.drop_database("config").await.expect("it was gone"));
    assert_eq!(mapping.list_databases().await.expect("databases"), ["admin", "app", "handfast"]);
    assert!(mapping.drop_database("handfast").await.expect("dropped"));
    assert_eq!(names("admin").await, ["x.y"], "that of another database stays");
}
