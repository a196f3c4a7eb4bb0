//! Warnings about the setup of a proxy.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::frame::ReadError;

/// A mistake in the setup of a proxy that shows only when messages pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A client begins with a TLS handshake, and the proxy has no certificate. Its connection is closed.
    ClientSpeaksTls,
    /// A client does not begin with a TLS handshake, and the proxy has a certificate. Its connection is closed.
    ClientSpeaksNoTls,
    /// The server refused the copy of a request, because the connection of the copy is not logged in.
    CopyNeedsLogin,
    /// There is no memory for the copy of a request, because too many others wait to be sent.
    TooManyCopies,
}

impl Warning {
    /// Returns the warning about what ended the connection of a client.
    pub(crate) fn of(error: &ReadError) -> Option<Self> {
        match error {
            ReadError::Tls => Some(Warning::ClientSpeaksTls),
            ReadError::NoTls => Some(Warning::ClientSpeaksNoTls),
            ReadError::Io(_) | ReadError::Wire(_) => None,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Warning::ClientSpeaksTls => {
                "a program connects with TLS, and its connections are closed: leave tls=true out of its connection string, or start this \
                 command with a certificate"
            }
            Warning::ClientSpeaksNoTls => {
                "a program connects without TLS, and its connections are closed: add tls=true to its connection string, or start this \
                 command without a certificate"
            }
            Warning::CopyNeedsLogin => {
                "the server refuses the copies of the fault duplicate, because they are sent without a login: use the fault before a \
                 server without users"
            }
            Warning::TooManyCopies => {
                "too many requests wait to be sent once more, and some are not duplicated: let fewer operations meet the fault duplicate"
            }
        })
    }
}

/// The warnings of a proxy, each reported once.
#[derive(Default)]
pub(crate) struct Warnings(Mutex<WarningLog>);

#[derive(Default)]
struct WarningLog {
    write: Option<Box<dyn FnMut(Warning) + Send>>,
    reported: Vec<Warning>,
}

impl Warnings {
    /// Calls a function with each warning from now on.
    pub(crate) fn begin(&self, write: Box<dyn FnMut(Warning) + Send>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write = Some(write);
    }

    pub(crate) fn report(&self, warning: Warning) {
        let WarningLog { write, reported } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(write) = write
            && !reported.contains(&warning)
        {
            reported.push(warning);
            write(warning);
        }
    }
}
