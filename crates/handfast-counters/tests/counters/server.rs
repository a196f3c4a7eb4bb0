//! A `redis-server` of a test: on a free loopback port, with a directory of its own, killed at the end. It is a server, one of a cluster, or a
//! sentinel.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::waiting::PATIENCE;

pub(crate) const PROGRAM: &str = "redis-server";
/// How often ports are chosen: another process may take one in between.
const PORT_ATTEMPTS: usize = 20;
/// The first of the ports that are tried: they are below those that the system gives to clients.
const PORT_FIRST: u16 = 20_000;
/// How many ports there are. Those above are for the servers of other tests, which run beside these.
const PORTS: u16 = 6_000;
/// The distance of the port on which a server of a cluster of Redis 6 talks to the others; Redis 7 takes any port.
const BUS_OFFSET: u16 = 10_000;
/// How often a server is asked whether it is there: for half a minute if it answers at once that it is not.
const START_ATTEMPTS: usize = 1_500;
const POLL: Duration = Duration::from_millis(20);
/// The time for one of these answers.
const ANSWER_MAX: Duration = Duration::from_secs(5);

static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// A server that runs, unless it was killed.
pub(crate) struct RedisServer {
    port: u16,
    /// Another port, on which the server listens or not.
    second_port: u16,
    directory: tempfile::TempDir,
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
}

/// Returns a port that is free now.
pub(crate) fn free_port() -> u16 {
    for _ in 0..PORTS {
        let offset = NEXT_PORT.fetch_add(1, Ordering::SeqCst);
        let port = PORT_FIRST
            + u16::try_from((std::process::id() * 37 + u32::from(offset)) % u32::from(PORTS)).expect("a port");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("all ports are in use");
}

/// Says aloud that a test is skipped: not by a macro, whose output a test that passes keeps to itself.
fn skipped() {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{PROGRAM} is not installed: scripts/install-test-tools");
    let _ = writeln!(std::io::stderr(), "skipped: {PROGRAM} is not installed: run scripts/install-test-tools");
}

fn is_installed() -> bool {
    Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Returns whether the program is one of Redis 6.
pub(crate) fn is_before_7() -> bool {
    version(Path::new(PROGRAM)).contains(" v=6.")
}

/// Returns the line in which a program says its version.
pub(crate) fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output().expect("run");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl RedisServer {
    /// Starts a server with this setting `appendfsync`; `None`, having said so, if the program is not installed.
    pub(crate) async fn start_with(appendfsync: &str) -> Option<Self> {
        Self::start(|_, _| {
            ["--save", "", "--appendonly", "yes", "--appendfsync", appendfsync].map(str::to_owned).to_vec()
        })
        .await
    }

    /// Starts a server with more arguments, which are made from its directory and a second port.
    pub(crate) async fn start(arguments: impl Fn(&Path, u16) -> Vec<String>) -> Option<Self> {
        if !is_installed() {
            skipped();
            return None;
        }
        let mut last_log = String::new();
        for _ in 0..PORT_ATTEMPTS {
            let directory = tempfile::tempdir().expect("a directory");
            let port = free_port();
            let second_port = if is_before_7() { port + BUS_OFFSET } else { free_port() };
            let arguments = arguments(directory.path(), second_port);
            let child = spawn(port, directory.path(), &arguments);
            let server = RedisServer { port, second_port, directory, arguments, child: Mutex::new(Some(child)) };
            // Another process may have taken a port in between: then the server ends, and other ones are tried.
            if server.answers().await {
                return Some(server);
            }
            last_log = std::fs::read_to_string(server.directory.path().join("log")).expect("a log");
        }
        panic!("{PROGRAM} does not start: {last_log}");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn second_port(&self) -> u16 {
        self.second_port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Waits until the server answers; `false` if it has ended, or another one answers on its port.
    async fn answers(&self) -> bool {
        for _ in 0..START_ATTEMPTS {
            if self.has_ended() {
                return false;
            }
            if let Ok(Ok(process)) = tokio::time::timeout(ANSWER_MAX, self.process_id()).await {
                return self.child_id() == Some(process);
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("redis-server on port {} does not answer", self.port);
    }

    fn has_ended(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.as_mut().is_none_or(|child| child.try_wait().expect("a state").is_some())
    }

    fn child_id(&self) -> Option<u32> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.as_ref().map(Child::id)
    }

    /// Returns the process that answers on the port: it may be a server of somebody else.
    async fn process_id(&self) -> redis::RedisResult<u32> {
        let mut connection = self.try_connect().await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let process = info.lines().find_map(|line| line.strip_prefix("process_id:")?.trim_end().parse().ok());
        Ok(process.expect("the number of the process"))
    }

    async fn try_connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        // On a busy machine, and to WAIT, an answer takes its time.
        let patient = Some(PATIENCE);
        let config = redis::AsyncConnectionConfig::new().set_connection_timeout(patient).set_response_timeout(patient);
        let client = redis::Client::open(self.url()).expect("a URL");
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Connects as somebody who looks at the keys.
    pub(crate) async fn client(&self) -> MultiplexedConnection {
        self.try_connect().await.expect("a connection")
    }

    /// Sends a command.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let mut sent = redis::cmd(command[0]);
        sent.arg(&command[1..]);
        sent.query_async(&mut self.client().await).await.expect("carried out")
    }

    /// Sends a command, whose answer does not matter.
    pub(crate) async fn command(&self, command: &[&str]) {
        self.ask::<redis::Value>(command).await;
    }

    /// Makes another server one of the same cluster.
    pub(crate) async fn meet(&self, other: &RedisServer) {
        let (port, bus) = (other.port().to_string(), other.second_port().to_string());
        self.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
    }

    /// Waits until `INFO` has this line.
    pub(crate) async fn until_info(&self, line: &str) {
        for _ in 0..START_ATTEMPTS {
            // A sentinel that makes a server a replica closes its connections.
            if let Ok(mut connection) = self.try_connect().await
                && let Ok(info) = redis::cmd("INFO").query_async::<String>(&mut connection).await
                && info.lines().any(|found| found.trim_end() == line)
            {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("redis-server on port {} does not get to {line}", self.port);
    }

    /// Adds milliseconds to the times at which the batches of ads were claimed.
    pub(crate) async fn move_batches(&self, millis: i64) {
        const SINCE: &str = "hf:{ads}:since";
        let mut client = self.client().await;
        let range = redis::cmd("ZRANGE").arg(SINCE).arg(0).arg(-1).query_async(&mut client).await;
        let batches: Vec<String> = range.expect("batches");
        for batch in batches {
            redis::cmd("ZINCRBY").arg(SINCE).arg(millis).arg(batch).exec_async(&mut client).await.expect("set");
        }
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&self) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    }

    /// Starts a server that was killed on its port and its files.
    pub(crate) async fn restart(&self) {
        let child = spawn(self.port, self.directory.path(), &self.arguments);
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        assert!(self.answers().await, "redis-server has ended: see {:?}", self.directory.path());
    }

    /// Sends the server a signal by its name. After `STOP`, waits until its main thread, which answers, has stopped (`proc_pid_stat(5)`).
    pub(crate) fn signal(&self, signal: &str) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = child.as_ref().expect("a server").id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().expect("sent").success());
        let is_stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state").contains(") T ");
        while signal == "STOP" && !is_stopped() {
            std::thread::yield_now();
        }
    }

    /// Copies the append-only files, which a server with `appendfsync always` has written up to its last answer.
    pub(crate) fn copy_files(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().expect("a directory");
        for file in self.files() {
            std::fs::copy(&file, copy.path().join(file.file_name().expect("a name"))).expect("copied");
        }
        copy
    }

    /// Puts append-only files in the place of those of a server that was killed.
    pub(crate) fn restore_files(&self, copy: &tempfile::TempDir) {
        let files = self.files();
        let folder = files[0].parent().expect("a folder");
        for file in &files {
            std::fs::remove_file(file).expect("removed");
        }
        for file in files_in(copy.path()) {
            std::fs::copy(&file, folder.join(file.file_name().expect("a name"))).expect("copied");
        }
    }

    /// Returns the append-only files: Redis 7 has a folder of them, and Redis 6.2 has one file.
    fn files(&self) -> Vec<PathBuf> {
        let folder = self.directory.path().join("appendonlydir");
        let files =
            if folder.exists() { files_in(&folder) } else { vec![self.directory.path().join("appendonly.aof")] };
        assert!(!files.is_empty(), "no files in {folder:?}");
        files
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(port: u16, directory: &Path, arguments: &[String]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).expect("a file");
    let mut command = Command::new(PROGRAM);
    // A configuration file comes first.
    let (file, others) = match arguments.first().filter(|first| !first.starts_with("--")) {
        Some(file) => (Some(file), &arguments[1..]),
        None => (None, arguments),
    };
    command.args(file).args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(directory).args(others);
    // It says there which argument is wrong.
    let errors = log.try_clone().expect("a file");
    command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("a server")
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
