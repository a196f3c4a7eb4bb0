//! Push operators, and the chain that joins them.
//!
//! A document is pushed into the first operator; the results of the last one are appended to `out`. An operator returns
//! `Continue` (push the next document), `More` (this input has more output: call `resume`) or `Done` (further input changes nothing, as
//! after `$limit`: call `finish`). `More` limits the memory where one document becomes many, as with `$unwind`.
//!
//! ```text
//! source -> $match -> $unwind -> $limit -> out
//!              |         |          `-- Done: the source need not be read further
//!              |         `-- More: one document becomes many, a portion at a time
//!              `-- Continue, with or without an output
//! ```

use std::collections::VecDeque;

use bson::RawDocumentBuf;

use crate::{context::Interrupt, error::Result};

/// The answer of an operator to its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// The operator is ready for the next document.
    Continue,
    /// The pushed documents have more output: call `resume` before anything else.
    More,
    /// Further input cannot change the result: call `finish`.
    Done,
}

/// A running stage.
pub trait Operator: Send {
    /// Processes a document and appends its output to `out`.
    ///
    /// # Errors
    /// An expression that fails, or a bound of memory (292).
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow>;

    /// Continues after `More`.
    ///
    /// # Errors
    /// Returns the errors of `push`.
    fn resume(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let _ = out;
        Ok(Flow::Continue)
    }

    /// Ends the input: appends held results to `out`, and returns `More` or `Done`.
    ///
    /// # Errors
    /// Returns the errors of `push`.
    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let _ = out;
        Ok(Flow::Done)
    }
}

/// A chain answers `More` when it has appended this many bytes, so that a reader can return a batch.
const OUTPUT_BYTES: usize = 4 * 1024 * 1024;
/// The number of steps after which a chain returns `More`, so that its reader can yield the thread.
const STEPS_MAX: usize = 1000;

/// A chain of operators, which is itself an operator.
pub struct Chain<'p> {
    interrupt: Interrupt,
    links: Vec<Link<'p>>,
    /// The last link that was finished; the links before it are finished, too.
    finished: usize,
}

struct Link<'p> {
    operator: Box<dyn Operator + 'p>,
    waiting: VecDeque<RawDocumentBuf>,
    state: LinkState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Ready,
    /// The link returned `More` for an input.
    HasMore,
    /// The link returned `More` for the end of its input.
    HasMoreAtEnd,
    /// The link needs no more input.
    Done,
}

impl<'p> Chain<'p> {
    /// Joins operators; a chain without operators returns its input. The interrupt is checked before each step.
    pub fn new(operators: Vec<Box<dyn Operator + 'p>>, interrupt: Interrupt) -> Self {
        let link = |operator| Link { operator, waiting: VecDeque::new(), state: LinkState::Ready };
        Chain { interrupt, links: operators.into_iter().map(link).collect(), finished: 0 }
    }

    /// Runs pending work, that of the last link first, so that few documents accumulate; stops when there is enough output.
    fn work(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let (mut made_bytes, mut steps) = (0, 0);
        while let Some(index) = self.links.iter().rposition(Link::has_work) {
            if made_bytes >= OUTPUT_BYTES || steps >= STEPS_MAX {
                return Ok(Flow::More);
            }
            steps += 1;
            self.interrupt.check()?;
            let mut made = Vec::new();
            let state = self.links[index].step(&mut made)?;
            self.links[index].state = state;
            if state == LinkState::Done {
                // Later input of the links before this one cannot change the result.
                for link in &mut self.links[..=index] {
                    link.waiting.clear();
                    link.state = LinkState::Done;
                }
            }
            match self.links.get_mut(index + 1) {
                Some(next) if next.state == LinkState::Done => {}
                Some(next) => next.waiting.extend(made),
                None => {
                    made_bytes += made.iter().map(|document| document.as_bytes().len()).sum::<usize>();
                    out.extend(made);
                }
            }
        }
        let done = self.links.first().is_some_and(|link| link.state == LinkState::Done);
        Ok(if done { Flow::Done } else { Flow::Continue })
    }

    /// Pushes every document, finishes, and returns all results.
    ///
    /// # Errors
    /// Returns the errors of the operators.
    pub fn run(mut self, documents: impl IntoIterator<Item = RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let mut out = Vec::new();
        for document in documents {
            let mut flow = self.push(document, &mut out)?;
            while flow == Flow::More {
                flow = self.resume(&mut out)?;
            }
            if flow == Flow::Done {
                break;
            }
        }
        while self.finish(&mut out)? == Flow::More {}
        Ok(out)
    }
}

impl Link<'_> {
    fn has_work(&self) -> bool {
        match self.state {
            LinkState::HasMore | LinkState::HasMoreAtEnd => true,
            LinkState::Ready => !self.waiting.is_empty(),
            LinkState::Done => false,
        }
    }

    fn step(&mut self, made: &mut Vec<RawDocumentBuf>) -> Result<LinkState> {
        let flow = match self.state {
            LinkState::HasMore => self.operator.resume(made)?,
            LinkState::HasMoreAtEnd => {
                return Ok(match self.operator.finish(made)? {
                    Flow::More => LinkState::HasMoreAtEnd,
                    Flow::Continue | Flow::Done => LinkState::Ready,
                });
            }
            LinkState::Ready | LinkState::Done => match self.waiting.pop_front() {
                Some(document) => self.operator.push(document, made)?,
                None => Flow::Continue,
            },
        };
        Ok(match flow {
            Flow::Continue => LinkState::Ready,
            Flow::More => LinkState::HasMore,
            Flow::Done => LinkState::Done,
        })
    }
}

impl Operator for Chain<'_> {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        match self.links.first_mut() {
            None => {
                out.push(document);
                Ok(Flow::Continue)
            }
            Some(first) if first.state == LinkState::Done => Ok(Flow::Done),
            Some(first) => {
                first.waiting.push_back(document);
                self.work(out)
            }
        }
    }

    fn resume(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        self.work(out)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        loop {
            if self.work(out)? == Flow::More {
                return Ok(Flow::More);
            }
            let index = self.finished;
            if index == self.links.len() {
                return Ok(Flow::Done);
            }
            self.finished += 1;
            if self.links.get(index + 1).is_some_and(|next| next.state == LinkState::Done) {
                continue;
            }
            let mut made = Vec::new();
            let flow = self.links[index].operator.finish(&mut made)?;
            if flow == Flow::More {
                self.links[index].state = LinkState::HasMoreAtEnd;
            }
            match self.links.get_mut(index + 1) {
                Some(next) if next.state == LinkState::Done => {}
                Some(next) => next.waiting.extend(made),
                None => out.extend(made),
            }
        }
    }
}
