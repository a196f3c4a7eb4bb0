//! Keeps a product catalogue: categories and products change together, shops read an old version, and a dead editor leaves no trace.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::time::Duration;

use handfast::bson::Document;
use handfast::patterns::versioned_tree::{Commit, Keep, Snapshot};
use handfast::patterns::{Error as PatternError, VersionedTree, VersionedTreeOptions};
use handfast::prelude::*;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let options = VersionedTreeOptions { lease: Duration::from_millis(50), ..VersionedTreeOptions::new("catalogue") };
    let items = Namespace::new("shop", "items")?;
    let tree = VersionedTree::open(database.store(), items, options).await?;

    // The first version: products, their categories, and the root last.
    let first = tree
        .change(|mut write| async move {
            write.put_all([("lamp", product("Lamp", 30)), ("candle", product("Candle", 3))]).await?;
            write.put("light", doc! { "name": "Light", "children": ["lamp", "candle"] }).await?;
            Ok::<_, PatternError>(write.with_root(doc! { "children": ["light"] }))
        })
        .await?;
    let shop = tree.newest().await?.expect("committed above");
    assert!(tree.name(first, "spring").await?);

    // A category is split and a price changes in one atomic step.
    tree.change(|mut write| async move {
        write.put("lamp", product("Lamp", 25)).await?;
        write.put("wax", doc! { "name": "Wax", "children": ["candle"] }).await?;
        write.put("light", doc! { "name": "Light", "children": ["lamp"] }).await?;
        Ok::<_, PatternError>(write.with_root(doc! { "children": ["light", "wax"] }))
    })
    .await?;
    assert_eq!(lines(&shop).await?, ["Light", "  Lamp 30", "  Candle 3"], "the shop reads what it holds");
    let newest = tree.newest().await?.expect("committed above");
    assert_eq!(lines(&newest).await?, ["Light", "  Lamp 25", "Wax", "  Candle 3"]);

    // Of two concurrent editors one commits, and the other repeats its change on the new version.
    let (mut one, mut other) = (tree.begin().await?, tree.begin().await?);
    one.put("lamp", product("Lamp", 20)).await?;
    other.put("candle", product("Candle", 4)).await?;
    assert_eq!(one.with_same_root().commit().await?, Commit::Committed { version: 3 });
    assert_eq!(other.with_same_root().commit().await?, Commit::Conflict);

    // An editor dies after half of its work. The next version is another number, and nothing of this is in it.
    let mut dying = tree.begin().await?;
    dying.put("lamp", product("Lamp", 1)).await?;
    drop(dying);
    tree.change(|mut write| async move {
        write.put("candle", product("Candle", 4)).await?;
        Ok::<_, PatternError>(write.with_same_root())
    })
    .await?;
    let newest = tree.newest().await?.expect("committed above");
    assert_eq!(lines(&newest).await?, ["Light", "  Lamp 20", "Wax", "  Candle 4"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("orphans: {:?}", tree.orphans(10).await?);
    tree.sweep(100).await?;
    assert_eq!(tree.orphans(10).await?, []);

    // What changed since spring; and then only spring and the newest version are kept.
    for item in tree.diff(first, newest.version()).await? {
        println!(
            "{}: {:?} -> {:?}",
            item.item,
            item.before.map(|node| node.content),
            item.after.map(|node| node.content)
        );
    }
    tree.prune(Keep { last: 1, newer_than: None }, 100).await?;
    let kept: Vec<_> = tree.versions(10).await?.iter().map(|version| version.version).collect();
    assert_eq!(kept, [newest.version(), first]);
    assert_eq!(lines(&shop).await?, ["Light", "  Lamp 30", "  Candle 3"]);
    println!("the catalogue has {} versions", kept.len());
    Ok(())
}

fn product(name: &str, price: i32) -> Document {
    doc! { "name": name, "price": price }
}

/// The categories, each with its products, as a version has them.
async fn lines(catalogue: &Snapshot) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for category in catalogue.nodes(children(catalogue.root())).await? {
        lines.push(category.content.get_str("name")?.to_owned());
        for product in catalogue.nodes(children(&category.content)).await? {
            lines.push(format!("  {} {}", product.content.get_str("name")?, product.content.get_i32("price")?));
        }
    }
    Ok(lines)
}

fn children(node: &Document) -> Vec<handfast::bson::Bson> {
    node.get_array("children").cloned().unwrap_or_default()
}
