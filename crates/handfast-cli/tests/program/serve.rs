//! `handfast serve`: its messages, its shutdown, and the causes that prevent its start.

use std::io::Write;
use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use handfast_embedded::EmbeddedStore;
use handfast_store::Sources;

use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, handfast, output};

#[test]
fn it_says_where_it_listens_where_the_data_is_and_what_durability_is() -> Result<()> {
    let scratch = Scratch::new("start-line")?;
    let serve = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let data = scratch.path("handfast-data").display().to_string();
    assert!(serve.start.contains(&format!("data in {data}, durability journaled")), "{}", serve.start);
    assert!(!serve.address()?.ends_with(":0"), "the port that was free: {}", serve.start);
    let hello = serve.command(doc! { "hello": 1, "$db": "admin" })?;
    assert_eq!(hello.get_bool("isWritablePrimary").ok(), Some(true), "{hello}");
    Ok(())
}

#[test]
fn json_lines_say_the_same() -> Result<()> {
    let scratch = Scratch::new("start-json")?;
    let mut command = handfast(&scratch, &["serve", "--json", "--listen", "127.0.0.1:0", "--durability", "memory"]);
    let mut serve = Serve::start(&mut command)?;
    let start: serde_json::Value = serde_json::from_str(&serve.start)?;
    assert_eq!(start["event"], "listening");
    assert_eq!(start["durability"], "memory");
    assert!(start["addresses"][0].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")));
    serve.signal("TERM")?;
    assert_eq!(serve.line()?, r#"{"event":"stopping"}"#);
    assert_eq!(serve.line()?, r#"{"event":"stopped"}"#);
    Ok(())
}

#[test]
fn each_of_the_two_signals_stops_it_cleanly_and_what_was_written_is_there() -> Result<()> {
    let scratch = Scratch::new("stop")?;
    for (number, signal) in [(1_usize, "TERM"), (2, "INT")] {
        let mut serve = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
        let insert = doc! { "insert": "c", "documents": [{ "_id": i64::try_from(number)? }], "$db": "db" };
        let reply = serve.command(insert)?;
        assert_eq!(reply.get_i32("n").ok(), Some(1), "{reply}");
        assert_eq!(serve.find_all("c")?.len(), number);
        serve.stop(signal)?;
        let (code, stderr) = serve.wait()?;
        assert_eq!(code, Some(0), "{signal}: {stderr}");
    }
    Ok(())
}

#[tokio::test]
async fn after_its_last_line_the_directory_is_free() -> Result<()> {
    let scratch = Scratch::new("free")?;
    for number in 1..=5 {
        let mut serve = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
        // A cursor stays open, and so does a connection.
        let insert = doc! { "insert": "c", "documents": [{ "_id": number }, { "_id": -number }], "$db": "db" };
        assert_eq!(serve.command(insert)?.get_i32("n").ok(), Some(2));
        serve.command(doc! { "find": "c", "batchSize": 1, "$db": "db" })?;
        serve.stop("TERM")?;
        let data = scratch.path("handfast-data");
        let opened = EmbeddedStore::open(data, Sources::seeded(1), handfast_embedded::Options::default()).await;
        opened.with_context(|| format!("round {number}"))?.close().await?;
        let (code, stderr) = serve.wait()?;
        assert_eq!(code, Some(0), "{stderr}");
    }
    Ok(())
}

#[test]
fn after_a_kill_what_was_acknowledged_is_there() -> Result<()> {
    let scratch = Scratch::new("kill")?;
    let serve = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    serve.command(doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "db" })?;
    serve.signal("KILL")?;
    assert_eq!(serve.wait()?.0, None);
    let serve = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    assert_eq!(serve.find_all("c")?.len(), 1);
    Ok(())
}

#[test]
fn a_busy_port_is_one_line() -> Result<()> {
    let scratch = Scratch::new("busy")?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let output = output(&mut handfast(&scratch, &["serve", "--log-level", "warn", "--listen", &address]))?;
    assert_one_line(&output, 1, &format!("cannot listen on {address}"));
    assert_one_line(&output, 1, "; stop the program that listens there, or choose another port with --port");
    assert!(!scratch.path("handfast-data").exists(), "nothing was made");
    Ok(())
}

#[test]
fn a_port_alone_is_enough() -> Result<()> {
    let scratch = Scratch::new("port")?;
    let serve = Serve::start(handfast(&scratch, &["serve", "--port", "0"]).env("HANDFAST_LISTEN", "127.0.0.2:1"))?;
    let address = serve.address()?;
    assert!(address.starts_with("127.0.0.2:") && !address.ends_with(":1"), "{address}");
    Ok(())
}

#[test]
fn an_address_that_others_reach_needs_a_word() -> Result<()> {
    let scratch = Scratch::new("insecure")?;
    let output = output(&mut handfast(&scratch, &["serve", "--listen", "0.0.0.0:0"]))?;
    assert_one_line(&output, 2, "--insecure allows this");
    assert!(!scratch.path("handfast-data").exists(), "nothing was made");
    let mut serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "0.0.0.0:0", "--insecure"]))?;
    serve.stop("TERM")?;
    Ok(())
}

#[test]
fn an_address_that_is_none_is_a_usage_error() -> Result<()> {
    let scratch = Scratch::new("address")?;
    let output = output(&mut handfast(&scratch, &["serve", "--listen", "nonsense"]))?;
    assert_one_line(&output, 2, "listen (from flag --listen): 'nonsense' is not an address");
    Ok(())
}

#[test]
fn a_second_process_is_one_line() -> Result<()> {
    let scratch = Scratch::new("second")?;
    let _first = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let output = output(handfast(&scratch, &FREE_PORT).args(["--log-level", "warn"]))?;
    assert_one_line(&output, 1, "is in use by");
    assert_one_line(&output, 1, "; stop that process, or choose another directory with --data");
    Ok(())
}

#[test]
fn a_directory_of_something_else_is_one_line_and_left_alone() -> Result<()> {
    let scratch = Scratch::new("wrong")?;
    std::fs::create_dir(scratch.path("photos"))?;
    std::fs::write(scratch.path("photos/1.jpg"), "not a database")?;
    let output = output(handfast(&scratch, &FREE_PORT).args(["--log-level", "warn", "--data", "photos"]))?;
    assert_one_line(&output, 1, "holds no handfast store");
    assert_eq!(std::fs::read_dir(scratch.path("photos"))?.count(), 1);
    Ok(())
}

#[test]
fn a_file_instead_of_a_directory_is_one_line() -> Result<()> {
    let scratch = Scratch::new("file")?;
    std::fs::write(scratch.path("data"), "")?;
    let output = output(handfast(&scratch, &FREE_PORT).args(["--log-level", "warn", "--data", "data"]))?;
    assert_one_line(&output, 1, "data");
    Ok(())
}

#[test]
fn a_directory_that_may_not_be_written_is_one_line() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let scratch = Scratch::new("read-only")?;
    std::fs::create_dir(scratch.path("data"))?;
    std::fs::set_permissions(scratch.path("data"), std::fs::Permissions::from_mode(0o555))?;
    let mut command = handfast(&scratch, &FREE_PORT);
    command.args(["--log-level", "warn", "--data", "data"]);
    if std::fs::write(scratch.path("data/probe"), "").is_ok() {
        // Root may write to any directory, so the program runs as nobody.
        std::fs::remove_file(scratch.path("data/probe"))?;
        command.uid(65534).gid(65534);
    }
    match output(&mut command) {
        Ok(output) => {
            assert_one_line(&output, 1, "ermission denied");
            assert_one_line(&output, 1, "; choose a directory that this user may write to");
        }
        Err(error) => {
            let error: std::io::Error = error.downcast()?;
            let missing = format!("the program cannot be run as another user here: {error}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
            writeln!(std::io::stderr(), "skipped: {missing}")?;
        }
    }
    Ok(())
}

#[test]
fn what_a_stage_holds_is_bounded_as_configured() -> Result<()> {
    let scratch = Scratch::new("sort-bytes")?;
    let stages = |stage: bson::Document| doc! { "aggregate": "c", "pipeline": [stage], "cursor": {}, "$db": "db" };
    let commands = [
        doc! { "find": "c", "sort": { "text": 1 }, "$db": "db" },
        stages(doc! { "$sort": { "text": 1 } }),
        stages(doc! { "$group": { "_id": null, "all": { "$push": "$$ROOT" } } }),
        stages(doc! { "$facet": { "all": [] } }),
        stages(doc! { "$facet": { "all": [{ "$unionWith": "none" }] } }),
        stages(doc! { "$lookup": { "from": "c", "localField": "a", "foreignField": "a", "as": "all" } }),
        stages(doc! { "$lookup": { "from": "c", "pipeline": [], "as": "all" } }),
        stages(
            doc! { "$graphLookup": { "from": "c", "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "all" } },
        ),
    ];
    for (bytes, expected) in [("64KiB", Some(292)), ("100MiB", None)] {
        let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(["--sort-bytes", bytes, "--spill-bytes", "0B"]))?;
        let documents: Vec<_> = (0..100).map(|n| doc! { "_id": n, "a": 1, "text": "x".repeat(1000) }).collect();
        serve.command(doc! { "insert": "c", "documents": documents, "$db": "db" })?;
        for command in &commands {
            let reply = serve.command(command.clone())?;
            assert_eq!(reply.get_i32("code").ok(), expected, "{bytes}: {command}: {reply}");
            let name = expected.map(|_| "QueryExceededMemoryLimitNoDiskUseAllowed");
            assert_eq!(reply.get_str("codeName").ok(), name);
        }
        serve.signal("TERM")?;
        serve.wait()?;
    }
    Ok(())
}

#[test]
fn sorts_and_groups_write_to_files_what_they_cannot_hold() -> Result<()> {
    let scratch = Scratch::new("spill-bytes")?;
    let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(["--sort-bytes", "64KiB", "--spill-bytes", "1MiB"]))?;
    let documents: Vec<_> = (0..400).map(|n| doc! { "_id": n, "v": n * 7 % 400, "text": "x".repeat(1000) }).collect();
    serve.command(doc! { "insert": "c", "documents": documents, "$db": "db" })?;
    let group = doc! { "_id": { "$mod": ["$v", 200] }, "n": { "$sum": 1 }, "texts": { "$push": "$text" } };
    let pipeline = vec![doc! { "$group": group }, doc! { "$project": { "n": 1 } }, doc! { "$sort": { "_id": 1 } }];
    let aggregate = doc! { "aggregate": "c", "pipeline": pipeline, "cursor": { "batchSize": 1_000 }, "$db": "db" };
    let find = doc! { "find": "c", "sort": { "v": 1 }, "projection": { "v": 1 }, "batchSize": 1_000, "$db": "db" };
    let first_batch = |command: &Document| -> Result<Vec<Document>> {
        let reply = serve.command(command.clone())?;
        let batch = reply.get_document("cursor").with_context(|| reply.to_string())?.get_array("firstBatch")?;
        Ok(batch.iter().filter_map(|document| document.as_document().cloned()).collect())
    };
    let values: Vec<i32> = first_batch(&find)?.iter().filter_map(|document| document.get_i32("v").ok()).collect();
    assert_eq!(values, (0..400).collect::<Vec<i32>>());
    let groups = first_batch(&aggregate)?;
    assert!(groups.len() == 200 && groups.iter().all(|group| group.get_i32("n").ok() == Some(2)), "{groups:?}");
    for command in [&find, &aggregate] {
        let mut forbidden = command.clone();
        forbidden.insert("allowDiskUse", false);
        assert_eq!(serve.command(forbidden)?.get_i32("code").ok(), Some(292));
    }
    // An open cursor keeps its file: two of them, of 400 kB each, fit into the limit.
    let mut open = find.clone();
    open.insert("batchSize", 1);
    let refused =
        (0..4).map(|_| serve.command(open.clone())).find(|reply| reply.as_ref().is_ok_and(|r| r.contains_key("code")));
    let refused = refused.context("the third file is too large")??;
    assert_eq!(refused.get_i32("code").ok(), Some(14_031), "{refused}");
    assert!(refused.get_str("errmsg")?.contains("spill-bytes"), "{refused}");
    // The files of the open cursors go with the process.
    serve.signal("KILL")?;
    serve.wait()?;
    let left: Vec<_> =
        std::fs::read_dir(scratch.path("handfast-data"))?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("tmp")), "{left:?}");
    Ok(())
}

#[test]
fn what_the_stages_of_all_queries_hold_together_is_bounded_as_configured() -> Result<()> {
    let scratch = Scratch::new("stage-bytes-total")?;
    let serve =
        Serve::start(handfast(&scratch, &FREE_PORT).args(["--stage-bytes-total", "1MiB", "--spill-bytes", "0B"]))?;
    let documents: Vec<_> = (0..350).map(|n| doc! { "_id": n, "text": "x".repeat(1000) }).collect();
    serve.command(doc! { "insert": "c", "documents": documents, "$db": "db" })?;
    let find = || doc! { "find": "c", "sort": { "none": 1 }, "batchSize": 1, "$db": "db" };
    let sort = doc! { "aggregate": "c", "pipeline": [{ "$group": { "_id": "$text", "n": { "$sum": 1 } } }, { "$sort": { "n": 1 } }], "cursor": {}, "$db": "db" };
    let mut cursors = Vec::new();
    let refused = loop {
        let reply = serve.command(find())?;
        match reply.get_document("cursor") {
            Ok(cursor) => cursors.push(cursor.get_i64("id")?),
            Err(_) => break reply,
        }
        ensure!(cursors.len() < 4, "400 kB each, and 1 MiB in all");
    };
    assert_eq!(cursors.len(), 2, "{refused}");
    assert_eq!(refused.get_i32("code").ok(), Some(292), "{refused}");
    assert!(refused.get_str("errmsg")?.contains("`stage-bytes-total`"), "{refused}");
    // The memory of a cursor is free when the cursor is closed, or read to its end.
    serve.command(doc! { "killCursors": "c", "cursors": [cursors[0]], "$db": "db" })?;
    let rest = serve.command(doc! { "getMore": cursors[1], "collection": "c", "$db": "db" })?;
    assert_eq!(rest.get_document("cursor")?.get_array("nextBatch")?.len(), 349, "{rest}");
    for _ in 0..10 {
        assert_eq!(serve.command(sort.clone())?.get_f64("ok").ok(), Some(1.0));
        let reply = serve.command(doc! { "find": "c", "sort": { "none": 1 }, "$db": "db" })?;
        let id = reply.get_document("cursor")?.get_i64("id")?;
        serve.command(doc! { "killCursors": "c", "cursors": [id], "$db": "db" })?;
    }
    Ok(())
}

#[test]
fn what_open_transactions_have_written_together_is_bounded_as_configured() -> Result<()> {
    let scratch = Scratch::new("transaction-bytes")?;
    let insert = |session: u8| {
        let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![session; 16] };
        let documents: Vec<_> = (0..3).map(|_| doc! { "text": "x".repeat(5_000_000) }).collect();
        doc! {
            "insert": "c", "documents": documents, "lsid": { "id": id }, "txnNumber": 1_i64, "autocommit": false,
            "startTransaction": true, "$db": "db",
        }
    };
    for (bytes, expected) in [("48MiB", Some(112)), ("512MiB", None)] {
        let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(["--transaction-bytes", bytes]))?;
        for session in 1..=3 {
            let reply = serve.command(insert(session))?;
            assert_eq!(reply.get_i32("n").ok(), Some(3), "{reply}");
        }
        let reply = serve.command(insert(4))?;
        assert_eq!(reply.get_i32("code").ok(), expected, "{bytes}: {reply}");
        let labels = reply.get_array("errorLabels").ok().and_then(|labels| labels.first()?.as_str());
        assert_eq!(labels, expected.map(|_| "TransientTransactionError"), "{bytes}: {reply}");
        serve.signal("TERM")?;
        serve.wait()?;
    }
    Ok(())
}

#[test]
fn a_handfast_before_another_one_is_warned_of_and_one_behind_it_refused() -> Result<()> {
    let scratch = Scratch::new("two-layers")?;
    let inner = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let store = format!("mongodb://{}/", inner.address()?);
    let outer = Serve::start(&mut handfast(&scratch, &["serve", "--port", "0", "--store", &store]))?;
    let before = format!("mongodb://{}/", outer.address()?);
    for (arguments, expected) in [
        (&["bank", "--store", &before][..], "it is a Handfast in front of another server, and cannot be behind one"),
        (&["backup", "--uri", &before, "monday"], "or with --store, where the server behind it makes them"),
    ] {
        assert_one_line(&handfast(&scratch, arguments).output()?, 1, expected);
    }
    let bank = ["bank", "--store", &store, "--accounts", "2", "--workers", "1", "--transfers", "1"];
    assert_one_line(&handfast(&scratch, &bank).output()?, 0, "--mechanism server-side uses them");
    outer.signal("TERM")?;
    let (code, said) = outer.wait()?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("which has transactions itself: its own clients see the field _hf"), "{said}");
    Ok(())
}

#[test]
fn a_temporary_server_ends_with_its_input_and_leaves_nothing() -> Result<()> {
    let scratch = Scratch::new("temporary")?;
    let left = || -> Result<usize> { Ok(std::fs::read_dir(scratch.path(""))?.count()) };
    let (input, other_end) = std::io::pipe()?;
    // It reads no environment: a busy machine would show in the log.
    let flags = ["--temporary", "--slow-operation", "1h", "--listen", "127.0.0.1:0"];
    let mut command = handfast(&scratch, &[&["serve"], &flags[..]].concat());
    let serve = Serve::start(
        command.env("TMPDIR", scratch.path("")).env("HANDFAST_STORE", "mongodb://127.0.0.1:1").stdin(input),
    )?;
    assert!(serve.start.ends_with("durability memory"), "{}", serve.start);
    serve.command(doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "db" })?;
    assert_eq!((serve.find_all("c")?.len(), left()?), (1, 1));
    drop(other_end);
    assert_eq!(serve.wait()?, (Some(0), String::new()));
    assert_eq!(left()?, 0);
    Ok(())
}
