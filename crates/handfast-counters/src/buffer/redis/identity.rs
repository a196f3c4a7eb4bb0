//! Which Redis has the queue of which store. Two stores behind one Redis would mix their totals, and of two Redis over one store, each would take the events of
//! the other for saved ones.
//!
//! # The idea
//! Each side has a random id, and remembers that of the other:
//!
//! | where | what |
//! | --- | --- |
//! | Redis, `hf:{KIND}:state` of each kind | the id of the store that the kind was begun for |
//! | Redis, the key `hf:store` | text `STORE\|QUEUE\|REPLACED`, the [`Mark`]: the id of the store, that of this Redis, and that of the Redis which it replaces, if any |
//! | store, the document `queue` of `settings` | the [`QueueRecord`]: `store`, `queue`, and `candidate`, a Redis that would take the place of `queue` |
//!
//! A start compares them, and so does each pass before it saves something. A Redis without a mark is a new one, or has lost everything, or was used by
//! a version without marks. It gets one, once, with a new id. Then the store records it: at once if it has no queue, and otherwise in the place
//! of the other one, unless an instance over that one objects. It does so by removing the candidate, with its next pass.
//!
//! ```text
//!   instance over B, which is empty        store                              instance over A
//!                                          queue A
//!   mark S|B|A
//!   candidate B                 ->         queue A, candidate B
//!                                          queue A                  <-        a pass: remove the candidate
//!   no candidate: B is refused
//!
//!   - or A has lost everything, or nobody uses it: after some time -
//!   queue B if it is A          ->         queue B
//! ```
//!
//! No view is counted before the first comparison, and none in a kind that was lost before the mark is looked at again. Each kind has the id of the store, too: should two
//! stores have got one Redis in spite of all, no view of one is saved in the other.
//!
//! A Redis that has taken the place of another one is still named as the candidate until its kinds are begun anew ([`RedisBuffer::begin_all_anew`]).
//!
//! The mark names what it replaces, so a process that dies between two of these steps leaves what the next one goes on with. An instance that has found its mark
//! right sets it again if Redis loses it. Times are differences of one process's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_store::Applied;

use super::mark::{Mark, STORE};
use super::{Keys, RedisBuffer, unavailable};
use crate::buffer::Buffer as _;
use crate::storage::QueueRecord;
use crate::{Error, Result};

/// The pause between two looks at the record while a Redis is a candidate.
const POLL: Duration = Duration::from_millis(500);
/// How often the steps of one check are taken. Each goes on with what another process has done, which happens a few times at most.
const STEPS_MAX: usize = 10;

/// The knowledge of this process about Redis and its store.
#[derive(Debug, Default)]
pub(super) struct Identity {
    known: Mutex<Known>,
    /// Held while requests wait for the first comparison; the error of the last attempt.
    comparing: tokio::sync::Mutex<Option<Error>>,
    /// The number of attempts that have ended.
    attempts: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    state: State,
    /// The id of the store, once the store has told it.
    store: Option<String>,
    /// Why views are neither counted nor saved, since a comparison has found that the two do not belong to each other.
    refusal: Option<String>,
    /// Whether the process only looks: it compares, and takes no queue.
    is_observer: bool,
}

/// The result of the comparison.
#[derive(Clone, Debug, Default)]
pub(super) enum State {
    #[default]
    Unknown,
    /// The Redis with this id is a candidate since this time.
    Candidate { queue: String, since: Duration },
    /// The store had this mark's queue.
    Own(Mark),
}

/// The result of one step.
enum Step {
    /// Redis and store belong to each other.
    Own,
    /// Something was changed: look again.
    Changed,
    /// Redis is a candidate, and its time is not over.
    Wait,
}

impl Identity {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> State {
        self.known().state.clone()
    }

    fn set(&self, state: State) {
        self.known().state = state;
    }

    /// Returns the id of the store if it is known.
    pub(super) fn store(&self) -> Option<String> {
        self.known().store.clone()
    }

    fn keep_store(&self, store: &str) {
        let mut known = self.known();
        if known.store.as_deref() != Some(store) {
            known.store = Some(store.to_owned());
        }
    }

    /// Returns whether the comparison is over, and Redis and store belong to each other.
    ///
    /// # Errors
    /// They were found not to.
    fn is_compared(&self) -> Result<bool> {
        let known = self.known();
        match &known.refusal {
            None => Ok(known.is_observer || matches!(known.state, State::Own(_))),
            Some(what) => Err(Error::WrongQueue { what: what.clone() }),
        }
    }

    fn own_mark(&self) -> Option<Mark> {
        match &self.known().state {
            State::Own(mark) => Some(mark.clone()),
            _ => None,
        }
    }
}

impl RedisBuffer {
    /// Makes sure that this Redis has the queue of the store, and the store no other one. A Redis without a mark becomes the queue of the store; if the
    /// store has one, it waits for [`RedisBufferOptions::replace_after`](super::RedisBufferOptions::replace_after) whether an instance uses that.
    ///
    /// # Errors
    /// [`Error::WrongQueue`] if one of the two belongs to another one, and what to do then; [`Error::Buffer`], [`Error::Store`] if it cannot be found out
    /// now: each pass does so before it saves something.
    pub async fn take_queue(&self) -> Result<()> {
        while !self.try_take_queue().await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Fails if this Redis is known not to have the queue of the store. Nothing is changed: a Redis without a mark is right as long as the store has no queue.
    ///
    /// # Errors
    /// Those of [`RedisBuffer::take_queue`].
    pub async fn check_queue(&self) -> Result<()> {
        self.identity.known().is_observer = true;
        let (record, mark) = (self.storage.find_queue_record().await?, self.find_mark().await?);
        if let Some(record) = &record {
            self.identity.keep_store(&record.store);
        }
        match (record, mark) {
            (None, None) => Ok(()),
            (None, Some(mark)) => Err(self.of_another_store(&mark.store, None)),
            (Some(record), Some(mark)) if record.store != mark.store => {
                Err(self.of_another_store(&mark.store, Some(&record.store)))
            }
            (Some(QueueRecord { queue: Some(queue), .. }), Some(mark)) if queue != mark.queue => {
                Err(self.in_another_redis(&queue, &mark))
            }
            (Some(QueueRecord { queue: Some(queue), .. }), None) => Err(self.without_mark(&queue)),
            (Some(_), _) => Ok(()),
        }
    }

    /// Makes sure of the same before a view is counted or a cached total is shown. Once that is known, nothing is asked, until a pass or the beginning of a kind
    /// finds something else. All who wait for one attempt share its result.
    ///
    /// # Errors
    /// [`Error::WrongQueue`]; [`Error::Buffer`], not applied, if it cannot be found out now.
    pub(super) async fn ensure_own_queue(&self) -> Result<()> {
        if self.identity.is_compared()? {
            return Ok(());
        }
        let before = self.identity.attempts.load(Ordering::SeqCst);
        let mut last = self.identity.comparing.lock().await;
        if self.identity.is_compared()? {
            return Ok(());
        }
        if self.identity.attempts.load(Ordering::SeqCst) > before
            && let Some(error) = &*last
        {
            return Err(error.clone());
        }
        let unknown = |why: String| {
            unavailable(format!("whether {} has the queue of the store is not known: {why}", self.url), Applied::No)
        };
        let compared = match tokio::time::timeout(self.options.response_timeout, self.check_before_saving()).await {
            Ok(Err(Error::Store(error))) => Err(unknown(error.to_string())),
            Ok(compared) => compared,
            Err(_) => Err(unknown("there was no answer in time".to_owned())),
        };
        self.identity.attempts.fetch_add(1, Ordering::SeqCst);
        *last = compared.as_ref().err().cloned();
        compared
    }

    /// Makes sure, before a kind is begun, that no other store has got this Redis: it may have lost everything.
    pub(super) async fn check_before_beginning(&self) -> Result<()> {
        let Some(own) = self.identity.own_mark() else { return Ok(()) };
        let found = match self.set_mark(&own).await {
            // In a cluster, its server may be away while that of the kind is there.
            Err(error @ Error::Buffer { .. }) => {
                tracing::debug!(%error, "the mark that was there before counts");
                return Ok(());
            }
            found => found?,
        };
        if found.store == own.store && found.queue == own.queue {
            return Ok(());
        }
        let refused = match found.store == own.store {
            false => self.of_another_store(&found.store, Some(&own.store)),
            true => self.in_another_redis(&own.queue, &found),
        };
        self.identity.known().refusal = Some(refused.to_string());
        Err(refused)
    }

    /// Makes sure of the same before a pass. What was right goes on to be so if one side cannot be asked: then nothing is saved, or the other side tells.
    pub(super) async fn check_before_saving(&self) -> Result<()> {
        match self.try_take_queue().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(unavailable(
                format!("{} is about to take the place of another Redis as the queue of the store", self.url),
                Applied::No,
            )),
            Err(Error::Store(error)) if matches!(self.identity.get(), State::Own(_)) => {
                tracing::debug!(%error, "the store has not told which Redis has its queue");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes all steps that can be taken now; returns whether Redis and store belong to each other. Views are refused from the moment on at which they do not.
    async fn try_take_queue(&self) -> Result<bool> {
        let taken = self.take_steps().await;
        match &taken {
            Ok(true) => self.identity.known().refusal = None,
            Err(Error::WrongQueue { what }) => self.identity.known().refusal = Some(what.clone()),
            _ => {}
        }
        taken
    }

    async fn take_steps(&self) -> Result<bool> {
        for _ in 0..STEPS_MAX {
            match self.step_of_queue().await? {
                Step::Own => return Ok(true),
                Step::Wait => return Ok(false),
                Step::Changed => {}
            }
        }
        Err(unavailable(format!("{STORE} and the record of the store change again and again"), Applied::No))
    }

    async fn step_of_queue(&self) -> Result<Step> {
        let state = self.identity.get();
        let record = self.storage.queue_record().await?;
        self.identity.keep_store(&record.store);
        let mark = match (self.mark(&state, &record).await, state.clone()) {
            // In a cluster, its server may be away while those of kinds are there.
            (Err(Error::Buffer { what, .. }), State::Own(mark)) => {
                tracing::debug!(what, "the mark that was there before counts");
                mark
            }
            (mark, _) => mark?,
        };
        if mark.store != record.store {
            return Err(self.of_another_store(&mark.store, Some(&record.store)));
        }
        match &record.queue {
            Some(queue) if *queue == mark.queue => {
                if let Some(candidate) = &record.candidate {
                    if candidate == queue {
                        self.begin_all_anew().await?;
                    }
                    self.storage.remove_candidate(queue).await?;
                }
                self.identity.set(State::Own(mark));
                Ok(Step::Own)
            }
            None => {
                self.storage.replace_queue(None, &mark.queue).await?;
                Ok(Step::Changed)
            }
            Some(queue) if Some(queue) == mark.replaced.as_ref() => self.step_of_candidate(state, record, mark).await,
            Some(queue) => Err(self.in_another_redis(queue, &mark)),
        }
    }

    /// Takes a step of a Redis that would take the place of the one that the store has recorded.
    async fn step_of_candidate(&self, state: State, record: QueueRecord, mark: Mark) -> Result<Step> {
        let Some(replaced) = &record.queue else { return Ok(Step::Changed) };
        let now = self.sources.clock.elapsed();
        match state {
            State::Candidate { queue, since } if queue == mark.queue => {
                if record.candidate.as_deref() != Some(&*mark.queue) {
                    self.identity.set(State::Unknown);
                    self.remove_mark(&mark).await?;
                    return Err(match &record.candidate {
                        None => self.used_elsewhere(replaced),
                        Some(other) => self.second_candidate(other),
                    });
                }
                if now.saturating_sub(since) < self.options.replace_after {
                    return Ok(Step::Wait);
                }
                tracing::warn!(
                    redis = self.url,
                    replaced,
                    "the Redis takes the place of the one that had the queue of the store; views that wait in that one are not saved"
                );
                self.storage.replace_queue(Some(replaced), &mark.queue).await?;
            }
            _ => {
                tracing::warn!(
                    redis = self.url,
                    seconds = self.options.replace_after.as_secs(),
                    "the Redis is new or has lost everything: it gets the queue of the store if no instance uses another Redis"
                );
                self.storage.set_candidate(replaced, &mark.queue).await?;
                self.identity.set(State::Candidate { queue: mark.queue, since: now });
            }
        }
        Ok(Step::Changed)
    }

    /// Removes what Redis knows of each kind but its views, and begins it anew. While another Redis had the queue, views may have
    /// been counted here: totals that were cached with them lack what that one has saved since, and their numbers may be those of views that it has saved.
    async fn begin_all_anew(&self) -> Result<()> {
        for kind in self.kinds().await? {
            let state = Keys::new(&kind).key("state");
            // The id of the store stays: the views of another one are not taken over.
            let fields = ["run", "tail", "older", "segments"];
            self.servers.send(&state, redis::cmd("HDEL").arg(&state).arg(&fields)).await?;
            match self.step(&kind, "depth", &[], Applied::No).await {
                Err(error @ (Error::Damaged { .. } | Error::WrongQueue { .. })) => {
                    tracing::error!(%kind, %error, "the views of the kind that wait are not saved");
                }
                begun => drop(begun?),
            }
        }
        Ok(())
    }

    /// Fails if a kind in Redis has the queue of another store than the one of this process.
    pub(super) fn ensure_same_store(&self, store: &str) -> Result<()> {
        match self.identity.store() {
            Some(own) if own != store => Err(self.of_another_store(store, Some(&own))),
            _ => Ok(()),
        }
    }
}
