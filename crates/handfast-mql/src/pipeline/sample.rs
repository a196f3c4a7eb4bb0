//! `$sample`: n documents, each set of n as likely as any other, in random order.

use bson::RawDocumentBuf;

use super::{
    memory::{ENTRY_BYTES, StageMemory},
    operator::{Flow, Operator},
};
use crate::{context::Context, error::Result};

/// A reservoir: the n-th document of the input takes the place of a random one with the chance size/n.
pub(super) struct Sampling<'p> {
    size: u64,
    seen: u64,
    reservoir: Vec<RawDocumentBuf>,
    memory: StageMemory,
    context: &'p Context,
}

impl<'p> Sampling<'p> {
    pub(super) fn new(size: u64, context: &'p Context) -> Self {
        Sampling { size, seen: 0, reservoir: Vec::new(), memory: StageMemory::new("$sample", context), context }
    }
}

fn cost(document: &RawDocumentBuf) -> usize {
    ENTRY_BYTES + document.as_bytes().len()
}

impl Operator for Sampling<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        self.seen += 1;
        if (self.reservoir.len() as u64) < self.size {
            self.memory.reserve(cost(&document))?;
            self.reservoir.push(document);
            return Ok(Flow::Continue);
        }
        let slot = self.context.random.next_below(self.seen);
        if let Some(held) = usize::try_from(slot).ok().and_then(|slot| self.reservoir.get_mut(slot)) {
            self.memory.release(cost(held));
            self.memory.reserve(cost(&document))?;
            *held = document;
        }
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        // A shuffle (Fisher and Yates), because the order of the reservoir depends on that of the input.
        for last in (1..self.reservoir.len()).rev() {
            let other = self.context.random.next_below(last as u64 + 1) as usize;
            self.reservoir.swap(last, other);
        }
        out.append(&mut self.reservoir);
        Ok(Flow::Done)
    }
}
