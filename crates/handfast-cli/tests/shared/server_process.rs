//! A server that nobody here wrote, as a process of a test: it is killed when it is dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server on a port of this machine.
pub(crate) struct ServerProcess {
    child: Child,
    port: u16,
}

impl ServerProcess {
    /// Starts FerretDB with SQLite, whose files and log are in a directory.
    pub(crate) fn ferretdb(program: impl AsRef<OsStr>, directory: &Path, port: u16) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(format!("127.0.0.1:{port}")).arg(directory);
        Self::start(command, directory, port)
    }

    /// Starts a server whose log is in a directory.
    pub(crate) fn start(mut command: Command, directory: &Path, port: u16) -> io::Result<Self> {
        let log = File::create(directory.join("log.txt"))?;
        let child = command.current_dir(directory).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(ServerProcess { child, port })
    }

    /// Returns whether the server takes connections.
    ///
    /// # Errors
    /// The server has ended.
    pub(crate) fn takes_connections(&mut self) -> io::Result<bool> {
        match self.child.try_wait()? {
            Some(ended) => Err(io::Error::other(format!("the server has ended: {ended}"))),
            None => Ok(TcpStream::connect(("127.0.0.1", self.port)).is_ok()),
        }
    }

    /// Returns the connection string for clients.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}", self.port)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
