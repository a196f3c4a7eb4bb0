//! A server that answers as a script says, for tests of programs and drivers.
//!
//! ```text
//! client              server               script
//!   | -- hello ------> |                   |            answered by the role, and no part of the script
//!   | -- insert -----> | -- request ------> | 1. insert on shop.orders: matches
//!   | <-- reply ------ | <-- answer ------- |
//!   | -- find -------> | -- request ------> | 2. aggregate: does not match
//!   | <-- error ------ | <-- "not expected" |
//!                        finish()            the report: find arrived and was not expected, aggregate did not arrive
//! ```
//!
//! The script is a function from requests to answers, without a socket. The server does with the connection what an answer says.

mod answer;
mod connection;
mod identity;
mod matcher;
mod replica_set;
mod role;
mod routing;
mod server;
mod shared;

use std::fmt;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_wire::Compressor;

pub use answer::{Answer, FailedWrite};
pub use matcher::{Matcher, ReceivedRequest};
pub use replica_set::ScriptedReplicaSet;
pub use role::Role;
pub use server::ScriptedServer;
pub use shared::Autoresponder;

use crate::{Error, ErrorReply, Result};

/// The number of requests that are remembered for the report; a test sends far fewer.
const REQUESTS_MAX: usize = 10_000;

/// The commands that are answered without the script, unless it expects them.
const ANSWERED: [&str; 3] = ["ping", "endSessions", "killCursors"];

/// The code of the answer to a request that is not expected. No driver repeats a request after it.
const NOT_EXPECTED: i32 = 8000;

/// The requests that are expected, and their answers.
///
/// Handshakes are answered by the [`Role`] of the server. `ping`, `endSessions` and `killCursors`, which drivers send by themselves, are answered
/// with `{ok: 1}`, unless an expectation that is due or an [`Autoresponder`] matches them.
#[derive(Debug)]
pub struct Script {
    expectations: Vec<Expectation>,
    is_ordered: bool,
    /// In the order in which they were added.
    responses: Vec<Response>,
    /// The number of responses that were added, and the number of the next one.
    response_count: u64,
    received: Vec<Received>,
    /// The compressors that handshakes offer.
    compressors: Vec<Compressor>,
    /// Whether a request has arrived that was not expected.
    has_unexpected: bool,
}

#[derive(Debug)]
struct Expectation {
    matcher: Matcher,
    answer: Answer,
    is_met: bool,
}

/// An answer to each request that matches and meets no expectation.
#[derive(Debug)]
struct Response {
    number: u64,
    matcher: Matcher,
    answer: Answer,
}

#[derive(Debug)]
struct Received {
    request: ReceivedRequest,
    reception: Reception,
}

/// How a script receives a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reception {
    Expected,
    NotExpected,
    /// The member of the replica set does not execute it, and the script goes on.
    Refused,
    /// The answer is several replies, and the client does not accept them.
    NoExhaust,
}

impl Script {
    /// Creates a script whose requests have to arrive in its order.
    pub fn in_order() -> Self {
        Script {
            expectations: Vec::new(),
            is_ordered: true,
            responses: Vec::new(),
            response_count: 0,
            received: Vec::new(),
            compressors: Vec::new(),
            has_unexpected: false,
        }
    }

    /// Creates a script whose requests may arrive in any order. A request meets the first expectation that matches it.
    pub fn in_any_order() -> Self {
        Script { is_ordered: false, ..Script::in_order() }
    }

    /// Expects a request once, and answers it.
    #[must_use]
    pub fn expect(mut self, matcher: Matcher, answer: impl Into<Answer>) -> Self {
        self.expectations.push(Expectation { matcher, answer: answer.into(), is_met: false });
        self
    }

    /// Offers compressors in handshakes. A client that has one of them compresses its requests; the reply is compressed as its request is.
    #[must_use]
    pub fn with_compressors(self, compressors: impl IntoIterator<Item = Compressor>) -> Self {
        Script { compressors: compressors.into_iter().collect(), ..self }
    }

    /// Adds the compressors that both sides have, in the order of the client, to the reply to a handshake. A client that names none gets none.
    fn with_compression(&self, handshake: &RawDocument, mut hello: RawDocumentBuf) -> RawDocumentBuf {
        let Ok(Some(RawBsonRef::Array(names))) = handshake.get("compression") else { return hello };
        let offered = |name: &&str| self.compressors.iter().any(|compressor| compressor.name() == *name);
        let names = names.into_iter().filter_map(|name| name.ok()?.as_str()).filter(offered);
        hello.append(cstr!("compression"), names.collect::<RawArrayBuf>());
        hello
    }

    /// Adds an answer to all requests that match and meet no expectation; returns its number.
    fn add_response(&mut self, matcher: Matcher, answer: Answer) -> u64 {
        let number = self.response_count;
        self.response_count += 1;
        self.responses.push(Response { number, matcher, answer });
        number
    }

    /// Removes the response with this number.
    fn remove_response(&mut self, number: u64) {
        self.responses.retain(|response| response.number != number);
    }

    /// Returns the expectations that the next request may meet.
    fn due(&mut self) -> impl Iterator<Item = &mut Expectation> {
        let count = if self.is_ordered { 1 } else { usize::MAX };
        self.expectations.iter_mut().filter(|expectation| !expectation.is_met).take(count)
    }

    /// Answers a request.
    pub fn answer(&mut self, request: ReceivedRequest) -> Answer {
        let answer = self.due().find(|expectation| expectation.matcher.matches(&request)).map(|expectation| {
            expectation.is_met = true;
            expectation.answer.clone()
        });
        if answer.is_none() {
            if let Some(response) = self.responses.iter().rev().find(|response| response.matcher.matches(&request)) {
                let refusal = refusal(&response.answer, &request);
                return refusal.map_or_else(|| response.answer.clone(), Answer::from);
            }
            if ANSWERED.contains(&request.command()) {
                return Answer::ok();
            }
        }
        let (reception, answer) = match answer {
            Some(answer) => match refusal(&answer, &request) {
                Some(refusal) => (Reception::NoExhaust, refusal.into()),
                None => (Reception::Expected, answer),
            },
            None if !request.is_executed() => (Reception::Refused, routing::refusal(&request).into()),
            None => {
                let message = format!("the script does not expect {}", request.command());
                (Reception::NotExpected, ErrorReply { message, ..ErrorReply::of_code(NOT_EXPECTED) }.into())
            }
        };
        self.has_unexpected |= matches!(reception, Reception::NotExpected | Reception::NoExhaust);
        if self.received.len() < REQUESTS_MAX {
            self.received.push(Received { request, reception });
        }
        answer
    }

    /// Returns an error if an answer cannot be given, or the script names a member that a set of so many members does not have. A server alone has none.
    fn check(&self, count: usize) -> Result<()> {
        let mut expectations = self.expectations.iter();
        expectations.try_for_each(|expectation| check(&expectation.matcher, &expectation.answer, count))
    }

    /// Returns the requests that arrived, without those that were answered without the script and those that a member of a replica set refused.
    ///
    /// # Errors
    /// [`Error::Script`] with the script and the requests, if a request was not expected or did not arrive.
    pub fn finish(self) -> Result<Vec<ReceivedRequest>> {
        if self.has_unexpected || self.expectations.iter().any(|expectation| !expectation.is_met) {
            return Err(Error::Script { report: self.to_string() });
        }
        let expected = self.received.into_iter().filter(|received| received.reception == Reception::Expected);
        Ok(expected.map(|received| received.request).collect())
    }
}

/// Returns the error that a client gets in the place of an answer with several replies, which it does not accept, or with none.
fn refusal(answer: &Answer, request: &ReceivedRequest) -> Option<ErrorReply> {
    let message = if answer.has_empty_exhaust() {
        format!("the script answers {} with Exhaust, and without an answer in it", request.command())
    } else if answer.needs_exhaust() && !request.is_exhaust_allowed() {
        format!("the script answers {} with several replies", request.command())
    } else {
        return None;
    };
    Some(ErrorReply { message, ..ErrorReply::of_code(NOT_EXPECTED) })
}

/// Returns an error if an answer cannot be given, or a matcher or an answer names a member that a set of so many members does not have.
fn check(matcher: &Matcher, answer: &Answer, count: usize) -> Result<()> {
    if answer.has_empty_exhaust() {
        return Err(Error::EmptyExhaust);
    }
    let elections = answer.elections();
    if count == 0 && !(elections.is_empty() && matcher.member().is_none()) {
        return Err(Error::NoReplicaSet);
    }
    elections.into_iter().chain([matcher.member()]).flatten().try_for_each(|member| check_member(member, count))
}

fn check_member(member: usize, count: usize) -> Result<()> {
    match member < count {
        true => Ok(()),
        false => Err(Error::Member { member, count }),
    }
}

impl fmt::Display for Script {
    /// Writes both sides: what is expected, and what has arrived.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected, {}:", if self.is_ordered { "in this order" } else { "in any order" })?;
        for (number, Expectation { matcher, is_met, .. }) in (1_u32..).zip(&self.expectations) {
            write!(f, "\n  {number}. {matcher}: {}", if *is_met { "arrived" } else { "DID NOT ARRIVE" })?;
        }
        if self.expectations.is_empty() {
            f.write_str("\n  nothing")?;
        }
        f.write_str("\nreceived:")?;
        for (number, Received { request, reception }) in (1_u32..).zip(&self.received) {
            let reception = match reception {
                Reception::Expected => "expected",
                Reception::NotExpected => "NOT EXPECTED",
                Reception::NoExhaust => "EXPECTED AS AN EXHAUST CURSOR, but the client accepts a single reply",
                Reception::Refused => "refused, because the member is not the primary",
            };
            write!(f, "\n  {number}. {request}: {reception}")?;
        }
        if self.received.is_empty() {
            f.write_str("\n  nothing")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
