//! Expressions that would take years: the client can end them, and no other client waits for them.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bson::{Bson, Document, doc};

use crate::support::{Scratch, Serve, handfast, now};

/// The maximal processor time that an idle server uses within [`WATCHED`].
const IDLE_MAX: Duration = Duration::from_millis(150);
const WATCHED: Duration = Duration::from_millis(500);
/// The time within which another process must act, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximal number of attempts to find the server idle: they take about half a minute.
const ATTEMPTS_MAX: usize = 100;

fn serve(name: &str) -> Result<(Scratch, Arc<Serve>)> {
    let scratch = Scratch::new(name)?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0"]))?;
    let documents: Vec<_> = (0..3).map(|n| doc! { "_id": n, "a": 1 }).collect();
    let reply = serve.command(doc! { "insert": "c", "documents": documents, "$db": "db" })?;
    ensure!(reply.get_i32("n").ok() == Some(3), "{reply}");
    let large = doc! { "_id": 1, "list": (0..ELEMENTS).map(|a| doc! { "a": a }).collect::<Vec<_>>() };
    let reply = serve.command(doc! { "insert": "large", "documents": [large], "$db": "db" })?;
    ensure!(reply.get_i32("n").ok() == Some(1), "{reply}");
    let checked = [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 1 }];
    let reply = serve.command(doc! { "insert": "checked", "documents": checked.to_vec(), "$db": "db" })?;
    ensure!(reply.get_i32("n").ok() == Some(2), "{reply}");
    let validator = doc! { "$expr": { "$gt": [endless_of(20_000), 1] } };
    let reply = serve.command(doc! { "collMod": "checked", "validator": validator, "$db": "db" })?;
    ensure!(reply.get_f64("ok").ok() == Some(1.0), "{reply}");
    Ok((scratch, Arc::new(serve)))
}

/// The number of elements of the large document's list.
const ELEMENTS: i32 = 100_000;

/// Returns so many conditions on a field that their evaluation for an element of the list takes
/// long: no element fulfils one.
fn none_of_many(field: &str) -> Document {
    let conditions: Vec<_> = (0..3_000).map(|n| doc! { field: { "$lt": -n } }).collect();
    doc! { "$or": conditions }
}

/// Returns an expression whose value takes 10^18 steps to compute.
fn endless() -> Document {
    endless_of(1_000_000)
}

/// Returns an expression whose value takes `count` steps to the power of three to compute.
fn endless_of(count: i32) -> Document {
    let mut number = Bson::from(1);
    for _ in 0..3 {
        number = doc! { "$size": { "$map": { "input": { "$range": [0, count] }, "in": number } } }.into();
    }
    doc! { "$add": [number, 1] }
}

/// Returns commands, each of which evaluates that expression in another place.
fn commands() -> Vec<Document> {
    let expr = || doc! { "$expr": { "$gt": [endless(), 1] } };
    let set = || vec![doc! { "$set": { "b": endless() } }];
    // A filter on one document is evaluated at once, on the thread of the connection.
    let element = || doc! { "_id": 1, "list": { "$elemMatch": none_of_many("a") } };
    let aggregate = |stages: Vec<Document>| doc! { "aggregate": "c", "pipeline": stages, "cursor": {}, "$db": "db" };
    vec![
        aggregate(vec![doc! { "$project": { "b": endless() } }]),
        aggregate(vec![doc! { "$match": expr() }]),
        aggregate(vec![doc! { "$facet": { "f": [{ "$group": { "_id": endless() } }] } }]),
        aggregate(vec![doc! { "$lookup": { "from": "c", "let": { "l": endless() }, "pipeline": [], "as": "d" } }]),
        aggregate(vec![doc! { "$lookup": { "from": "c", "pipeline": [{ "$set": { "b": endless() } }], "as": "d" } }]),
        doc! { "aggregate": 1, "pipeline": [{ "$documents": [{ "a": endless() }] }], "cursor": {}, "$db": "db" },
        doc! { "find": "c", "filter": expr(), "$db": "db" },
        doc! { "find": "c", "filter": { "_id": 1 }, "projection": { "b": endless() }, "$db": "db" },
        doc! { "find": "c", "filter": { "_id": 1 }, "let": { "l": endless() }, "$db": "db" },
        doc! { "count": "c", "query": expr(), "$db": "db" },
        doc! { "distinct": "c", "key": "a", "query": expr(), "$db": "db" },
        doc! { "explain": { "find": "c", "filter": expr() }, "verbosity": "executionStats", "$db": "db" },
        doc! { "update": "c", "updates": [{ "q": expr(), "u": { "$set": { "b": 1 } } }], "$db": "db" },
        doc! { "delete": "c", "deletes": [{ "q": expr(), "limit": 0 }], "$db": "db" },
        doc! { "findAndModify": "c", "query": expr(), "remove": true, "$db": "db" },
        doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": set(), "$db": "db" },
        doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": set() }], "$db": "db" },
        doc! { "update": "c", "updates": [{ "q": { "a": 1 }, "u": set(), "multi": true }], "$db": "db" },
        doc! { "update": "c", "updates": [{ "q": { "_id": 9 }, "u": set(), "upsert": true }], "$db": "db" },
        doc! { "count": "large", "query": element(), "$db": "db" },
        doc! { "find": "large", "filter": element(), "$db": "db" },
        doc! { "delete": "large", "deletes": [{ "q": element(), "limit": 0 }], "$db": "db" },
        doc! { "update": "large", "updates": [{ "q": { "_id": 1 }, "u": { "$pull": { "list": none_of_many("a") } } }], "$db": "db" },
        doc! { "update": "large", "updates": [{
            "q": { "_id": 1 }, "u": { "$set": { "list.$[x]": 0 } }, "arrayFilters": [none_of_many("x.a")],
        }], "$db": "db" },
        // The validator of the collection computes.
        doc! { "insert": "checked", "documents": [{ "_id": 9 }], "$db": "db" },
        doc! { "update": "checked", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "b": 1 } } }], "$db": "db" },
        doc! { "update": "checked", "updates": [{ "q": { "a": 1 }, "u": { "$set": { "b": 1 } }, "multi": true }], "$db": "db" },
        doc! { "update": "checked", "updates": [{ "q": { "_id": 9 }, "u": { "$set": { "b": 1 } }, "upsert": true }], "$db": "db" },
        doc! { "findAndModify": "checked", "query": { "_id": 1 }, "update": { "$set": { "b": 1 } }, "$db": "db" },
    ]
}

#[test]
fn a_time_limit_ends_a_computation_wherever_it_is() -> Result<()> {
    let (_scratch, serve) = serve("compute-time")?;
    for mut command in commands() {
        command.insert("maxTimeMS", 100);
        let reply = serve.command(command.clone())?;
        assert_eq!(reply.get_i32("code").ok(), Some(50), "{command}: {reply}");
        assert_eq!(reply.get_str("codeName").ok(), Some("MaxTimeMSExpired"), "{reply}");
        // A computation whose client has gone blocks neither the committer nor the collection.
        let write =
            doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } }], "$db": "db" };
        let reply = serve.command(write)?;
        assert_eq!(reply.get_i32("nModified").ok(), Some(1), "after {command}: {reply}");
    }
    let documents = serve.find_all("c")?;
    assert_eq!(documents.len(), 3, "nothing was removed: {documents:?}");
    becomes_idle(&serve)
}

#[test]
fn a_command_that_is_killed_computes_no_further() -> Result<()> {
    let (_scratch, serve) = serve("compute-kill")?;
    for command in commands() {
        let running = in_the_background(&serve, &command);
        kill(&serve, command.keys().next().context("a name")?)?;
        let reply = running.join().ok().context("the thread")??;
        assert_eq!(reply.get_i32("code").ok(), Some(11601), "{command}: {reply}");
    }
    becomes_idle(&serve)
}

#[test]
fn a_client_that_vanishes_takes_its_computation_with_it() -> Result<()> {
    let (_scratch, serve) = serve("compute-vanish")?;
    let reads = commands().into_iter().filter(|command| {
        !matches!(command.keys().next().map(String::as_str), Some("insert" | "update" | "delete" | "findAndModify"))
    });
    for command in reads {
        serve.send_and_vanish(&command)?;
    }
    becomes_idle(&serve)
}

#[test]
fn others_are_served_meanwhile() -> Result<()> {
    let (_scratch, serve) = serve("compute-share")?;
    // There are more commands than threads for all connections.
    let large = || commands().into_iter().filter(|command| matches!(command.get_str("find"), Ok("large")));
    let reads: Vec<_> = commands().into_iter().take(12).chain((0..8).flat_map(|_| large())).collect();
    let running: Vec<_> = reads.iter().map(|command| in_the_background(&serve, command)).collect();
    for _ in 0..5 {
        assert_eq!(serve.find_all("c")?.len(), 3);
        let write =
            doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } }], "$db": "db" };
        assert_eq!(serve.command(write)?.get_i32("nModified").ok(), Some(1));
    }
    assert!(running.iter().all(|thread| !thread.is_finished()), "all are still at it");
    serve.signal("KILL")?;
    Ok(())
}

fn in_the_background(serve: &Arc<Serve>, command: &Document) -> JoinHandle<Result<Document>> {
    let (serve, command) = (Arc::clone(serve), command.clone());
    std::thread::spawn(move || serve.command(command))
}

/// Kills the command of this name when it runs.
#[expect(clippy::disallowed_methods, reason = "waits for another process, which no injected clock moves")]
fn kill(serve: &Serve, name: &str) -> Result<()> {
    let begun = now();
    while begun.elapsed() < PATIENCE {
        let pipeline = vec![doc! { "$currentOp": {} }];
        let reply = serve.command(doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": "admin" })?;
        let shown = reply.get_document("cursor")?.get_array("firstBatch")?;
        let wanted = shown.iter().filter_map(Bson::as_document).find(|operation| {
            operation.get_document("command").is_ok_and(|command| {
                // Of a long command only the name is shown.
                let whole = command.contains_key(name) && command.get_str("$db").ok() == Some("db");
                whole || command.get_str("$truncated").ok() == Some(name)
            })
        });
        if let Some(operation) = wanted {
            let killed = serve.command(doc! { "killOp": 1, "op": operation.get_i32("opid")?, "$db": "admin" })?;
            ensure!(killed.get_f64("ok").ok() == Some(1.0), "{killed}");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("{name} does not run")
}

/// Waits until the server evaluates no expression.
#[expect(clippy::disallowed_methods, reason = "waits for another process, which no injected clock moves")]
fn becomes_idle(serve: &Serve) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        let before = serve.processor_time()?;
        std::thread::sleep(WATCHED);
        if serve.processor_time()?.saturating_sub(before) <= IDLE_MAX {
            return Ok(());
        }
    }
    bail!("the server still computes")
}
