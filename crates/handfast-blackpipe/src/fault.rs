//! The faults: their names, and what the proxy needs to inject them.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

use crate::{Error, Result};

/// A kind of fault, which has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection is closed before the request reaches the server.
    LoseRequest,
    /// The connection is closed after the server has answered, and the reply is not sent.
    LoseReply,
    /// The connection is closed in the middle of the reply.
    Cut,
    /// The request reaches the server later.
    Delay,
    /// The proxy answers with an error, and the server does not get the request.
    Error,
    /// The request is answered, and the server gets it once more later.
    Duplicate,
    /// The server answers; from then on nothing comes back on the connection, which stays open.
    HalfOpen,
    /// The request or the reply passes slowly.
    Throttle,
    /// A later request of another connection reaches the server first.
    Reorder,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 9] = [
        Fault::LoseRequest,
        Fault::LoseReply,
        Fault::Cut,
        Fault::Delay,
        Fault::Error,
        Fault::Duplicate,
        Fault::HalfOpen,
        Fault::Throttle,
        Fault::Reorder,
    ];

    /// The faults that every network has, and that every program has to expect.
    pub const DEFAULT: [Fault; 2] = [Fault::LoseRequest, Fault::LoseReply];

    /// Returns the name that people write.
    pub fn name(self) -> &'static str {
        match self {
            Fault::LoseRequest => "lose-request",
            Fault::LoseReply => "lose-reply",
            Fault::Cut => "cut",
            Fault::Delay => "delay",
            Fault::Error => "error",
            Fault::Duplicate => "duplicate",
            Fault::HalfOpen => "half-open",
            Fault::Throttle => "throttle",
            Fault::Reorder => "reorder",
        }
    }

    /// Returns whether the fault is one of the reply. An unacknowledged write, which has none, cannot meet it.
    pub fn needs_reply(self) -> bool {
        match self {
            Fault::LoseReply | Fault::Cut | Fault::Error | Fault::HalfOpen => true,
            Fault::LoseRequest | Fault::Delay | Fault::Duplicate | Fault::Throttle | Fault::Reorder => false,
        }
    }

    /// Returns whether an exploration of all faults includes this one. A slow message alone loses and doubles nothing: a program that does
    /// not wait for it is explored with the faults that close a connection or make it silent.
    pub fn is_explored(self) -> bool {
        self != Fault::Throttle
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Fault::ALL.into_iter().find(|fault| fault.name() == text).ok_or_else(|| Error::Fault(text.to_owned()))
    }
}

/// A fault with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Injection {
    /// [`Fault::LoseRequest`].
    LoseRequest,
    /// [`Fault::LoseReply`].
    LoseReply,
    /// [`Fault::Cut`].
    Cut,
    /// [`Fault::Delay`], by this time.
    Delay(Duration),
    /// [`Fault::Error`], with this reply.
    Error(ErrorReply),
    /// [`Fault::Duplicate`].
    Duplicate {
        /// The time between the request and its copy. Without one the copy waits for
        /// [`Handle::deliver_late`](crate::Handle::deliver_late).
        after: Option<Duration>,
    },
    /// [`Fault::HalfOpen`].
    HalfOpen,
    /// [`Fault::Throttle`].
    Throttle {
        /// The message that passes slowly.
        direction: Direction,
        /// The rate at which it does.
        bytes_per_second: NonZeroU32,
    },
    /// [`Fault::Reorder`]. While a request is held back, its rule applies to no other one.
    Reorder {
        /// The time after which the request is sent although no other one was answered.
        within: Duration,
    },
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Request, Direction::Reply];

    /// Returns the name that people write.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Request => "request",
            Direction::Reply => "reply",
        }
    }
}

impl Injection {
    /// The delay of a request for which no other one is chosen: longer than a request takes, and shorter than common time-outs.
    pub const DELAY: Duration = Duration::from_secs(1);

    /// The rate of a slow message for which no other one is chosen: a usual reply takes some tenths of a second.
    pub const BYTES_PER_SECOND: NonZeroU32 = NonZeroU32::new(1024).unwrap();

    /// Returns whether it needs a reply, which an unacknowledged write does not have.
    pub fn needs_reply(&self) -> bool {
        self.fault().needs_reply() || matches!(self, Injection::Throttle { direction: Direction::Reply, .. })
    }

    /// Returns the kind of the fault.
    pub fn fault(&self) -> Fault {
        match self {
            Injection::LoseRequest => Fault::LoseRequest,
            Injection::LoseReply => Fault::LoseReply,
            Injection::Cut => Fault::Cut,
            Injection::Delay(_) => Fault::Delay,
            Injection::Error(_) => Fault::Error,
            Injection::Duplicate { .. } => Fault::Duplicate,
            Injection::HalfOpen => Fault::HalfOpen,
            Injection::Throttle { .. } => Fault::Throttle,
            Injection::Reorder { .. } => Fault::Reorder,
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault().fmt(f)?;
        match self {
            Injection::Delay(time) | Injection::Duplicate { after: Some(time) } => {
                write!(f, " after {}", humantime::format_duration(*time))
            }
            Injection::Error(error) if error.labels.is_empty() => write!(f, " {}", error.code),
            Injection::Error(error) => write!(f, " {} ({})", error.code, error.labels.join(", ")),
            Injection::Throttle { direction, bytes_per_second } => {
                write!(f, " {} to {bytes_per_second} B/s", direction.name())
            }
            Injection::Reorder { within } => write!(f, " within {}", humantime::format_duration(*within)),
            _ => Ok(()),
        }
    }
}

impl From<Fault> for Injection {
    /// Returns the fault with parameters that suit most programs.
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::LoseRequest => Injection::LoseRequest,
            Fault::LoseReply => Injection::LoseReply,
            Fault::Cut => Injection::Cut,
            Fault::Delay => Injection::Delay(Self::DELAY),
            Fault::Error => Injection::Error(ErrorReply::default()),
            Fault::Duplicate => Injection::Duplicate { after: None },
            Fault::HalfOpen => Injection::HalfOpen,
            Fault::Throttle => {
                Injection::Throttle { direction: Direction::Reply, bytes_per_second: Self::BYTES_PER_SECOND }
            }
            Fault::Reorder => Injection::Reorder { within: Self::DELAY },
        }
    }
}

/// The error reply to a request that the server does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// The code, by which drivers tell errors apart.
    pub code: i32,
    /// The name of the code, which drivers show.
    pub name: Option<String>,
    /// The message.
    pub message: String,
    /// The labels, such as `RetryableWriteError`, by which drivers decide whether they repeat a request.
    pub labels: Vec<String>,
}

/// The codes with which a server says that it is not, or no longer, the primary, or that it shuts down. Drivers ask such a server for its
/// state before they send anything else.
///
/// Source: "Server Discovery and Monitoring" of the driver specifications, "not writable primary" and "node is recovering".
const STATE_CHANGES: [i32; 8] = [91, 189, 10058, 10107, 11600, 11602, 13435, 13436];

/// Returns whether drivers ask a server for its state after an error with this code.
pub(crate) fn is_state_change(code: i32) -> bool {
    STATE_CHANGES.contains(&code)
}

impl Default for ErrorReply {
    /// Returns the error of a server that is no longer the primary, as it answers a write.
    fn default() -> Self {
        ErrorReply {
            code: 10107,
            name: Some("NotWritablePrimary".to_owned()),
            message: "not primary".to_owned(),
            labels: vec!["RetryableWriteError".to_owned()],
        }
    }
}

impl ErrorReply {
    /// Returns a reply with this code, without labels.
    pub fn of_code(code: i32) -> Self {
        ErrorReply { code, name: None, message: format!("error {code}"), labels: Vec::new() }
    }

    /// Returns whether drivers ask the server for its state after this error.
    pub fn is_state_change(&self) -> bool {
        is_state_change(self.code)
    }

    /// Returns the reply.
    pub fn document(&self) -> RawDocumentBuf {
        let mut reply = rawdoc! { "ok": 0.0, "errmsg": self.message.as_str(), "code": self.code };
        if let Some(name) = &self.name {
            reply.append(cstr!("codeName"), name.as_str());
        }
        if !self.labels.is_empty() {
            let mut labels = RawArrayBuf::new();
            self.labels.iter().for_each(|label| labels.push(label.as_str()));
            reply.append(cstr!("errorLabels"), labels);
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::rawdoc;

    use super::{ErrorReply, Fault, Injection};

    #[test]
    fn every_fault_has_a_name_of_its_own() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse::<Fault>().unwrap(), fault);
            assert_eq!(Injection::from(fault).fault(), fault);
        }
    }

    #[test]
    fn a_fault_is_shown_with_its_parameters() {
        let check = |injection: Injection, expected: &str| assert_eq!(injection.to_string(), expected);
        check(Injection::Cut, "cut");
        check(Injection::Delay(Duration::from_millis(1500)), "delay after 1s 500ms");
        check(Injection::Duplicate { after: Some(Duration::from_secs(2)) }, "duplicate after 2s");
        check(Injection::Duplicate { after: None }, "duplicate");
        check(Fault::Error.into(), "error 10107 (RetryableWriteError)");
        check(Injection::Error(ErrorReply::of_code(91)), "error 91");
        check(Fault::Throttle.into(), "throttle reply to 1024 B/s");
        check(Fault::Reorder.into(), "reorder within 1s");
    }

    #[test]
    fn an_error_lists_all_faults() {
        let error = "lose".parse::<Fault>().unwrap_err().to_string();
        for fault in Fault::ALL {
            assert!(error.contains(fault.name()), "{error}");
        }
    }

    #[test]
    fn an_error_reply_has_what_was_chosen_alone() {
        let expected = rawdoc! {
            "ok": 0.0, "errmsg": "not primary", "code": 10107, "codeName": "NotWritablePrimary", "errorLabels": ["RetryableWriteError"],
        };
        assert_eq!(ErrorReply::default().document(), expected);
        let plain = ErrorReply::of_code(8000);
        assert_eq!(plain.document(), rawdoc! { "ok": 0.0, "errmsg": "error 8000", "code": 8000 });
        assert!(ErrorReply::default().is_state_change() && !plain.is_state_change());
    }
}
