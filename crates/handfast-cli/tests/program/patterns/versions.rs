//! `handfast versions`.

use bson::doc;
use handfast_patterns::{Error, VersionedTree, VersionedTreeOptions};
use serde_json::json;

use super::*;

const TREE: [&str; 4] = ["--collection", "items", "--root", "catalogue"];

fn arguments<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["versions"], command, &TREE].concat()
}

/// Three versions with a lamp of another price each, and a writer of a fourth one who died.
async fn filled(scratch: &Scratch) -> Result<()> {
    let store = Store::open(scratch).await?;
    let options = VersionedTreeOptions::new("catalogue");
    let tree = VersionedTree::open(store.shared(), place("items")?, store.sources.clone(), options).await?;
    for price in [30, 25, 20] {
        tree.change(|mut write| async move {
            write.put("lamp", doc! { "price": price }).await?;
            Ok::<_, Error>(write.with_root(doc! { "children": ["lamp"] }))
        })
        .await?;
    }
    tree.name(2, "spring").await?;
    let mut write = tree.begin().await?;
    write.put("lamp", doc! { "price": 1 }).await?;
    drop((write, tree));
    store.close().await
}

#[tokio::test]
async fn versions_are_seen_compared_and_exported() -> Result<()> {
    let scratch = Scratch::new("versions")?;
    filled(&scratch).await?;
    let status = report(&scratch, &arguments(&["status", "--lease", "1ms"]))?;
    let counts = ["newest", "versions", "writing", "silent", "pins"].map(|count| status[count].as_u64());
    assert_eq!(counts, [3, 3, 1, 1, 1].map(Some), "{status}");
    let (lines, _) = json(&scratch, &arguments(&["list"]))?;
    let numbers: Vec<_> = lines.iter().map(|line| line["version"].as_i64()).collect();
    assert_eq!((numbers, &lines[1]["names"]), (vec![Some(3), Some(2), Some(1)], &json!(["spring"])));
    let (lines, _) = json(&scratch, &arguments(&["list", "--writing"]))?;
    assert_eq!(lines[0]["version"], 4);
    assert!(text(&scratch, &arguments(&["show", "2"]))?.contains("version 2, made from 1"));
    assert_one_line(&output(&scratch, &arguments(&["show", "4"]))?, 1, "version 4 is being written");
    assert_one_line(&output(&scratch, &arguments(&["show", "9"]))?, 1, "there is no version 9 of catalogue");
    let (lines, _) = json(&scratch, &arguments(&["diff", "1", "3"]))?;
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["before"], &lines[0]["after"]), (&json!({ "price": 30 }), &json!({ "price": 20 })));
    let (lines, _) = json(&scratch, &arguments(&["export"]))?;
    let content: Vec<_> = lines.iter().map(|line| &line["content"]).collect();
    assert_eq!(content, [&json!({ "children": ["lamp"] }), &json!({ "price": 20 })]);
    Ok(())
}

#[tokio::test]
async fn what_was_left_behind_is_swept_and_old_versions_are_pruned() -> Result<()> {
    let scratch = Scratch::new("versions-sweep")?;
    filled(&scratch).await?;
    let (lines, _) = json(&scratch, &arguments(&["sweep", "--dry-run", "--lease", "1ms"]))?;
    assert_eq!((lines.len(), &lines[0]["item"], &lines[0]["version"]), (1, &json!("lamp"), &json!(4)));
    assert_one_line(&output(&scratch, &arguments(&["sweep"]))?, 2, "this needs --lease");
    assert_one_line(&output(&scratch, &arguments(&["sweep", "--lease", "1ms"]))?, 2, "this needs --pin-lease");
    let leases = ["--lease", "1ms", "--pin-lease", "10m"];
    assert_eq!(report(&scratch, &arguments(&[&["sweep"], &leases[..]].concat()))?["done"], 1);
    assert_eq!(report(&scratch, &arguments(&["status"]))?["writing"], 0);

    let planned = report(&scratch, &arguments(&["prune", "--keep-last", "1", "--dry-run"]))?;
    assert_eq!((&planned["versions"], &planned["kept"]), (&json!([1]), &json!([2, 3])), "spring stays");
    report(&scratch, &arguments(&["prune", "--keep-last", "1", "--pin-lease", "10m"]))?;
    let (lines, _) = json(&scratch, &arguments(&["list"]))?;
    assert_eq!(lines.len(), 2);
    let gone = output(&scratch, &arguments(&["diff", "1", "3"]))?;
    assert_one_line(&gone, 1, "version 1 of \"catalogue\" is gone: it was pruned");
    Ok(())
}
