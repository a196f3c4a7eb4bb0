//! `--transaction-lifetime`: a transaction that is open for longer is aborted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};

use crate::support::{FREE_PORT, Scratch, Serve, handfast, now, pause};

/// A time that is much less than the default lifetime, and enough for a busy machine to find expired transactions.
const PATIENCE: Duration = Duration::from_secs(45);

/// Returns a command within the transaction of this number, in a session of its own.
fn within(number: i64, mut command: Document) -> Document {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    command.extend(doc! { "lsid": { "id": id }, "txnNumber": number, "autocommit": false });
    command
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }], "$db": "db" }
}

fn code_and_labels(reply: &Document) -> Result<(i32, Vec<&str>)> {
    let labels = reply.get_array("errorLabels").map_or_else(|_| Vec::new(), |labels| labels.iter().collect());
    Ok((reply.get_i32("code")?, labels.into_iter().filter_map(|label| label.as_str()).collect()))
}

#[test]
fn a_transaction_that_is_open_for_too_long_is_rolled_back_although_nobody_asks() -> Result<()> {
    let scratch = Scratch::new("lifetime")?;
    let flags = ["--data", "data", "--transaction-lifetime", "10s"];
    let serve = Serve::start(handfast(&scratch, &FREE_PORT).args(flags))?;
    let open = || -> Result<i64> {
        let status = serve.command(doc! { "serverStatus": 1, "$db": "admin" })?;
        Ok(status.get_document("transactions")?.get_i64("currentOpen")?)
    };
    let started = |number, id| -> Result<Document> {
        let mut first = within(number, insert(id));
        first.insert("startTransaction", true);
        serve.command(first)
    };
    // A transaction that is in time commits.
    ensure!(started(1, 1)?.get_i32("n")? == 1);
    let committed = serve.command(within(1, doc! { "commitTransaction": 1, "$db": "admin" }))?;
    assert_eq!(committed.get_f64("ok")?, 1.0, "{committed}");

    let begun = now();
    ensure!(started(2, 2)?.get_i32("n")? == 1);
    while open()? > 0 {
        ensure!(begun.elapsed() < PATIENCE, "the transaction is still open");
        pause(Duration::from_millis(50));
    }
    assert!(begun.elapsed() > Duration::from_secs(9), "it was open for {:?}", begun.elapsed());
    for command in [insert(3), doc! { "commitTransaction": 1, "$db": "admin" }] {
        let reply = serve.command(within(2, command))?;
        let expected = (251, vec!["TransientTransactionError"]);
        assert_eq!(code_and_labels(&reply).context(reply.to_string())?, expected);
    }
    assert_eq!(serve.find_all("c")?, [doc! { "_id": 1 }.into()]);
    Ok(())
}
