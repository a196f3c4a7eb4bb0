use handfast::patterns::{Error as PatternError, VersionedTree, VersionedTreeOptions};
use handfast::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path()).await?;
    let items = Namespace::new("shop", "items")?;
    let options = VersionedTreeOptions::new("catalogue");
    let tree = VersionedTree::open(database.store(), items, options).await?;

    let mut versions = Vec::new();
    for price in [30, 25] {
        tree.change(|mut write| async move {
            write.put("lamp", doc! { "price": price }).await?;
            Ok::<_, PatternError>(write.with_root(doc! { "children": ["lamp"] }))
        })
        .await?;
        versions.extend(tree.newest().await?);
    }
    for catalogue in &versions {
        let lamp = catalogue.node("lamp").await?.expect("put above");
        println!("version {}: the lamp costs {}", catalogue.version(), lamp.content.get_i32("price")?);
    }
    Ok(())
}
