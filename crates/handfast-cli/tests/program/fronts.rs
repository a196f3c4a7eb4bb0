//! The commands of the patterns where a Handfast in front of a server writes the documents: they work through the front, and
//! the server behind it refuses them.

use std::process::{Child, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};

use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, connect, exchange, finish, handfast, now, pause};

/// The sum of all balances.
const SUM: i64 = 5000;
/// The maximal time until a document is written, even on a busy machine.
const WRITTEN_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// A server over a data directory, and a Handfast in front of it.
struct Front {
    scratch: Scratch,
    store: Serve,
    front: Serve,
}

impl Front {
    /// Starts both, and through the front creates two accounts, a job, and a row to transfer 30 from Ann to Bob.
    fn start(name: &str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let store = Serve::start(&mut handfast(&scratch, &[&FREE_PORT[..], &["--data", "data"]].concat()))?;
        let uri = uri(&store)?;
        let front = Serve::start(&mut handfast(&scratch, &[&FREE_PORT[..], &["--store", &uri]].concat()))?;
        std::fs::write(scratch.path("rows.csv"), "id,from,to,amount\nr1,ann,bob,30\n")?;
        let accounts = vec![doc! { "_id": "ann", "balance": SUM }, doc! { "_id": "bob", "balance": 0_i64 }];
        let job = doc! { "_id": "j", "ts": bson::DateTime::from_millis(0), "state": "TODO", "type": "mail", "undone": 1,
        "attempts": 0, "crashes": 0, "priority": 0, "runAt": bson::DateTime::from_millis(0), "details": {} };
        for (collection, documents) in [("accounts", accounts), ("jobs", vec![job])] {
            ok(&front.command(doc! { "insert": collection, "documents": documents, "$db": "db" })?)?;
        }
        Ok(Front { scratch, store, front })
    }

    fn output(&self, arguments: &[&str], place: [&str; 2]) -> Result<Output> {
        Ok(handfast(&self.scratch, arguments).args(place).args(["--database", "db"]).output()?)
    }

    /// Starts a command that uses a server as its store.
    fn spawn(&self, arguments: &[&str], server: &Serve) -> Result<Child> {
        let mut command = handfast(&self.scratch, arguments);
        command.args(["--store", &uri(server)?, "--database", "db"]);
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// Returns the sum of all balances, as the front shows them.
    fn sum(&self) -> Result<i64> {
        let accounts = self.front.find_all("accounts")?;
        accounts.iter().map(|account| Ok(account.as_document().context("a document")?.get_i64("balance")?)).sum()
    }

    /// Waits until a collection has a document.
    fn wait_for_document(&self, collection: &str) -> Result<()> {
        let began = now();
        while self.front.find_all(collection)?.is_empty() {
            ensure!(began.elapsed() < WRITTEN_MAX, "nothing was written to {collection}");
            pause(std::time::Duration::from_millis(20));
        }
        Ok(())
    }
}

/// A transaction through the front, in which Ann pays 100 to a shop.
struct Payment {
    connection: std::net::TcpStream,
    session: Binary,
}

impl Payment {
    fn begin(front: &Serve) -> Result<Self> {
        let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![9; 16] };
        let payment = Payment { connection: connect(&front.address()?)?, session };
        let pay = doc! { "q": { "_id": "ann" }, "u": { "$inc": { "balance": -100_i64 } } };
        let priority = doc! { "q": { "_id": "j" }, "u": { "$set": { "priority": 5 } } };
        let shop = doc! { "_id": "shop", "balance": 100_i64 };
        for command in [
            doc! { "update": "accounts", "updates": [pay], "$db": "db", "startTransaction": true },
            doc! { "insert": "accounts", "documents": [shop], "$db": "db" },
            doc! { "update": "jobs", "updates": [priority], "$db": "db" },
        ] {
            ok(&payment.command(command)?)?;
        }
        Ok(payment)
    }

    fn command(&self, mut command: Document) -> Result<Document> {
        command.extend(doc! { "lsid": { "id": self.session.clone() }, "txnNumber": 1_i64, "autocommit": false });
        exchange(&self.connection, &command)
    }

    fn commit(self) -> Result<()> {
        ok(&self.command(doc! { "commitTransaction": 1, "$db": "admin" })?)
    }
}

fn uri(server: &Serve) -> Result<String> {
    Ok(format!("mongodb://{}", server.address()?))
}

fn ok(reply: &Document) -> Result<()> {
    let is_ok = reply.get_f64("ok").ok() == Some(1.0) && !reply.contains_key("writeErrors");
    ensure!(is_ok, "{reply}");
    Ok(())
}

const TRANSFER: [&str; 4] = ["transfer", "rows.csv", "--mechanism", "two-phase"];

#[test]
fn a_transaction_of_a_front_and_the_patterns_through_it_leave_the_sum_as_it_was() -> Result<()> {
    let front = Front::start("through-front")?;
    let payment = Payment::begin(&front.front)?;
    let transfer = front.spawn(&TRANSFER, &front.front)?;
    // The account is written after the document of the transaction.
    front.wait_for_document("transactions")?;
    let cancel = front.spawn(&["jobs", "cancel", "j"], &front.front)?;
    payment.commit()?;
    for command in [transfer, cancel] {
        let output = finish(command)?;
        ensure!(output.status.success(), "{output:?}");
    }
    assert_eq!(front.sum()?, SUM);
    let jobs = front.front.find_all("jobs")?;
    let job = jobs.first().and_then(bson::Bson::as_document).context("the job")?;
    assert_eq!((job.get_str("state")?, job.get_i32("priority")?), ("CANCELED", 5), "{job}");
    let uri = uri(&front.front)?;
    let verified = front.output(&["twophase", "verify"], ["--store", &uri])?;
    ensure!(verified.status.success(), "{verified:?}");
    // If the command used transactions of its own, they would be those of a second front over the first.
    let by_transaction = front.output(&["transfer", "rows.csv", "--mechanism", "transaction"], ["--store", &uri])?;
    assert_one_line(&by_transaction, 1, "it is a Handfast in front of another server");
    Ok(())
}

#[test]
fn the_patterns_are_refused_by_the_store_behind_a_front() -> Result<()> {
    let mut front = Front::start("behind-front")?;
    let commands: [&[&str]; 8] = [
        &TRANSFER,
        &["transfer", "rows.csv", "--mechanism", "ledger", "--accounts", "accounts"],
        &["jobs", "cancel", "j"],
        &["jobs", "status"],
        &["twophase", "verify", "--collection", "accounts"],
        &["ledger", "verify", "--collection", "accounts"],
        &["sync", "status", "--collection", "accounts"],
        &["versions", "status", "--collection", "accounts", "--root", "r"],
    ];
    let payment = Payment::begin(&front.front)?;
    let behind = uri(&front.store)?;
    let expected = "a Handfast in front of this store writes to db.";
    for command in commands {
        assert_one_line(&front.output(command, ["--store", &behind])?, 1, expected);
    }
    for recorded in ["transactions.settings", "tx.settings"] {
        assert_eq!(front.front.find_all(recorded)?, [], "nothing was recorded in {recorded}");
    }
    payment.commit()?;
    assert_eq!(front.sum()?, SUM);
    front.front.stop("TERM")?;
    front.store.stop("TERM")?;
    for command in commands.into_iter().chain([&["transfer", "rows.csv"][..]]) {
        assert_one_line(&front.output(command, ["--data", "data"])?, 1, expected);
    }
    Ok(())
}

/// A server may hold collections of a front and others, even in one database.
#[test]
fn another_collection_of_the_store_behind_a_front_is_no_front_s() -> Result<()> {
    let front = Front::start("beside-front")?;
    for (database, collection) in [("db", "people"), ("other", "accounts")] {
        let accounts = vec![doc! { "_id": "ann", "balance": SUM }, doc! { "_id": "bob", "balance": 0_i64 }];
        ok(&front.store.command(doc! { "insert": collection, "documents": accounts, "$db": database })?)?;
        let mut transfer = handfast(&front.scratch, &TRANSFER);
        transfer.args(["--store", &uri(&front.store)?, "--database", database, "--accounts", collection]);
        let output = transfer.output()?;
        ensure!(output.status.success(), "{output:?}");
    }
    Ok(())
}

/// A store that is in use can be made a part of several stores.
#[test]
fn a_front_whose_store_was_taken_into_several_acknowledges_nothing_any_more() -> Result<()> {
    let scratch = Scratch::new("taken-front")?;
    let start = |place: &[&str]| Serve::start(&mut handfast(&scratch, &[&FREE_PORT[..], place].concat()));
    let (main, side) = (start(&["--data", "main"])?, start(&["--data", "side"])?);
    let insert = |front: &Serve, database: &str, id: i32| {
        front.command(doc! { "insert": "x", "documents": [{ "_id": id }], "$db": database })
    };
    let old = start(&["--store", &uri(&main)?])?;
    ok(&insert(&old, "t", 1)?)?;
    // This server has not taken a timestamp yet.
    let idle = start(&["--store", &uri(&main)?])?;
    let stores = [format!("a={}", uri(&main)?), format!("b={}", uri(&side)?)];
    let routes = ["--store", &stores[0], "--store", &stores[1], "--route", "*=a", "--route", "u=b"];
    let new = start(&routes)?;
    ok(&insert(&new, "u", 2)?)?;
    for front in [&old, &idle] {
        for database in ["t", "u"] {
            let refused = insert(front, database, 3)?;
            ensure!(ok(&refused).is_err() && refused.to_string().contains("was taken into several"), "{refused}");
        }
        let read = front.command(doc! { "find": "x", "$db": "u" })?;
        ensure!(read.get_i32("code").ok() == Some(20), "{read}");
    }
    for (database, id) in [("t", 1), ("u", 2)] {
        let found = new.command(doc! { "find": "x", "$db": database })?;
        let batch = found.get_document("cursor")?.get_array("firstBatch")?;
        assert_eq!(batch, &vec![bson::Bson::Document(doc! { "_id": id })]);
    }
    Ok(())
}
