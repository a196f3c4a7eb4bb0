//! Finds the documents that a write is about, and changes each in its newest state.
//!
//! A search reads a view and may be slow, so it is not done while the committer waits. What it finds is then judged again
//! by the committer: the filter and the change see the document as it is at that moment ([`judge`](super::judge) says what
//! becomes of a judgement that takes long). If it does not match any more,
//! the search is repeated; after some attempts it is done in the committer's own turn, where nothing can come between.
//!
//! A change of many documents takes steps, and others have their turn in between. It must meet every document that
//! matches all the time, none twice (a change may move a document ahead in the index by which it was found), and it must
//! not keep one old state in use for as long as it takes. So:
//!
//! - the collection is walked by `_id`, which never changes, each helping in the state that is the newest then;
//! - an index is walked to its end in one state before anything is changed, and the `_id` keys are gathered. If they
//!   become too many, or that state is ended, the collection is walked after all.
//!
//! "None matches" is a true answer for the moment of the view. Before an upsert inserts, the committer makes sure that the
//! collection has not changed since that moment.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::context::StopOnDrop;
use handfast_mql::{Code, Context, Filter, Sort, Sorter};
use handfast_store::ticket::Recorded;
use handfast_store::{CommitTimestamp, Error as StoreError, Find, Hint, Namespace, Result as StoreResult, blocking};

use super::judge::{InTurn, Judging, Long, Outcome};
use super::ticketed::{Ticketed, once};
use crate::catalog::{Catalog, Collection, CollectionIndex};
use crate::committer::{Answer, Writer};
use crate::engine::{Direction, View};
use crate::format::{StoredDocument, Verify};
use crate::read::candidates::{Candidates, Source};
use crate::read::plan;
use crate::read::scan::Access;
use crate::store::EmbeddedStore;

/// Searches beside the committer before one in its turn.
const SEARCHES_MAX: usize = 3;
/// Steps of the filter in a search that is made in the committer's turn, a good part of a second: for a document that
/// others change each time between search and turn. Beyond it the write is refused.
const SEARCH_STEPS_MAX: u64 = 10_000_000;
/// Documents named by `_id` that are looked at in the committer's turn without a search.
const POINTS_MAX: usize = 16;

/// Which document is meant.
pub(crate) struct Target {
    pub(crate) namespace: Namespace,
    pub(crate) filter: Filter,
    pub(crate) sort: Sort,
    pub(crate) hint: Option<Hint>,
    pub(crate) context: Context,
}

/// A turn's result.
enum Turn<T> {
    /// Of a document, or none matched.
    Done(Option<T>),
    /// Search again.
    Again,
    /// This first, beside the committer; then another turn.
    Long(Long),
}

/// What is done in a turn.
type Attempt<T> = dyn Fn(&mut Writer<'_>, InTurn<T>) -> StoreResult<Turn<T>> + Send + Sync;

impl<T> From<Outcome<T>> for Turn<T> {
    fn from(outcome: Outcome<T>) -> Self {
        match outcome {
            Outcome::Done(value) => Turn::Done(Some(value)),
            Outcome::Other => Turn::Again,
            Outcome::Long(long) => Turn::Long(long),
        }
    }
}

impl<T> Turn<T> {
    /// Of a turn after which there is no other.
    fn done(self) -> Option<T> {
        match self {
            Turn::Done(value) => value,
            Turn::Again | Turn::Long(_) => None,
        }
    }
}

impl<T: Recorded> Recorded for Turn<T> {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        match self {
            Turn::Done(Some(done)) => done.to_result(),
            Turn::Done(None) | Turn::Again | Turn::Long(_) => None,
        }
    }

    fn from_result(result: &RawDocument) -> StoreResult<Self> {
        T::from_result(result).map(|done| Turn::Done(Some(done)))
    }
}

/// The newest state, as one.
#[derive(Clone)]
pub(crate) struct Latest {
    pub(crate) timestamp: CommitTimestamp,
    pub(crate) view: Arc<dyn View>,
    pub(crate) catalog: Arc<Catalog>,
}

impl Target {
    /// Ends search and evaluation when nobody waits for them any more, in the committer's turn as well.
    pub(crate) fn stop_on_drop(&self) -> StopOnDrop {
        self.context.interrupt.stop_on_drop()
    }

    fn access(&self, collection: &Collection) -> StoreResult<Access> {
        let mut find = Find::new(self.namespace.clone(), bson::rawdoc! {});
        find.hint = self.hint.clone();
        // The order is made here: a document is chosen among all that match.
        Ok(plan::choose(collection, &self.filter, &self.sort, &find)?.access)
    }

    fn matches(&self, stored: &StoredDocument) -> StoreResult<bool> {
        Ok(self.filter.matches(stored.document()?, &self.context)?)
    }

    /// The first that matches, by the sort, in a state.
    fn first(&self, source: Source, catalog: &Catalog, verify: Verify) -> StoreResult<Option<Vec<u8>>> {
        let Some(collection) = catalog.get(&self.namespace).cloned() else {
            return Ok(None);
        };
        let access = self.access(&collection)?;
        let candidates = Candidates::new(source, verify, collection, access, None);
        let mut candidates = candidates.stopped_by(self.context.interrupt.clone());
        let mut sorter = Sorter::new(Some(1), &self.context);
        while let Some((id_key, stored, _)) = candidates.next_record()? {
            if !self.matches(&stored)? {
                continue;
            }
            if self.sort.is_empty() {
                return Ok(Some(id_key));
            }
            let bytes = id_key.len();
            sorter.push(self.sort.key(stored.document()?)?, id_key, bytes)?;
        }
        Ok(sorter.into_sorted().next())
    }

    /// The documents that the filter names by `_id`, if it names few and the order does not matter.
    fn few_points(&self, latest: &Latest) -> StoreResult<Option<Vec<Vec<u8>>>> {
        let Some(collection) = latest.catalog.get(&self.namespace) else {
            return Ok(None);
        };
        Ok(match self.access(collection)? {
            Access::Points(keys) if keys.len() == 1 || (self.sort.is_empty() && keys.len() <= POINTS_MAX) => Some(keys),
            _ => None,
        })
    }
}

impl EmbeddedStore {
    /// The newest state, applied though perhaps not synced: to search in, never to answer from.
    pub(crate) fn latest(&self) -> Latest {
        self.shared().latest()
    }

    /// Changes the first document that matches; if none does, inserts what is to be inserted then. Whatever this
    /// says, also that nothing matches, is as durable as `answer` asks for.
    pub(crate) async fn change_one<T: Recorded + Send + 'static>(
        &self,
        mut judging: Judging<T>,
        answer: Answer,
        bytes: usize,
        ticketed: Option<Ticketed>,
    ) -> StoreResult<Option<T>> {
        let target = judging.target.clone();
        match target.few_points(&self.latest()) {
            Ok(Some(keys)) => {
                let keys: Arc<[Vec<u8>]> = keys.into();
                let attempt = move |writer: &mut Writer<'_>, turn: InTurn<T>| try_points(writer, turn, &keys);
                let turn = self.turn(&mut judging, answer, bytes, ticketed, Arc::new(attempt));
                return turn.await.map(Turn::done);
            }
            Ok(None) => {}
            Err(error) => return self.unless_used(answer, ticketed, Err(error)).await,
        }
        let verify = self.shared().verify;
        let mut searches = 0;
        while searches < SEARCHES_MAX {
            let latest = self.latest();
            let (searched, at) = (target.clone(), self.shared().hold(latest.clone()));
            let found = blocking(move || {
                let catalog = at.catalog().clone();
                searched.first(Source::Snapshot(at), &catalog, verify)
            });
            searches += 1;
            let found = match found.await {
                Ok(found) => found,
                Err(error) if error.code() == Code::SnapshotTooOld => continue,
                Err(error) => return self.unless_used(answer, ticketed, Err(error)).await,
            };
            if found.is_none() && !judging.inserts() {
                return self.unless_used(answer, ticketed, Ok(None)).await;
            }
            let attempt = move |writer: &mut Writer<'_>, mut turn: InTurn<T>| match &found {
                Some(id_key) => try_one(writer, &mut turn, id_key).map(Turn::from),
                None => try_absent(writer, &turn, &latest),
            };
            match self.turn(&mut judging, answer, bytes, ticketed, Arc::new(attempt)).await? {
                Turn::Done(value) => return Ok(value),
                Turn::Again | Turn::Long(_) => {}
            }
        }
        let attempt = move |writer: &mut Writer<'_>, turn: InTurn<T>| in_turn(writer, turn, verify);
        self.turn(&mut judging, answer, bytes, ticketed, Arc::new(attempt)).await.map(Turn::done)
    }

    /// Has a turn, and another one after each computation that it leaves to be made beside the committer.
    async fn turn<T: Recorded + Send + 'static>(
        &self,
        judging: &mut Judging<T>,
        answer: Answer,
        bytes: usize,
        ticketed: Option<Ticketed>,
        attempt: Arc<Attempt<T>>,
    ) -> StoreResult<Turn<T>> {
        loop {
            let (in_turn, attempt) = (judging.turn(), attempt.clone());
            let turn = move |writer: &mut Writer<'_>| once(writer, ticketed, |writer| attempt(writer, in_turn));
            match self.inner.committer.submit(answer, bytes, turn).await? {
                Turn::Long(long) => {
                    if let Err(error) = judging.beside(long).await {
                        return self.unless_used(answer, ticketed, Err(error)).await.map(Turn::Done);
                    }
                }
                turn => return Ok(turn),
            }
        }
    }

    /// What a search has found out by itself: that nothing matches, or why it cannot be made. Only in the committer's turn
    /// can be told that no other attempt has used the ticket, perhaps while this one searched.
    async fn unless_used<T: Recorded + Send + 'static>(
        &self,
        answer: Answer,
        ticketed: Option<Ticketed>,
        searched: StoreResult<Option<T>>,
    ) -> StoreResult<Option<T>> {
        if ticketed.is_none() && answer == Answer::Applied {
            return searched;
        }
        let turn = move |writer: &mut Writer<'_>| once(writer, ticketed, |_| searched.map(Turn::Done));
        self.inner.committer.submit(answer, 0, turn).await.map(Turn::done)
    }

    /// Changes all documents that match, each in its newest state, some at a time, and tells `each` what became of each;
    /// stops at the first error, which is returned: what was done before it stays.
    pub(crate) async fn change_all<T: Send + 'static>(
        &self,
        judging: &mut Judging<T>,
        bytes: usize,
        mut each: impl FnMut(T),
    ) -> StoreResult<Option<StoreError>> {
        let target = judging.target.clone();
        let latest = self.latest();
        let Some(collection) = latest.catalog.get(&target.namespace).cloned() else {
            return Ok(None);
        };
        let access = target.access(&collection)?;
        let mut search = match &access {
            Access::Index { index, .. } => {
                let index = index.clone();
                match self.gather(&target, latest, &collection, access).await {
                    Ok(Some(keys)) => Search::Gathered(keys.into()),
                    Ok(None) => {
                        let candidates = self.walk(&collection, Access::everything(Direction::Forward), &target);
                        Search::Walk { candidates, held_by: Some(index) }
                    }
                    Err(error) => return Ok(Some(error)),
                }
            }
            _ => {
                drop(latest);
                Search::Walk { candidates: self.walk(&collection, access, &target), held_by: None }
            }
        };
        let count = self.inner.options.step_documents_max.max(1);
        let mut keys = VecDeque::new();
        loop {
            if self.latest().catalog.get(&target.namespace).is_none_or(|now| now.id != collection.id) {
                // It was dropped or renamed: nothing is left under this name of what was meant.
                return Ok(None);
            }
            if keys.is_empty() {
                let searched = target.clone();
                let step = blocking(move || {
                    let keys = search.next_keys(&searched, count)?;
                    Ok((search, keys))
                });
                match step.await {
                    Ok((rest, found)) => {
                        search = rest;
                        keys = found.into();
                    }
                    Err(error) => return Ok(Some(error)),
                }
            }
            if keys.is_empty() {
                return Ok(None);
            }
            let given = keys.len();
            let (in_turn, taken) = (judging.turn(), std::mem::take(&mut keys));
            let turn = move |writer: &mut Writer<'_>| Ok(change_each(writer, in_turn, taken));
            // After an error of the committer too, who asked has to know that there were steps before it.
            let step = match self.inner.committer.submit(Answer::Applied, bytes, turn).await {
                Ok(step) => step,
                Err(error) => return Ok(Some(error)),
            };
            if step.rest.len() < given {
                judging.next();
            }
            step.done.into_iter().for_each(&mut each);
            if step.error.is_some() {
                return Ok(step.error);
            }
            if let Some(long) = step.long
                && let Err(error) = judging.beside(long).await
            {
                return Ok(Some(error));
            }
            keys = step.rest;
        }
    }

    fn walk(&self, collection: &Arc<Collection>, access: Access, target: &Target) -> Box<Candidates> {
        let source = Source::Newest(self.shared().clone());
        let candidates = Candidates::new(source, self.shared().verify, collection.clone(), access, None);
        Box::new(candidates.stopped_by(target.context.interrupt.clone()))
    }

    /// The `_id` keys of all documents that match in a state; `None` if they are too many, or the state was ended.
    async fn gather(
        &self,
        target: &Arc<Target>,
        latest: Latest,
        collection: &Arc<Collection>,
        access: Access,
    ) -> StoreResult<Option<Vec<Vec<u8>>>> {
        let source = Source::Snapshot(self.shared().hold(latest));
        let candidates = Candidates::new(source, self.shared().verify, collection.clone(), access, None);
        let mut candidates = candidates.stopped_by(target.context.interrupt.clone());
        let (target, bytes_max) = (target.clone(), self.inner.options.gathered_bytes_max);
        let gathered = blocking(move || {
            let (mut keys, mut bytes) = (Vec::new(), 0);
            while let Some((id_key, stored, _)) = candidates.next_record()? {
                if target.matches(&stored)? {
                    bytes += size_of::<Vec<u8>>() + id_key.len();
                    keys.push(id_key);
                }
                if bytes > bytes_max {
                    return Ok(None);
                }
            }
            Ok(Some(keys))
        });
        match gathered.await {
            Err(error) if error.code() == Code::SnapshotTooOld => Ok(None),
            gathered => gathered,
        }
    }
}

/// The search of a change of many documents.
enum Search {
    /// What is left of the documents that were found.
    Gathered(VecDeque<Vec<u8>>),
    Walk {
        candidates: Box<Candidates>,
        /// Documents that this index does not hold are not meant: it was asked for by a hint.
        held_by: Option<Arc<CollectionIndex>>,
    },
}

impl Search {
    fn next_keys(&mut self, target: &Target, count: usize) -> StoreResult<Vec<Vec<u8>>> {
        match self {
            Search::Gathered(keys) => Ok(keys.drain(..count.min(keys.len())).collect()),
            Search::Walk { candidates, held_by } => {
                let mut keys = Vec::new();
                while keys.len() < count
                    && let Some((id_key, stored, _)) = candidates.next_record()?
                {
                    let document = stored.document()?;
                    let held = match held_by {
                        Some(held_by) => !held_by.index.keys(document)?.keys.is_empty(),
                        None => true,
                    };
                    if held && target.matches(&stored)? {
                        keys.push(id_key);
                    }
                }
                Ok(keys)
            }
        }
    }
}

/// What one turn did of several documents.
struct Step<T> {
    done: Vec<T>,
    /// For the next turn.
    rest: VecDeque<Vec<u8>>,
    /// The first of the rest takes too long for a turn.
    long: Option<Long>,
    error: Option<StoreError>,
}

fn try_points<T>(writer: &mut Writer<'_>, mut judging: InTurn<T>, keys: &[Vec<u8>]) -> StoreResult<Turn<T>> {
    if let Some(collection) = writer.collection(&judging.target.namespace) {
        for id_key in keys {
            if let Some(stored) = writer.get(collection.id, id_key)? {
                match judging.document(writer, &collection, id_key, &stored)? {
                    Outcome::Other => {}
                    found => return Ok(found.into()),
                }
            }
        }
    }
    absent_or_none(writer, &judging)
}

/// What is done if none matches; there may be nothing to do.
fn absent_or_none<T>(writer: &mut Writer<'_>, judging: &InTurn<T>) -> StoreResult<Turn<T>> {
    Ok(match judging.absent(writer)? {
        Outcome::Other => Turn::Done(None),
        inserted => inserted.into(),
    })
}

fn try_one<T>(writer: &mut Writer<'_>, judging: &mut InTurn<T>, id_key: &[u8]) -> StoreResult<Outcome<T>> {
    let Some(collection) = writer.collection(&judging.target.namespace) else {
        return Ok(Outcome::Other);
    };
    match writer.get(collection.id, id_key)? {
        Some(stored) => judging.document(writer, &collection, id_key, &stored),
        None => Ok(Outcome::Other),
    }
}

fn try_absent<T>(writer: &mut Writer<'_>, judging: &InTurn<T>, searched: &Latest) -> StoreResult<Turn<T>> {
    let namespace = &judging.target.namespace;
    let searched_id = searched.catalog.get(namespace).map(|collection| collection.id);
    let unchanged = match writer.collection(namespace) {
        Some(collection) => {
            searched_id == Some(collection.id) && writer.last_change(collection.id) <= searched.timestamp
        }
        None => searched_id.is_none(),
    };
    if unchanged { judging.absent(writer).map(Turn::from) } else { Ok(Turn::Again) }
}

fn in_turn<T>(writer: &mut Writer<'_>, mut judging: InTurn<T>, verify: Verify) -> StoreResult<Turn<T>> {
    let view = writer.settle()?;
    let catalog = writer.catalog().clone();
    let target = judging.target.clone();
    target.context.bound_steps(SEARCH_STEPS_MAX);
    let found = target.first(Source::Latest(view), &catalog, verify);
    target.context.bound_steps(u64::MAX);
    if let Some(id_key) = found? {
        match try_one(writer, &mut judging, &id_key)? {
            Outcome::Other => {}
            found => return Ok(found.into()),
        }
    }
    absent_or_none(writer, &judging)
}

fn change_each<T>(writer: &mut Writer<'_>, mut judging: InTurn<T>, keys: VecDeque<Vec<u8>>) -> Step<T> {
    let mut step = Step { done: Vec::with_capacity(keys.len()), rest: keys, long: None, error: None };
    // Together they take no more than one may.
    let mut steps_left = writer.steps_max();
    while steps_left > 0
        && let Some(id_key) = step.rest.pop_front()
    {
        let outcome = try_one(writer, &mut judging, &id_key);
        steps_left = steps_left.saturating_sub(judging.steps);
        match outcome {
            Ok(Outcome::Done(value)) => step.done.push(value),
            // It does not match any more.
            Ok(Outcome::Other) => {}
            Ok(Outcome::Long(long)) => {
                step.rest.push_front(id_key);
                step.long = Some(long);
                break;
            }
            Err(error) => {
                step.error = Some(error);
                break;
            }
        }
    }
    step
}
