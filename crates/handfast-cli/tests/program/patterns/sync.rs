//! `handfast sync`.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::{Change, Link, OnDelete, SyncFlag, SyncFlagOptions};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, Find, Sources, StoreExt};
use serde_json::{Value, json};

use super::{Ground, Store, json, namespace, output, report, text};
use crate::support::assert_one_line;

const LINK: [&str; 4] = ["--collection", "users", "--link", "comments:user:name=userName"];

fn arguments<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["sync"], command, &LINK].concat()
}

async fn open(store: Arc<dyn DocumentStore>, sources: &Sources) -> Result<SyncFlag> {
    let options = SyncFlagOptions::new([Link::new(namespace("comments")?, "user").field("name", "userName")]);
    Ok(SyncFlag::open_with(store, namespace("users")?, sources.clone(), options).await?)
}

/// Adds two comments of John, who has been renamed to Mary; the process died before it updated the comments.
async fn filled(ground: &Ground) -> Result<()> {
    let store = Store::open(ground).await?;
    store.shared.insert_one(&namespace("users")?, rawdoc! { "_id": 1, "name": "John" }).await?;
    let names = open(store.shared(), &store.sources).await?;
    for id in [8, 9] {
        let _ = names.insert_copy(&namespace("comments")?, doc! { "_id": id, "user": 1 }).await?;
    }
    let change = Address::first(Operation::FindAndModify).of("users");
    let dying = Arc::new(Faulty::new(store.shared(), Plan::at_request(change, Fault::CrashAfter)));
    let renamed = Change::new(doc! { "$set": { "name": "Mary" } });
    let _ = open(dying, &store.sources).await?.change(names.token(), 1, &renamed).await;
    drop(names);
    store.close().await
}

#[tokio::test]
async fn what_was_left_behind_is_seen_and_carried() -> Result<()> {
    Ground::each_and_front("sync", async |ground| {
        filled(&ground).await?;
        let status = report(&ground, &arguments(&["status"]))?;
        assert_eq!((&status["mains"], &status["copies"]), (&json!(1), &json!(0)), "{status}");
        let (lines, _) = json(&ground, &arguments(&["list"]))?;
        assert_eq!((&lines[0]["_id"], &lines[0]["state"]), (&json!(1), &json!("syncing")));
        assert!(text(&ground, &arguments(&["show", "1"]))?.contains("is being copied, for"));
        let verified = report(&ground, &arguments(&["verify"]))?;
        assert_eq!((&verified["clean"], &verified["in_flight"]), (&json!(true), &json!(2)));
        assert_eq!(report(&ground, &arguments(&["sweep"]))?["done"], 0, "the flag is younger than an hour");
        assert_eq!(report(&ground, &arguments(&["sweep", "--abandoned-after", "0s"]))?["done"], 1);
        let status = report(&ground, &arguments(&["status"]))?;
        assert_eq!((&status["mains"], &status["oldest_seconds"]), (&json!(0), &Value::Null), "{status}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_copy_that_nobody_knows_to_differ_is_exit_code_3_until_it_is_repaired() -> Result<()> {
    Ground::each("sync-verify", async |ground| {
        filled(&ground).await?;
        report(&ground, &arguments(&["sweep", "--abandoned-after", "0s"]))?;
        let store = Store::open(&ground).await?;
        let tampered = rawdoc! { "$set": { "userName": "Eve" } };
        store.shared.update_one(&namespace("comments")?, rawdoc! { "_id": 9 }, tampered).await?;
        store.close().await?;
        let (lines, code) = json(&ground, &arguments(&["verify"]))?;
        let finding = &lines[0]["findings"][0];
        assert_eq!((code, &finding["_id"], &finding["found"]), (Some(3), &json!(9), &json!({ "userName": "Eve" })));
        assert_eq!(finding["expected"], json!({ "userName": "Mary" }));
        assert_eq!(report(&ground, &arguments(&["repair"]))?["done"], 1);
        assert!(text(&ground, &arguments(&["verify"]))?.ends_with("everything is as it must be\n"));
        assert_eq!(report(&ground, &arguments(&["backfill"]))?["done"], 1);
        Ok(())
    })
    .await
}

/// The command computes the value of an expression as the application does.
#[tokio::test]
async fn a_computed_copy_is_compared_and_repaired() -> Result<()> {
    Ground::each("sync-computed", async |ground| {
    filled(&ground).await?;
    let link = |expression: &str| {
        format!(
            r#"{{"collection": "comments", "key": "user", "fields": {{"name": "userName"}}, "computed": {{"userInitial": {expression}}}}}"#
        )
    };
    let initial = link(r#"{"$substrCP": ["$name", 0, 1]}"#);
    let command =
        |command: &'static str| ["sync", command, "--collection", "users", "--link", &initial].map(str::to_owned);
    let run = |words: [String; 6]| json(&ground, &words.each_ref().map(String::as_str));
    // The comments have no initials yet.
    let sweep = ["sync", "sweep", "--abandoned-after", "0s", "--collection", "users", "--link", LINK[3]];
    report(&ground, &sweep)?;
    let store = Store::open(&ground).await?;
    let initial = |user: &Document| user.get_str("name").ok()?.get(..1).map(Bson::from);
    let computed = Link::new(namespace("comments")?, "user").field("name", "userName").computed("userInitial", initial);
    let options = SyncFlagOptions::new([computed]);
    SyncFlag::change_settings(store.shared(), namespace("users")?, &options).await?;
    SyncFlag::open_with(store.shared(), namespace("users")?, store.sources.clone(), options).await?;
    store.close().await?;
    for link in [&[][..], &LINK[2..]] {
        let repair = [&["sync", "repair", "--collection", "users"], link].concat();
        assert_one_line(&output(&ground, &repair)?, 2, "is computed by a function of the application");
    }
    let (lines, code) = run(command("verify"))?;
    assert_eq!((code, lines[0]["findings"].as_array().map(Vec::len)), (Some(3), Some(2)), "{lines:?}");
    assert_eq!(lines[0]["findings"][0]["expected"], json!({ "userInitial": "M" }));
    run(command("repair"))?;
    let (lines, code) = run(command("verify"))?;
    assert_eq!((code, &lines[0]["clean"]), (Some(0), &json!(true)), "{lines:?}");
    for (expression, expected) in [(r#""$$NOW""#, "not on time or chance"), (r#"{"$none": 1}"#, "is not an expression")] {
        let refused = output(&ground, &["sync", "verify", "--collection", "users", "--link", &link(expression)])?;
        assert_one_line(&refused, 2, expected);
    }
    Ok(())
}).await
}

/// A command that only reads needs neither the functions nor all rules of the application.
#[tokio::test]
async fn who_only_looks_sees_what_can_be_seen_of_links_with_functions() -> Result<()> {
    Ground::each("sync-functions", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        let initial = |user: &Document| user.get_str("name").ok()?.get(..1).map(Bson::from);
        let gone = doc! { "userName": "somebody", "userInitial": "?", "userNick": "" };
        let comments = Link::new(namespace("comments")?, "user").field("name", "userName").field("nick", "userNick");
        let comments = comments.computed("userInitial", initial).on_delete(OnDelete::Set(gone));
        let likes = Link::new(namespace("likes")?, "user").computed("userInitial", initial);
        let options = SyncFlagOptions::new([comments, likes]);
        store.shared.drop_collection(&namespace("users.settings")?).await?;
        SyncFlag::open_with(store.shared(), namespace("users")?, store.sources.clone(), options).await?;
        store.close().await?;
        for link in [&[][..], &LINK[2..]] {
            for words in [&["status"][..], &["list"], &["show", "1"], &["verify"]] {
                let (lines, code) = json(&ground, &[&["sync"], words, &LINK[..2], link].concat())?;
                // The command cannot confirm that all copies are right.
                let expected = if words == ["verify"] { Some(3) } else { Some(0) };
                assert_eq!((lines.len(), code), (1, expected), "{words:?} {lines:?}");
            }
            let (lines, _) = json(&ground, &[&["sync", "verify"], &LINK[..2], link].concat())?;
            let missed = &lines[0]["missed"];
            let missed: Vec<_> = missed.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let function = "userInitial of likes, which a function of the application computes";
            assert!(missed.contains(&function) && lines[0]["clean"] == false, "{lines:?}");
            assert_eq!(missed.contains(&"userNick of comments"), !link.is_empty(), "{missed:?}");
            let sweep = [&["sync", "sweep"], &LINK[..2], link].concat();
            assert_eq!(output(&ground, &sweep)?.status.code(), Some(2), "who changes must know all");
        }
        Ok(())
    })
    .await
}

/// Deletes a user whose comments are to get another signature; the process dies before it updates them.
async fn deleted(ground: &Ground) -> Result<()> {
    filled(ground).await?;
    let store = Store::open(ground).await?;
    store.shared.drop_collection(&namespace("users.settings")?).await?;
    signed_by_somebody(store.shared(), &store.sources).await?;
    let mark = Address::first(Operation::FindAndModify).of("users");
    let dying = Arc::new(Faulty::new(store.shared(), Plan::at_request(mark, Fault::CrashAfter)));
    let _ = signed_by_somebody(dying, &store.sources).await?.delete(1).await;
    store.close().await
}

async fn signed_by_somebody(store: Arc<dyn DocumentStore>, sources: &Sources) -> Result<SyncFlag> {
    let somebody = OnDelete::Set(doc! { "userName": "somebody" });
    let link = Link::new(namespace("comments")?, "user").field("name", "userName").on_delete(somebody);
    Ok(SyncFlag::open_with(store, namespace("users")?, sources.clone(), SyncFlagOptions::new([link])).await?)
}

async fn signatures(ground: &Ground) -> Result<Vec<String>> {
    let store = Store::open(ground).await?;
    let find = Find::new(namespace("comments")?, rawdoc! {});
    let comments = store.shared.find_all(find).await?;
    let names = comments.iter().map(|comment| comment.get_str("userName").unwrap_or("nobody").to_owned()).collect();
    store.close().await?;
    Ok(names)
}

/// The declared links are recorded beside the main documents: a sweep needs no flags, and refuses flags that contradict the
/// record.
#[tokio::test]
async fn a_sweep_does_to_copies_what_the_application_has_said() -> Result<()> {
    Ground::each("sync-declared", async |ground| {
        deleted(&ground).await?;
        let sweep = ["sweep", "--abandoned-after", "0s"];
        for (link, why) in [
            (
                r#"{"collection": "comments", "key": "user", "fields": {"name": "userName"}, "onDelete": "unset"}"#,
                "onDelete",
            ),
            ("comments:user:nick=userNick", "userName"),
            ("comments:editor:name=editorName", "this link is not declared"),
        ] {
            let said = [&["sync"], &sweep[..], &["--collection", "users", "--link", link]].concat();
            assert_one_line(&output(&ground, &said)?, 2, why);
        }
        assert_eq!(signatures(&ground).await?, ["John", "John"], "nothing was done");
        assert_eq!(report(&ground, &arguments(&sweep))?["done"], 1);
        assert_eq!(signatures(&ground).await?, ["somebody", "somebody"]);
        assert_eq!(report(&ground, &["sync", "verify", "--collection", "users"])?["clean"], true);
        let renamed = ["sync", "verify", "--collection", "users", "--field", "syncing=flag"];
        let refused = "fields.syncing is recorded as \"syncing\", given as \"flag\"";
        assert_one_line(&output(&ground, &renamed)?, 2, refused);
        Ok(())
    })
    .await
}

/// A link that finds no copy could never find a difference.
#[tokio::test]
async fn a_link_that_leads_nowhere_is_not_verified() -> Result<()> {
    Ground::each("sync-nowhere", async |ground| {
        filled(&ground).await?;
        let said = |command: &[&str], link: &str| {
            output(&ground, &[&["sync"], command, &["--collection", "users", "--link", link]].concat())
        };
        let declared = [
            (
                "comments:nokey:name=userName",
                "the link to comments by nokey: this link is not declared; there is the link to comments by user",
            ),
            (
                "comments:user:surname=userName",
                "userName is declared as { \"field\": \"name\" }, and said to be { \"field\": \"surname\" }",
            ),
            ("comments:user:name=usrName", "no copy usrName is declared, but userName"),
        ];
        for (link, why) in declared {
            for command in ["verify", "status"] {
                assert_one_line(&said(&[command], link)?, 2, why);
            }
        }
        // Without declared links, the documents must have the fields that the flags name.
        let store = Store::open(&ground).await?;
        store.shared.drop_collection(&namespace("users.settings")?).await?;
        let text = rawdoc! { "$set": { "text": "first" } };
        store.shared.update_many(&namespace("comments")?, rawdoc! {}, text).await?;
        // The main document of this copy was deleted, and the copy is marked so: it is no evidence that other copies name
        // theirs.
        let marked = rawdoc! { "_id": "told", "text": "first", "userName": "John", "userVersion": i64::MAX };
        store.shared.insert_one(&namespace("comments")?, marked).await?;
        store.shared.insert_one(&namespace("empty")?, rawdoc! { "_id": 1 }).await?;
        store.shared.delete_one(&namespace("empty")?, rawdoc! {}).await?;
        store.close().await?;
        let unseen = [
            ("comments:nokey:name=userName", "no document of db.comments has nokey, by which copies are found"),
            (
                "comments:user:surname=usrName",
                "no document of db.users has surname, from which usrName of db.comments is copied",
            ),
            (
                "comments:user:surname=userName",
                "no document of db.users has surname, from which userName of db.comments is copied",
            ),
            ("comments:text:name=userName", "no document of db.comments has in text the _id of a document of db.users"),
        ];
        for (link, why) in unseen {
            assert_one_line(&said(&["verify"], link)?, 3, why);
            let (collection, rest) = link.split_once(':').context("a link")?;
            let (key, fields) = rest.split_once(':').context("a link")?;
            let (main, copy) = fields.split_once('=').context("a link")?;
            let fields = json!({ main: copy });
            let link = json!({ "collection": collection, "key": key, "fields": fields, "onDelete": "unset" });
            for command in ["repair", "backfill", "sweep"] {
                assert_one_line(&said(&[command], &link.to_string())?, 3, why);
            }
        }
        assert_eq!(signatures(&ground).await?, ["John"; 3], "nothing was done");
        assert_eq!(said(&["verify"], LINK[3])?.status.code(), Some(0));
        // In an empty collection no field is missing.
        assert_eq!(said(&["verify"], "empty:user:name=userName")?.status.code(), Some(0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn links_are_read_in_two_forms() -> Result<()> {
    Ground::each("sync-links", async |ground| {
        filled(&ground).await?;
        let long = r#"{"collection": "comments", "key": "user", "fields": {"name": "userName"}, "onDelete": "unset"}"#;
        let status = report(&ground, &["sync", "status", "--collection", "users", "--link", long])?;
        assert_eq!(status["mains"], 1);
        for (link, expected) in [
            ("comments:user", "a link such as comments:user:name=userName is expected"),
            (r#"{"collection": "comments", "onDelte": 1}"#, "onDelte"),
        ] {
            let refused = output(&ground, &["sync", "status", "--collection", "users", "--link", link])?;
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(refused.status.code() == Some(2) && said.contains(expected), "{said}");
        }
        let refused =
            output(&ground, &["sync", "status", "--collection", "users", "--link", "remarks:user:name=userName"])?;
        assert_one_line(&refused, 1, "--link: there is no collection 'remarks' in db");
        Ok(())
    })
    .await
}

/// Declared links are refused like those of flags if the documents lack the main fields.
#[tokio::test]
async fn declared_links_that_lead_nowhere_are_refused_before_anything_is_written() -> Result<()> {
    Ground::each("sync-declared-nowhere", async |ground| {
        filled(&ground).await?;
        report(&ground, &["sync", "sweep", "--abandoned-after", "0s", "--collection", "users"])?;
        let store = Store::open(&ground).await?;
        let comments = |key: &str| {
            Ok::<_, anyhow::Error>(Link::new(namespace("comments")?, key).with_fields("userVersion", "userSyncing"))
        };
        let wrong = [
            (
                comments("user")?.field("label", "userName"),
                "no document of db.users has label, from which userName of db.comments is copied",
            ),
            (
                comments("usr")?.field("name", "userName"),
                "no document of db.comments has usr, by which copies are found",
            ),
            (
                comments("userName")?.field("name", "userCopy"),
                "no document of db.comments has in userName the _id of a document of db.users",
            ),
            (
                Link::new(namespace("remarks")?, "user").field("name", "userName"),
                "there is no collection 'remarks' in db",
            ),
        ];
        store.close().await?;
        for (link, why) in wrong {
            let store = Store::open(&ground).await?;
            store.shared.drop_collection(&namespace("users.settings")?).await?;
            SyncFlag::open_with(
                store.shared(),
                namespace("users")?,
                store.sources.clone(),
                SyncFlagOptions::new([link]),
            )
            .await?;
            store.shared.drop_collection(&namespace("remarks")?).await?;
            store.close().await?;
            for command in ["verify", "repair", "backfill"] {
                assert_one_line(&output(&ground, &["sync", command, "--collection", "users"])?, 3, why);
            }
            assert_eq!(signatures(&ground).await?, ["Mary", "Mary"], "nothing was done");
        }
        // No user and no comment has this field yet.
        let store = Store::open(&ground).await?;
        store.shared.drop_collection(&namespace("users.settings")?).await?;
        let link = comments("user")?.field("name", "userName").field("nick", "userNick");
        SyncFlag::open_with(store.shared(), namespace("users")?, store.sources.clone(), SyncFlagOptions::new([link]))
            .await?;
        store.close().await?;
        assert_eq!(report(&ground, &["sync", "verify", "--collection", "users"])?["clean"], true);
        Ok(())
    })
    .await
}

/// A user is unreadable, and a comment of another user differs.
#[tokio::test]
async fn an_odd_main_document_does_not_hide_other_copies() -> Result<()> {
    Ground::each("sync-odd", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        store.shared.insert_one(&namespace("users")?, rawdoc! { "_id": 2, "name": "Bill" }).await?;
        let names = open(store.shared(), &store.sources).await?;
        let _ = names.insert_copy(&namespace("comments")?, doc! { "_id": 7, "user": 2 }).await?;
        let tampered = rawdoc! { "$set": { "userName": "Eve" } };
        store.shared.update_one(&namespace("comments")?, rawdoc! { "_id": 7 }, tampered).await?;
        let odd = rawdoc! { "$set": { "syncing": "yes" } };
        store.shared.update_one(&namespace("users")?, rawdoc! { "_id": 1 }, odd).await?;
        drop(names);
        store.close().await?;
        let whys = || {
            let (lines, code) = json(&ground, &arguments(&["verify"]))?;
            let findings = lines[0]["findings"].as_array().into_iter().flatten();
            let mut whys: Vec<_> = findings.map(|one| one["kind"].as_str().unwrap_or_default().to_owned()).collect();
            whys.sort();
            Ok::<_, anyhow::Error>((code, whys))
        };
        let unreadable = "unreadable".to_owned();
        assert_eq!(whys()?, (Some(3), vec!["different".to_owned(), unreadable.clone(), unreadable.clone()]));
        let shown = String::from_utf8(output(&ground, &arguments(&["verify"]))?.stdout)?;
        assert!(shown.contains("2 copies cannot be compared") && shown.contains("1 copy differs"), "{shown}");
        let (lines, code) = json(&ground, &arguments(&["repair"]))?;
        assert_eq!((code, &lines[0]["done"], &lines[0]["failed"]), (Some(3), &json!(1), &json!(2)));
        let repaired = output(&ground, &arguments(&["repair"]))?;
        let said = String::from_utf8(repaired.stderr)?;
        assert!(
            said.contains("these copies stay as they are")
                && said.contains("db.comments 8: its main document 1 is unreadable"),
            "{said}"
        );
        let store = Store::open(&ground).await?;
        let flag = rawdoc! { "$currentDate": { "syncing": true }, "$set": { "syncVersion": 1_i64 } };
        store.shared.update_one(&namespace("users")?, rawdoc! { "_id": 2 }, flag).await?;
        store.close().await?;
        let listed = output(&ground, &arguments(&["list"]))?;
        assert_one_line(&listed, 1, "document 1 of db.users is not what this pattern writes: its syncing is \"yes\"");
        let (lines, _) = json(&ground, &arguments(&["list"]))?;
        assert_eq!((lines.len(), &lines[0]["_id"]), (1, &json!(2)), "{lines:?}");
        report(&ground, &arguments(&["sweep", "--abandoned-after", "0s"]))?;
        assert_eq!(whys()?, (Some(3), vec![unreadable.clone(), unreadable]));
        let refused = output(&ground, &arguments(&["show", "1"]))?;
        assert_one_line(&refused, 1, "its syncing is \"yes\", not a date");
        Ok(())
    })
    .await
}
