//! Starting the servers that nobody here wrote.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::server_process::ServerProcess;
use crate::support::{START_SECONDS_MAX, Tool, Turn, new_directory, turn, wait_until};

/// A running FerretDB or SecantusDB, which is killed when this is dropped.
pub(crate) struct IndependentServer {
    process: ServerProcess,
    directory: PathBuf,
    port: u16,
    _turn: Turn,
}

impl IndependentServer {
    /// Starts FerretDB with SQLite. None, aloud, without the program.
    pub(crate) fn ferretdb() -> Option<Self> {
        Self::start(Tool::FerretDb, ServerProcess::ferretdb)
    }

    /// Starts SecantusDB. None, aloud, without the program.
    pub(crate) fn secantusdb() -> Option<Self> {
        Self::start(Tool::SecantusDb, |program, directory, port| {
            let mut command = Command::new(program);
            command.args(["--host", "127.0.0.1", "--log-level", "ERROR", "--port", &port.to_string()]);
            command.arg("--storage-path").arg(directory.join("data"));
            ServerProcess::start(command, directory, port)
        })
    }

    /// Starts a server, and waits until it takes connections.
    fn start(tool: Tool, start: impl FnOnce(String, &Path, u16) -> io::Result<ServerProcess>) -> Option<Self> {
        let program = tool.find()?;
        let turn = turn();
        let (directory, port) = (new_directory(), free_port());
        let process = start(program, &directory, port).expect("the server starts");
        let mut server = IndependentServer { process, directory, port, _turn: turn };
        let ready = wait_until(START_SECONDS_MAX, || server.process.takes_connections().expect("the server runs"));
        assert!(ready, "{tool:?} did not start: its log is in {}", server.directory.display());
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the connection string for clients.
    pub(crate) fn uri(&self) -> String {
        format!("{}/", self.process.uri())
    }
}

impl Drop for IndependentServer {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns a port that nobody else gets meanwhile: it is below those that the system gives out, and each is returned once.
fn free_port() -> u16 {
    // Those below are for the Redis servers of the counters' tests, which run beside these.
    const FIRST: u32 = 26_000;
    const COUNT: u32 = 6_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < COUNT, "all ports are in use");
        let offset = std::process::id().wrapping_mul(64).wrapping_add(tried) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("a port");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
