//! `handfast sync`.

use bson::{doc, rawdoc};
use handfast_patterns::{Change, Link, SyncFlag, SyncFlagOptions};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Faulty, Plan};
use serde_json::json;

use super::*;

/// The operation that changes the user: before it there are those that create the indexes.
const CHANGE: u64 = 2;

const LINK: [&str; 4] = ["--collection", "users", "--link", "comments:user:name=userName"];

fn arguments<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["sync"], command, &LINK].concat()
}

async fn open(store: Arc<dyn DocumentStore>, sources: &Sources) -> Result<SyncFlag> {
    let options = SyncFlagOptions::new([Link::new(place("comments")?, "user").field("name", "userName")]);
    Ok(SyncFlag::open(store, place("users")?, sources.clone(), options).await?)
}

/// John has two comments, and has become Mary; the process died before the comments did.
async fn filled(scratch: &Scratch) -> Result<()> {
    let store = Store::open(scratch).await?;
    store.embedded.insert_one(&place("users")?, rawdoc! { "_id": 1, "name": "John" }).await?;
    let names = open(store.shared(), &store.sources).await?;
    for id in [8, 9] {
        let _ = names.insert_copy(&place("comments")?, doc! { "_id": id, "user": 1 }).await?;
    }
    let dying = Arc::new(Faulty::new(store.shared(), Plan::at(CHANGE, Fault::CrashAfter)));
    let renamed = Change::new(doc! { "$set": { "name": "Mary" } });
    let _ = open(dying, &store.sources).await?.change(names.token(), 1, &renamed).await;
    drop(names);
    store.close().await
}

#[tokio::test]
async fn what_was_left_behind_is_seen_and_carried() -> Result<()> {
    let scratch = Scratch::new("sync")?;
    filled(&scratch).await?;
    let status = report(&scratch, &arguments(&["status"]))?;
    assert_eq!((&status["mains"], &status["copies"]), (&json!(1), &json!(0)), "{status}");
    let (lines, _) = json(&scratch, &arguments(&["list"]))?;
    assert_eq!((&lines[0]["_id"], &lines[0]["state"]), (&json!(1), &json!("syncing")));
    assert!(text(&scratch, &arguments(&["show", "1"]))?.contains("is being carried to its copies"));
    let verified = report(&scratch, &arguments(&["verify"]))?;
    assert_eq!((&verified["clean"], &verified["in_flight"]), (&json!(true), &json!(2)));
    assert_eq!(report(&scratch, &arguments(&["sweep"]))?["done"], 0, "the flag is younger than an hour");
    assert_eq!(report(&scratch, &arguments(&["sweep", "--abandoned-after", "0s"]))?["done"], 1);
    let status = report(&scratch, &arguments(&["status"]))?;
    assert_eq!((&status["mains"], &status["oldest_seconds"]), (&json!(0), &Value::Null), "{status}");
    Ok(())
}

#[tokio::test]
async fn a_copy_that_nobody_knows_to_differ_is_exit_code_3_until_it_is_repaired() -> Result<()> {
    let scratch = Scratch::new("sync-verify")?;
    filled(&scratch).await?;
    report(&scratch, &arguments(&["sweep", "--abandoned-after", "0s"]))?;
    let store = Store::open(&scratch).await?;
    let tampered = rawdoc! { "$set": { "userName": "Eve" } };
    store.embedded.update_one(&place("comments")?, rawdoc! { "_id": 9 }, tampered).await?;
    store.close().await?;
    let (lines, code) = json(&scratch, &arguments(&["verify"]))?;
    let finding = &lines[0]["findings"][0];
    assert_eq!((code, &finding["_id"], &finding["found"]), (Some(3), &json!(9), &json!({ "userName": "Eve" })));
    assert_eq!(finding["expected"], json!({ "userName": "Mary" }));
    assert_eq!(report(&scratch, &arguments(&["repair"]))?["done"], 1);
    assert!(text(&scratch, &arguments(&["verify"]))?.ends_with("everything is as it must be\n"));
    assert_eq!(report(&scratch, &arguments(&["backfill"]))?["done"], 1);
    Ok(())
}

#[tokio::test]
async fn links_are_read_in_two_forms() -> Result<()> {
    let scratch = Scratch::new("sync-links")?;
    filled(&scratch).await?;
    let long = r#"{"collection": "comments", "key": "user", "fields": {"name": "userName"}, "onDelete": "keep"}"#;
    let status = report(&scratch, &["sync", "status", "--collection", "users", "--link", long])?;
    assert_eq!(status["mains"], 1);
    for (link, expected) in [
        ("comments:user", "a link such as comments:user:name=userName is expected"),
        (r#"{"collection": "comments", "onDelte": 1}"#, "onDelte"),
    ] {
        let refused = output(&scratch, &["sync", "status", "--collection", "users", "--link", link])?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(expected), "{said}");
    }
    let refused =
        output(&scratch, &["sync", "status", "--collection", "users", "--link", "remarks:user:name=userName"])?;
    assert_one_line(&refused, 1, "--link: there is no collection 'remarks' in db");
    Ok(())
}
