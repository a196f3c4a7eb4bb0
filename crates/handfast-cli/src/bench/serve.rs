//! `handfast bench serve`: the server against an echo that answers every message with the bytes that the server answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::Clock;
use handfast_wire::{Flags, HEADER_BYTES, Header, Limits, Message, OpMsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use super::measure::{Series, round};
use super::report::Comparison;
use super::store::scattered;

/// Documents that one load request carries.
const LOAD_BATCH_DOCUMENTS: u64 = 1000;

/// What to run, and how long.
pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) documents: u64,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
}

/// A connection that sends one command and waits for its reply.
pub(crate) struct Client {
    stream: TcpStream,
    request_id: i32,
    limits: Limits,
    frame: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// What the network says.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, request_id: 0, limits: Limits::default(), frame: Vec::new() })
    }

    /// Sends a command and returns the reply's body.
    ///
    /// # Errors
    /// What the network says, or what is not the wire protocol.
    pub(crate) async fn command(&mut self, body: &RawDocument) -> Result<RawDocumentBuf> {
        self.exchange(body).await?;
        match Message::decode(&self.frame, &self.limits)?.1 {
            Message::Msg(reply) => Ok(reply.body.to_owned()),
            other => bail!("expected a reply in OP_MSG, got {other:?}"),
        }
    }

    /// Sends a command and reads the whole reply without looking at it.
    async fn exchange(&mut self, body: &RawDocument) -> Result<()> {
        self.request_id = self.request_id.wrapping_add(1);
        self.frame.clear();
        OpMsg::new(Flags::default(), body).encode(self.request_id, 0, &mut self.frame);
        self.stream.write_all(&self.frame).await?;
        read_frame(&mut self.stream, &self.limits, &mut self.frame).await.context("the server hung up")
    }
}

async fn read_frame(stream: &mut TcpStream, limits: &Limits, frame: &mut Vec<u8>) -> Result<()> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let bytes = Header::decode(&header).frame_bytes(limits)?;
    frame.clear();
    frame.extend_from_slice(&header);
    frame.resize(bytes, 0);
    stream.read_exact(frame.get_mut(HEADER_BYTES..).context("a frame shorter than its header")?).await?;
    Ok(())
}

/// Answers each frame with `reply`, whatever it says.
async fn echo(listener: TcpListener, reply: Arc<Vec<u8>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let reply = Arc::clone(&reply);
        tokio::spawn(async move {
            let limits = Limits::default();
            let mut frame = Vec::new();
            // An error here is the client's end of the measurement.
            while stream.set_nodelay(true).is_ok()
                && read_frame(&mut stream, &limits, &mut frame).await.is_ok()
                && stream.write_all(&reply).await.is_ok()
            {}
        });
    }
}

/// Loads documents through the server and runs all cases.
///
/// # Errors
/// What the server or the network says.
pub(crate) async fn run(
    plan: &Plan,
    clock: Arc<dyn Clock>,
    server: SocketAddr,
    document: &dyn Fn(i64) -> RawDocumentBuf,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Comparison>> {
    progress("loading documents through the server");
    load(plan, server, document).await?;
    let mut comparisons = Vec::new();
    progress("find by _id through the server");
    comparisons.push(compare(plan, &clock, server, "find by _id, server", Some(0.6), find_command).await?);
    progress("update by _id through the server");
    comparisons.push(compare(plan, &clock, server, "update by _id ($inc), server", None, update_command).await?);
    Ok(comparisons)
}

fn find_command(id: i64) -> RawDocumentBuf {
    rawdoc! { "find": "documents", "filter": { "_id": id }, "limit": 1, "singleBatch": true, "$db": "bench" }
}

fn update_command(id: i64) -> RawDocumentBuf {
    rawdoc! {
        "update": "documents",
        "updates": [{ "q": { "_id": id }, "u": { "$inc": { "count": 1 } } }],
        "$db": "bench",
    }
}

async fn load(plan: &Plan, server: SocketAddr, document: &dyn Fn(i64) -> RawDocumentBuf) -> Result<()> {
    let mut client = Client::connect(server).await?;
    let mut next = 0;
    while next < plan.documents {
        let end = (next + LOAD_BATCH_DOCUMENTS).min(plan.documents);
        let mut documents = bson::RawArrayBuf::new();
        for id in next..end {
            documents.push(document(i64::try_from(id)?));
        }
        let reply = client.command(&rawdoc! { "insert": "documents", "documents": documents, "$db": "bench" }).await?;
        ensure!(reply.get("writeErrors")?.is_none() && reply.get("n")?.is_some(), "the server refused: {reply:?}");
        next = end;
    }
    Ok(())
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

    let (mut subject, mut baseline) = (Series::default(), Series::default());
    for _ in 0..plan.rounds {
        baseline.push(measured(plan, clock, echo_address, command).await?);
        subject.push(measured(plan, clock, server, command).await?);
    }
    echo.abort();
    Ok(Comparison::new(case, &subject, "echo of the same messages", &baseline, promised).with_note(format!(
        "{} connections, replies of {} bytes",
        plan.connections,
        first.frame.len()
    )))
}

async fn measured(
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
