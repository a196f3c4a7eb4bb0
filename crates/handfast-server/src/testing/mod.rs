//! A server without sockets, and a client that speaks to it through the real codec.

mod adjustable_store;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::Checked;
use handfast_store::{CommitTimestamp, DocumentStore, ManualClock, MemoryStore, Sources};
use handfast_txn::{
    Catalog, Database, Engine, EngineTraits, Outcome, PercolatorOptions, Start, StoreCatalog, TransactionId, WriteSet,
};
use handfast_wire::{Flags, HEADER_BYTES, Header, Limits, Message, OpMsg, Sequence};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

pub(crate) use adjustable_store::AdjustableStore;
pub(crate) use requests::{
    check, check_refused, end, in_transaction, insert, labels, lsid, named, numbered, with_number, write_error,
    write_error_indexes,
};

use crate::auth::scram::client::prove;
use crate::auth::{Password, Role, UserName};
use crate::connection;
use crate::options::Options;
use crate::state::{Client, Shared};

/// Returns a store in memory that panics if a result breaks the contract.
pub(crate) fn checked(sources: &Sources) -> Checked<MemoryStore> {
    Checked::new(MemoryStore::new(sources.clone()), sources.clone())
}

/// A server in this process.
pub(crate) struct TestServer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<ManualClock>,
    connections: u64,
    /// Opens the same data again, for a restart that loses what the server had in memory.
    reopen: Option<Box<dyn Fn() -> Database + Send>>,
}

impl TestServer {
    /// Starts a server over a store without transactions.
    pub(crate) fn new(store: Arc<dyn DocumentStore>, options: Options) -> Self {
        let (sources, clock) = Sources::manual(7);
        TestServer::over(Database::new(Arc::new(Plain(StoreCatalog(store))), sources), clock, options)
    }

    /// Starts a server over a database whose clock is this one.
    pub(crate) fn over(database: Database, clock: Arc<ManualClock>, options: Options) -> Self {
        TestServer { shared: Arc::new(Shared::new(database, options)), clock, connections: 0, reopen: None }
    }

    /// Starts a server with transactions over a store that is atomic one document at a time.
    pub(crate) fn over_single_documents() -> Self {
        let (sources, clock) = Sources::manual(7);
        let store = Arc::new(checked(&sources));
        let open = move || {
            let options = PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() };
            Database::percolator(store.clone(), sources.clone(), options).unwrap()
        };
        TestServer { reopen: Some(Box::new(open.clone())), ..TestServer::over(open(), clock, Options::default()) }
    }

    /// Starts a server over each engine of transactions.
    pub(crate) fn over_each_engine() -> [TestServer; 2] {
        [TestServer::transactional(), TestServer::over_single_documents()]
    }

    /// Starts a server with transactions, which is the primary of a replica set.
    pub(crate) fn transactional() -> Self {
        TestServer::in_memory(Options::default())
    }

    /// Starts a server with transactions and these options.
    pub(crate) fn in_memory(options: Options) -> Self {
        let (sources, clock) = Sources::manual(7);
        TestServer::over(Database::local(checked(&sources), sources), clock, options)
    }

    /// Starts the server again over the same data.
    pub(crate) fn restart(&mut self) {
        let options = self.shared.options.clone();
        let database = self.reopen.as_ref().map_or_else(|| self.shared.database.clone(), |reopen| reopen());
        self.shared = Arc::new(Shared::new(database, options));
    }

    /// Starts a server without transactions over a store in memory that supports the whole language.
    pub(crate) fn checked() -> Self {
        TestServer::new(Arc::new(checked(&Sources::seeded(3))), Options::default())
    }

    /// Starts a server over a [`AdjustableStore`].
    pub(crate) fn adjustable() -> Self {
        TestServer::new(Arc::new(AdjustableStore::default()), Options::default())
    }

    /// Starts a server with transactions whose clients have to log in.
    pub(crate) fn guarded() -> Self {
        TestServer::in_memory(Options { authentication: true, ..Options::default() })
    }

    /// Adds a user whose password is its name, with roles such as `read@shop`.
    pub(crate) async fn add_user(&self, database: &str, name: &str, roles: &[&str]) {
        let roles = roles.iter().map(|role| role.split_once('@').unwrap());
        let roles = roles.map(|(role, database)| Role::new(role, database).unwrap()).collect();
        let user = UserName::new(database, name).unwrap();
        self.shared.users.add(user, Password::new(name), roles, None).await.unwrap();
    }

    pub(crate) fn connect(&mut self) -> TestClient {
        self.connections += 1;
        let (stream, server) = tokio::io::duplex(256 * 1024);
        let shared = Arc::clone(&self.shared);
        let client = Arc::new(Client::new(self.connections, "test:1".to_owned(), "localhost:27017".to_owned()));
        let served = tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(server);
            connection::serve(&shared, &client, reader, writer).await;
        });
        TestClient { stream, next_id: 1, served }
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.shared.expire();
    }
}

/// An engine without transactions over a store.
pub(crate) struct Plain(pub(crate) StoreCatalog);

static PLAIN: EngineTraits = EngineTraits {
    name: "plain",
    own_database: None,
    records_every_commit: true,
    uses_before: false,
    rolls_back_for_good: false,
};

#[async_trait]
impl Engine for Plain {
    fn traits(&self) -> &'static EngineTraits {
        &PLAIN
    }

    fn catalog(&self) -> &dyn Catalog {
        &self.0
    }

    fn plain(&self) -> Option<&Arc<dyn DocumentStore>> {
        Some(&self.0.0)
    }

    async fn flush(&self) -> handfast_store::Result<()> {
        self.0.0.flush().await
    }

    async fn forget_outcomes_before(&self, _moment: DateTime) -> handfast_store::Result<u64> {
        Ok(0)
    }

    async fn begin(&self, _deadline: Duration) -> handfast_store::Result<Start> {
        Err(handfast_store::Error::command(Code::NotImplemented, "no transactions here"))
    }

    async fn commit(&self, _writes: WriteSet) -> handfast_store::Result<CommitTimestamp> {
        Err(handfast_store::Error::command(Code::NotImplemented, "no transactions here"))
    }

    async fn outcome(&self, _id: TransactionId) -> handfast_store::Result<Outcome> {
        Ok(Outcome::RolledBack)
    }
}

/// A client of a [`TestServer`].
pub(crate) struct TestClient {
    pub(crate) stream: DuplexStream,
    next_id: i32,
    /// The task that serves the connection, and ends with it.
    pub(crate) served: JoinHandle<()>,
}

impl TestClient {
    /// Runs a command and returns its reply.
    pub(crate) async fn run(&mut self, database: &str, command: RawDocumentBuf) -> RawDocumentBuf {
        self.run_with(database, command, &[]).await
    }

    /// Logs in, and returns the last reply, which says whether it succeeded.
    pub(crate) async fn log_in(&mut self, database: &str, user: &str, password: &str) -> RawDocumentBuf {
        let first = format!("n,,n={user},r=nonce");
        let start = rawdoc! {
            "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(&first),
            "options": { "skipEmptyExchange": true },
        };
        let reply = self.run(database, start).await;
        let Ok(payload) = reply.get_binary("payload") else { return reply };
        let last = prove(password, &first, std::str::from_utf8(payload.bytes).unwrap());
        self.run(database, rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": binary(&last) }).await
    }

    /// Runs a command with document sequences beside its body.
    pub(crate) async fn run_with(
        &mut self,
        database: &str,
        command: RawDocumentBuf,
        sequences: &[(&str, &[RawDocumentBuf])],
    ) -> RawDocumentBuf {
        let id = self.send(Flags::default(), database, command, sequences).await;
        let (header, flags, reply) = self.receive().await.expect("a reply");
        assert_eq!(header.response_to, id);
        assert!(!flags.more_to_come);
        reply
    }

    /// Sends a command and returns the id of its message.
    pub(crate) async fn send(
        &mut self,
        flags: Flags,
        database: &str,
        mut command: RawDocumentBuf,
        sequences: &[(&str, &[RawDocumentBuf])],
    ) -> i32 {
        command.append(bson::raw::cstr!("$db"), database);
        let sequences = sequences
            .iter()
            .map(|(identifier, documents)| Sequence { identifier, documents: documents.iter().map(|d| &**d).collect() })
            .collect();
        let id = self.next_id;
        self.next_id += 1;
        let mut bytes = Vec::new();
        OpMsg { flags, body: &command, sequences }.encode(id, 0, &mut bytes);
        self.send_bytes(&bytes).await;
        id
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the server reads");
    }

    /// Returns the next frame, or `None` if the server closed the connection.
    pub(crate) async fn receive_frame(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut frame).await.ok()?;
        let length = Header::of_frame(&frame).unwrap().frame_bytes(&Limits::default()).unwrap();
        frame.resize(length, 0);
        self.stream.read_exact(&mut frame[HEADER_BYTES..]).await.expect("a whole frame");
        Some(frame)
    }

    /// Returns the next OP_MSG without its cluster time, or `None` if the server closed the connection.
    pub(crate) async fn receive(&mut self) -> Option<(Header, Flags, RawDocumentBuf)> {
        let (header, flags, reply) = self.receive_all().await?;
        let is_timeless = |name: &str| !matches!(name, "operationTime" | "$clusterTime");
        let fields = reply.iter().map(|field| field.unwrap()).filter(|(name, _)| is_timeless(name.as_str()));
        Some((header, flags, fields.collect()))
    }

    /// Returns the next OP_MSG with its cluster time, or `None` if the server closed the connection.
    pub(crate) async fn receive_all(&mut self) -> Option<(Header, Flags, RawDocumentBuf)> {
        let frame = self.receive_frame().await?;
        match Message::decode(&frame, &Limits::default()).expect("a sound message") {
            (header, Message::Msg(msg)) => Some((header, msg.flags, msg.body.to_owned())),
            (_, other) => panic!("no OP_MSG: {other:?}"),
        }
    }

    /// Runs a command that is refused, and returns code, code name and text.
    pub(crate) async fn refused(&mut self, database: &str, command: RawDocumentBuf) -> (i32, String, String) {
        let reply = self.run(database, command).await;
        error_of(&reply)
    }
}

/// Returns the payload of a step of a login.
pub(crate) fn binary(text: &str) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() }
}

/// Returns the code, the code name and the message of an error reply.
pub(crate) fn error_of(reply: &RawDocument) -> (i32, String, String) {
    assert_eq!(reply.double("ok"), 0.0, "{reply:?}");
    (reply.int("code"), reply.text("codeName").to_owned(), reply.text("errmsg").to_owned())
}

/// Returns the documents of a reply's first or next batch.
pub(crate) fn batch(reply: &RawDocument) -> Vec<RawDocumentBuf> {
    let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("no cursor: {reply:?}"));
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
    batch.into_iter().map(|value| value.unwrap().as_document().unwrap().to_owned()).collect()
}

/// Returns the id of a reply's cursor.
pub(crate) fn cursor_id(reply: &RawDocument) -> i64 {
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

/// Reads fields of a reply. A field that is missing or of another type fails the test, which shows the reply.
pub(crate) trait ReplyFields {
    fn int(&self, name: &str) -> i32;
    fn long(&self, name: &str) -> i64;
    fn double(&self, name: &str) -> f64;
    fn text(&self, name: &str) -> &str;
    fn flag(&self, name: &str) -> bool;
}

impl ReplyFields for RawDocument {
    fn int(&self, name: &str) -> i32 {
        self.get_i32(name).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    fn long(&self, name: &str) -> i64 {
        self.get_i64(name).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    fn double(&self, name: &str) -> f64 {
        self.get_f64(name).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    fn text(&self, name: &str) -> &str {
        self.get_str(name).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    fn flag(&self, name: &str) -> bool {
        self.get_bool(name).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
