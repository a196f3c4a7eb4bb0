//! What the person who runs a proxy has to know, and no rule decides.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A mistake in the setup of a proxy that shows only when messages pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// A client begins with a TLS handshake, and the proxy has no certificate. Its connection is closed.
    ClientSpeaksTls,
    /// The server refused the copy of a request, because the connection of the copy is not logged in.
    CopyNeedsLogin,
    /// There is no memory for the copy of a request, because too many others wait to be sent.
    TooManyCopies,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remark::ClientSpeaksTls => {
                "a program connects with TLS, and its connections are closed: leave tls=true out of its connection string, or start the \
                 proxy with a certificate"
            }
            Remark::CopyNeedsLogin => {
                "the server refuses the copies of the fault duplicate, because they are sent without a login: use the fault before a \
                 server without users"
            }
            Remark::TooManyCopies => {
                "too many requests wait to be sent once more, and some are not duplicated: let fewer operations meet the fault duplicate"
            }
        })
    }
}

/// Passes each remark on once.
#[derive(Default)]
pub(super) struct Remarks(Mutex<RemarkLog>);

#[derive(Default)]
struct RemarkLog {
    write: Option<Box<dyn FnMut(Remark) + Send>>,
    told: Vec<Remark>,
}

impl Remarks {
    /// Calls a function with each remark from now on.
    pub(super) fn begin(&self, write: Box<dyn FnMut(Remark) + Send>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write = Some(write);
    }

    pub(super) fn tell(&self, remark: Remark) {
        let RemarkLog { write, told } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(write) = write
            && !told.contains(&remark)
        {
            told.push(remark);
            write(remark);
        }
    }
}
