//! Classifies errors of the driver and of the server, and decides whether the request may have been applied.
//!
//! | error | class | applied |
//! | --- | --- | --- |
//! | no server selected, no address | outage | no |
//! | the connection was never made, or the pool was cleared before the request had one | transient network | no |
//! | the connection broke, or no answer came in time | transient network | maybe, if it is a write |
//! | "not primary": the server refused before it began | transient network | no, if it was one step |
//! | shutdown, stepdown and other interruptions by the server | transient network | maybe, if it is a write |
//! | a write concern that was not met | by its code | maybe |
//! | any other refusal | command | no |
//! | an interruption (time limit, kill, full disk) | command | maybe, if it is a write |
//!
//! Source: MongoDB's specifications of retryable writes and of server discovery; spec: resilience.

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::{Applied, Error, ErrorClass};
use mongodb::error::{Error as DriverError, ErrorKind, NO_WRITES_PERFORMED, SYSTEM_OVERLOADED_ERROR};

#[cfg(test)]
mod tests;

/// The effect that a request may have had when its answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It changes nothing.
    Nothing,
    /// It makes all changes in one step.
    One,
    /// It makes several changes one after the other, and may have stopped half-way.
    Several,
}

impl Effect {
    /// Returns the effect of a request that was lost or interrupted.
    fn if_lost(self) -> Applied {
        match self {
            Effect::Nothing => Applied::No,
            Effect::One | Effect::Several => Applied::Maybe,
        }
    }

    /// Returns the effect of a request that was refused before its first step or a later one.
    fn if_refused(self) -> Applied {
        match self {
            Effect::Nothing | Effect::One => Applied::No,
            Effect::Several => Applied::Maybe,
        }
    }
}

/// Codes of a server that is not the primary and refuses the request before it begins.
const NOT_PRIMARY: [i32; 3] = [10107, 13435, 10058];
/// Codes of a server that shuts down, steps down, or cannot reach another one during the request. Drivers retry on these and on
/// [`NOT_PRIMARY`] (MongoDB's specification "Retryable Writes").
const TRANSIENT: [i32; 11] = [6, 7, 89, 91, 134, 189, 262, 9001, 11600, 11602, 13436];
/// Codes of an interrupted request, whose changes up to then remain.
const BROKEN_OFF: [i32; 10] = [1, 8, 24, 50, 146, 175, 237, 292, 11601, 14031];

/// Converts an error of the driver. Takes only its message, as its full text would write whole answers to the log.
pub(crate) fn of_driver(error: DriverError, effect: Effect) -> Error {
    let transient = |applied, code, text: String| Error::new(ErrorClass::TransientNetwork, applied, code, text);
    let outage = |code, text: &str| Error::new(ErrorClass::Outage, Applied::No, code, text);
    match error.kind.as_ref() {
        ErrorKind::Command(refused) => {
            let nothing_written = error.contains_label(NO_WRITES_PERFORMED);
            let effect = if nothing_written { Effect::Nothing } else { effect };
            let made = of_code(refused.code, &refused.message, effect);
            match error.server_response().map(RawDocumentBuf::as_ref).and_then(crate::reply::details) {
                Some(details) => made.with_details(details),
                None => made,
            }
        }
        ErrorKind::Io(cause) => {
            // The driver sets this label on errors of a new connection that has not carried a request.
            let never_sent = error.contains_label(SYSTEM_OVERLOADED_ERROR);
            let applied = if never_sent { Applied::No } else { effect.if_lost() };
            let timed_out = cause.kind() == std::io::ErrorKind::TimedOut;
            let code = if timed_out { Code::NetworkTimeout } else { Code::SocketException };
            let what = if never_sent { "no connection" } else { "the connection broke" };
            transient(applied, code, format!("{what}: {cause}"))
        }
        ErrorKind::ConnectionPoolCleared { message, .. } => {
            transient(Applied::No, Code::SocketException, message.clone())
        }
        ErrorKind::ServerSelection { message, .. } => outage(Code::HostUnreachable, message),
        ErrorKind::DnsResolve { message, .. } => outage(Code::HostNotFound, message),
        ErrorKind::Shutdown => outage(Code::ShutdownInProgress, "the client was shut down"),
        ErrorKind::Authentication { message, .. } => Error::command(Code::AuthenticationFailed, message.clone()),
        ErrorKind::InvalidArgument { message, .. }
        | ErrorKind::InvalidTlsConfig { message, .. }
        | ErrorKind::IncompatibleServer { message, .. } => Error::command(Code::BadValue, message.clone()),
        other => transient(effect.if_lost(), Code::ProtocolError, format!("the answer makes no sense: {other}")),
    }
}

/// Converts a code of the server for a request or one of its statements.
pub(crate) fn of_code(code: i32, message: &str, effect: Effect) -> Error {
    let (class, applied) = match code {
        code if NOT_PRIMARY.contains(&code) => (ErrorClass::TransientNetwork, effect.if_refused()),
        code if TRANSIENT.contains(&code) => (ErrorClass::TransientNetwork, effect.if_lost()),
        code if BROKEN_OFF.contains(&code) => (ErrorClass::Command, effect.if_lost()),
        _ => (ErrorClass::Command, Applied::No),
    };
    let message = if message.is_empty() { Code(code).name().into_owned() } else { message.to_owned() };
    Error::new(class, applied, Code(code), message)
}

/// Returns the error for an answer that did not come in time.
pub(crate) fn no_answer(limit: std::time::Duration, effect: Effect) -> Error {
    let text = format!("no answer within {} s", limit.as_secs_f64());
    Error::new(ErrorClass::TransientNetwork, effect.if_lost(), Code::NetworkTimeout, text)
}

/// Returns the error for a write that was done, but whose write concern was not met.
pub(crate) fn of_write_concern(code: i32, message: &str) -> Error {
    let text = format!("the write concern was not met: {message}");
    of_code(code, &text, Effect::Several).in_doubt()
}

/// Returns the error for a request that needs a missing capability.
pub(crate) fn unsupported(text: String) -> Error {
    Error::command(Code::CommandNotSupported, text)
}

/// Returns the error for a malformed answer; the request may have been applied.
pub(crate) fn incomplete(what: &str, effect: Effect) -> Error {
    let text = format!("the answer makes no sense: {what}");
    Error::new(ErrorClass::TransientNetwork, effect.if_lost(), Code::ProtocolError, text)
}
