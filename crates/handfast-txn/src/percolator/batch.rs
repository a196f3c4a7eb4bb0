//! One step on many rows, with few requests.
//!
//! ```text
//! rows that are not there      one unordered insert of many documents
//! rows that are there          one unordered update of many statements, each for one revision of its row
//!
//! all counted as done          done
//! the total is short,          these rows are read again, together, and the step is looked at again: where it is done it says so;
//! an error, a lost answer      where it is not, it is sent again, or refused
//! ```
//!
//! A batch is no step of its own: each of its rows is changed by itself, on the condition of its revision, and any part of a batch may
//! be done when the process dies. Nothing is concluded from a total but that all of it was done. Of what is still open after
//! some rounds, each row goes alone ([`Rows::apply`]).

use std::collections::HashMap;

use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_mql::key::encoded;
use handfast_store::{
    Applied, Error as StoreError, ErrorClass, Find, Insert, Namespace, Result as StoreResult, StoreExt, Update,
    UpdateStatement, WriteError, insertion,
};
use tokio::task::JoinSet;

use super::row::{Key, Revision, Row, Step};
use super::rows::{LostAnswers, RefusedStep, Rows, Swap, unchecked};

/// The most rows in one batch.
const BATCH_ROWS_MAX: usize = 1000;
/// The most bytes of documents in one request of a batch: as many as in a page, and a quarter of a command.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most rows that are sent by requests of their own, all at once in one round trip.
const SINGLES_MAX: usize = 32;
/// The most batches of one transaction that are under way at the same time.
const BATCHES_AT_ONCE: usize = 4;
/// How often a batch is sent before its rows are sent alone.
const ROUNDS_MAX: usize = 3;

/// The result of a step on a row.
pub(super) type StepResult<E> = StoreResult<Result<Row, RefusedStep<E>>>;

/// Returns groups of row positions: single rows if they are few, else batches by collection. The group of the first row comes first.
pub(super) fn groups<'a>(rows: impl ExactSizeIterator<Item = (&'a Key, usize)>) -> Vec<Vec<usize>> {
    if rows.len() <= SINGLES_MAX {
        return (0..rows.len()).map(|place| vec![place]).collect();
    }
    let mut groups: Vec<(Vec<usize>, usize)> = Vec::new();
    let mut open: HashMap<&Namespace, usize> = HashMap::new();
    for (place, (key, bytes)) in rows.enumerate() {
        let last = open.get(&key.namespace).copied().filter(|last| {
            let (places, total) = &groups[*last];
            places.len() < BATCH_ROWS_MAX && total.saturating_add(bytes) <= BATCH_BYTES_MAX
        });
        let group = last.unwrap_or_else(|| {
            groups.push(Default::default());
            groups.len() - 1
        });
        open.insert(&key.namespace, group);
        groups[group].0.push(place);
        groups[group].1 += bytes;
    }
    groups.into_iter().map(|(places, _)| places).collect()
}

/// Returns how many of these groups may be under way at the same time.
pub(super) fn groups_at_once(groups: &[Vec<usize>]) -> usize {
    if groups.iter().all(|group| group.len() == 1) { SINGLES_MAX } else { BATCHES_AT_ONCE }
}

/// A row on which the step is still to be done.
struct PendingRow {
    place: usize,
    key: Key,
    known: Option<Row>,
    lost: LostAnswers,
    /// The revision that the last request was conditional on.
    last: Revision,
}

/// A row that is sent.
struct SentRow {
    open: PendingRow,
    next: Row,
    swap: Swap,
}

/// The result for one row of a request.
enum Answer {
    Done,
    /// The step may be done, and no request for it is under way.
    Unclear,
    Failed(StoreError),
}

impl Rows {
    /// Carries out a step on any rows, in groups. Returns whether all succeeded. The step gets the row's position.
    pub(super) async fn apply_everywhere<E: Send + 'static>(
        &self,
        rows: Vec<(Key, Option<Row>)>,
        step: impl Fn(usize, &Row) -> Result<Step, E> + Clone + Send + Sync + 'static,
    ) -> bool {
        let groups = groups(rows.iter().map(|(key, known)| (key, known.as_ref().map_or(0, bytes_to_be))));
        let (mut rows, at_once): (Vec<_>, _) = (rows.into_iter().map(Some).collect(), groups_at_once(&groups));
        let (mut tasks, mut is_done) = (JoinSet::new(), true);
        for group in groups {
            if tasks.len() >= at_once {
                is_done &= matches!(tasks.join_next().await, Some(Ok(true)));
            }
            let of_group = group.iter().filter_map(|place| rows[*place].take()).collect();
            let (rows, step) = (self.clone(), step.clone());
            tasks.spawn(async move {
                let stepped = rows.apply_all(of_group, |place, row| step(group[place], row), unchecked).await;
                stepped.iter().all(Result::is_ok)
            });
        }
        while let Some(joined) = tasks.join_next().await {
            is_done &= joined.unwrap_or(false);
        }
        is_done
    }

    /// Carries out a step on rows of one collection, known or read, and returns the results in their order. The step gets the row's position;
    /// `check` may refuse a changed row before it is written.
    pub(super) async fn apply_all<E: Send>(
        &self,
        rows: Vec<(Key, Option<Row>)>,
        step: impl Fn(usize, &Row) -> Result<Step, E> + Send + Sync,
        check: impl Fn(&Row) -> StoreResult<()> + Send + Sync,
    ) -> Vec<StepResult<E>> {
        let mut stepped = Vec::with_capacity(rows.len());
        let mut open = Vec::with_capacity(rows.len());
        for (place, (key, known)) in rows.into_iter().enumerate() {
            let last = known.as_ref().map_or(Revision::Missing, |row| row.revision);
            open.push(PendingRow { place, key, known, lost: LostAnswers::default(), last });
        }
        for _ in 0..ROUNDS_MAX {
            if open.len() < 2 {
                break;
            }
            open = self.read_together(open, &mut stepped).await;
            let (unread, sent) = plan_requests(open, &step, &check, &mut stepped);
            open = unread;
            open.extend(self.send_together(sent, &mut stepped).await);
        }
        for PendingRow { place, key, known, lost, last } in open {
            let alone = self.apply_after(&key, known, lost, last, |row| step(place, row), &check).await;
            stepped.push((place, alone));
        }
        stepped.sort_unstable_by_key(|(place, _)| *place);
        stepped.into_iter().map(|(_, stepped)| stepped).collect()
    }

    /// Reads the rows that are not known.
    async fn read_together<E>(
        &self,
        mut open: Vec<PendingRow>,
        stepped: &mut Vec<(usize, StepResult<E>)>,
    ) -> Vec<PendingRow> {
        let unknown: RawArrayBuf =
            open.iter().filter(|row| row.known.is_none()).map(|row| row.key.id.clone()).collect();
        let Some(first) = open.iter().find(|row| row.known.is_none()) else { return open };
        let find = Find::new(first.key.namespace.clone(), rawdoc! { "_id": { "$in": unknown } });
        let found = match self.store.find_all(find).await.and_then(by_id) {
            Ok(found) => found,
            Err(error) => {
                let failed = |row: &mut PendingRow| match row.known {
                    Some(_) => None,
                    None => row.lost.after(error.clone(), row.last),
                };
                return keep_pending(open, failed, stepped);
            }
        };
        let mut found = found;
        let read = |row: &mut PendingRow| {
            if row.known.is_none() {
                match found.remove(&encoded(row.key.id.as_raw_bson_ref())) {
                    Some(document) => match Row::from_document(&document) {
                        Ok(there) => row.known = Some(there),
                        Err(error) => return Some(error),
                    },
                    None => row.known = Some(Row::missing(row.key.id.clone())),
                }
            }
            None
        };
        keep_pending(std::mem::take(&mut open), read, stepped)
    }

    /// Sends the changed rows in requests of bounded size, and returns the rows whose result is unclear.
    async fn send_together<E>(&self, sent: Vec<SentRow>, stepped: &mut Vec<(usize, StepResult<E>)>) -> Vec<PendingRow> {
        let mut open = Vec::new();
        let (inserts, updates): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|sent| matches!(sent.swap, Swap::Insert(_)));
        for rows in [inserts, updates] {
            for rows in split_by_bytes(rows) {
                let answers = self.send(&rows).await;
                for (SentRow { open: mut row, next, .. }, answer) in rows.into_iter().zip(answers) {
                    let failed = match answer {
                        Answer::Done => {
                            stepped.push((row.place, Ok(Ok(next))));
                            continue;
                        }
                        Answer::Unclear => None,
                        Answer::Failed(error) => row.lost.after(error, row.last),
                    };
                    match failed {
                        Some(error) => stepped.push((row.place, Err(error))),
                        None => open.push(row),
                    }
                }
            }
        }
        open
    }

    /// Sends one request, and returns the result for each row.
    async fn send(&self, rows: &[SentRow]) -> Vec<Answer> {
        let Some(namespace) = rows.first().map(|row| row.open.key.namespace.clone()) else { return Vec::new() };
        let (mut documents, mut statements) = (Vec::new(), Vec::new());
        for row in rows {
            match &row.swap {
                Swap::Insert(document) => documents.push(document.clone()),
                Swap::Update(statement) => statements.push(UpdateStatement::clone(statement)),
            }
        }
        let answered = if statements.is_empty() {
            let insert = Insert { ordered: false, ..Insert::new(namespace, documents) };
            self.store.insert(insert).await.map(|outcome| (outcome.inserted, outcome.errors))
        } else {
            let update = Update { ordered: false, ..Update::new(namespace, statements) };
            self.store.update(update).await.map(|outcome| (outcome.matched, outcome.errors))
        };
        match answered {
            Ok((done, errors)) => answers(rows.len(), done, errors),
            // One row may be at fault: each is sent alone later.
            Err(error) if error.class() == ErrorClass::Command && error.applied() == Applied::No && rows.len() > 1 => {
                rows.iter().map(|_| Answer::Unclear).collect()
            }
            Err(error) => rows.iter().map(|_| Answer::Failed(error.clone())).collect(),
        }
    }
}

/// Returns the result for each row of an answer.
fn answers(rows: usize, done: u64, errors: Vec<WriteError>) -> Vec<Answer> {
    let mut failed: HashMap<usize, StoreError> = HashMap::new();
    errors.into_iter().for_each(|refused| drop(failed.insert(refused.index, refused.error)));
    let is_complete = usize::try_from(done).is_ok_and(|done| done + failed.len() == rows);
    let answer = |place| match failed.remove(&place) {
        // Another client inserted the row, or an earlier request of this step did, whose answer got lost.
        Some(error) if error.code() == Code::DuplicateKey => Answer::Unclear,
        Some(error) => Answer::Failed(error),
        None if is_complete => Answer::Done,
        None => Answer::Unclear,
    };
    (0..rows).map(answer).collect()
}

/// Computes the rows to send. Rows that are not known stay pending.
fn plan_requests<E>(
    open: Vec<PendingRow>,
    step: impl Fn(usize, &Row) -> Result<Step, E>,
    check: impl Fn(&Row) -> StoreResult<()>,
    stepped: &mut Vec<(usize, StepResult<E>)>,
) -> (Vec<PendingRow>, Vec<SentRow>) {
    let (mut unread, mut sent) = (Vec::new(), Vec::new());
    for mut row in open {
        let Some(known) = row.known.take() else {
            unread.push(row);
            continue;
        };
        let outcome = match step(row.place, &known) {
            Ok(Step::Done) => Ok(Ok(known)),
            Err(why) => Ok(Err(RefusedStep { why, row: known, was_in_doubt: row.lost.may_be_done() })),
            Ok(Step::Change(next)) => match check(&next) {
                Err(error) => Err(error),
                Ok(()) => {
                    row.last = known.revision;
                    let swap = Swap::of(&row.key, known.revision, &next);
                    sent.push(SentRow { open: row, next, swap });
                    continue;
                }
            },
        };
        stepped.push((row.place, outcome));
    }
    (unread, sent)
}

/// Returns the rows for which the function returns no error; the others end with their error.
fn keep_pending<E>(
    open: Vec<PendingRow>,
    mut failed: impl FnMut(&mut PendingRow) -> Option<StoreError>,
    stepped: &mut Vec<(usize, StepResult<E>)>,
) -> Vec<PendingRow> {
    let mut kept = Vec::with_capacity(open.len());
    for mut row in open {
        match failed(&mut row) {
            Some(error) => stepped.push((row.place, Err(error))),
            None => kept.push(row),
        }
    }
    kept
}

/// Splits rows into requests of bounded size.
fn split_by_bytes(rows: Vec<SentRow>) -> Vec<Vec<SentRow>> {
    let (mut requests, mut bytes): (Vec<Vec<SentRow>>, usize) = (Vec::new(), 0);
    for row in rows {
        let size = row.swap.bytes();
        match requests.last_mut() {
            Some(last) if bytes.saturating_add(size) <= BATCH_BYTES_MAX => {
                last.push(row);
                bytes += size;
            }
            _ => {
                requests.push(vec![row]);
                bytes = size;
            }
        }
    }
    requests
}

fn by_id(documents: Vec<RawDocumentBuf>) -> StoreResult<HashMap<Vec<u8>, RawDocumentBuf>> {
    documents.into_iter().map(|document| Ok((encoded(insertion::id(&document)?), document))).collect()
}

/// Returns the approximate bytes of a row's change: the document in its lock.
fn bytes_to_be(row: &Row) -> usize {
    row.lock.as_ref().map_or(0, |lock| lock.body.bytes())
}

#[cfg(test)]
mod tests {
    use bson::RawBson;

    use super::*;

    fn key(collection: &str, id: i32) -> Key {
        Key { namespace: Namespace::new("d", collection).unwrap(), id: RawBson::Int32(id) }
    }

    fn lengths(rows: &[(Key, usize)]) -> Vec<usize> {
        groups(rows.iter().map(|(key, bytes)| (key, *bytes))).iter().map(Vec::len).collect()
    }

    #[test]
    fn few_rows_go_alone_and_many_by_collection() {
        let few: Vec<_> = (0..32).map(|id| (key("a", id), 10)).collect();
        assert_eq!(lengths(&few), [1; 32]);
        let many: Vec<_> = (0..2500).map(|id| (key("a", id), 10)).collect();
        assert_eq!(lengths(&many), [1000, 1000, 500]);
        let large: Vec<_> = (0..40).map(|id| (key("a", id), 1024 * 1024)).collect();
        assert_eq!(lengths(&large), [4; 10]);
    }

    /// The first one is the primary, without which nobody knows what becomes of the others.
    #[test]
    fn the_group_of_the_first_row_comes_first() {
        let rows = (0..3000).map(|id| (key(if id % 30 == 0 { "a" } else { "b" }, id), 10)).collect::<Vec<_>>();
        let groups = groups(rows.iter().map(|(key, bytes)| (key, *bytes)));
        assert_eq!(groups[0].len(), 100);
        assert!(groups[0].contains(&0));
        let mut places: Vec<_> = groups.concat();
        places.sort_unstable();
        assert_eq!(places, (0..3000).collect::<Vec<_>>());
    }

    /// Whether each of three rows counts as done.
    fn check(done: u64, errors: &[usize], expected: [bool; 3]) {
        let error = |index: &usize| WriteError { index: *index, error: StoreError::command(Code::BadValue, "no") };
        let answers = answers(3, done, errors.iter().map(error).collect());
        assert_eq!(answers.iter().map(|answer| matches!(answer, Answer::Done)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_total_that_is_short_says_nothing_of_any_row() {
        check(3, &[], [true; 3]);
        check(2, &[], [false; 3]);
        check(2, &[1], [true, false, true]);
        check(1, &[1], [false; 3]);
        check(0, &[0, 1, 2], [false; 3]);
    }
}
