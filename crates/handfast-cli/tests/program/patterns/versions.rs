//! `handfast versions`.

use anyhow::Result;
use bson::{doc, rawdoc};
use handfast_patterns::{Error, VersionedTree, VersionedTreeOptions};
use handfast_store::StoreExt;
use serde_json::json;

use super::{Ground, Store, json, namespace, output, report, text};
use crate::support::assert_one_line;

const TREE: [&str; 4] = ["--collection", "items", "--root", "catalogue"];

fn arguments<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["versions"], command, &TREE].concat()
}

/// Commits three versions, each with another price of a lamp, and begins a fourth one, whose writer
/// dies.
async fn filled(ground: &Ground) -> Result<()> {
    let store = Store::open(ground).await?;
    let options = VersionedTreeOptions::new("catalogue");
    let tree = VersionedTree::open_with(store.shared(), namespace("items")?, store.sources.clone(), options).await?;
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
    Ground::each("versions", async |ground| {
        filled(&ground).await?;
        let status = report(&ground, &arguments(&["status", "--lease", "1ms"]))?;
        let counts = ["newest", "versions", "writing", "silent", "pins"].map(|count| status[count].as_u64());
        assert_eq!(counts, [3, 3, 1, 1, 1].map(Some), "{status}");
        let (lines, _) = json(&ground, &arguments(&["list"]))?;
        let numbers: Vec<_> = lines.iter().map(|line| line["version"].as_i64()).collect();
        assert_eq!((numbers, &lines[1]["names"]), (vec![Some(3), Some(2), Some(1)], &json!(["spring"])));
        let (lines, _) = json(&ground, &arguments(&["list", "--writing"]))?;
        assert_eq!(lines[0]["version"], 4);
        assert!(text(&ground, &arguments(&["show", "2"]))?.contains("version 2, made from 1"));
        assert_one_line(&output(&ground, &arguments(&["show", "4"]))?, 1, "version 4 is being written");
        assert_one_line(&output(&ground, &arguments(&["show", "9"]))?, 1, "there is no version 9 of catalogue");
        let (lines, _) = json(&ground, &arguments(&["diff", "1", "3"]))?;
        assert_eq!(lines.len(), 1);
        assert_eq!((&lines[0]["before"], &lines[0]["after"]), (&json!({ "price": 30 }), &json!({ "price": 20 })));
        let (lines, _) = json(&ground, &arguments(&["export"]))?;
        let content: Vec<_> = lines.iter().map(|line| &line["content"]).collect();
        assert_eq!(content, [&json!({ "children": ["lamp"] }), &json!({ "price": 20 })]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_tree_with_a_lost_child_is_found() -> Result<()> {
    Ground::each("versions-verify", async |ground| {
        filled(&ground).await?;
        let verified = report(&ground, &arguments(&["verify", "--children", "children"]))?;
        assert_eq!((&verified["versions"], &verified["nodes"], &verified["count"]), (&json!(3), &json!(3), &json!(0)));
        assert!(text(&ground, &arguments(&["verify"]))?.contains("the versions are as they must be"));
        let store = Store::open(&ground).await?;
        store.shared().delete_one(&namespace("items")?, rawdoc! { "itemId": "lamp", "version": 1_i64 }).await?;
        store.close().await?;
        let (found, code) = json(&ground, &arguments(&["verify", "--children", "children"]))?;
        assert_eq!((found[0]["count"].as_u64(), code), (Some(1), Some(3)), "{found:?}");
        let text = "version 1 has no item \"lamp\", to which \"catalogue\" refers";
        assert_eq!(found[0]["findings"], json!([text]));
        Ok(())
    })
    .await
}

/// A check that has read nothing does not report that all is well.
#[tokio::test]
async fn what_is_not_there_is_not_verified() -> Result<()> {
    Ground::each("versions-nothing", async |ground| {
        filled(&ground).await?;
        let nothing = ["--collection", "items", "--root", "nothing"];
        let commands: [&[&str]; 8] = [
            &["status"],
            &["list"],
            &["verify"],
            &["export"],
            &["sweep", "--lease", "1ms", "--pin-lease", "10m"],
            &["prune", "--keep-last", "1", "--pin-lease", "10m"],
            &["tidy"],
            &["forget", "--older", "0s"],
        ];
        for command in commands {
            let refused = output(&ground, &[&["versions"], command, &nothing].concat())?;
            assert_one_line(&refused, 1, "--root: there is no tree nothing in db.items; there is catalogue");
        }
        let (found, code) = json(&ground, &arguments(&["verify", "--children", "kids"]))?;
        let unseen = "no root and no node has kids: whether children are missing could not be looked at";
        assert_eq!((code, &found[0]["findings"]), (Some(3), &json!([unseen])), "{found:?}");
        for (flag, name) in [("--writes", "nowhere"), ("--pins", "nowhere")] {
            let refused = output(&ground, &arguments(&["status", flag, name]))?;
            assert_one_line(&refused, 1, &format!("{flag}: there is no collection 'nowhere' in db"));
        }
        // A tree whose first version is being written exists, and has nothing to verify.
        let store = Store::open(&ground).await?;
        let options = VersionedTreeOptions::new("prices");
        let tree =
            VersionedTree::open_with(store.shared(), namespace("items")?, store.sources.clone(), options).await?;
        drop((tree.begin().await?, tree));
        store.close().await?;
        let prices = ["--collection", "items", "--root", "prices"];
        assert_eq!(report(&ground, &[&["versions", "status"], &prices[..]].concat())?["writing"], 1);
        let refused = output(&ground, &[&["versions", "verify"], &prices[..]].concat())?;
        assert_one_line(&refused, 1, "prices has no version that can be read: nothing was verified");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_was_left_behind_is_swept_and_old_versions_are_pruned() -> Result<()> {
    Ground::each_and_front("versions-sweep", async |ground| {
        filled(&ground).await?;
        let (lines, _) = json(&ground, &arguments(&["sweep", "--dry-run", "--lease", "1ms"]))?;
        assert_eq!((lines.len(), &lines[0]["item"], &lines[0]["version"]), (1, &json!("lamp"), &json!(4)));
        assert_one_line(&output(&ground, &arguments(&["sweep"]))?, 2, "--lease is missing");
        assert_one_line(&output(&ground, &arguments(&["sweep", "--lease", "1ms"]))?, 2, "--pin-lease is missing");
        let leases = ["--lease", "1ms", "--pin-lease", "10m"];
        assert_eq!(report(&ground, &arguments(&[&["sweep"], &leases[..]].concat()))?["done"], 1);
        assert_eq!(report(&ground, &arguments(&["status"]))?["writing"], 0);

        let planned = report(&ground, &arguments(&["prune", "--keep-last", "1", "--dry-run"]))?;
        assert_eq!((&planned["versions"], &planned["kept"]), (&json!([1]), &json!([2, 3])), "spring stays");
        report(&ground, &arguments(&["prune", "--keep-last", "1", "--pin-lease", "10m"]))?;
        let (lines, _) = json(&ground, &arguments(&["list"]))?;
        assert_eq!(lines.len(), 2);
        let gone = output(&ground, &arguments(&["diff", "1", "3"]))?;
        assert_one_line(&gone, 1, "version 1 of \"catalogue\" is gone: it was pruned");
        for (before, after, missing) in [("3", "9", 9), ("9", "3", 9), ("3", "4", 4)] {
            let missing = format!("there is no version {missing} of \"catalogue\"");
            assert_one_line(&output(&ground, &arguments(&["diff", before, after]))?, 1, &missing);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn versions_are_named_tidied_and_forgotten() -> Result<()> {
    Ground::each("versions-named", async |ground| {
        filled(&ground).await?;
        assert_eq!(report(&ground, &arguments(&["name", "first", "1"]))?["version"], 1);
        let prune = ["prune", "--keep-last", "1", "--lease", "60s", "--pin-lease", "60s"];
        report(&ground, &arguments(&prune))?;
        let (lines, _) = json(&ground, &arguments(&["list"]))?;
        let readable =
            |version: i64| lines.iter().any(|line| line["version"] == version && line["state"] == "committed");
        assert_eq!([1, 2, 3].map(readable), [true, true, true], "the first two have names: {lines:?}");
        assert!(text(&ground, &arguments(&["name", "first", "--remove"]))?.contains("named first any more"));
        assert_one_line(
            &output(&ground, &arguments(&["name", "first", "--remove"]))?,
            1,
            "no version of catalogue is named first",
        );
        assert_one_line(
            &output(&ground, &arguments(&["name", "ninth", "9"]))?,
            1,
            "there is no version 9 of catalogue",
        );
        report(&ground, &arguments(&prune))?;
        assert_one_line(
            &output(&ground, &arguments(&["name", "first", "1"]))?,
            1,
            "there is no version 1 of catalogue",
        );
        assert_eq!(report(&ground, &arguments(&["tidy"]))?["done"], 0);
        assert_eq!(report(&ground, &arguments(&["forget", "--older", "1h"]))?["done"], 0);
        assert_eq!(report(&ground, &arguments(&["forget", "--older", "0s"]))?["done"], 1, "the place of version 1");
        Ok(())
    })
    .await
}

/// Recorded settings need no flags, and flags that contradict them are refused.
#[tokio::test]
async fn a_tree_is_looked_at_by_its_record() -> Result<()> {
    Ground::each("versions-recorded", async |ground| {
        let store = Store::open(&ground).await?;
        let mut options = VersionedTreeOptions::new("catalogue");
        options.children = Some("children".to_owned());
        options.pins = Some(namespace("held")?);
        options.fields.version = "number".to_owned();
        let tree =
            VersionedTree::open_with(store.shared(), namespace("items")?, store.sources.clone(), options).await?;
        tree.change(|write| async move { Ok::<_, Error>(write.with_root(doc! { "children": ["lost"] })) }).await?;
        tree.name(1, "first").await?;
        drop(tree);
        store.close().await?;
        assert_eq!(report(&ground, &arguments(&["status"]))?["pins"], 1);
        for flags in [&[][..], &["--children", "children"], &["--field", "version=number"]] {
            let (found, code) = json(&ground, &arguments(&[&["verify"], flags].concat()))?;
            assert_eq!((found[0]["count"].as_u64(), code), (Some(1), Some(3)), "{flags:?} {found:?}");
        }
        for (flags, said) in [
            (["--children", "kids"], "children is recorded as \"children\", given as \"kids\""),
            (["--pins", "items"], "pins.collection is recorded as \"held\", given as \"items\""),
            (["--field", "version=of"], "fields.version is recorded as \"number\", given as \"of\""),
        ] {
            let refused = output(&ground, &arguments(&[&["verify"], &flags[..]].concat()))?;
            assert_one_line(&refused, 2, "db.items.settings records other settings: ");
            assert!(String::from_utf8_lossy(&refused.stderr).contains(said), "{refused:?}");
        }
        Ok(())
    })
    .await
}
