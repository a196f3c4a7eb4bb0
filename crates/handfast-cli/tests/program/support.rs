//! Functions that the tests of the real program share.

mod waiting;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bson::{Bson, Document, RawDocumentBuf, doc};

use waiting::{END_MAX, REST_MAX, end, read_to_end};
pub(crate) use waiting::{finish, now, output, pause, until};

/// The time that an answer may take on a busy machine; a test that waits longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of one test, which is removed when the test is over.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory. The name is the test's; the process id keeps runs apart.
    pub(crate) fn new(name: &str) -> std::io::Result<Self> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Returns a path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a command that runs the program in the scratch directory, without the environment variables that configure it. No operation is
/// slow to it: tests that compare the log would fail on a busy machine.
pub(crate) fn handfast(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
    command.args(arguments).current_dir(&scratch.0).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDFAST_") {
            command.env_remove(name);
        }
    }
    command.env("HANDFAST_SLOW_OPERATION", "1h");
    command
}

/// Asserts that a run failed with this code and one line on standard error that holds the text.
pub(crate) fn assert_one_line(output: &Output, code: i32, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(expected), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
}

/// Prints that a test is skipped because a program is missing. It does not use a macro, because the output of macros is hidden if the test
/// passes. With `CI=true` it fails, as nothing may be missing there.
pub(crate) fn skipped(why: &str) -> Result<()> {
    ensure!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    Ok(writeln!(std::io::stderr(), "skipped: {why}")?)
}

/// Sends a process a signal by its name. After `STOP`, waits until all of its threads have stopped: on a busy machine, others answer requests meanwhile.
pub(crate) fn signal(process: u32, name: &str) -> Result<()> {
    let kill = format!("kill -{name} {process}");
    ensure!(Command::new("sh").args(["-c", &kill]).status()?.success(), "{kill}");
    match name {
        "STOP" => until("the process is stopped", || is_stopped(process)),
        _ => Ok(()),
    }
}

/// Returns whether all threads of a process are stopped (`proc_pid_stat(5)`: the state is behind the name, which is in parentheses).
fn is_stopped(process: u32) -> Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        if !stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether this script, which gets a path as `$0`, may mount file systems in a namespace of its own; if not, prints why to standard
/// error, which is not captured.
pub(crate) fn mounts_or_says_why_not(script: &str, path: &Path) -> Result<bool> {
    let tried = Command::new("unshare").args(["-rm", "sh", "-c", script]).arg(path).output();
    let why = match tried {
        Ok(output) if output.status.success() => return Ok(true),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    writeln!(std::io::stderr(), "nothing can be mounted here, another way is taken: {why}")?;
    Ok(false)
}

/// The arguments for a server at a free port.
pub(crate) const FREE_PORT: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// A running `handfast serve`, which is killed when this is dropped.
pub(crate) struct Serve {
    child: Child,
    /// The lines of its standard output.
    stdout: Mutex<Receiver<std::io::Result<String>>>,
    /// All of its standard error.
    stderr: Mutex<Receiver<Vec<u8>>>,
    /// The start line.
    pub(crate) start: String,
}

impl Serve {
    /// Starts the server and waits until it prints that it is ready.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut serve = Serve::spawn(command)?;
        let ready = serve.line()?;
        if ready != "ready" && !ready.contains(r#""ready""#) {
            let stderr = serve.stderr_if_dead();
            bail!("after '{}' comes '{ready}': {stderr}", serve.start);
        }
        Ok(serve)
    }

    /// Starts the server and waits until it prints its address.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("stdout")?);
        let stderr = read_to_end(child.stderr.take().context("stderr")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || stdout.lines().try_for_each(|line| sender.send(line)));
        let mut serve = Serve { child, stdout: Mutex::new(lines), stderr: Mutex::new(stderr), start: String::new() };
        serve.start = serve.line()?;
        Ok(serve)
    }

    /// Returns the next line of standard output, which is empty at the end.
    pub(crate) fn line(&mut self) -> Result<String> {
        match self.stdout.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(END_MAX) {
            Ok(line) => Ok(line?.trim_end().to_owned()),
            Err(RecvTimeoutError::Disconnected) => Ok(String::new()),
            Err(RecvTimeoutError::Timeout) => {
                bail!("waited for a line for {END_MAX:?}; the first one was '{}'", self.start)
            }
        }
    }

    /// Returns the address in the start line.
    pub(crate) fn address(&self) -> Result<String> {
        let (_, rest) = self.start.split_once("listens on ").context("no address in the start line")?;
        Ok(rest.split([',', ' ']).next().unwrap_or_default().to_owned())
    }

    /// Runs a command through the wire protocol.
    pub(crate) fn command(&self, command: Document) -> Result<Document> {
        exchange(&self.connect()?, &command)
    }

    /// Returns a connection, for [`exchange`].
    pub(crate) fn connect(&self) -> Result<TcpStream> {
        connect(&self.address()?)
    }

    /// Sends a command and closes the connection before the reply.
    pub(crate) fn send_and_vanish(&self, command: &Document) -> Result<()> {
        send(&TcpStream::connect(self.address()?)?, command)
    }

    /// Returns the processor time that the program has used, in user mode; Linux counts it in hundredths of a second.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name, in parentheses, may contain any character; the 12th field after it is the time.
        let (_, fields) = status.rsplit_once(") ").context("a name")?;
        let ticks: u64 = fields.split(' ').nth(11).context("a time")?.parse()?;
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Returns all documents of a collection of the database `db`, if they fit into one batch.
    pub(crate) fn find_all(&self, collection: &str) -> Result<Vec<Bson>> {
        let reply = self.command(doc! { "find": collection, "$db": "db" })?;
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        Ok(batch.with_context(|| reply.to_string())?.clone())
    }

    /// Returns the id of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        signal(self.child.id(), name)
    }

    /// Asks the server to stop, and reads its output until it has stopped.
    pub(crate) fn stop(&mut self, signal: &str) -> Result<()> {
        self.signal(signal)?;
        let said = [self.line()?, self.line()?];
        ensure!(said == ["stopping; a second signal stops at once", "stopped"], "{said:?}");
        Ok(())
    }

    /// Waits for its end; returns the exit code (none if it was killed), and its standard error.
    pub(crate) fn wait(mut self) -> Result<(Option<i32>, String)> {
        let status = end(&mut self.child);
        let said = self.said();
        let code = status.with_context(|| said.clone())?.code();
        Ok((code, said))
    }

    fn stderr_if_dead(&mut self) -> String {
        match self.child.try_wait() {
            Ok(Some(_)) => self.said(),
            _ => String::new(),
        }
    }

    /// Returns all of its standard error up to its end.
    fn said(&mut self) -> String {
        let stderr = self.stderr.get_mut().unwrap_or_else(PoisonError::into_inner);
        let said = stderr.recv_timeout(REST_MAX).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a connection to a server, for [`exchange`].
pub(crate) fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends an OP_MSG and receives one. It is written out here so that the test does not trust the code that it tests.
pub(crate) fn exchange(mut stream: impl Read + Write, command: &Document) -> Result<Document> {
    send(&mut stream, command)?;
    receive(stream)
}

/// Receives an OP_MSG.
pub(crate) fn receive(mut stream: impl Read) -> Result<Document> {
    let mut head = [0; 21];
    stream.read_exact(&mut head)?;
    let length = usize::try_from(i32::from_le_bytes(*head.first_chunk().context("length")?))?;
    ensure!((21..48_000_000).contains(&length), "a reply of {length} bytes");
    let mut body = vec![0; length - head.len()];
    stream.read_exact(&mut body)?;
    Ok(Document::try_from(RawDocumentBuf::from_bytes(body)?)?)
}

fn send(mut stream: impl Write, command: &Document) -> Result<()> {
    const OP_MSG: i32 = 2013;
    let document = RawDocumentBuf::try_from(command)?;
    let length = i32::try_from(16 + 4 + 1 + document.as_bytes().len())?;
    let mut message = Vec::new();
    for number in [length, 1, 0, OP_MSG, 0] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(document.as_bytes());
    Ok(stream.write_all(&message)?)
}
