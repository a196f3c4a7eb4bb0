//! The stores that scenarios run on.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_mongodb::{ConnectOptions, connect};
use handfast_server::{Address, Listeners, Server, ShutdownHandle};
use handfast_store::{DocumentStore, ManualClock, MemoryStore, Sources};
use handfast_txn::Database;

/// The maximal number of attempts to reach a server.
const LOOKS_MAX: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(20);
/// The share of the points that run on FerretDB, where one takes a fifth of a second: every fifth one, so that each operation meets one or two kinds of
/// faults. All of them run with HANDFAST_ALL_POINTS=1, and on the stores in this process.
const FERRETDB_SHARE: u64 = 5;
/// The share of the points that run on our own server, through the driver.
const SERVER_SHARE: u64 = 2;

/// The store of a scenario.
pub(crate) enum Stage {
    /// A store in memory for each point.
    Memory,
    /// A store that has a database for each point.
    Shared(Shared),
}

/// A store that all points share.
pub(crate) struct Shared {
    name: &'static str,
    store: Arc<dyn DocumentStore>,
    clock: Arc<ManualClock>,
    /// The time when a point begins, which must not be before that of the store's own clock.
    begin: DateTime,
    backing: Backing,
}

/// Owners of values that must live as long as the store.
#[allow(dead_code, reason = "kept to be dropped")]
enum Backing {
    Nothing,
    Served(Served),
    FerretDb(FerretDb),
}

impl Stage {
    pub(crate) async fn embedded(directory: &Path) -> Self {
        let (sources, clock) = Sources::manual(1);
        let options = Options { expiry_interval: None, ..Options::small() };
        let store = Arc::new(EmbeddedStore::open(directory, sources, options).await.unwrap());
        Stage::Shared(Shared { name: "embedded", store, clock, begin: ManualClock::START, backing: Backing::Nothing })
    }

    /// Starts our own server in this process, and connects to it through MongoDB's driver.
    pub(crate) async fn server() -> Self {
        let (sources, clock) = Sources::manual(1);
        let database = Database::local(MemoryStore::new(sources.clone()), sources);
        let (served, address) = Served::start(database).await;
        let store = connect(&format!("mongodb://{address}/"), Sources::seeded(2), ConnectOptions::default()).await;
        let store = store.unwrap().store;
        let begin = ManualClock::START;
        Stage::Shared(Shared { name: "a server", store, clock, begin, backing: Backing::Served(served) })
    }

    /// Starts a server of another project, which lacks sparse and partial indexes and whose updates are not atomic.
    /// Returns `None`, with a message, where it is not installed.
    pub(crate) async fn ferretdb() -> Option<Self> {
        let server = FerretDb::start()?;
        let uri = format!("mongodb://127.0.0.1:{}/", server.port);
        let options = || ConnectOptions { sole_writer: true, ..ConnectOptions::default() };
        let mut looks = 0;
        let store = loop {
            match connect(&uri, Sources::seeded(2), options()).await {
                Ok(connection) => break connection.store,
                Err(error) => assert!(looks < LOOKS_MAX, "FerretDB does not answer: {error}"),
            }
            looks += 1;
            tokio::time::sleep(PAUSE).await;
        };
        // Its clock is the machine's.
        let begin = Sources::system().unwrap().clock.now();
        let clock = Arc::new(ManualClock::new(begin));
        Some(Stage::Shared(Shared { name: "FerretDB", store, clock, begin, backing: Backing::FerretDb(server) }))
    }

    /// Returns the store for a point, with its clock at the beginning.
    pub(crate) fn open(&self) -> (Arc<dyn DocumentStore>, Arc<ManualClock>) {
        match self {
            Stage::Memory => {
                // The ids of the store are not those of a process.
                let (sources, clock) = Sources::manual(99);
                (Arc::new(MemoryStore::new(sources)), clock)
            }
            Stage::Shared(Shared { store, clock, begin, .. }) => {
                clock.set(*begin);
                (Arc::clone(store), Arc::clone(clock))
            }
        }
    }

    /// Returns `n` if one of `n` points runs.
    pub(crate) fn share(&self) -> u64 {
        let backing = match self {
            Stage::Shared(shared) if std::env::var_os("HANDFAST_ALL_POINTS").is_none() => &shared.backing,
            Stage::Shared(_) | Stage::Memory => return 1,
        };
        match backing {
            Backing::FerretDb(_) => FERRETDB_SHARE,
            Backing::Served(_) => SERVER_SHARE,
            Backing::Nothing => 1,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Stage::Memory => "memory",
            Stage::Shared(shared) => shared.name,
        }
    }
}

/// Our server, which stops when this is dropped.
pub(crate) struct Served(ShutdownHandle);

impl Served {
    /// Starts our server in this process, and returns its address.
    pub(crate) async fn start(database: Database) -> (Self, SocketAddr) {
        let listen = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let server =
            Server::new(Listeners::bind(&[listen]).await.unwrap(), handfast_server::Options::default(), database);
        let Some(Address::Tcp(address)) = server.addresses().first().cloned() else { panic!("no address") };
        let served = Served(server.shutdown_handle());
        tokio::spawn(server.run());
        (served, address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

/// A running FerretDB, with SQLite in a directory of its own.
struct FerretDb {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl FerretDb {
    fn start() -> Option<Self> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let tools = std::env::var_os("HANDFAST_TEST_TOOLS");
        let tools = tools.map_or_else(|| Path::new(root).join("target/test-tools"), PathBuf::from);
        let program = tools.join("ferretdb");
        if !program.exists() {
            let missing = format!("FerretDB is not at {}: scripts/install-test-tools", program.display());
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
            let _ = writeln!(std::io::stderr(), "skipped: {missing}");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let child = Command::new(program)
            .arg(format!("127.0.0.1:{port}"))
            .arg(directory.path())
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(FerretDb { child, port, _directory: directory })
    }
}

impl Drop for FerretDb {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
