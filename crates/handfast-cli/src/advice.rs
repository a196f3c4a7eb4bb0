//! Advice on errors, which is printed at the end of their line. Only the program knows which flag helps against an error of a
//! library.

use std::io::ErrorKind;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use handfast_embedded::Error as Embedded;
use handfast_mql::Code;
use handfast_patterns::Error as Pattern;
use handfast_server::Error as Server;
use handfast_store::Applied;

/// An error with advice that only the failed command knows.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Advised {
    pub(crate) what: String,
    pub(crate) advice: &'static str,
}

/// Returns advice on an error of a server that asks for a login; `variable` can hold the address.
pub(crate) fn about_login(error: &handfast_store::Error, variable: &str) -> Option<String> {
    match error.code() {
        // A server names what a logged-in user may not do.
        Code::Unauthorized if error.message().contains("requires authentication") => {
            Some(format!("the server requires a login: add USER:PASSWORD@ to the connection string ({variable})"))
        }
        Code::AuthenticationFailed => {
            Some("the user or the password is wrong, or the user belongs to another database (authSource)".to_owned())
        }
        _ => None,
    }
}

/// Returns advice on an error, if there is any.
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

/// Returns advice on an error of a pattern, of which every step can be repeated.
fn about_steps(error: &Pattern) -> Option<&'static str> {
    match error.applied() {
        Applied::Maybe => Some("the outcome is unknown: repeat the command, which does nothing twice"),
        Applied::No => None,
    }
}

/// Returns advice on a directory that was given without its flag.
pub(crate) fn about_directory(error: &clap::Error) -> Option<String> {
    let said =
        [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter().find_map(|kind| error.get(kind))?;
    let ContextValue::String(said) = said else { return None };
    Path::new(said)
        .is_dir()
        .then(|| format!("a directory is named with its flag, a data directory with --data: --data {said}"))
}

fn about_addresses(error: &Server) -> Option<&'static str> {
    match error {
        Server::Listen { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => Some("stop the program that listens there, or choose another port with --port"),
            ErrorKind::AddrNotAvailable => Some("choose an address of this machine with --listen"),
            ErrorKind::PermissionDenied => {
                Some("choose a port of 1024 or higher with --port, or another path with --unix-socket")
            }
            _ => None,
        },
        Server::SocketPath { .. } => Some("choose another path with --unix-socket"),
        Server::NoAddress => None,
    }
}

fn about_directories(error: &Embedded) -> Option<&'static str> {
    match error {
        Embedded::InUse { .. } => Some(
            "stop that process, or choose another directory with --data; on a running server, `backup --uri` makes a backup, \
             mongodump a dump and createUser a user, and `jobs`, `transfer` and similar commands take --store mongodb://..",
        ),
        Embedded::NotAStore { .. } | Embedded::NoStore { .. } => Some("choose another directory with --data"),
        Embedded::NotWritable { .. } => {
            Some("copy it to a place where this user may write, and name the copy with --data")
        }
        Embedded::Corrupt(_) => {
            Some("`handfast check` shows the damage and what to do; `dump --skip-damaged` writes what can be read")
        }
        Embedded::WithinStore { .. } => Some("choose a directory outside of it with --to"),
        Embedded::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Some("choose a directory that this user may write to")
            }
            ErrorKind::NotADirectory => Some("a file is in the way: choose a directory"),
            _ => None,
        },
        _ => None,
    }
}
