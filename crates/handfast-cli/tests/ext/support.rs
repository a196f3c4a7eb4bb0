//! Starting the server and the programs around it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::leftovers;
use crate::running::execute;

/// The time that a server gets to answer after its start; generous, for machines under load.
pub(crate) const START_SECONDS_MAX: u64 = 120;
/// The time that a server gets to stop after SIGTERM.
pub(crate) const STOP_SECONDS_MAX: u64 = 120;
/// The interval at which an awaited condition is checked.
const POLL: Duration = Duration::from_millis(20);

/// The tools that `scripts/install-test-tools` installs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tool {
    Python,
    Node,
    Mongosh,
    Mongoose,
    RustDriver,
    /// The programs of tests/clients/go.
    GoClients,
    /// The folder of MongoDB's Database Tools.
    DatabaseTools,
    /// The programs of tests/clients/java, in a folder with their libraries.
    JavaClients,
    FerretDb,
    SecantusDb,
    Strace,
    PymongoSuite,
    Chromium,
    /// Python with the packages of an example.
    WebPython,
    /// The packages of tests/clients/web.
    WebPackages,
    SystemdAnalyze,
    Buildah,
    /// `promtool`, beside which is `prometheus`.
    Prometheus,
    MdBook,
}

impl Tool {
    fn path(self) -> PathBuf {
        let tools =
            std::env::var_os("HANDFAST_TEST_TOOLS").map_or_else(|| root().join("target/test-tools"), PathBuf::from);
        match self {
            Self::Python => tools.join("venv/bin/python"),
            Self::Node => tools.join("venv/bin/node"),
            Self::Mongosh => root().join("tests/clients/node/node_modules/mongosh/bin/mongosh.js"),
            Self::Mongoose => root().join("tests/clients/node/node_modules/mongoose"),
            // An example of handfast-sim, which every build of the whole workspace's tests puts beside the program.
            Self::RustDriver => Path::new(env!("CARGO_BIN_EXE_handfast")).with_file_name("examples/rust_driver"),
            Self::WebPackages => root().join("tests/clients/web/node_modules/playwright-core"),
            Self::WebPython => tools.join("web-venv/bin/python"),
            Self::Chromium => PathBuf::from("/usr/bin/chromium"),
            Self::GoClients => tools.join("go-clients"),
            Self::DatabaseTools => tools.join("database-tools"),
            Self::JavaClients => tools.join("java-clients"),
            Self::FerretDb => tools.join("ferretdb"),
            Self::SecantusDb => tools.join("venv/bin/secantusd-py"),
            Self::SystemdAnalyze => PathBuf::from("/usr/bin/systemd-analyze"),
            Self::Buildah => PathBuf::from("/usr/bin/buildah"),
            Self::Prometheus => PathBuf::from("/usr/bin/promtool"),
            Self::MdBook => tools.join("venv/bin/mdbook"),
            Self::Strace => PathBuf::from("/usr/bin/strace"),
            Self::PymongoSuite => tools.join("pymongo-4.20.0/test"),
        }
    }

    /// The tool's path; without it the caller returns, having said so, and where `CI=true` nothing may be missing.
    pub(crate) fn find(self) -> Option<String> {
        let path = self.path();
        if path.exists() {
            return Some(path.to_string_lossy().into_owned());
        }
        let command = match self {
            Self::RustDriver => "cargo build --workspace --all-features --example rust_driver",
            _ => "scripts/install-test-tools",
        };
        skipped_unless_ci(&format!("{self:?} is not installed at {}: run {command}", path.display()));
        None
    }
}

/// Says aloud that a test was skipped for what the machine lacks. Where `CI=true` nothing may be lacking.
pub(crate) fn skipped_unless_ci(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    skipped(why);
}

/// Says aloud that a test was skipped: not by a macro, whose output a test that passes keeps to itself.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The files of a folder with an extension, in order of their names; none is a mistake of the test.
pub(crate) fn examples(folder: &str, extension: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is in the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    assert!(!paths.is_empty(), "no .{extension} file in {folder}");
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Runs a program against a server of its own, and requires both to end well.
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let server = Handfast::start();
    server.run(program, arguments);
    server.stop();
}

/// Runs a program that starts its servers itself.
pub(crate) fn run_with_own_servers(program: &str, arguments: &[&str]) {
    let _turn = turn();
    execute(Command::new(program).args(arguments));
}

/// A running `handfast serve`.
pub(crate) struct Handfast {
    child: Child,
    directory: PathBuf,
    port: u16,
    ca: Option<String>,
    /// The user "boss" is asked for.
    is_guarded: bool,
    /// Given back last, unless it is somebody else's.
    _turn: Option<Turn>,
}

/// Programs that run at a time: they wait most of the time, but they measure themselves against time-outs.
const TURNS_MAX: usize = 3;

static TURNS: Mutex<usize> = Mutex::new(0);
static TURN_ENDED: Condvar = Condvar::new();

/// The permission to run a program, until it is dropped. A test takes one at most.
pub(crate) struct Turn(());

/// Waits until fewer than [`TURNS_MAX`] others have a turn.
pub(crate) fn turn() -> Turn {
    let turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut turns = TURN_ENDED.wait_while(turns, |turns| *turns >= TURNS_MAX).unwrap_or_else(PoisonError::into_inner);
    *turns += 1;
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        TURN_ENDED.notify_one();
    }
}

/// The password of the user "boss" of a server with --auth. It has a character that SASLprep removes, and one outside ASCII.
pub(crate) const BOSS_PASSWORD: &str = "I\u{ad}X p\u{e4}ss";

/// A certificate for localhost and 127.0.0.1, and its key, in files that are removed with it.
pub(crate) struct Certificate {
    directory: PathBuf,
}

impl Certificate {
    /// Makes one.
    pub(crate) fn make() -> Self {
        let directory = std::env::temp_dir().join(format!("handfast-ext-tls-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the certificate");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(directory.join("certificate.pem"), made.cert.pem()).expect("a file for the certificate");
        std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).expect("a file for the key");
        Certificate { directory }
    }

    pub(crate) fn path(&self) -> String {
        self.directory.join("certificate.pem").to_string_lossy().into_owned()
    }

    /// Returns the flags with which a server uses the certificate.
    pub(crate) fn flags(&self) -> [String; 4] {
        let key = self.directory.join("key.pem").to_string_lossy().into_owned();
        ["--tls-certificate".to_owned(), self.path(), "--tls-key".to_owned(), key]
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

impl Handfast {
    /// Starts the server on a port that it chooses itself, and waits until it takes connections.
    pub(crate) fn start() -> Self {
        Self::start_with(&[], |_| {})
    }

    /// Starts a server that says it is no replica set.
    pub(crate) fn standalone() -> Self {
        Self::start_with(&["--topology".to_owned(), "standalone".to_owned()], |_| {})
    }

    /// Starts a server that tests may tell to do things wrong.
    pub(crate) fn for_tests() -> Self {
        Self::start_with(&["--test-commands".to_owned()], |_| {})
    }

    /// Starts a server for tests that reports to be a router.
    pub(crate) fn router_for_tests() -> Self {
        Self::start_with(&["--test-commands", "--topology", "mongos"].map(str::to_owned), |_| {})
    }

    /// Starts a server that asks for logins, with the user "boss".
    pub(crate) fn guarded(flags: &[String]) -> Self {
        let flags: Vec<String> = flags.iter().cloned().chain(["--auth".to_owned()]).collect();
        let mut server = Self::start_with(&flags, |directory| {
            let password = directory.join("password");
            std::fs::write(&password, BOSS_PASSWORD).expect("a file for the password");
            let added = Command::new(env!("CARGO_BIN_EXE_handfast"))
                .args(["user", "add", "boss", "--role", "root", "--data"])
                .arg(directory.join("data"))
                .arg("--password-file")
                .arg(password)
                .output()
                .expect("the program runs");
            assert!(added.status.success(), "{added:?}");
        });
        server.is_guarded = true;
        server
    }

    /// Starts a server that takes connections with TLS alone.
    pub(crate) fn encrypted(certificate: &Certificate) -> Self {
        Self::start_with(&certificate.flags(), |_| {}).with_ca(certificate.path())
    }

    /// Tells clients by which certificate they know the server.
    pub(crate) fn with_ca(mut self, ca: String) -> Self {
        self.ca = Some(ca);
        self
    }

    pub(crate) fn ca(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    /// Starts a server whose documents are on another one, in whose turn it runs.
    pub(crate) fn before(store: &str, flags: &[&str]) -> Self {
        let directory = new_directory();
        let mut command = serve(&[], &directory, 0);
        let child = command.env("HANDFAST_STORE", store).args(flags).spawn().expect("the server starts");
        let mut server = Self { child, directory, port: 0, ca: None, is_guarded: false, _turn: None };
        server.wait_until_ready();
        server
    }

    /// Starts a server by a program that takes its command line, and becomes the server.
    pub(crate) fn started_by(program: &[String]) -> Self {
        Self::start_by(program, &[], |_| {})
    }

    fn start_with(flags: &[String], prepare: impl FnOnce(&Path)) -> Self {
        Self::start_by(&[], flags, prepare)
    }

    fn start_by(program: &[String], flags: &[String], prepare: impl FnOnce(&Path)) -> Self {
        let turn = turn();
        let directory = new_directory();
        prepare(&directory);
        let child = spawn(program, &directory, 0, flags);
        let mut server = Self { child, directory, port: 0, ca: None, is_guarded: false, _turn: Some(turn) };
        server.wait_until_ready();
        server
    }

    /// Kills the server, and starts it again on the same port and directory. It was started without flags.
    pub(crate) fn kill_and_restart(&mut self) {
        assert!(self.alive(), "the server died:\n{}", self.log());
        self.child.kill().expect("the server is killed");
        self.child.wait().expect("the server's exit code");
        self.child = spawn(&[], &self.directory, self.port, &[]);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let ready = wait_until(START_SECONDS_MAX, || {
            let port = self.announced_port();
            self.port = port.unwrap_or(self.port);
            port.is_some() || !self.alive()
        });
        assert!(ready && self.alive(), "the server did not start:\n{}", self.log());
    }

    /// The port of the start line, once the server has said that it is ready.
    fn announced_port(&self) -> Option<u16> {
        let log = self.log();
        log.lines().find(|line| *line == "ready")?;
        let (_, rest) = log.split_once("listens on 127.0.0.1:")?;
        rest.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
    }

    /// Returns the connection string for clients.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/", self.port)
    }

    /// Returns the connection string of a user with all roles.
    fn uri_of_boss(&self) -> String {
        let mut user = String::new();
        if self.is_guarded {
            let password: String = BOSS_PASSWORD.bytes().map(|byte| format!("%{byte:02X}")).collect();
            user = format!("boss:{password}@");
        }
        let tls = self.ca.as_ref().map(|path| format!("?tls=true&tlsCAFile={path}")).unwrap_or_default();
        format!("mongodb://{user}127.0.0.1:{}/{tls}", self.port)
    }

    /// Runs a program with `MONGODB_URI` naming this server; it must exit with 0.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        execute(&mut self.command(program, arguments));
    }

    /// A program with `MONGODB_URI` naming this server.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        println!("{program} {}", arguments.join(" "));
        let mut command = Command::new(program);
        command.args(arguments).env("MONGODB_URI", self.uri()).env("DB_PORT", self.port.to_string());
        command.env("BOSS_PASSWORD", BOSS_PASSWORD);
        if let Some(ca) = &self.ca {
            command.env("TLS_CA", ca);
        }
        command
    }

    /// Stops the server, which must have been alive and go cleanly, and checks what it leaves behind.
    pub(crate) fn stop(mut self) {
        assert!(self.alive(), "the server died:\n{}", self.log());
        leftovers::must_be_none(&self.uri_of_boss());
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        assert!(wait_until(STOP_SECONDS_MAX, || !self.alive()), "the server does not stop:\n{}", self.log());
        let status = self.child.wait().expect("the server's exit code");
        assert!(status.success(), "the server went with {status}:\n{}", self.log());
        assert!(!self.log().contains("panicked at"), "a panic in the server:\n{}", self.log());
        let data = self.directory.join("data");
        if !data.exists() {
            return;
        }
        let check = Command::new(env!("CARGO_BIN_EXE_handfast"))
            .args(["check", "--quiet", "--data"])
            .arg(data)
            .output()
            .expect("the check runs");
        assert!(check.status.success(), "the data directory is not clean: {check:?}");
    }

    fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log.txt")).unwrap_or_default()
    }
}

impl Drop for Handfast {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

/// A directory of its own for a server.
pub(crate) fn new_directory() -> PathBuf {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("handfast-ext-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the server");
    directory
}

fn spawn(program: &[String], directory: &Path, port: u16, flags: &[String]) -> Child {
    let data = directory.join("data");
    serve(program, directory, port).arg("--data").arg(data).args(flags).spawn().expect("the server starts")
}

/// `handfast serve` with its log in the directory, by a program that takes its command line, if one is named.
fn serve(program: &[String], directory: &Path, port: u16) -> Command {
    let log = File::create(directory.join("log.txt")).expect("a file for the server's log");
    let mut words = program.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_handfast")]);
    let mut command = Command::new(words.next().expect("the server, if nothing else"));
    command
        .args(words)
        .args(["serve", "--listen", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle of the log"))
        .stderr(log);
    command
}

#[expect(clippy::disallowed_methods, reason = "waits for other processes, which no injected clock moves")]
pub(crate) fn wait_until(seconds_max: u64, mut condition: impl FnMut() -> bool) -> bool {
    let started = std::time::Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() >= Duration::from_secs(seconds_max) {
            return false;
        }
        std::thread::sleep(POLL);
    }
}
