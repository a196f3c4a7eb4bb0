//! Transfers through the server: three round trips with a transaction, two without.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBsonRef, RawDocumentBuf, cstr, rawdoc};
use tokio::sync::Mutex;

use super::{Bench, by, pair};
use crate::command::bench::client::Client;
use crate::command::bench::measure::{Round, Series};
use crate::command::bench::report::Comparison;

/// Another transaction was first.
const WRITE_CONFLICT: i32 = 112;

/// One connection, and a session on it.
struct Teller {
    client: Client,
    session: Binary,
    number: i64,
}

/// What the server says to a command of a transaction.
enum Answer {
    Done,
    Conflict,
}

/// Transactions against the same two updates one after the other.
///
/// # Errors
/// What the server or the network says.
pub(super) async fn compare(bench: &Bench<'_>, connections: usize) -> Result<Comparison> {
    let (mut subject, mut baseline) = (Series::default(), Series::default());
    let before = bench.database.counts();
    for _ in 0..bench.plan.rounds {
        baseline.push(measured(bench, connections, Way::TwoUpdates).await?);
        subject.push(measured(bench, connections, Way::Transaction).await?);
    }
    let counts = super::since(before, bench.database.counts());
    let name = format!("transfer, server, {connections} connections");
    let comparison = Comparison::new(&name, &subject, "the two updates alone", &baseline, Some(0.3));
    Ok(comparison.with_note(super::aborts(counts)))
}

/// How money moves.
#[derive(Clone, Copy)]
enum Way {
    TwoUpdates,
    Transaction,
}

async fn measured(bench: &Bench<'_>, connections: usize, way: Way) -> Result<Round> {
    let mut tellers = Vec::with_capacity(connections);
    for _ in 0..connections {
        let session = Binary { subtype: BinarySubtype::Uuid, bytes: bench.database.sources().uuid().to_vec() };
        tellers.push(Mutex::new(Teller { client: Client::connect(bench.server).await?, session, number: 0 }));
    }
    let (tellers, accounts) = (Arc::new(tellers), bench.plan.documents);
    let collection = Arc::new(bench.namespace.clone());
    bench
        .round(connections, move |task, step| {
            let (tellers, collection) = (Arc::clone(&tellers), Arc::clone(&collection));
            async move {
                let (from, to) = pair(task, step, accounts)?;
                let commands = [update(&collection, from, -1), update(&collection, to, 1)];
                let mut teller = tellers.get(task).context("a task without a connection")?.lock().await;
                match way {
                    Way::TwoUpdates => teller.one_by_one(commands).await,
                    Way::Transaction => teller.together(commands).await,
                }
            }
        })
        .await
}

fn update(collection: &handfast_store::Namespace, id: i64, amount: i32) -> RawDocumentBuf {
    rawdoc! {
        "update": collection.collection(),
        "updates": [{ "q": { "_id": id }, "u": by(amount) }],
        "$db": collection.database(),
    }
}

impl Teller {
    async fn one_by_one(&mut self, commands: [RawDocumentBuf; 2]) -> Result<()> {
        for command in commands {
            ensure!(matches!(self.send(&command).await?, Answer::Done), "an update alone met a conflict");
        }
        Ok(())
    }

    /// In a transaction, again after a conflict.
    async fn together(&mut self, commands: [RawDocumentBuf; 2]) -> Result<()> {
        while matches!(self.attempt(&commands).await?, Answer::Conflict) {}
        Ok(())
    }

    async fn attempt(&mut self, commands: &[RawDocumentBuf; 2]) -> Result<Answer> {
        self.number += 1;
        for (place, command) in commands.iter().enumerate() {
            let mut command = self.of_transaction(command.clone());
            if place == 0 {
                command.append(cstr!("startTransaction"), true);
            }
            if matches!(self.send(&command).await?, Answer::Conflict) {
                return Ok(Answer::Conflict);
            }
        }
        let commit = self.of_transaction(rawdoc! { "commitTransaction": 1, "$db": "admin" });
        self.send(&commit).await
    }

    fn of_transaction(&self, mut command: RawDocumentBuf) -> RawDocumentBuf {
        command.append(cstr!("lsid"), rawdoc! { "id": self.session.clone() });
        command.append(cstr!("txnNumber"), self.number);
        command.append(cstr!("autocommit"), false);
        command
    }

    async fn send(&mut self, command: &RawDocumentBuf) -> Result<Answer> {
        let reply = self.client.command(command).await?;
        let is_ok = reply.get("ok")?.and_then(RawBsonRef::as_f64) == Some(1.0);
        match reply.get("code")? {
            None if is_ok && reply.get("writeErrors")?.is_none() => Ok(Answer::Done),
            Some(RawBsonRef::Int32(WRITE_CONFLICT)) => Ok(Answer::Conflict),
            _ => bail!("the server refused: {reply:?}"),
        }
    }
}
