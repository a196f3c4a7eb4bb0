//! The cursor over a pipeline's output.
//!
//! The steps borrow from the pipeline and from each other, so they live in one future, which the cursor owns and runs
//! as far as it needs the next batch; what comes out goes through a channel of one place between the two.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::Context;
use handfast_mql::pipeline::Pipeline;
use tokio::sync::mpsc;

use super::{Environment, source, steps};
use crate::*;

type Run = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

pub(super) async fn open(
    environment: Environment,
    pipeline: Pipeline,
    context: Context,
    request: Aggregate,
) -> Result<Box<dyn Cursor>> {
    let (sender, receiver) = mpsc::channel(1);
    let run = async move {
        let from = source::find_of(&request);
        let mut steps = steps(&environment, &pipeline, &request.pipeline, from, &context)?;
        while let Some(batch) = steps.next_batch().await? {
            if sender.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    let mut cursor = PipelineCursor { run: Some(Box::pin(run)), receiver, ready: VecDeque::new() };
    cursor.fill().await?;
    Ok(Box::new(cursor))
}

/// What a turn of the run gave.
enum Step {
    Batch(Vec<RawDocumentBuf>),
    End(Result<()>),
}

struct PipelineCursor {
    /// None at the end.
    run: Option<Run>,
    receiver: mpsc::Receiver<Vec<RawDocumentBuf>>,
    ready: VecDeque<RawDocumentBuf>,
}

impl PipelineCursor {
    /// Runs until there is a document, or none to come.
    async fn fill(&mut self) -> Result<()> {
        while self.ready.is_empty() {
            let Some(run) = self.run.as_mut() else {
                match self.receiver.try_recv() {
                    Ok(batch) => self.ready.extend(batch),
                    Err(_) => return Ok(()),
                }
                continue;
            };
            let receiver = &mut self.receiver;
            let step = poll_fn(|task| match receiver.poll_recv(task) {
                Poll::Ready(Some(batch)) => Poll::Ready(Step::Batch(batch)),
                // Without a sender the run is at its end, and says how it ended.
                Poll::Ready(None) | Poll::Pending => run.as_mut().poll(task).map(Step::End),
            });
            match step.await {
                Step::Batch(batch) => self.ready.extend(batch),
                Step::End(result) => {
                    self.run = None;
                    result?;
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Cursor for PipelineCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        let mut page = Page::default();
        let mut bytes = 0_usize;
        loop {
            self.fill().await?;
            let Some(next) = self.ready.front() else {
                page.exhausted = true;
                return Ok(page);
            };
            bytes = bytes.saturating_add(next.as_bytes().len());
            let full = page.documents.len() >= limit.documents || bytes > limit.bytes;
            if full && !page.documents.is_empty() {
                return Ok(page);
            }
            page.documents.extend(self.ready.pop_front());
        }
    }
}
