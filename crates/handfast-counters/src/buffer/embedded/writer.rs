//! The only task that writes to the queue: it makes the events of all waiting requests durable in one step, applies them, and answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_store::{Applied, DocumentStore as _, Insert};
use tokio::sync::{mpsc, oneshot};

use super::group::Group;
use super::{Shared, State};
use crate::buffer::{IncrementOutcome, Stored, Total, UpsertOutcome};
use crate::{Change, Error, Event, IdempotencyKey, Item, Kind, Result, View, Visitor};

/// The maximum number of requests in one step: what a sync of some milliseconds lets gather.
const STEP_REQUESTS_MAX: usize = 4_096;
/// How often an insert is sent again whose answer was lost, before the requests are answered as in doubt.
const INSERT_ATTEMPTS: usize = 5;
/// The shortest time after which a request that met no place for its key is worth a repetition: keys that are over are removed at the next step.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// A request to the writer.
pub(super) struct Request {
    pub(super) work: Work,
}

/// The work of a request, and where its result goes.
pub(super) enum Work {
    Increment { view: View, answer: oneshot::Sender<Result<IncrementOutcome>> },
    Upsert { view: View, stored: Option<Stored>, answer: oneshot::Sender<Result<UpsertOutcome>> },
    Delete { item: Item, key: Option<IdempotencyKey>, answer: oneshot::Sender<Result<()>> },
}

/// A request whose event is being written, or that repeats one of the same step.
struct Planned {
    work: Work,
    plan: Plan,
}

/// The result of a request once its step is durable.
enum Plan {
    /// Its event is counted.
    Count(Event),
    /// An event before has its key.
    RepeatedKey,
    /// An event before is a view of its visitor.
    RepeatedVisitor,
}

/// The events of one kind that are written together.
struct Step {
    kind: Kind,
    group: Group,
    events: Vec<Event>,
    /// The visitors of the events.
    visitors: Vec<Visitor>,
    planned: Vec<Planned>,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    waiting: mpsc::Receiver<Request>,
    /// Steps that may be in the store, although no insert has said so. They are decided before anything else is written.
    doubtful: Vec<Step>,
}

impl Work {
    fn item(&self) -> &Item {
        match self {
            Work::Increment { view, .. } | Work::Upsert { view, .. } => &view.item,
            Work::Delete { item, .. } => item,
        }
    }

    fn change(&self) -> Change {
        match self {
            Work::Increment { view, .. } | Work::Upsert { view, .. } => {
                Change::Views { views: view.views, day: view.day }
            }
            Work::Delete { .. } => Change::Delete,
        }
    }

    /// Returns the number of views that the request adds.
    fn views(&self) -> u32 {
        match self {
            Work::Increment { view, .. } | Work::Upsert { view, .. } => view.views,
            Work::Delete { .. } => 0,
        }
    }

    /// Returns the name under which the key of the request is remembered.
    fn key(&self) -> Option<String> {
        match self {
            Work::Increment { view, .. } | Work::Upsert { view, .. } => {
                view.key.as_ref().map(|key| key.of_view(&view.item))
            }
            Work::Delete { item, key, .. } => key.as_ref().map(|key| key.of_deletion(item)),
        }
    }

    fn visitor(&self) -> Option<Visitor> {
        match self {
            Work::Increment { view, .. } | Work::Upsert { view, .. } => view.visitor,
            Work::Delete { .. } => None,
        }
    }

    fn stored(&self) -> Option<Stored> {
        match self {
            Work::Upsert { stored, .. } => *stored,
            Work::Increment { .. } | Work::Delete { .. } => None,
        }
    }

    // Who asked may be gone: then nobody reads the answer.
    fn counted(self, total: Total) {
        match self {
            Work::Increment { answer, .. } => drop(answer.send(Ok(IncrementOutcome::Counted(total)))),
            Work::Upsert { answer, .. } => drop(answer.send(Ok(UpsertOutcome::Counted(total)))),
            Work::Delete { answer, .. } => drop(answer.send(Ok(()))),
        }
    }

    /// Answers that a view of the visitor was counted before.
    fn repeated(self, total: Total) {
        match self {
            Work::Increment { answer, .. } => drop(answer.send(Ok(IncrementOutcome::Repeated(total)))),
            Work::Upsert { answer, .. } => drop(answer.send(Ok(UpsertOutcome::Repeated(total)))),
            Work::Delete { answer, .. } => drop(answer.send(Ok(()))),
        }
    }

    fn failed(self, error: Error) {
        match self {
            Work::Increment { answer, .. } => drop(answer.send(Err(error))),
            Work::Upsert { answer, .. } => drop(answer.send(Err(error))),
            Work::Delete { answer, .. } => drop(answer.send(Err(error))),
        }
    }

    /// Answers that nothing was counted: the item has no entry, or its stored total is out of date.
    fn not_counted(self) {
        match self {
            Work::Increment { answer, .. } => drop(answer.send(Ok(IncrementOutcome::Absent))),
            Work::Upsert { answer, .. } => drop(answer.send(Ok(UpsertOutcome::Outdated))),
            Work::Delete { answer, .. } => drop(answer.send(Ok(()))),
        }
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, waiting: mpsc::Receiver<Request>) -> Self {
        Writer { shared, waiting, doubtful: Vec::new() }
    }

    /// Writes until nobody can send requests any more.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.waiting.recv().await {
            let mut requests = vec![first.work];
            while requests.len() < STEP_REQUESTS_MAX
                && let Ok(next) = self.waiting.try_recv()
            {
                requests.push(next.work);
            }
            let doubtful = std::mem::take(&mut self.doubtful);
            self.write(doubtful, true).await;
            if self.doubtful.is_empty() {
                let steps = self.plan(requests);
                self.write(steps, false).await;
            } else {
                for work in requests {
                    work.failed(Error::Buffer { what: "the store does not answer".into(), applied: Applied::No });
                }
            }
        }
    }

    /// Decides which requests are counted, and gives their events numbers. Nothing is visible yet.
    fn plan(&self, requests: Vec<Work>) -> Vec<Step> {
        let now = self.shared.now();
        let mut state = self.shared.write();
        state.trim(&self.shared.options, now);
        state.keys.trim(now, 2 * requests.len());
        let mut key_places = state.keys.places();
        let mut places = self.shared.options.queue_events_max.saturating_sub(state.events());
        let mut steps: HashMap<Kind, Step> = HashMap::new();
        let (mut keys, mut visitors) = (HashSet::new(), HashSet::new());
        for work in requests {
            let item = work.item().clone();
            let key = work.key();
            let repeated = key.as_ref().is_some_and(|key| state.keys.has(key, now));
            let visitor = work.visitor();
            let is_known = visitor.is_some_and(|visitor| state.marks.has(&visitor.mark, now));
            let of_kind = state.kind(&item.kind);
            let absent = !of_kind.touch(&item.id, now);
            let outdated = match &work {
                Work::Increment { .. } => absent,
                Work::Upsert { stored, .. } => absent && stored.is_some_and(|stored| !of_kind.is_current(stored.fence)),
                Work::Delete { .. } => false,
            };
            if outdated {
                work.not_counted();
                continue;
            }
            let stored = work.stored().map(|stored| stored.total);
            let stored = Total { views: stored.unwrap_or(0), partial: stored.is_none() };
            let total = of_kind.total(&item.id).unwrap_or(stored);
            if repeated || is_known {
                if repeated {
                    work.counted(total);
                } else {
                    work.repeated(total);
                }
                continue;
            }
            // Views of this step are not in the total yet, and are few beside what has place above the limit.
            if let Err(too_large) = total.ensure_countable(work.views()) {
                work.failed(too_large);
                continue;
            }
            if places == 0 {
                work.failed(Error::Full { events: self.shared.options.queue_events_max as u64 });
                continue;
            }
            if key_places == 0 && key.as_ref().is_some_and(|key| !keys.contains(key)) {
                let wait = state.keys.oldest_end().map_or(self.shared.options.key_time, |end| end.saturating_sub(now));
                let wait = wait.max(WAIT_MIN);
                work.failed(Error::KeysFull { keys: self.shared.options.keys_max as u64, wait });
                continue;
            }
            let next = of_kind.next_number();
            let step = steps.entry(item.kind.clone()).or_insert_with(|| Step {
                kind: item.kind.clone(),
                group: Group { first: next, unacknowledged: 0, keys: Vec::new() },
                events: Vec::new(),
                visitors: Vec::new(),
                planned: Vec::new(),
            });
            if key.as_ref().is_some_and(|key| keys.contains(key)) {
                step.planned.push(Planned { work, plan: Plan::RepeatedKey });
                continue;
            }
            if visitor.is_some_and(|visitor| !visitors.insert(visitor.mark)) {
                step.planned.push(Planned { work, plan: Plan::RepeatedVisitor });
                continue;
            }
            key_places -= usize::from(key.is_some());
            keys.extend(key.clone());
            places -= 1;
            let number = step.group.first + step.events.len() as u64;
            let event = Event { number, id: item.id, change: work.change() };
            step.group.keys.extend(key);
            step.visitors.extend(visitor);
            step.group.unacknowledged += 1;
            step.events.push(event.clone());
            step.planned.push(Planned { work, plan: Plan::Count(event) });
        }
        steps.into_values().collect()
    }

    /// Makes steps durable, applies and answers them. Those that are in doubt are kept; `sent_before` says that all of them were.
    async fn write(&mut self, steps: Vec<Step>, sent_before: bool) {
        if steps.is_empty() {
            return;
        }
        let documents = steps.iter().map(|step| step.group.document(&step.kind, &step.events)).collect();
        let results = self.insert(documents, sent_before).await;
        self.shared.keep_result(results.last());
        for (step, result) in steps.into_iter().zip(results) {
            match result {
                Ok(()) => self.shared.apply(step),
                Err(error) if error.applied() == Applied::No => {
                    for planned in step.planned {
                        planned.work.failed(error.clone());
                    }
                }
                Err(error) => {
                    let mut step = step;
                    // The events stay, the requests are answered: whether they were counted is unknown.
                    for planned in step.planned.drain(..) {
                        planned.work.failed(error.clone());
                    }
                    self.doubtful.push(step);
                }
            }
        }
    }

    /// Inserts documents, and inserts them again while the answer gets lost. `sent_before` says that an earlier insert may have been applied.
    async fn insert(&self, documents: Vec<RawDocumentBuf>, mut sent_before: bool) -> Vec<Result<()>> {
        let count = documents.len();
        let mut attempts = INSERT_ATTEMPTS;
        loop {
            attempts -= 1;
            let insert = Insert { ordered: false, ..Insert::new(self.shared.queue.clone(), documents.clone()) };
            let error = match self.shared.store.insert(insert).await {
                Ok(outcome) => {
                    let mut results: Vec<Result<()>> = vec![Ok(()); count];
                    for refused in outcome.errors {
                        // Only this writer uses the name: the document is there because an earlier attempt put it there.
                        if refused.error.code() != Code::DuplicateKey
                            && let Some(result) = results.get_mut(refused.index)
                        {
                            *result = Err(unavailable(&refused.error, refused.error.applied()));
                        }
                    }
                    return results;
                }
                Err(error) => error,
            };
            sent_before |= error.applied() == Applied::Maybe;
            let applied = if sent_before { Applied::Maybe } else { Applied::No };
            if attempts == 0 || !sent_before {
                return vec![Err(unavailable(&error, applied)); count];
            }
        }
    }
}

fn unavailable(error: &handfast_store::Error, applied: Applied) -> Error {
    Error::Buffer { what: error.to_string(), applied }
}

impl Shared {
    /// Keeps the error of a write, and lets an earlier one go if it has succeeded.
    fn keep_result(&self, result: Option<&Result<()>>) {
        let Some(result) = result else { return };
        let failed = result.as_ref().err().map(|error| (self.now(), error.clone()));
        *self.failed_write.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }

    /// Applies a step that is durable, and answers its requests.
    fn apply(&self, step: Step) {
        let now = self.now();
        let mut state = self.write();
        let State { kinds, groups, keys, marks, .. } = &mut *state;
        let of_kind = kinds.entry(step.kind.clone()).or_insert_with(|| crate::buffer::state::KindState::new(1, 0));
        for key in &step.group.keys {
            keys.set(key, now + self.options.key_time);
        }
        for visitor in &step.visitors {
            marks.set(visitor, now);
        }
        groups.entry(step.kind).or_default().insert(step.group.first, step.group);
        if step.planned.is_empty() {
            for event in step.events {
                of_kind.push(event, None, now);
            }
            return;
        }
        for Planned { work, plan } in step.planned {
            let repeats_visitor = matches!(plan, Plan::RepeatedVisitor);
            let total = match plan {
                Plan::Count(event) => of_kind.push(event, work.stored().map(|stored| stored.total), now),
                Plan::RepeatedKey | Plan::RepeatedVisitor => {
                    of_kind.total(&work.item().id).unwrap_or(Total { views: 0, partial: true })
                }
            };
            if repeats_visitor {
                work.repeated(total);
            } else {
                work.counted(total);
            }
        }
    }
}
