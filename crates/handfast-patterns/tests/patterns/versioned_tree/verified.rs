//! Each inconsistency is found by its name, and nothing else is.

use bson::{DateTime, Document, RawDocumentBuf, doc, rawdoc};
use handfast_patterns::versioned_tree::{Finding, VersionedTree};
use handfast_patterns::{Error, VersionedTreeOptions};
use handfast_store::StoreExt;

use super::{drop_indexes, open};
use crate::crash::World;

async fn plant(world: &World, document: Document) {
    world.store.insert_one(&world.namespace("items"), RawDocumentBuf::try_from(&document).unwrap()).await.unwrap();
}

/// Inserts a root.
async fn root(world: &World, version: i64, base: i64, more: Document) {
    let mut root = doc! {
        "_id": format!("root {version}"), "itemId": "tree", "version": version, "tree": "tree", "versionState": "committed",
        "versionBase": base, "versionTs": DateTime::from_millis(0),
    };
    root.extend(more);
    plant(world, root).await;
}

async fn node(world: &World, id: &str, item: &str, version: i64, more: Document) {
    let mut node = doc! { "_id": id, "itemId": item, "version": version, "tree": "tree" };
    node.extend(more);
    plant(world, node).await;
}

async fn found(world: &World, children: Option<&str>) -> Vec<Finding> {
    let options = VersionedTreeOptions::new("tree");
    let tree = VersionedTree::attach(world.store.clone(), world.namespace("items"), world.sources.clone(), options);
    tree.await.unwrap().verify(children, |_| ()).await.unwrap().findings.to_vec()
}

#[tokio::test]
async fn each_finding_has_its_name() {
    let world = World::in_memory();
    open(&world).await.unwrap();
    root(&world, 1, 0, doc! { "children": ["a"] }).await;
    root(&world, 2, 1, doc! { "versionState": "abandoned" }).await;
    root(&world, 3, 1, doc! { "versionGaps": true, "children": "a" }).await;
    node(&world, "a1", "a", 1, doc! { "below": { "items": ["b"] } }).await;
    node(&world, "b1", "b", 1, doc! {}).await;
    assert_eq!(found(&world, None).await, []);
    assert_eq!((found(&world, Some("children")).await, found(&world, Some("below.items")).await), (vec![], vec![]));

    root(&world, 4, 1, doc! { "versionGaps": true }).await;
    assert_eq!(found(&world, None).await, [Finding::Lost { version: 4, base: 1, between: 3 }]);
    let gone = world.store.delete_one(&world.namespace("items"), rawdoc! { "_id": "root 4" }).await.unwrap();
    assert!(gone);

    root(&world, 5, 2, doc! { "versionGaps": true }).await;
    root(&world, 6, 6, doc! { "versionGaps": true }).await;
    root(&world, 7, 6, doc! {}).await;
    drop_indexes(&world).await;
    node(&world, "a6", "a", 6, doc! {}).await;
    node(&world, "a6 again", "a", 6, doc! {}).await;
    let expected = [
        Finding::Base { version: 5, base: 2 },
        Finding::Base { version: 6, base: 6 },
        Finding::Gaps { version: 7, abandoned: 2 },
        Finding::Twice { item: "a".into(), version: 6 },
        Finding::NoUniqueIndex,
    ];
    assert_eq!(found(&world, None).await, expected);
}

#[tokio::test]
async fn an_item_that_is_referred_to_is_in_the_version() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    for child in ["a", "b"] {
        tree.change(|mut write| async move {
            write.put("a", doc! { "children": [child, "tree"] }).await?;
            Ok::<_, Error>(write.with_root(doc! { "children": ["a"] }))
        })
        .await
        .unwrap();
    }
    let lost =
        |version, parent: &str, item: &str| Finding::Missing { version, parent: parent.into(), item: item.into() };
    // Nodes may refer to the root, too.
    assert_eq!(found(&world, Some("children")).await, [lost(2, "a", "b")]);
    // If no node has the field, no reference is found.
    assert_eq!(found(&world, Some("others")).await, [Finding::Unseen { children: "others".to_owned() }]);
}
