//! Another program has altered roots, nodes and indexes: a sweep does no further damage, and a verification names it.

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use handfast_patterns::Error;
use handfast_patterns::versioned_tree::{Commit, Finding, VersionedTree, Write};
use handfast_store::StoreExt;

use super::{HOUR, all, drop_indexes, open};
use crate::crash::World;

/// Commits version 1 with `a 1, b 1`, version 2 with `a 2` and version 3 with `b 3`; returns a writer of version 4.
async fn three_versions(world: &World) -> (VersionedTree, Write) {
    let tree = open(world).await.unwrap();
    for (a, b) in [(Some(1), Some(1)), (Some(2), None), (None, Some(3))] {
        tree.change(|mut write| async move {
            for (item, number) in [("a", a), ("b", b)] {
                if let Some(number) = number {
                    write.put(item, doc! { "n": number }).await?;
                }
            }
            Ok::<_, Error>(write.with_root(doc! { "children": ["a", "b"] }))
        })
        .await
        .unwrap();
    }
    let write = tree.begin().await.unwrap();
    (tree, write)
}

async fn alter(world: &World, item: &str, version: i64, update: Document) {
    let update = RawDocumentBuf::try_from(&update).unwrap();
    let filter = rawdoc! { "itemId": item, "version": version };
    assert!(world.store.update_one(&world.namespace("items"), filter, update).await.unwrap().matched == 1);
}

async fn found(tree: &VersionedTree) -> Vec<String> {
    let verified = tree.verify(Some("children"), |_| ()).await.unwrap();
    verified.findings.iter().map(ToString::to_string).collect()
}

async fn swept_and_forgotten(world: &World, tree: &VersionedTree) {
    world.clock.advance(100 * HOUR);
    tree.sweep(10).await.unwrap();
    tree.forget(10).await.unwrap();
    tree.forget(10).await.unwrap();
}

#[tokio::test]
async fn a_sweep_leaves_nodes_of_a_version_that_was_marked_as_abandoned_by_hand() {
    // The next version has this one as its base, or has another base and no abandoned numbers.
    for base in [2, 1] {
        let world = World::in_memory();
        let (tree, write) = three_versions(&world).await;
        alter(&world, "tree", 2, doc! { "$set": { "versionState": "abandoned" } }).await;
        alter(&world, "tree", 3, doc! { "$set": { "versionBase": base } }).await;
        drop(write);
        world.clock.advance(HOUR);
        assert_eq!(tree.orphans(10).await.unwrap(), [], "{base}");
        swept_and_forgotten(&world, &tree).await;
        let lamp = tree.at(3).await.unwrap().unwrap().node("a").await.unwrap().unwrap();
        assert_eq!((lamp.version, lamp.content), (2, doc! { "n": 2 }), "{base}");
        alter(&world, "tree", 2, doc! { "$set": { "versionState": "committed" } }).await;
        alter(&world, "tree", 3, doc! { "$set": { "versionBase": 2 } }).await;
        assert_eq!(found(&tree).await, [""; 0], "nothing is lost");
    }
}

#[tokio::test]
async fn a_sweep_leaves_nodes_of_the_newest_version_whose_root_is_lost() {
    let world = World::in_memory();
    let (tree, mut write) = three_versions(&world).await;
    assert!(
        world
            .store
            .delete_one(&world.namespace("items"), rawdoc! { "_id": id_of(&world, "tree", 3).await })
            .await
            .unwrap()
    );
    assert_eq!(found(&tree).await, ["version 4 is being written on top of version 3, whose root is not there"]);
    assert_eq!(tree.orphans(10).await.unwrap(), []);
    assert!(write.renew().await.unwrap());
    tree.sweep(10).await.unwrap();
    let left = all(&world, "items").await;
    assert!(
        left.iter().any(|node| node.get_str("itemId").ok() == Some("b") && node.get_i64("version").ok() == Some(3))
    );
}

async fn id_of(world: &World, item: &str, version: i64) -> bson::oid::ObjectId {
    let found =
        world.store.find_one(&world.namespace("items"), rawdoc! { "itemId": item, "version": version }).await.unwrap();
    found.unwrap().get_object_id("_id").unwrap()
}

#[tokio::test]
async fn each_alteration_is_a_finding_and_none_hides_the_others() {
    let odd = [
        (
            "a",
            2,
            doc! { "$set": { "version": "2" } },
            "item \"a\" has a node whose version is \"2\", which is no number of a version",
        ),
        (
            "a",
            2,
            doc! { "$set": { "version": 2.5 } },
            "item \"a\" has a node whose version is 2.5, which is no number of a version",
        ),
        ("a", 2, doc! { "$unset": { "version": "" } }, "item \"a\" has a node whose version is missing"),
        (
            "tree",
            3,
            doc! { "$set": { "tree": "dog" } },
            "item \"tree\" of version 3 is of tree \"dog\", and not of this tree",
        ),
        (
            "a",
            2,
            doc! { "$set": { "tree": "dog" } },
            "item \"a\" of version 2 is of tree \"dog\", and not of this tree",
        ),
        ("a", 2, doc! { "$unset": { "tree": "" } }, "item \"a\" of version 2 is of no tree, and not of this tree"),
        ("tree", 2, doc! { "$set": { "versionState": "x" } }, "version 2 cannot be read: "),
        ("tree", 2, doc! { "$unset": { "versionTs": "" } }, "version 2 cannot be read: "),
        ("tree", 2, doc! { "$set": { "version": 2.5 } }, "item \"tree\" has a node whose version is 2.5"),
        ("tree", 3, doc! { "$set": { "children": 7 } }, "version 3 has no item 7, to which \"tree\" refers"),
        ("tree", 3, doc! { "$set": { "children": { "a": 1 } } }, "version 3 has no item { \"a\": 1 }"),
        ("tree", 3, doc! { "$set": { "children": [["a"]] } }, "version 3 has no item [\"a\"]"),
    ];
    for (item, version, update, finding) in odd {
        let world = World::in_memory();
        let (tree, write) = three_versions(&world).await;
        write.abandon().await.unwrap();
        assert_eq!(found(&tree).await, [""; 0]);
        // Another program inserts one after the first.
        let last =
            tree.change(|write| async move { Ok::<_, Error>(write.with_root(doc! { "children": ["a", "lost"] })) });
        assert_eq!(last.await.unwrap(), 5);
        alter(&world, item, version, update.clone()).await;
        let found = found(&tree).await;
        assert!(found.iter().any(|found| found.starts_with(finding)), "{update}: {found:?}");
        assert!(
            found.contains(&"version 5 has no item \"lost\", to which \"tree\" refers".to_owned()),
            "{update}: {found:?}"
        );
        // The sweep continues after it, too.
        tree.sweep(10).await.unwrap();
    }
}

#[tokio::test]
async fn an_index_that_is_gone_is_a_finding() {
    let world = World::in_memory();
    let (tree, _write) = three_versions(&world).await;
    drop_indexes(&world).await;
    let verified = tree.verify(None, |_| ()).await.unwrap();
    assert_eq!(verified.findings.to_vec(), [Finding::NoUniqueIndex]);
    tree.create_indexes().await.unwrap();
    assert!(tree.verify(None, |_| ()).await.unwrap().is_clean());
}

#[tokio::test]
async fn another_tree_of_the_collection_is_no_finding() {
    let world = World::in_memory();
    let (tree, _write) = three_versions(&world).await;
    let other = tree.of("other");
    let write = other.begin().await.unwrap();
    assert!(matches!(write.commit(doc! { "children": [] }).await.unwrap(), Commit::Committed { .. }));
    let mut first = tree.of("third").begin().await.unwrap();
    first.put("c", doc! {}).await.unwrap();
    assert_eq!(found(&tree).await, [""; 0]);
}
