//! A `redis-server` of a test: on a free loopback port, with a directory of its own, killed at the end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::support::{Scratch, now, pause};

const PROGRAM: &str = "redis-server";
/// A server starts sooner, even on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
/// How often a port is chosen: another process may take it in between.
const PORT_ATTEMPTS: usize = 20;

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
            ensure!(std::env::var("CI").as_deref() != Ok("true"), "{PROGRAM} is not installed");
            writeln!(std::io::stderr(), "skipped: {PROGRAM} is not installed: run scripts/install-test-tools")?;
            return Ok(None);
        }
        let directory = scratch.path("redis");
        std::fs::create_dir_all(&directory)?;
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()?;
            let child = spawn(port, &directory, settings)?;
            let mut server = RedisServer { port, directory: directory.clone(), settings, child };
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

    /// Starts a server that was killed on its port and its files.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.child = spawn(self.port, &self.directory, self.settings)?;
        ensure!(self.answers()?, "{PROGRAM} has ended: see {}", self.directory.display());
        Ok(())
    }

    /// Waits until the server answers; `false` if it has ended.
    fn answers(&mut self) -> Result<bool> {
        let began = now();
        while self.child.try_wait()?.is_none() {
            if ping(self.port).is_ok_and(|answer| answer.starts_with("+PONG")) {
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

/// Returns a port that is free now.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn ping(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(START_MAX))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 64];
    let bytes = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(answer.get(..bytes).context("an answer")?).into_owned())
}

fn spawn(port: u16, directory: &std::path::Path, settings: &[&str]) -> Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log"))?;
    let mut command = Command::new(PROGRAM);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).args(settings);
    command.arg("--dir").arg(directory).stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
    Ok(command.spawn()?)
}
