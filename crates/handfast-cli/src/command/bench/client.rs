//! A client of the wire protocol that does little work, because its cost is a part of every figure.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_wire::{Flags, HEADER_BYTES, Header, Limits, Message, OpMsg};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Documents that one load request carries.
const LOAD_BATCH_DOCUMENTS: u64 = 1000;

/// A connection that sends one command and waits for its reply.
pub(crate) struct Client {
    /// The buffered stream: one read of the socket takes a whole reply of usual size, as in drivers.
    stream: BufReader<TcpStream>,
    request_id: i32,
    limits: Limits,
    pub(super) frame: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream), request_id: 0, limits: Limits::default(), frame: Vec::new() })
    }

    /// Sends a command and returns the reply's body.
    pub(crate) async fn command(&mut self, body: &RawDocument) -> Result<RawDocumentBuf> {
        self.exchange(body).await?;
        match Message::decode(&self.frame, &self.limits)?.1 {
            Message::Msg(reply) => Ok(reply.body.to_owned()),
            other => bail!("expected a reply in OP_MSG, got {other:?}"),
        }
    }

    /// Sends a command and reads the whole reply without looking at it.
    pub(super) async fn exchange(&mut self, body: &RawDocument) -> Result<()> {
        self.request_id = self.request_id.wrapping_add(1);
        self.frame.clear();
        OpMsg::new(Flags::default(), body).encode(self.request_id, 0, &mut self.frame);
        self.stream.write_all(&self.frame).await?;
        read_frame(&mut self.stream, &self.limits, &mut self.frame).await.context("the server closed the connection")
    }
}

/// Reads one message, header included.
pub(super) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    limits: &Limits,
    frame: &mut Vec<u8>,
) -> Result<()> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let bytes = Header::decode(&header).frame_bytes(limits)?;
    frame.clear();
    frame.extend_from_slice(&header);
    frame.resize(bytes, 0);
    stream.read_exact(frame.get_mut(HEADER_BYTES..).context("a frame shorter than its header")?).await?;
    Ok(())
}

/// Inserts documents into `bench.documents`, from number 0.
pub(super) async fn load(server: SocketAddr, documents: u64, document: &dyn Fn(i64) -> RawDocumentBuf) -> Result<()> {
    let mut client = Client::connect(server).await?;
    let mut next = 0;
    while next < documents {
        let end = (next + LOAD_BATCH_DOCUMENTS).min(documents);
        let mut batch = bson::RawArrayBuf::new();
        for id in next..end {
            batch.push(document(i64::try_from(id)?));
        }
        let reply = client.command(&rawdoc! { "insert": "documents", "documents": batch, "$db": "bench" }).await?;
        ensure!(reply.get("writeErrors")?.is_none() && reply.get("n")?.is_some(), "the server refused: {reply:?}");
        next = end;
    }
    Ok(())
}
