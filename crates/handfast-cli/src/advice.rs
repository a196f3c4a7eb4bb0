//! What to do about an error, where there is something: said at the end of its line, wherever in the chain the reason is.
//!
//! The crates below say what went wrong; which flag helps only the program knows.

use std::io::ErrorKind;

use handfast_embedded::Error as Embedded;
use handfast_patterns::Error as Pattern;
use handfast_server::Error as Server;
use handfast_store::Applied;

/// What went wrong, with what to do about it where only the command that failed knows.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Advised {
    pub(crate) what: String,
    pub(crate) advice: &'static str,
}

/// What to do, if anything can be said.
pub(crate) fn of(error: &anyhow::Error) -> Option<&'static str> {
    if let Some(advised) = error.downcast_ref::<Advised>() {
        return Some(advised.advice);
    }
    error.chain().find_map(|cause| {
        let of_server = cause.downcast_ref::<Server>().and_then(about_addresses);
        let of_directory = cause.downcast_ref::<Embedded>().and_then(about_directories);
        let of_pattern = cause.downcast_ref::<Pattern>().and_then(about_steps);
        of_server.or(of_directory).or(of_pattern)
    })
}

/// Every step of a pattern can be repeated.
fn about_steps(error: &Pattern) -> Option<&'static str> {
    match error.applied() {
        Applied::Maybe => Some("whether that was done is not known: the same command again does nothing twice"),
        Applied::No => None,
    }
}

fn about_addresses(error: &Server) -> Option<&'static str> {
    match error {
        Server::Listen { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => Some("stop the program that listens there, or choose another port with --port"),
            ErrorKind::AddrNotAvailable => Some("choose an address of this machine with --listen"),
            ErrorKind::PermissionDenied => {
                Some("choose a port from 1024 on with --port, or another path with --unix-socket")
            }
            _ => None,
        },
        Server::SocketPath { .. } => Some("choose another path with --unix-socket"),
        Server::NoAddress => None,
    }
}

fn about_directories(error: &Embedded) -> Option<&'static str> {
    match error {
        Embedded::InUse { .. } => Some("stop that process, or choose another directory with --data"),
        Embedded::NotAStore { .. } | Embedded::NoStore { .. } => Some("choose another directory with --data"),
        Embedded::NotWritable { .. } => Some("copy it to where this user may write, and name the copy with --data"),
        Embedded::WithinStore { .. } => Some("choose a directory outside of it with --to"),
        Embedded::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Some("choose a directory that this user may write to")
            }
            _ => None,
        },
        _ => None,
    }
}
