//! `$facet`: several pipelines over the same documents; one document with an array of results for each.

use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf};

use super::{
    Pipeline,
    memory::{ENTRY_BYTES, StageMemory},
    operator::{Chain, Flow, Operator},
};
use crate::{
    context::Context,
    depth::ANSWER_BYTES_MAX,
    error::{Code, Error, Result},
    expression::value,
};

/// A compiled `$facet`.
#[derive(Debug)]
pub struct Facet {
    pub(super) pipelines: Vec<(String, Pipeline)>,
}

impl Facet {
    /// Returns the names of the output fields with their pipelines.
    pub fn pipelines(&self) -> &[(String, Pipeline)] {
        &self.pipelines
    }

    /// Tells whether no pipeline in it needs another collection.
    pub fn is_pure(&self) -> bool {
        self.pipelines.iter().all(|(_, pipeline)| pipeline.is_pure())
    }

    /// Returns the output document of a facet from the results of its pipelines, in their order, for a caller that runs the pipelines of
    /// a facet that is not pure.
    ///
    /// # Errors
    /// 292 if the results exceed the limit of a stage ([`QueryMemory`](crate::context::QueryMemory)).
    pub fn document(
        &self,
        results: impl IntoIterator<Item = Vec<RawDocumentBuf>>,
        context: &Context,
    ) -> Result<RawDocumentBuf> {
        let mut memory = StageMemory::new("$facet", context);
        let mut document = RawDocumentBuf::new();
        for ((name, _), result) in self.pipelines.iter().zip(results) {
            let mut array = RawArrayBuf::new();
            for item in result {
                memory.reserve(item.as_bytes().len())?;
                array.push(item);
            }
            value::append(&mut document, name, RawBsonRef::Array(&array))?;
        }
        Ok(document)
    }

    pub(super) fn operator<'p>(&'p self, context: &'p Context) -> Result<Box<dyn Operator + 'p>> {
        let branches = self
            .pipelines
            .iter()
            .map(|(_, pipeline)| Ok(Branch { chain: pipeline.chain(context)?, done: false, results: Vec::new() }))
            .collect::<Result<_>>()?;
        Ok(Box::new(Faceting { stage: self, branches, memory: StageMemory::new("$facet", context), context }))
    }
}

struct Faceting<'p> {
    stage: &'p Facet,
    branches: Vec<Branch<'p>>,
    memory: StageMemory,
    context: &'p Context,
}

struct Branch<'p> {
    chain: Chain<'p>,
    done: bool,
    results: Vec<RawDocumentBuf>,
}

impl Branch<'_> {
    /// Counts the results of a branch beyond those that it had before.
    fn count(&self, memory: &mut StageMemory, before: usize) -> Result<()> {
        self.results
            .iter()
            .skip(before)
            .try_for_each(|document| memory.reserve(ENTRY_BYTES + document.as_bytes().len()))
    }
}

impl Operator for Faceting<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let mut open = false;
        for branch in &mut self.branches {
            if branch.done {
                continue;
            }
            let mut before = branch.results.len();
            let mut flow = branch.chain.push(document.clone(), &mut branch.results)?;
            branch.count(&mut self.memory, before)?;
            while flow == Flow::More {
                before = branch.results.len();
                flow = branch.chain.resume(&mut branch.results)?;
                branch.count(&mut self.memory, before)?;
            }
            branch.done = flow == Flow::Done;
            open |= !branch.done;
        }
        Ok(if open { Flow::Continue } else { Flow::Done })
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        for branch in &mut self.branches {
            loop {
                let before = branch.results.len();
                let flow = branch.chain.finish(&mut branch.results)?;
                branch.count(&mut self.memory, before)?;
                if flow != Flow::More {
                    break;
                }
            }
        }
        let results = self.branches.iter_mut().map(|branch| std::mem::take(&mut branch.results));
        let document = self.stage.document(results, self.context)?;
        if document.as_bytes().len() > ANSWER_BYTES_MAX {
            return Err(Error::new(
                Code::BSONObjectTooLarge,
                format!(
                    "$facet gives a document of {} bytes, the limit is {ANSWER_BYTES_MAX}",
                    document.as_bytes().len()
                ),
            ));
        }
        out.push(document);
        Ok(Flow::Done)
    }
}
