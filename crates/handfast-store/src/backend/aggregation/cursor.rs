//! The cursor over a pipeline's output.
//!
//! The steps borrow from the pipeline and from each other, so they live in one future, which the cursor owns and polls
//! until it has the next batch; the batches go through a channel of capacity 1.
//!
//! Most pipelines run on the task of the caller, as they compute little between two awaits. A loop in an expression may compute
//! for years before it awaits, and a sort may write files: these would block all other tasks of the thread. Such a run is polled on a
//! blocking thread. Dropping the cursor sets the interrupt, which ends the computation.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_mql::context::StopOnDrop;
use handfast_mql::expression::may_take_long;
use handfast_mql::pipeline::Pipeline;
use handfast_mql::{Code, Context};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::source::mentions;
use super::{Environment, source, steps};
use crate::page::PageBuilder;
use crate::{Aggregate, BatchLimit, Cursor, Error, OperationStatistics, Page, Result};

/// The stages that write to files what exceeds their memory.
const SPILLING: [&str; 7] = ["$sort", "$group", "$setWindowFields", "$densify", "$fill", "$bucket", "$sortByCount"];

type Run = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

pub(super) async fn open(
    environment: Environment,
    pipeline: Pipeline,
    context: Context,
    request: Aggregate,
) -> Result<Box<dyn Cursor>> {
    let (sender, receiver) = mpsc::channel(1);
    let stop = context.interrupt.stop_on_drop();
    let may_spill = |stage: &RawDocumentBuf| SPILLING.iter().any(|name| mentions(stage, name));
    let blocks = request.pipeline.iter().any(|stage| may_take_long(stage))
        || (context.allows_disk_use() && request.pipeline.iter().any(may_spill));
    let run: Run = Box::pin(async move {
        let from = source::find_of(&request);
        let mut steps = steps(&environment, &pipeline, from, &context)?;
        while let Some(batch) = steps.next_batch().await? {
            if sender.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    let state = if blocks { State::OffThread(OffThread::new(run)) } else { State::Here(run) };
    let mut cursor = PipelineCursor { state, receiver, ready: VecDeque::new(), _stop: stop };
    cursor.fill().await?;
    Ok(Box::new(cursor))
}

/// The result of polling the run once.
enum Step {
    Batch(Vec<RawDocumentBuf>),
    End(Result<()>),
}

/// The state of the run.
enum State {
    Here(Run),
    OffThread(OffThread),
    Ended,
}

struct PipelineCursor {
    state: State,
    receiver: mpsc::Receiver<Vec<RawDocumentBuf>>,
    ready: VecDeque<RawDocumentBuf>,
    _stop: StopOnDrop,
}

impl PipelineCursor {
    /// Runs until there is a document, or the run has ended.
    async fn fill(&mut self) -> Result<()> {
        while self.ready.is_empty() {
            let step = match &mut self.state {
                State::Ended => match self.receiver.try_recv() {
                    Ok(batch) => Step::Batch(batch),
                    Err(_) => return Ok(()),
                },
                State::Here(run) => {
                    let receiver = &mut self.receiver;
                    let step = poll_fn(|task| match receiver.poll_recv(task) {
                        Poll::Ready(Some(batch)) => Poll::Ready(Step::Batch(batch)),
                        // The sender is gone, so the run has ended: its result says how.
                        Poll::Ready(None) | Poll::Pending => run.as_mut().poll(task).map(Step::End),
                    });
                    step.await
                }
                State::OffThread(run) => tokio::select! {
                    biased;
                    Some(batch) = self.receiver.recv() => Step::Batch(batch),
                    result = run.end() => Step::End(result),
                },
            };
            match step {
                Step::Batch(batch) => self.ready.extend(batch),
                Step::End(result) => {
                    self.state = State::Ended;
                    result?;
                }
            }
        }
        Ok(())
    }
}

/// A run that is polled on a blocking thread, one poll at a time.
struct OffThread {
    state: OffThreadState,
    woken: Arc<WakeFlag>,
}

enum OffThreadState {
    /// The run waits to be woken.
    Waiting(Run),
    /// The run is being polled on another thread.
    Polled(JoinHandle<(Run, Poll<Result<()>>)>),
    Ended,
}

/// A waker that remembers that the run can continue.
struct WakeFlag(Notify);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl OffThread {
    fn new(run: Run) -> Self {
        let woken = Arc::new(WakeFlag(Notify::new()));
        woken.0.notify_one();
        OffThread { state: OffThreadState::Waiting(run), woken }
    }

    /// Returns when the run has ended. The future may be dropped: the next call continues the run.
    async fn end(&mut self) -> Result<()> {
        loop {
            match &mut self.state {
                OffThreadState::Ended => return Ok(()),
                OffThreadState::Waiting(_) => {
                    self.woken.0.notified().await;
                    if let OffThreadState::Waiting(mut run) = std::mem::replace(&mut self.state, OffThreadState::Ended)
                    {
                        let waker = Waker::from(Arc::clone(&self.woken));
                        let statistics = OperationStatistics::current();
                        self.state = OffThreadState::Polled(tokio::task::spawn_blocking(move || {
                            let poll = || run.as_mut().poll(&mut TaskContext::from_waker(&waker));
                            let polled = OperationStatistics::observe_here(statistics, poll);
                            (run, polled)
                        }));
                    }
                }
                OffThreadState::Polled(thread) => {
                    let polled = thread.await;
                    self.state = OffThreadState::Ended;
                    match polled {
                        Ok((_, Poll::Ready(result))) => return result,
                        Ok((run, Poll::Pending)) => self.state = OffThreadState::Waiting(run),
                        Err(error) => {
                            let text = format!("the pipeline failed: {error}");
                            return Err(Error::command(Code::InternalError, text));
                        }
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Cursor for PipelineCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        let mut page = PageBuilder::new(limit);
        loop {
            self.fill().await?;
            let Some(next) = self.ready.front() else { return Ok(page.last()) };
            if !page.has_room_for(next) {
                return Ok(page.full());
            }
            page.take(self.ready.pop_front());
        }
    }

    fn depends_on_catalog(&self) -> bool {
        true
    }
}
