//! Claims of jobs: one, or several with a few requests.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use handfast_mql::Code;
use handfast_mql::depth::DOCUMENT_BYTES_MAX;
use handfast_store::Error as StoreError;

use super::blocked::BlockedOrders;
use super::{Job, JobQueue, JobState, requests};
use crate::metrics::{self, Event, Span};
use crate::steps::{is_duplicate_of, raw};
use crate::{Error, Result};

/// Limit on the candidates that a claim in an ordered queue examines with one request.
const CANDIDATES: u32 = 16;
/// Attempts at a claim when other workers take the candidates meanwhile.
const RACES_MAX: u32 = 16;

/// Limit on the bytes that a claim adds to a job beside the key of its order.
const CLAIM_BYTES_MAX: usize = 64 * 1024;

/// The result for a candidate.
enum Candidate {
    Claimed(Box<Job>),
    /// An earlier job of its order blocks it.
    Blocked,
    /// Another worker has claimed it.
    ClaimedByOther,
    /// The rate limit is reached.
    TooFast,
}

/// The state of the limits during one call.
struct LimitState {
    slot: Option<u32>,
    /// The rate limit has counted the job, or there is no limit.
    counted: bool,
}

/// The first undone job of an order.
enum First {
    Itself,
    /// Another document; with its id if it can be read as a job.
    Other(Option<Bson>),
}

/// The jobs that a call skips because they are too large for the fields of a claim.
#[derive(Default)]
struct TooLarge {
    skipped: Vec<Bson>,
}

impl TooLarge {
    fn without(&self, filter: &Document) -> Document {
        match self.skipped.is_empty() {
            true => filter.clone(),
            false => doc! { "$and": [filter, { "_id": { "$nin": &self.skipped } }] },
        }
    }
}

/// Returns whether an update was refused because its result would be too large.
fn is_too_large(error: &StoreError) -> bool {
    [Code::BSONObjectTooLarge, Code(17419)].contains(&error.code())
}

/// Limit on the bytes of a worker's name, which becomes part of each job.
const WORKER_BYTES_MAX: usize = 1000;

fn check_worker(name: &str) -> Result<()> {
    if name.len() <= WORKER_BYTES_MAX {
        return Ok(());
    }
    let bytes = name.len();
    Err(Error::invalid(format!("the name of the worker has {bytes} bytes, and at most {WORKER_BYTES_MAX} are allowed")))
}

impl JobQueue {
    /// Claims the job that comes first by priority, then by its time, then by its age; `None` while the queue is
    /// paused. No other worker gets it until the lease is over. [`Worker`](super::Worker) claims and runs jobs; call
    /// this function from programs with workers of their own.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: a job may have been claimed, and returns to the queue after its lease. [`Error::Invalid`] for a worker's name of more
    /// than 1,000 bytes.
    ///
    /// # Cancellation
    /// A job may have been claimed, and returns to the queue after its lease.
    pub async fn claim(&self, worker: &str, kinds: &[String]) -> Result<Option<Job>> {
        check_worker(worker)?;
        if self.is_paused().await? {
            return Ok(None);
        }
        let due = requests::due(self.fields(), kinds, self.now());
        let mut limits = LimitState { slot: None, counted: self.options.limits.rate.is_none() };
        let Some(slots) = self.free_slots().await? else { return self.claim_in(worker, &due, &mut limits).await };
        for slot in slots {
            limits.slot = slot;
            match self.claim_in(worker, &due, &mut limits).await {
                // Another worker has taken the slot.
                Err(Error::Store(error)) if is_duplicate_of(&error, &self.fields().slot) => {}
                claimed => return claimed,
            }
        }
        Ok(None)
    }

    /// Counts the job that is about to be claimed, once per call; a call that finds no job to claim counts none.
    async fn may_begin(&self, limits: &mut LimitState) -> Result<bool> {
        limits.counted = limits.counted || self.count_begun().await?;
        Ok(limits.counted)
    }

    /// Claims a job in the slot of the call, if the queue has slots.
    async fn claim_in(&self, worker: &str, due: &Document, limits: &mut LimitState) -> Result<Option<Job>> {
        if !self.options.ordered {
            if !limits.counted {
                let any = self.jobs.find(due, &requests::claim_order(self.fields()), 1).await?;
                if any.is_empty() || !self.may_begin(limits).await? {
                    return Ok(None);
                }
            }
            return self.claim_first(worker, due, None, limits.slot).await;
        }
        let (order, mut blocked, mut races) = (requests::claim_order(self.fields()), BlockedOrders::default(), 0);
        while races < RACES_MAX {
            let (filter, skip) = blocked.filter(self.fields(), due);
            let candidates = self.jobs.find_after(skip, &filter, &order, CANDIDATES).await?;
            let mut taken = 0;
            for candidate in &candidates {
                match self.claim_candidate(worker, due, candidate, limits, &mut blocked).await? {
                    Candidate::Claimed(job) => return Ok(Some(*job)),
                    Candidate::TooFast => return Ok(None),
                    Candidate::Blocked => {}
                    Candidate::ClaimedByOther => taken += 1,
                }
            }
            if candidates.len() < CANDIDATES as usize {
                break;
            }
            races += u32::from(taken == candidates.len());
        }
        Ok(None)
    }

    /// Claims this job if it is the first one of its order.
    async fn claim_candidate(
        &self,
        worker: &str,
        due: &Document,
        candidate: &Document,
        limits: &mut LimitState,
        blocked: &mut BlockedOrders,
    ) -> Result<Candidate> {
        let candidate = match self.read(candidate) {
            Ok(candidate) => candidate,
            Err(error) => {
                let waiting = doc! { &self.fields().state: JobState::Todo.name() };
                self.set_aside(candidate, waiting, &error).await?;
                return Ok(Candidate::ClaimedByOther);
            }
        };
        if blocked.contains(&candidate) {
            return Ok(Candidate::Blocked);
        }
        match self.first_of_its_order(&candidate).await? {
            First::Itself => {}
            First::Other(first) => {
                blocked.add(&candidate, first);
                return Ok(Candidate::Blocked);
            }
        }
        if !self.may_begin(limits).await? {
            return Ok(Candidate::TooFast);
        }
        let mut filter = due.clone();
        filter.insert("_id", candidate.id.clone());
        match self.claim_first(worker, &filter, candidate.order.as_deref(), limits.slot).await {
            Ok(Some(job)) => Ok(Candidate::Claimed(Box::new(job))),
            Ok(None) => Ok(Candidate::ClaimedByOther),
            // Another worker has another job of its order.
            Err(Error::Store(error)) if is_duplicate_of(&error, &self.fields().running) => {
                blocked.add(&candidate, None);
                Ok(Candidate::Blocked)
            }
            Err(error) => Err(error),
        }
    }

    /// Claims several jobs, at most `count`, with three requests; in a queue with an order or limits it claims one
    /// after the other. It may return fewer jobs than are due if others claim at the same moment. It returns none only
    /// if none is due, or if others were faster at every attempt.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: some jobs may have been claimed, and return to the queue after the lease.
    pub async fn claim_many(&self, worker: &str, kinds: &[String], count: u32) -> Result<Vec<Job>> {
        check_worker(worker)?;
        if self.options.ordered || self.options.limits.any() {
            return self.claim_one_by_one(worker, kinds, count).await;
        }
        if self.is_paused().await? {
            return Ok(Vec::new());
        }
        let (fields, due) = (self.fields(), requests::due(self.fields(), kinds, self.now()));
        let order = requests::claim_order(fields);
        let mut too_large = TooLarge::default();
        for _ in 0..RACES_MAX {
            let due = too_large.without(&due);
            let first = self.jobs.find(&due, &order, count).await?;
            let ids: Vec<_> = first.iter().filter_map(|job| job.get("_id").cloned()).collect();
            if ids.is_empty() {
                break;
            }
            // Sharing one claim id is safe, as later writes match on the `_id`, too.
            let claim = self.sources.ids.object_id();
            let still_due = doc! { "$and": [{ "_id": { "$in": ids.clone() } }, due.clone()] };
            match self.jobs.update_many(&still_due, &requests::claim(fields, worker, claim, None, None)).await {
                // Some of them may have been claimed.
                Err(Error::Store(error)) if is_too_large(&error) => {
                    self.set_aside_too_large(&first, &mut too_large).await?;
                }
                updated => _ = updated?,
            }
            let mut ours = self.claimed_by(claim);
            ours.insert("_id", doc! { "$in": ids });
            let claimed = self.jobs.find(&ours, &order, count).await?;
            let mut jobs = Vec::new();
            for document in &claimed {
                jobs.extend(self.read_claimed(document, claim).await?);
            }
            if !jobs.is_empty() {
                return Ok(jobs);
            }
        }
        Ok(Vec::new())
    }

    async fn claim_one_by_one(&self, worker: &str, kinds: &[String], count: u32) -> Result<Vec<Job>> {
        let mut claimed = Vec::new();
        for _ in 0..count {
            match self.claim(worker, kinds).await? {
                Some(job) => claimed.push(job),
                None => break,
            }
        }
        Ok(claimed)
    }

    async fn claim_first(
        &self,
        worker: &str,
        filter: &Document,
        order: Option<&str>,
        slot: Option<u32>,
    ) -> Result<Option<Job>> {
        let mut too_large = TooLarge::default();
        for _ in 0..RACES_MAX {
            let claim = self.sources.ids.object_id();
            let update = requests::claim(self.fields(), worker, claim, order, slot);
            let (filter, sort) = (too_large.without(filter), requests::claim_order(self.fields()));
            // If the first attempt was carried out, a second one would claim another job.
            let claimed = match self.jobs.find_first_and_update(&filter, &sort, &update, &self.claimed_by(claim)).await
            {
                Err(Error::Store(error)) if is_too_large(&error) => {
                    let first = self.jobs.find(&filter, &sort, 1).await?;
                    self.set_aside_too_large(&first, &mut too_large).await?;
                    continue;
                }
                claimed => claimed?,
            };
            let Some(claimed) = claimed else { break };
            if let Some(job) = self.read_claimed(&claimed, claim).await? {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    /// Makes dead letters of those of these jobs that would be too large with the fields of a claim: other programs have inserted them. One that is too large for
    /// another state as well is skipped.
    async fn set_aside_too_large(&self, jobs: &[Document], too_large: &mut TooLarge) -> Result<()> {
        for job in jobs {
            let bytes = raw(job)?.as_bytes().len();
            if bytes + CLAIM_BYTES_MAX + job.get_str(&self.fields().order).map_or(0, str::len) <= DOCUMENT_BYTES_MAX {
                continue;
            }
            let id = job.get("_id").cloned().unwrap_or(Bson::Null);
            tracing::warn!(%id, bytes, "a job is given up: its document is too large for the fields of a claim");
            let waiting = doc! { "_id": &id, &self.fields().state: JobState::Todo.name() };
            match self.jobs.update_one(&waiting, &requests::too_large(self.fields())).await {
                Err(Error::Store(error)) if is_too_large(&error) => too_large.skipped.push(id),
                given_up => self.count(Event::JobDead, u64::from(given_up?)),
            }
        }
        Ok(())
    }

    /// Makes a dead letter of a job that cannot be read, or cancels it if that was requested. If its worker kept it,
    /// it would come back after each lease; if it kept its state, it would be claimed again at once. Returns whether
    /// the job still matched the filter.
    pub(super) async fn set_aside(&self, document: &Document, mut filter: Document, error: &Error) -> Result<bool> {
        filter.insert("_id", document.get("_id").cloned().unwrap_or(Bson::Null));
        let canceled = requests::is_canceled(self.fields(), document);
        filter.insert(&self.fields().cancel, requests::wanted(canceled));
        let update = requests::unreadable(self.fields(), canceled, &error.to_string());
        let set_aside = self.jobs.update_one(&filter, &update).await?;
        if set_aside {
            tracing::warn!(%error, canceled, "a job that cannot be read is given up");
            self.count(if canceled { Event::JobCanceled } else { Event::JobDead }, 1);
        }
        Ok(set_aside)
    }

    /// Returns the claimed job; `None` if it cannot be read.
    async fn read_claimed(&self, document: &Document, claim: ObjectId) -> Result<Option<Job>> {
        let job = match self.read(document) {
            Ok(job) => job,
            Err(error) => {
                self.set_aside(document, self.claimed_by(claim), &error).await?;
                return Ok(None);
            }
        };
        let waited_millis = self.now().timestamp_millis().saturating_sub(job.run_at.timestamp_millis());
        let waited = Duration::from_millis(u64::try_from(waited_millis).unwrap_or(0));
        metrics::took(Span::JobWait, self.jobs.namespace(), waited);
        self.count(Event::JobClaimed, 1);
        Ok(Some(job))
    }

    fn claimed_by(&self, claim: ObjectId) -> Document {
        doc! {
            &self.fields().state: JobState::Processing.name(),
            self.fields().of_worker(&self.fields().claim): claim,
        }
    }

    async fn first_of_its_order(&self, job: &Job) -> Result<First> {
        let Some(order) = &job.order else { return Ok(First::Itself) };
        let fields = self.fields();
        let found = self.jobs.find(&requests::undone_in(fields, order), &doc! { &fields.ts: 1, "_id": 1 }, 1).await?;
        let Some(first) = found.first() else { return Ok(First::Itself) };
        let id = first.get("_id");
        Ok(if id == Some(&job.id) { First::Itself } else { First::Other(id.cloned()) })
    }
}
