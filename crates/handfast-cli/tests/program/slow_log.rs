//! The log of slow commands says how they found their documents.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};

use crate::support::{FREE_PORT, Scratch, Serve, handfast};

#[test]
fn slow_commands_are_logged_with_their_plans_and_what_they_examined() -> Result<()> {
    let scratch = Scratch::new("slow-log")?;
    let mut serve = Serve::start(&mut handfast(&scratch, &[&FREE_PORT[..], &["--log-level", "info"]].concat()))?;
    let run = |mut command: Document| -> Result<()> {
        command.insert("$db", "db");
        let reply = serve.command(command)?;
        ensure!(reply.get_f64("ok").ok() == Some(1.0), "{reply}");
        Ok(())
    };
    let documents: Vec<_> = (0..100).map(|n| doc! { "_id": n, "a": n % 10, "b": n }).collect();
    run(doc! { "insert": "c", "documents": documents })?;
    run(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] })?;
    // From now on every command is slow.
    run(doc! { "profile": 0, "slowms": -1 })?;
    run(doc! { "find": "c", "filter": { "a": 3 }, "comment": "indexed" })?;
    run(doc! { "find": "c", "filter": { "_id": 7 } })?;
    run(doc! { "count": "c", "query": { "b": 5 } })?;
    run(doc! { "update": "c", "updates": [{ "q": { "a": 4 }, "u": { "$set": { "x": 1 } }, "multi": true }] })?;
    run(doc! { "delete": "c", "deletes": [{ "q": { "_id": 9 }, "limit": 1 }] })?;
    let lookup = doc! { "from": "c", "localField": "b", "foreignField": "a", "as": "found" };
    let pipeline = vec![doc! { "$match": { "b": { "$lt": 2 } } }, doc! { "$lookup": lookup }];
    run(doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} })?;
    run(doc! { "profile": 0, "slowms": 3_600_000 })?;
    run(doc! { "distinct": "c", "key": "a" })?;
    serve.stop("TERM")?;
    let (_, log) = serve.wait()?;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("slow operation")).collect();
    for (command, plan, keys, documents) in [
        ("find", "IXSCAN { a: 1 }", 10, 10),
        ("find", "IDHACK", 1, 1),
        ("count", "COLLSCAN", 0, 100),
        ("update", "IXSCAN { a: 1 }", 10, 10),
        ("delete", "IDHACK", 1, 1),
        ("aggregate", "COLLSCAN, IXSCAN { a: 1 }", 20, 119),
    ] {
        let line = lines.iter().find(|line| line.contains(&format!("command=\"{command}\"")) && line.contains(plan));
        let line = line.with_context(|| format!("{command} {plan}: {log}"))?;
        ensure!(line.contains(&format!("plan=\"{plan}\" keys_examined={keys} docs_examined={documents} ")), "{line}");
        ensure!(line.contains("namespace=\"db.c\"") && line.contains("waited_millis="), "{line}");
    }
    ensure!(!log.contains("command=\"distinct\""), "{log}");
    Ok(())
}
