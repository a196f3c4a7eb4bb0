//! Starting the servers that nobody here wrote.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{START_SECONDS_MAX, Tool, Turn, new_directory, turn, wait_until};

/// A running FerretDB or SecantusDB, which is killed when this is dropped.
pub(crate) struct IndependentServer {
    child: Child,
    directory: PathBuf,
    port: u16,
    _turn: Turn,
}

impl IndependentServer {
    /// Starts FerretDB with SQLite. None, aloud, without the program.
    pub(crate) fn ferretdb() -> Option<Self> {
        Self::start(Tool::FerretDb, |command, port, directory| {
            command.arg(format!("127.0.0.1:{port}")).arg(directory);
        })
    }

    /// Starts SecantusDB. None, aloud, without the program.
    pub(crate) fn secantusdb() -> Option<Self> {
        Self::start(Tool::SecantusDb, |command, port, directory| {
            command.args(["--host", "127.0.0.1", "--log-level", "ERROR", "--port", &port.to_string()]);
            command.arg("--storage-path").arg(directory.join("data"));
        })
    }

    /// Starts a server, and waits until it takes connections.
    fn start(tool: Tool, arguments: impl FnOnce(&mut Command, u16, &Path)) -> Option<Self> {
        let program = tool.find()?;
        let turn = turn();
        let directory = new_directory();
        let port = free_port();
        let log = File::create(directory.join("log.txt")).expect("a file for the server's log");
        let mut command = Command::new(program);
        arguments(&mut command, port, &directory);
        let child = command
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let server = IndependentServer { child, directory, port, _turn: turn };
        let ready = wait_until(START_SECONDS_MAX, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(ready, "{tool:?} did not start: its log is in {}", server.directory.display());
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the connection string for clients.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/", self.port)
    }
}

impl Drop for IndependentServer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
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
