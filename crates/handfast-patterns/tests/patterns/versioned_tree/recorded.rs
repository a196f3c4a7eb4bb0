//! Every process reads the trees of a collection by the settings that their nodes were written by.

use std::sync::Arc;

use bson::doc;
use handfast_patterns::versioned_tree::{TreeFields, VersionedTree};
use handfast_patterns::{Error, Result, VersionedTreeOptions};

use super::HOUR;
use crate::crash::World;

fn options() -> VersionedTreeOptions {
    VersionedTreeOptions { children: Some("children".to_owned()), ..VersionedTreeOptions::new("tree") }
}

async fn opened(world: &World, options: VersionedTreeOptions) -> Result<VersionedTree> {
    VersionedTree::open_with(Arc::clone(&world.store), world.namespace("items"), world.sources.clone(), options).await
}

async fn attached(world: &World, options: VersionedTreeOptions) -> Result<VersionedTree> {
    VersionedTree::attach(Arc::clone(&world.store), world.namespace("items"), world.sources.clone(), options).await
}

async fn recorded(world: &World) -> Option<VersionedTreeOptions> {
    VersionedTreeOptions::recorded(Arc::clone(&world.store), &world.namespace("items"), "tree").await.unwrap()
}

async fn first_version(tree: &VersionedTree) {
    let change = |mut write: handfast_patterns::versioned_tree::Write| async move {
        write.put("a", doc! {}).await?;
        Ok::<_, Error>(write.with_root(doc! { "children": ["a", "lost"] }))
    };
    assert_eq!(tree.change(change).await.unwrap(), 1);
}

/// The error names each setting, as recorded and as given.
#[tokio::test]
async fn other_settings_are_refused_by_name() {
    let world = World::in_memory();
    attached(&world, options()).await.unwrap();
    assert!(recorded(&world).await.is_none(), "a tree that is attached records nothing");
    opened(&world, options()).await.unwrap();
    let fields = TreeFields { item: "item".to_owned(), ..TreeFields::default() };
    for (other, text) in [
        (
            VersionedTreeOptions { writes: Some(world.namespace("writes")), ..options() },
            "writes.collection is recorded as \"items.writes\", given as \"writes\"",
        ),
        (
            VersionedTreeOptions { pins: Some(world.namespace("pins")), ..options() },
            "pins.collection is recorded as \"items.pins\", given as \"pins\"",
        ),
        (VersionedTreeOptions::new("tree"), "children is recorded as \"children\", given as nothing"),
        (VersionedTreeOptions { fields, ..options() }, "fields.itemId is recorded as \"itemId\", given as \"item\""),
    ] {
        for refused in [opened(&world, other.clone()).await.err(), attached(&world, other).await.err()] {
            let error = refused.expect("other settings");
            assert!(matches!(error, Error::OtherSettings { .. }) && error.to_string().contains(text), "{error}");
        }
    }
    // Each process chooses its leases; default names may be given explicitly; another tree of the collection has the
    // same record.
    let own = VersionedTreeOptions { lease: HOUR, pin_lease: HOUR, root: "other".into(), ..options() };
    opened(&world, VersionedTreeOptions { writes: Some(world.namespace("items.writes")), ..own }).await.unwrap();
}

/// A tool without the application's settings opens a tree by its record, and verifies it by the recorded field.
#[tokio::test]
async fn a_tree_is_opened_by_its_record() {
    let world = World::in_memory();
    let fields = TreeFields { version: "number".to_owned(), ..TreeFields::default() };
    let options = VersionedTreeOptions { fields, pins: Some(world.namespace("held")), ..options() };
    first_version(&opened(&world, options).await.unwrap()).await;
    let other = attached(&world, recorded(&world).await.expect("recorded")).await.unwrap();
    assert_eq!(other.newest().await.unwrap().map(|newest| newest.version()), Some(1));
    assert_eq!(other.verify(None, |_| ()).await.unwrap().findings.count(), 1, "a child is lost");
    let error = other.verify(Some("kids"), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("have their children in children, not in kids"), "{error}");
}

#[tokio::test]
async fn settings_are_not_changed_under_the_nodes_that_they_are_the_meaning_of() {
    let world = World::in_memory();
    let change = async |options: &VersionedTreeOptions| {
        VersionedTree::change_settings(Arc::clone(&world.store), world.namespace("items"), options).await
    };
    let fields = TreeFields { item: "item".to_owned(), ..TreeFields::default() };
    let renamed = VersionedTreeOptions { fields, ..options() };
    opened(&world, options()).await.unwrap();
    change(&renamed).await.unwrap();
    change(&options()).await.unwrap();
    let tree = opened(&world, options()).await.unwrap();
    first_version(&tree).await;
    tree.name(1, "first").await.unwrap();
    let moved = VersionedTreeOptions { pins: Some(world.namespace("held")), ..options() };
    for (other, why) in
        [(&renamed, "has nodes by other names of fields"), (&moved, "has documents of writers, readers")]
    {
        let error = change(other).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    tree.unname("first").await.unwrap();
    change(&moved).await.unwrap();
    change(&VersionedTreeOptions { children: None, ..moved.clone() }).await.unwrap();
    assert!(opened(&world, moved).await.is_err());
}
