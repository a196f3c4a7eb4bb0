//! Both judges together.

use std::io::BufRead;

use crate::event::{Event, Expectation, Header, Isolation, Order};
use crate::lines::{HistoryReader, Item};
use crate::own::Judge;
use crate::report::Report;
use crate::second::{SecondJudge, SecondOpinion};
use crate::{Error, Result};

/// What the judges say of a history.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What it was held against.
    pub expectation: Expectation,
    /// What the judge of this crate found.
    pub report: Report,
    /// What the other one found.
    pub second: SecondOpinion,
}

impl Verdict {
    /// Whether neither found anything.
    pub fn is_clean(&self) -> bool {
        self.report.is_clean() && self.second.anomalies.is_empty()
    }

    /// Why one of the judges has to be wrong, if they do not agree.
    pub fn disagreement(&self) -> Option<String> {
        let own = self.report.anomalies.iter().find(|anomaly| anomaly.kind.is_for_both_judges());
        match (own, self.second.anomalies.as_slice()) {
            (None, []) | (Some(_), [_, ..]) => None,
            (Some(own), []) => Some(format!("the judges disagree: one found {}, the other nothing", own.kind.name())),
            (None, names) => Some(format!("the judges disagree: one found nothing, the other {}", names.join(", "))),
        }
    }
}

/// Both judges, given the events one by one.
#[derive(Debug)]
pub struct Judges {
    first: Judge,
    second: SecondJudge,
}

impl Judges {
    /// Judges of the history with this header.
    pub fn new(header: &Header) -> Self {
        Judges { first: Judge::new(header), second: SecondJudge::new(header.model) }
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// The events do not make a history.
    pub fn observe(&mut self, event: Event) -> Result<()> {
        self.second.observe(&event);
        self.first.observe(event)
    }

    /// What they say.
    ///
    /// # Errors
    /// As with [`Judges::observe`].
    pub fn finish(self, expectation: Expectation) -> Result<Verdict> {
        let report = self.first.finish(expectation)?;
        Ok(Verdict { expectation, report, second: self.second.finish(expectation) })
    }
}

/// Judges a history as a file has it. What the caller leaves open its header says, and what that leaves open is snapshot
/// isolation in real time, which is what Handfast promises.
///
/// # Errors
/// The input fails, or it is no history.
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
