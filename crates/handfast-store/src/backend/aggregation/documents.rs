//! Steps of a pipeline that pass documents on in batches.

use std::collections::VecDeque;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::Context;
use handfast_mql::context::MemoryReservation;
use handfast_mql::pipeline::{Chain, Facet, Flow, Operator, Stage, chain};

use super::source::Source;
use super::{BATCH_BYTES, Environment};
use crate::{Error, Result};

/// The number of documents that pass through pure stages before the task yields.
const TURNS_UNTIL_YIELD: usize = 100;

/// A step of a pipeline, as a source of batches.
#[async_trait]
pub(super) trait Documents: Send {
    /// Returns the next documents, at least one; `None` at the end and after it.
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>>;
}

/// Documents that a stage holds, charged to the memory limit while they are held.
pub(super) struct Collected {
    pub(super) documents: Vec<RawDocumentBuf>,
    held: MemoryReservation,
}

impl Collected {
    pub(super) fn new(context: &Context) -> Self {
        Collected { documents: Vec::new(), held: MemoryReservation::new(context) }
    }

    /// Adds documents.
    ///
    /// # Errors
    /// 292 if the stages of all queries together hold more than the limit.
    pub(super) fn extend(&mut self, documents: Vec<RawDocumentBuf>) -> Result<()> {
        self.held.grow(documents.iter().map(|document| document.as_bytes().len()).sum())?;
        self.documents.extend(documents);
        Ok(())
    }

    /// Returns the size of the documents in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.held.bytes()
    }
}

/// Reads all documents of a step, as many as a stage may hold.
pub(super) async fn collect(documents: &mut (dyn Documents + '_), stage: &str, context: &Context) -> Result<Collected> {
    let mut all = Collected::new(context);
    while let Some(batch) = documents.next_batch().await? {
        all.extend(batch)?;
        if all.bytes() > context.memory.stage_bytes_max {
            return Err(too_much(stage, context));
        }
    }
    Ok(all)
}

pub(super) fn too_much(stage: &str, context: &Context) -> Error {
    let bytes_max = context.memory.stage_bytes_max;
    Error::command(
        handfast_mql::Code::QueryExceededMemoryLimitNoDiskUseAllowed,
        format!("exceeded the memory limit of {bytes_max} bytes for {stage}; external spilling is not supported"),
    )
}

/// Appends pure stages to a step.
pub(super) fn with_pure_stages<'p>(
    input: Box<dyn Documents + 'p>,
    stages: &'p [Stage],
    context: &'p Context,
) -> Result<Box<dyn Documents + 'p>> {
    if stages.is_empty() {
        return Ok(input);
    }
    Ok(Box::new(PureStages { input, waiting: VecDeque::new(), chain: chain(stages, context)?, state: State::Ready }))
}

struct PureStages<'p> {
    input: Box<dyn Documents + 'p>,
    /// Documents of the input that were not pushed yet.
    waiting: VecDeque<RawDocumentBuf>,
    chain: Chain<'p>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// The chain has more output for what was pushed.
    HasMore,
    /// The input has ended, or is not needed any more.
    Finishing,
    Ended,
}

impl PureStages<'_> {
    /// Runs the chain once.
    async fn turn(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<()> {
        let flow = match self.state {
            State::Ended => return Ok(()),
            State::Finishing => {
                let flow = self.chain.finish(out)?;
                self.state = if flow == Flow::More { State::Finishing } else { State::Ended };
                return Ok(());
            }
            State::HasMore => self.chain.resume(out)?,
            State::Ready => {
                if self.waiting.is_empty() {
                    match self.input.next_batch().await? {
                        Some(batch) => self.waiting.extend(batch),
                        None => {
                            self.state = State::Finishing;
                            return Ok(());
                        }
                    }
                }
                match self.waiting.pop_front() {
                    Some(document) => self.chain.push(document, out)?,
                    None => Flow::Continue,
                }
            }
        };
        self.state = match flow {
            Flow::Continue => State::Ready,
            Flow::More => State::HasMore,
            Flow::Done => State::Finishing,
        };
        Ok(())
    }
}

#[async_trait]
impl Documents for PureStages<'_> {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        let mut out: Vec<RawDocumentBuf> = Vec::new();
        let (mut counted, mut bytes, mut turns) = (0, 0, 0_usize);
        while self.state != State::Ended && bytes < BATCH_BYTES {
            // A batch ends before the input is read again, so that the first results are returned early.
            if self.state == State::Ready && self.waiting.is_empty() && !out.is_empty() {
                break;
            }
            self.turn(&mut out).await?;
            turns += 1;
            // One document may become many, few of which are returned, so other tasks get the thread in between.
            if self.state == State::HasMore || turns % TURNS_UNTIL_YIELD == 0 {
                tokio::task::yield_now().await;
            }
            bytes += out[counted..].iter().map(|document| document.as_bytes().len()).sum::<usize>();
            counted = out.len();
        }
        Ok((!out.is_empty()).then_some(out))
    }
}

/// A `$facet` with stages that need other collections: it holds its input and runs each of its pipelines over it.
pub(super) struct FacetStep<'p> {
    environment: &'p Environment,
    facet: &'p Facet,
    input: Option<Box<dyn Documents + 'p>>,
    context: &'p Context,
}

impl<'p> FacetStep<'p> {
    pub(super) fn new(
        environment: &'p Environment,
        facet: &'p Facet,
        input: Box<dyn Documents + 'p>,
        context: &'p Context,
    ) -> Self {
        FacetStep { environment, facet, input: Some(input), context }
    }
}

#[async_trait]
impl Documents for FacetStep<'_> {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        let Some(mut input) = self.input.take() else { return Ok(None) };
        let documents = collect(&mut *input, "$facet", self.context).await?;
        let mut results = Vec::new();
        for (_, pipeline) in self.facet.pipelines() {
            let source: Box<dyn Documents + '_> = Box::new(Source::literal(documents.documents.clone()));
            let mut steps = super::steps_after(self.environment, source, pipeline.stages(), self.context)?;
            results.push(collect(&mut *steps, "$facet", self.context).await?);
        }
        // The results count as memory until the document is built.
        let lists = results.iter_mut().map(|result| std::mem::take(&mut result.documents));
        Ok(Some(vec![self.facet.document(lists, self.context)?]))
    }
}
