//! Runs both judges on one history.

use std::io::BufRead;

use crate::adya::{AdyaChecker, AdyaReport};
use crate::checker::Checker;
use crate::event::{Event, Expectation, Header, Isolation, Order};
use crate::lines::{HistoryReader, Item};
use crate::report::Report;
use crate::{Error, Result};

/// The result of both judges for one history.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The promise that the history was checked against.
    pub expectation: Expectation,
    /// The findings of this crate's checker.
    pub report: Report,
    /// The findings of the crate `adya`.
    pub adya: AdyaReport,
}

impl Verdict {
    /// Returns whether neither judge found an anomaly.
    pub fn is_clean(&self) -> bool {
        self.report.is_clean() && self.adya.anomalies.is_empty()
    }

    /// Describes how the judges disagree, if they do. One of them is wrong then.
    pub fn disagreement(&self) -> Option<String> {
        let own = self.report.anomalies.iter().find(|anomaly| anomaly.kind.is_found_by_both_judges());
        match (own, self.adya.anomalies.as_slice()) {
            (None, []) | (Some(_), [_, ..]) => None,
            (Some(own), []) => Some(format!("the judges disagree: one found {}, the other nothing", own.kind.name())),
            (None, names) => Some(format!("the judges disagree: one found nothing, the other {}", names.join(", "))),
        }
    }
}

/// Both judges; they take the events one by one.
#[derive(Debug)]
pub struct Judges {
    checker: Checker,
    adya: AdyaChecker,
}

impl Judges {
    /// Creates judges for a history with this header.
    pub fn new(header: &Header) -> Self {
        Judges { checker: Checker::new(header), adya: AdyaChecker::new(header.model) }
    }

    /// Passes the next event to both judges.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the event contradicts earlier ones: see [`Checker::observe`].
    pub fn observe(&mut self, event: Event) -> Result<()> {
        self.adya.observe(&event);
        self.checker.observe(event)
    }

    /// Checks the history against an expectation.
    ///
    /// # Errors
    /// [`Error::Malformed`], as with [`Judges::observe`].
    pub fn finish(self, expectation: Expectation) -> Result<Verdict> {
        let report = self.checker.finish(expectation)?;
        Ok(Verdict { expectation, report, adya: self.adya.finish(expectation) })
    }
}

/// Reads a history from a file and checks it.
///
/// Without an argument, `isolation` and `order` are those of the header; without a header they are snapshot isolation and
/// real-time order, which Handfast promises.
///
/// # Errors
/// [`Error::Io`] if the input cannot be read, [`Error::Line`] if a line is not an event of a history.
pub fn judge(input: impl BufRead, isolation: Option<Isolation>, order: Option<Order>) -> Result<Verdict> {
    let mut reader = HistoryReader::new(input);
    let mut header = Header::default();
    let mut judges: Option<Judges> = None;
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Header(_) if judges.is_some() => {
                return Err(Error::Line { line: reader.line(), text: "a header is the first line".to_owned() });
            }
            Item::Header(first) => {
                judges = Some(Judges::new(&first));
                header = first;
            }
            Item::Event(event) => {
                let judges = judges.get_or_insert_with(|| Judges::new(&header));
                judges.observe(event).map_err(|error| match error {
                    Error::Malformed(text) => Error::Line { line: reader.line(), text },
                    error => error,
                })?;
            }
        }
    }
    let promised = Expectation::default();
    let expectation = Expectation {
        isolation: isolation.or(header.isolation).unwrap_or(promised.isolation),
        order: order.or(header.order).unwrap_or(promised.order),
    };
    judges.unwrap_or_else(|| Judges::new(&header)).finish(expectation)
}
