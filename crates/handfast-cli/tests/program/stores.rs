//! Documents in the stores of other servers, which die and come back; in one or several of them, and with transactions over two.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use serde_json::Value;

use crate::support::{Scratch, Serve, assert_one_line, connect, exchange, handfast, now, output, pause};

/// MongoDB's code for an unreachable server, after which drivers retry.
const HOST_UNREACHABLE: i32 = 6;
/// The timeout of the tests, and the maximal time of an answer, as a busy machine may wait for a server twice.
const STORE_TIMEOUT: &str = "4s";
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The maximal time until a store that is back is found.
const BACK_MAX: Duration = Duration::from_secs(30);

/// A server that can be killed, and restarted at the same address.
struct Mortal<'s> {
    scratch: &'s Scratch,
    arguments: Vec<String>,
    serve: Option<Serve>,
    address: String,
}

impl<'s> Mortal<'s> {
    /// Starts a server that others use as a store.
    fn store(scratch: &'s Scratch, data: &str) -> Result<Self> {
        Mortal::start(scratch, &["--data", data, "--part"])
    }

    /// Starts a server over both stores, with the collection `shop.orders` in the second.
    fn front(scratch: &'s Scratch, main: &Mortal<'_>, side: &Mortal<'_>, more: &[&str]) -> Result<Self> {
        let (main, side) = (format!("main={}", main.uri()), format!("side={}", side.uri()));
        let routes = ["--store", &main, "--store", &side, "--route", "*=main", "--route", "shop.orders=side"];
        Mortal::start(scratch, &[&routes, more].concat())
    }

    fn start(scratch: &'s Scratch, arguments: &[&str]) -> Result<Self> {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut mortal = Mortal { scratch, arguments, serve: None, address: "127.0.0.1:0".to_owned() };
        mortal.restart()?;
        mortal.address = mortal.serve()?.address()?;
        Ok(mortal)
    }

    fn restart(&mut self) -> Result<()> {
        let mut command = handfast(self.scratch, &["serve", "--listen", &self.address]);
        self.serve = Some(Serve::start(command.args(&self.arguments))?);
        Ok(())
    }

    /// Kills the server, as it cannot be asked to stop.
    fn kill(&mut self) -> Result<()> {
        let serve = self.serve.take().context("it runs")?;
        serve.signal("KILL")?;
        serve.wait()?;
        Ok(())
    }

    fn serve(&self) -> Result<&Serve> {
        self.serve.as_ref().context("it runs")
    }

    fn command(&self, command: Document) -> Result<Document> {
        self.serve()?.command(command)
    }

    fn uri(&self) -> String {
        format!("mongodb://{}", self.address)
    }

    /// Returns the documents of a collection of the database `shop`, as they are stored here.
    fn stored(&self, collection: &str) -> Result<Vec<Document>> {
        batch(&self.command(doc! { "find": collection, "$db": "shop" })?)
    }
}

fn batch(reply: &Document) -> Result<Vec<Document>> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let documents = batch.with_context(|| reply.to_string())?;
    documents.iter().map(|document| document.as_document().cloned().context("a document")).collect()
}

fn ok(reply: &Document) -> Result<&Document> {
    let is_ok = reply.get_f64("ok").ok() == Some(1.0) && !reply.contains_key("writeErrors");
    ensure!(is_ok, "{reply}");
    Ok(reply)
}

/// The number of kinds of items, and of items of each kind.
const ITEMS: i32 = 4;
const EACH: i32 = 100;
const STOCK: i32 = ITEMS * EACH;

/// Sells an item: changes the stock in one store, and inserts the order into the other.
fn sell(address: &str, number: i32) -> Result<Document> {
    static SESSIONS: AtomicU32 = AtomicU32::new(1);
    let mut id = [7; 16];
    id[..4].copy_from_slice(&SESSIONS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() };
    let within = |mut command: Document| {
        command.extend(doc! { "lsid": { "id": id.clone() }, "txnNumber": 1_i64, "autocommit": false });
        command
    };
    let connection = connect(address)?;
    let order = doc! { "insert": "orders", "documents": [{ "_id": number }], "$db": "shop", "startTransaction": true };
    let stock = doc! { "q": { "_id": number % ITEMS }, "u": { "$inc": { "left": -1 } } };
    for command in [order, doc! { "update": "items", "updates": [stock], "$db": "shop" }] {
        let reply = exchange(&connection, &within(command))?;
        if ok(&reply).is_err() {
            let _ = exchange(&connection, &within(doc! { "abortTransaction": 1, "$db": "admin" }));
            return Ok(reply);
        }
    }
    exchange(&connection, &within(doc! { "commitTransaction": 1, "$db": "admin" }))
}

/// Returns the stock and the number of orders of one snapshot.
fn count(front: &Mortal<'_>) -> Result<(i32, usize)> {
    let lookup = doc! { "from": "orders", "pipeline": [], "as": "orders" };
    let group = doc! { "_id": null, "left": { "$sum": "$left" } };
    let pipeline = vec![doc! { "$group": group }, doc! { "$lookup": lookup }];
    let count = doc! { "aggregate": "items", "pipeline": pipeline, "cursor": {}, "$db": "shop" };
    let found = batch(&until_good(|| front.command(count.clone()))?)?;
    let stock = found.first().context("the stock")?;
    Ok((stock.get_i32("left")?, stock.get_array("orders")?.len()))
}

fn fill(front: &Mortal<'_>) -> Result<()> {
    let items: Vec<_> = (0..ITEMS).map(|item| doc! { "_id": item, "left": EACH }).collect();
    ok(&front.command(doc! { "insert": "items", "documents": items, "$db": "shop" })?)?;
    let orders = doc! { "create": "orders", "$db": "shop" };
    ok(&front.command(orders)?).map(drop)
}

/// Repeats a command until it succeeds: a server that is back is found without a restart.
fn until_good(what: impl Fn() -> Result<Document>) -> Result<Document> {
    let began = now();
    loop {
        let reply = what()?;
        if ok(&reply).is_ok() || began.elapsed() > BACK_MAX {
            return ok(&reply).cloned();
        }
        pause(Duration::from_millis(100));
    }
}

#[test]
fn a_store_that_dies_is_told_soon_and_found_again() -> Result<()> {
    let scratch = Scratch::new("stores-dies")?;
    let mut store = Mortal::store(&scratch, "data")?;
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", &store.uri(), "--store-timeout", STORE_TIMEOUT];
    let front = Serve::start(&mut handfast(&scratch, &arguments))?;
    let insert = |id: i32| front.command(doc! { "insert": "items", "documents": [{ "_id": id }], "$db": "shop" });
    let find = || front.command(doc! { "find": "items", "$db": "shop" });
    ok(&insert(1)?)?;

    store.kill()?;
    for command in [
        doc! { "find": "items", "$db": "shop" },
        doc! { "insert": "items", "documents": [{ "_id": 2 }], "$db": "shop" },
    ] {
        let began = now();
        let reply = front.command(command)?;
        let took = began.elapsed();
        assert_eq!((reply.get_f64("ok")?, reply.get_i32("code")?), (0.0, HOST_UNREACHABLE), "{reply}");
        assert_eq!(reply.get_str("codeName")?, "HostUnreachable", "{reply}");
        assert!(took < ANSWER_MAX, "{took:?}: {reply}");
    }
    store.restart()?;
    assert_eq!(batch(&until_good(find)?)?.len(), 1, "what was refused was not done");
    ok(&insert(2)?).map(drop)
}

#[test]
fn a_transaction_is_over_documents_in_two_stores() -> Result<()> {
    let scratch = Scratch::new("stores-two")?;
    let (main, side) = (Mortal::store(&scratch, "main")?, Mortal::store(&scratch, "side")?);
    let front = Mortal::front(&scratch, &main, &side, &[])?;
    let mut another = handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--json"]);
    let line: Value = serde_json::from_str(&Serve::start(another.args(&front.arguments))?.start)?;
    assert_eq!((&line["stores"][0]["name"], &line["stores"][1]["name"]), (&"main".into(), &"side".into()), "{line}");
    fill(&front)?;
    ok(&sell(&front.address, 1)?)?;
    assert_eq!(count(&front)?, (STOCK - 1, 1));
    // Each collection is in the store of its route, and in no other.
    assert_eq!((main.stored("items")?.len(), main.stored("orders")?.len()), (4, 0));
    assert_eq!((side.stored("items")?.len(), side.stored("orders")?.len()), (0, 1));

    // The order exists already: neither store is changed.
    let refused = sell(&front.address, 1)?;
    assert!(ok(&refused).is_err(), "{refused}");
    assert_eq!(count(&front)?, (STOCK - 1, 1));
    Ok(())
}

#[test]
fn what_needs_only_the_store_that_is_there_goes_on() -> Result<()> {
    let scratch = Scratch::new("stores-away")?;
    let (main, mut side) = (Mortal::store(&scratch, "main")?, Mortal::store(&scratch, "side")?);
    let front = Mortal::front(&scratch, &main, &side, &["--store-timeout", STORE_TIMEOUT])?;
    fill(&front)?;
    ok(&sell(&front.address, 1)?)?;

    side.kill()?;
    let began = now();
    let reply = sell(&front.address, 2)?;
    assert_eq!(reply.get_i32("code").ok(), Some(HOST_UNREACHABLE), "{reply}");
    // The driver runs the whole transaction again.
    let labels = reply.get_array("errorLabels").with_context(|| reply.to_string())?;
    assert_eq!(labels, &["TransientTransactionError".into()], "{reply}");
    assert!(began.elapsed() < ANSWER_MAX, "{:?}: {reply}", began.elapsed());
    let add =
        doc! { "update": "items", "updates": [{ "q": { "_id": 2 }, "u": { "$inc": { "left": 1 } } }], "$db": "shop" };
    assert_eq!(ok(&front.command(add)?)?.get_i32("nModified")?, 1);

    side.restart()?;
    until_good(|| sell(&front.address, 2))?;
    assert_eq!(count(&front)?, (STOCK - 1, 2), "one was put back");
    Ok(())
}

/// Both stores are killed repeatedly while items are sold, and mostly the server, too: a commit that it did not complete in the
/// store that was killed first has to be completed by another process.
#[test]
fn nothing_is_half_sold_whichever_process_is_killed() -> Result<()> {
    const KILLS: u64 = 8;
    let scratch = Scratch::new("stores-kills")?;
    let (mut main, mut side) = (Mortal::store(&scratch, "main")?, Mortal::store(&scratch, "side")?);
    let mut front = Mortal::front(&scratch, &main, &side, &["--store-timeout", STORE_TIMEOUT])?;
    fill(&front)?;
    let address = front.address.clone();
    let done = AtomicBool::new(false);
    let (acknowledged, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| -> Result<()> {
        for worker in 0..ITEMS {
            let (address, done, acknowledged, refused) = (&address, &done, &acknowledged, &refused);
            scope.spawn(move || {
                let mut number = worker;
                while !done.load(Ordering::Relaxed) {
                    number += ITEMS;
                    if sell(address, number).is_ok_and(|reply| ok(&reply).is_ok()) {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    } else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        pause(Duration::from_millis(10));
                    }
                }
            });
        }
        let killed = (|| {
            for kill in 0..KILLS {
                until_more(&acknowledged)?;
                pause(Duration::from_millis(50 + 30 * kill));
                let store = if kill % 3 == 2 { &mut main } else { &mut side };
                store.kill()?;
                if kill % 4 != 3 {
                    // Transactions that have their locks get time to commit.
                    pause(Duration::from_millis(30));
                    front.kill()?;
                }
                store.restart()?;
                if front.serve.is_none() {
                    front.restart()?;
                }
            }
            until_more(&acknowledged)
        })();
        done.store(true, Ordering::Relaxed);
        killed
    })?;
    let (left, orders) = count(&front)?;
    let (acknowledged, refused) = (acknowledged.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    println!("{acknowledged} acknowledged, {refused} not, {orders} orders");
    assert_eq!(left, STOCK - i32::try_from(orders)?, "an order is a piece less");
    assert!(orders >= acknowledged as usize, "{orders} orders, {acknowledged} were acknowledged");
    assert!(refused > 0, "nothing was put to the test");
    Ok(())
}

/// Waits until another item is sold.
fn until_more(acknowledged: &AtomicU32) -> Result<()> {
    let (began, before) = (now(), acknowledged.load(Ordering::Relaxed));
    while acknowledged.load(Ordering::Relaxed) == before {
        ensure!(began.elapsed() < BACK_MAX, "nothing is sold any more, after {before}");
        pause(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn the_bank_is_in_two_stores() -> Result<()> {
    let scratch = Scratch::new("stores-bank")?;
    let (main, side) = (Mortal::store(&scratch, "main")?, Mortal::store(&scratch, "side")?);
    let (a, b) = (format!("a={}", main.uri()), format!("b={}", side.uri()));
    let arguments =
        ["bank", "--json", "--store", &a, "--store", &b, "--accounts", "6", "--transfers", "150", "--crash", "3"];
    let output = handfast(&scratch, &arguments).output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report["money_in"], &report["history_clean"]), (&report["money_out"], &true.into()), "{report}");
    assert_eq!(report["kills"], 3, "{report}");
    for (store, collection) in [(&main, "accounts"), (&side, "accounts_2")] {
        let found = store.serve()?.command(doc! { "find": collection, "$db": "handfast_bank" })?;
        assert_eq!(batch(&found)?.len(), 3, "half of the accounts: {found}");
    }
    let status = handfast(&scratch, &["txns", "status", "--json", "--store", &a, "--store", &b])
        .args(["--route", "*=a", "--route", "handfast_bank.accounts_2=b"])
        .output()?;
    let status: Value = serde_json::from_slice(&status.stdout).with_context(|| format!("{status:?}"))?;
    assert_eq!(status["locks"], 0, "{status}");
    Ok(())
}

/// Several processes use a store without transactions; each is killed at times, and the others continue.
#[test]
fn the_bank_has_several_processes_on_one_store() -> Result<()> {
    let scratch = Scratch::new("stores-processes")?;
    let store = Mortal::store(&scratch, "data")?;
    let bank = |more: &[&str]| {
        let arguments = ["bank", "--json", "--store", &store.uri(), "--accounts", "12", "--processes", "3"];
        Ok::<_, anyhow::Error>(handfast(&scratch, &arguments).args(more).output()?)
    };
    let output = bank(&["--transfers", "150", "--crash", "4", "--history", "run.jsonl"])?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report["money_in"], &report["history_clean"]), (&report["money_out"], &true.into()), "{report}");
    assert_eq!((&report["kills"], &report["locks_left"]), (&4.into(), &0.into()), "{report}");
    // Of seven processes three run at a time; those that are killed early have done nothing, and the third of the last ones may
    // come too late.
    let history = std::fs::read_to_string(scratch.path("run.jsonl"))?;
    let processes = history.lines().filter(|line| line.contains("\"ok\"")).filter_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        event["process"].as_u64().map(|worker| worker / 10_000).filter(|process| *process > 0)
    });
    assert!(processes.collect::<BTreeSet<_>>().len() >= 2, "{report}");
    assert_one_line(&bank(&["--workers", "2"])?, 2, "--processes: each process needs a worker");
    Ok(())
}

#[test]
fn stores_are_opened_together_and_by_the_same_routes() -> Result<()> {
    let scratch = Scratch::new("stores-rule")?;
    let (mut main, mut side) = (Mortal::store(&scratch, "main")?, Mortal::store(&scratch, "side")?);
    let (a, b) = (format!("main={}", main.uri()), format!("side={}", side.uri()));
    let check = |arguments: &[&str], code: i32, why: &str| -> Result<()> {
        let output = output(&mut handfast(&scratch, &[&["serve", "--listen", "127.0.0.1:0"], arguments].concat()))?;
        assert_one_line(&output, code, why);
        Ok(())
    };
    let both = ["--store", &a, "--store", &b];
    // A command that only reads does not combine the stores.
    let look = [&["txns", "status"], &both[..], &["--route", "*=main", "--route", "shop.orders=side"]].concat();
    assert_one_line(&handfast(&scratch, &look).output()?, 1, "these stores were never used together");
    for store in [&main, &side] {
        let databases = store.serve()?.command(doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" })?;
        assert_eq!(databases.get_array("databases")?.len(), 0, "{databases}");
    }
    drop(Mortal::front(&scratch, &main, &side, &[])?);
    check(
        &[&both[..], &["--route", "*=main", "--route", "shop.items=side"]].concat(),
        1,
        "kept by other routes: *=main shop.orders=side",
    )?;
    check(&["--store", &side.uri()], 1, "this is the store 'side' of several that are used together")?;
    check(&["--store", &main.uri()], 1, "this is the store 'main' of several that are used together")?;

    // Nor can one of the stores be used alone as a data directory.
    for (store, name) in [(&mut main, "main"), (&mut side, "side")] {
        store.kill()?;
        let why = format!("cannot use {name}: this is the store '{name}' of several that are used together");
        check(&["--data", name], 1, &why)?;
        let jobs = handfast(&scratch, &["jobs", "status", "--database", "shop", "--data", name]).output()?;
        assert_one_line(&jobs, 1, &why);
        store.restart()?;
    }

    check(&both, 2, "store (from flag --store): several stores need `route`")?;
    check(
        &[&both[..], &["--route", "shop=side"]].concat(),
        2,
        "no route names the store of all other collections: add one such as *=main",
    )?;
    check(
        &[&both[..], &["--route", "*=main", "--route", "shop=x"]].concat(),
        2,
        "the route shop=x names an unknown store; the stores are main, side",
    )?;
    check(&[&both[..], &["--route", "*=main", "--route", "shop"]].concat(), 2, "'shop' is not a route")?;
    check(&["--store", &main.uri(), "--store", &b, "--route", "*=side"], 2, "several stores need a name each")?;
    check(
        &["--route", "*=main"],
        2,
        "route (from flag --route): it has no effect without `store`, which names a server",
    )?;
    check(&["--store-timeout", "1s"], 2, "it has no effect without `store`, which names a server")?;
    let bank = handfast(&scratch, &["bank", "--mechanism", "two-phase", "--store", &a, "--store", &b]).output()?;
    assert_one_line(&bank, 2, "--store: several stores need --mechanism transaction");

    let config = handfast(&scratch, &["config", "--json", "--store", "a=mongodb://u:p@h", "--store", "b=mongodb://i"])
        .output()?;
    let config: Value = serde_json::from_slice(&config.stdout)?;
    assert_eq!(config["store"]["value"], "a=mongodb://h:27017 b=mongodb://i:27017", "{config}");
    Ok(())
}
