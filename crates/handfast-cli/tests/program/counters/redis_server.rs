//! A `redis-server` of a test: on a free loopback port, with a directory of its own, killed at the end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::support::{Scratch, now, pause, signal, skipped};

const PROGRAM: &str = "redis-server";
/// A server starts sooner, even on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
/// How often a port is chosen: another process may take it in between.
const PORT_ATTEMPTS: usize = 20;
/// The first of the ports that are tried. They are below those that the system gives to clients, which could have one of them while its server is restarted.
const PORT_FIRST: u16 = 10_000;
/// How many ports there are. Those above are for the servers of other tests, which run beside these.
const PORTS: u16 = 4_000;

/// A server that runs, unless it was killed.
pub(super) struct RedisServer {
    port: u16,
    directory: std::path::PathBuf,
    settings: &'static [&'static str],
    child: Child,
}

impl RedisServer {
    /// Starts a server with these settings; `None`, having said so, if the program is not installed.
    pub(super) fn start(scratch: &Scratch, settings: &'static [&'static str]) -> Result<Option<Self>> {
        let installed = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if installed.is_err() {
            skipped(&format!("{PROGRAM} is not installed: run scripts/install-test-tools"))?;
            return Ok(None);
        }
        let directory = scratch.path("redis");
        std::fs::create_dir_all(&directory)?;
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port();
            let child = spawn(port, &directory, settings)?;
            let mut server = RedisServer { port, directory: directory.clone(), settings, child };
            // Another process may have taken the port in between: then the server ends, and another port is tried.
            if server.answers()? {
                return Ok(Some(server));
            }
        }
        anyhow::bail!("{PROGRAM} does not start: see {}", directory.display())
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills the server with SIGKILL.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts the server again without its files.
    pub(super) fn lose_everything(&mut self) -> Result<()> {
        self.kill()?;
        std::fs::remove_dir_all(&self.directory)?;
        std::fs::create_dir_all(&self.directory)?;
        self.restart()
    }

    pub(super) fn signal(&self, name: &str) -> Result<()> {
        signal(self.child.id(), name)
    }

    /// Starts a server that was killed on its port and its files.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.child = spawn(self.port, &self.directory, self.settings)?;
        ensure!(self.answers()?, "{PROGRAM} has ended: see {}", self.directory.display());
        Ok(())
    }

    /// Waits until the server answers; `false` if it has ended, whoever answers on its port.
    fn answers(&mut self) -> Result<bool> {
        let began = now();
        while self.child.try_wait()?.is_none() {
            if process_on(self.port).is_ok_and(|process| process == self.child.id()) {
                return Ok(true);
            }
            ensure!(began.elapsed() < START_MAX, "{PROGRAM} on port {} does not answer", self.port);
            pause(Duration::from_millis(20));
        }
        Ok(false)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns a port that is free now. Each is returned once.
pub(super) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < PORTS, "all ports are in use");
        let offset = (std::process::id() * 37 + u32::from(tried)) % u32::from(PORTS);
        let port = PORT_FIRST + offset as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the process that answers on a port: it may be a server of somebody else.
fn process_on(port: u16) -> Result<u32> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(START_MAX))?;
    stream.write_all(b"PING\r\nINFO server\r\nQUIT\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("+PONG"), "it reads its files: {answer}");
    let process = answer.lines().find_map(|line| line.strip_prefix("process_id:")).context("no process")?;
    Ok(process.trim().parse()?)
}

fn spawn(port: u16, directory: &std::path::Path, settings: &[&str]) -> Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log"))?;
    let mut command = Command::new(PROGRAM);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).args(settings);
    command.arg("--dir").arg(directory).stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
    Ok(command.spawn()?)
}
