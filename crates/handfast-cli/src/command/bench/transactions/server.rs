//! Transfers through the server: three round trips with a transaction, two without.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBsonRef, RawDocumentBuf, cstr, rawdoc};
use tokio::sync::Mutex;

use super::{Bench, by, pair};
use crate::command::bench::client::Client;
use crate::command::bench::measure::{Round, interleaved};
use crate::command::bench::report::Comparison;

const WRITE_CONFLICT: i32 = 112;

/// A connection and a session on it.
struct TransferClient {
    client: Client,
    session: Binary,
    number: i64,
}

/// The answer to a command of a transaction.
enum Answer {
    Done,
    Conflict,
}

/// Compares transactions with the same two updates one after the other.
pub(super) async fn compare(bench: &Bench<'_>, connections: usize) -> Result<Comparison> {
    let before = bench.database.counts();
    let measure = async |method| measured(bench, connections, method).await;
    let baseline = async |_| measure(Method::TwoUpdates).await;
    let rounds = interleaved(bench.plan.rounds, baseline, async |_| measure(Method::Transaction).await).await?;
    let counts = super::since(before, bench.database.counts());
    let name = format!("transfer, server, {connections} connections");
    let comparison = Comparison::new(&name, "the two updates alone", &rounds, Some(0.3));
    Ok(comparison.with_note(super::aborts(counts)))
}

#[derive(Clone, Copy)]
enum Method {
    TwoUpdates,
    Transaction,
}

async fn measured(bench: &Bench<'_>, connections: usize, method: Method) -> Result<Round> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        let session = Binary { subtype: BinarySubtype::Uuid, bytes: bench.database.sources().uuid().to_vec() };
        clients.push(Mutex::new(TransferClient { client: Client::connect(bench.server).await?, session, number: 0 }));
    }
    let (clients, accounts) = (Arc::new(clients), bench.plan.documents);
    let collection = Arc::new(bench.namespace.clone());
    bench
        .round(connections, move |task, step| {
            let (clients, collection) = (Arc::clone(&clients), Arc::clone(&collection));
            async move {
                let (from, to) = pair(task, step, accounts)?;
                let commands = [update(&collection, from, -1), update(&collection, to, 1)];
                let mut client = clients.get(task).context("a task without a connection")?.lock().await;
                match method {
                    Method::TwoUpdates => client.send_both(commands).await,
                    Method::Transaction => client.send_transaction(commands).await,
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

impl TransferClient {
    async fn send_both(&mut self, commands: [RawDocumentBuf; 2]) -> Result<()> {
        for command in commands {
            ensure!(matches!(self.send(&command).await?, Answer::Done), "an update alone met a conflict");
        }
        Ok(())
    }

    /// Sends the commands in a transaction, again after a conflict.
    async fn send_transaction(&mut self, commands: [RawDocumentBuf; 2]) -> Result<()> {
        while matches!(self.attempt(&commands).await?, Answer::Conflict) {}
        Ok(())
    }

    async fn attempt(&mut self, commands: &[RawDocumentBuf; 2]) -> Result<Answer> {
        self.number += 1;
        for (index, command) in commands.iter().enumerate() {
            let mut command = self.in_transaction(command.clone());
            if index == 0 {
                command.append(cstr!("startTransaction"), true);
            }
            if matches!(self.send(&command).await?, Answer::Conflict) {
                return Ok(Answer::Conflict);
            }
        }
        let commit = self.in_transaction(rawdoc! { "commitTransaction": 1, "$db": "admin" });
        self.send(&commit).await
    }

    fn in_transaction(&self, mut command: RawDocumentBuf) -> RawDocumentBuf {
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
