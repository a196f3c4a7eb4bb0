//! `handfast bench serve`: the server against an echo that answers every message with the bytes that the server answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{RawDocumentBuf, rawdoc};
use handfast_store::Clock;
use handfast_wire::Limits;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::Promises;
use super::client::{Client, load, read_frame};
use super::measure::{interleaved, round};
use super::report::Comparison;
use super::store::scattered;

pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) documents: u64,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(super) promises: Promises,
}

/// Answers each request with `reply`, whatever it says.
pub(super) async fn echo(listener: TcpListener, reply: Arc<Vec<u8>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let reply = Arc::clone(&reply);
        tokio::spawn(async move {
            if stream.set_nodelay(true).is_err() {
                return;
            }
            let limits = Limits::default();
            let mut frame = Vec::new();
            let mut stream = BufReader::new(stream);
            let mut reply = reply.to_vec();
            // An error is the end of the measurement by the client.
            while read_frame(&mut stream, &limits, &mut frame).await.is_ok() {
                // The number of the request is in its header, and in that of the reply behind its own number.
                if let (Some(to), Some(request_id)) = (reply.get_mut(8..12), frame.get(4..8)) {
                    to.copy_from_slice(request_id);
                }
                if stream.write_all(&reply).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Loads documents through the server and runs all cases.
pub(crate) async fn run(
    plan: &Plan,
    clock: Arc<dyn Clock>,
    server: SocketAddr,
    document: &dyn Fn(i64) -> RawDocumentBuf,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Comparison>> {
    progress("loading documents through the server");
    load(server, plan.documents, document).await?;
    let mut comparisons = Vec::new();
    progress("find by _id through the server");
    let promised = plan.promises.ratio(0.6);
    comparisons.push(compare(plan, &clock, server, "find by _id, server", promised, find_command).await?);
    progress("update by _id through the server");
    comparisons.push(compare(plan, &clock, server, "update by _id ($inc), server", None, update_command).await?);
    Ok(comparisons)
}

pub(super) fn find_command(id: i64) -> RawDocumentBuf {
    rawdoc! { "find": "documents", "filter": { "_id": id }, "limit": 1, "singleBatch": true, "$db": "bench" }
}

fn update_command(id: i64) -> RawDocumentBuf {
    rawdoc! {
        "update": "documents",
        "updates": [{ "q": { "_id": id }, "u": { "$inc": { "count": 1 } } }],
        "$db": "bench",
    }
}

async fn compare(
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    server: SocketAddr,
    case: &str,
    promised: Option<f64>,
    command: fn(i64) -> RawDocumentBuf,
) -> Result<Comparison> {
    let mut first = Client::connect(server).await?;
    let reply = first.command(&command(0)).await?;
    ensure!(reply.get("ok")?.and_then(bson::RawBsonRef::as_f64) == Some(1.0), "the server refused: {reply:?}");
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let echo_address = listener.local_addr()?;
    let echo = tokio::spawn(echo(listener, Arc::new(first.frame.clone())));

    let baseline = async |_| measured(plan, clock, echo_address, command).await;
    let rounds = interleaved(plan.rounds, baseline, async |_| measured(plan, clock, server, command).await).await?;
    echo.abort();
    Ok(Comparison::new(case, "echo of the same messages", &rounds, promised).with_note(format!(
        "{} connections, replies of {} bytes",
        plan.connections,
        first.frame.len()
    )))
}

pub(super) async fn measured(
    plan: &Plan,
    clock: &Arc<dyn Clock>,
    address: SocketAddr,
    command: fn(i64) -> RawDocumentBuf,
) -> Result<super::measure::Round> {
    let mut clients = Vec::with_capacity(plan.connections);
    for _ in 0..plan.connections {
        clients.push(Mutex::new(Client::connect(address).await?));
    }
    let clients = Arc::new(clients);
    let documents = plan.documents;
    round(Arc::clone(clock), plan.connections, Duration::from_secs_f64(plan.seconds), move |task, step| {
        let clients = Arc::clone(&clients);
        async move {
            let client = clients.get(task).context("a task without a connection")?;
            let id = i64::try_from(scattered(task, step, documents))?;
            client.lock().await.exchange(&command(id)).await
        }
    })
    .await
}
