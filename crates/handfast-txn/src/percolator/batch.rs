//! Carries out one step on many rows with few requests.
//!
//! ```text
//! rows that are not there      one unordered insert of many documents
//! rows that are there          one unordered update of many statements, each for one revision of its row
//!
//! all rows counted as done     the step is done on each
//! the total is short,          the rows are read again, together, and the step is computed again for each: it is done already,
//! an error, a lost answer      or it is sent again, or it is refused
//! ```
//!
//! A batch is not atomic: each of its rows is changed by itself, on the condition of its revision, and any part of a batch may be done
//! when the process dies. A total shows only whether the whole batch was done. Rows that are still pending after some rounds are sent one by
//! one ([`Rows::apply`]).

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
/// The most requests in which a row is sent with others. After that it is sent alone.
const ROUNDS_MAX: usize = 3;

pub(super) type StepResult<E> = StoreResult<Result<Row, RefusedStep<E>>>;

/// A row to carry out a step on.
pub(super) struct TargetRow {
    pub(super) key: Key,
    /// The row, if it was read before.
    pub(super) known: Option<Row>,
}

impl TargetRow {
    pub(super) fn unread(key: Key) -> Self {
        TargetRow { key, known: None }
    }
}

/// A row's part of a request.
pub(super) struct RowSize<'a> {
    pub(super) namespace: &'a Namespace,
    /// The approximate bytes of its change.
    pub(super) bytes: usize,
}

/// Returns groups of indexes into the rows: single rows if they are few, else batches by collection. The group of the first row comes first.
pub(super) fn groups<'a>(rows: impl ExactSizeIterator<Item = RowSize<'a>>) -> Vec<Vec<usize>> {
    #[derive(Default)]
    struct Group {
        indexes: Vec<usize>,
        bytes: usize,
    }
    if rows.len() <= SINGLES_MAX {
        return (0..rows.len()).map(|index| vec![index]).collect();
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut last_of: HashMap<&Namespace, usize> = HashMap::new();
    for (index, row) in rows.enumerate() {
        let has_space = |group: &Group| {
            group.indexes.len() < BATCH_ROWS_MAX && group.bytes.saturating_add(row.bytes) <= BATCH_BYTES_MAX
        };
        let last = last_of.get(row.namespace).copied().filter(|last| has_space(&groups[*last]));
        let number = last.unwrap_or_else(|| {
            groups.push(Group::default());
            groups.len() - 1
        });
        last_of.insert(row.namespace, number);
        groups[number].indexes.push(index);
        groups[number].bytes += row.bytes;
    }
    groups.into_iter().map(|group| group.indexes).collect()
}

/// Returns how many of these groups may be under way at the same time.
pub(super) fn groups_at_once(groups: &[Vec<usize>]) -> usize {
    if groups.iter().all(|group| group.len() == 1) { SINGLES_MAX } else { BATCHES_AT_ONCE }
}

/// A row on which the step is still to be done.
struct PendingRow {
    /// Its index in the rows that the caller gave.
    index: usize,
    key: Key,
    known: Option<Row>,
    lost: LostAnswers,
    /// The revision that the last request was conditional on.
    last: Revision,
}

/// The result of the step on one row.
struct SteppedRow<E> {
    /// Its index in the rows that the caller gave.
    index: usize,
    result: StepResult<E>,
}

struct SentRow {
    pending: PendingRow,
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
    /// Carries out a step on rows of any collections, in groups, and returns whether all succeeded. The step gets the row's index.
    pub(super) async fn apply_everywhere<E: Send + 'static>(
        &self,
        rows: Vec<TargetRow>,
        step: impl Fn(usize, &Row) -> Result<Step, E> + Clone + Send + Sync + 'static,
    ) -> bool {
        let size = |row: &TargetRow| row.known.as_ref().map_or(0, bytes_of_change);
        let groups = groups(rows.iter().map(|row| RowSize { namespace: &row.key.namespace, bytes: size(row) }));
        let at_once = groups_at_once(&groups);
        let mut rows: Vec<_> = rows.into_iter().map(Some).collect();
        let (mut tasks, mut is_done) = (JoinSet::new(), true);
        for group in groups {
            if tasks.len() >= at_once {
                is_done &= matches!(tasks.join_next().await, Some(Ok(true)));
            }
            let group_rows = group.iter().filter_map(|index| rows[*index].take()).collect();
            let (rows, step) = (self.clone(), step.clone());
            tasks.spawn(async move {
                let stepped = rows.apply_all(group_rows, |index, row| step(group[index], row), unchecked).await;
                stepped.iter().all(Result::is_ok)
            });
        }
        while let Some(joined) = tasks.join_next().await {
            is_done &= joined.unwrap_or(false);
        }
        is_done
    }

    /// Carries out a step on rows of one collection, known or read, and returns the results in their order. The step gets the row's index;
    /// `check` may refuse a changed row before it is written.
    pub(super) async fn apply_all<E: Send>(
        &self,
        rows: Vec<TargetRow>,
        step: impl Fn(usize, &Row) -> Result<Step, E> + Send + Sync,
        check: impl Fn(&Row) -> StoreResult<()> + Send + Sync,
    ) -> Vec<StepResult<E>> {
        let mut stepped = Vec::with_capacity(rows.len());
        let mut pending = Vec::with_capacity(rows.len());
        for (index, TargetRow { key, known }) in rows.into_iter().enumerate() {
            let last = known.as_ref().map_or(Revision::Missing, |row| row.revision);
            pending.push(PendingRow { index, key, known, lost: LostAnswers::default(), last });
        }
        for _ in 0..ROUNDS_MAX {
            if pending.len() < 2 {
                break;
            }
            pending = self.read_together(pending, &mut stepped).await;
            let planned = plan_requests(pending, &step, &check, &mut stepped);
            pending = planned.unread;
            pending.extend(self.send_together(planned.sent, &mut stepped).await);
        }
        for PendingRow { index, key, known, lost, last } in pending {
            let result = self.apply_after(&key, known, lost, last, |row| step(index, row), &check).await;
            stepped.push(SteppedRow { index, result });
        }
        stepped.sort_unstable_by_key(|row| row.index);
        stepped.into_iter().map(|row| row.result).collect()
    }

    /// Reads the rows that are not known.
    async fn read_together<E>(&self, pending: Vec<PendingRow>, stepped: &mut Vec<SteppedRow<E>>) -> Vec<PendingRow> {
        let unknown: RawArrayBuf =
            pending.iter().filter(|row| row.known.is_none()).map(|row| row.key.id.clone()).collect();
        let Some(first) = pending.iter().find(|row| row.known.is_none()) else { return pending };
        let find = Find::new(first.key.namespace.clone(), rawdoc! { "_id": { "$in": unknown } });
        let mut found = match self.store.find_all(find).await.and_then(by_id) {
            Ok(found) => found,
            Err(error) => {
                let failed = |row: &mut PendingRow| match row.known {
                    Some(_) => None,
                    None => row.lost.after(error.clone(), row.last),
                };
                return keep_pending(pending, failed, stepped);
            }
        };
        let read = |row: &mut PendingRow| {
            if row.known.is_none() {
                match found.remove(&encoded(row.key.id.as_raw_bson_ref())) {
                    Some(document) => match Row::from_document(&document) {
                        Ok(known) => row.known = Some(known),
                        Err(error) => return Some(error),
                    },
                    None => row.known = Some(Row::missing(row.key.id.clone())),
                }
            }
            None
        };
        keep_pending(pending, read, stepped)
    }

    /// Sends the changed rows in requests of bounded size, and returns the rows whose result is unclear.
    async fn send_together<E>(&self, sent: Vec<SentRow>, stepped: &mut Vec<SteppedRow<E>>) -> Vec<PendingRow> {
        let mut pending = Vec::new();
        let (inserts, updates): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|sent| matches!(sent.swap, Swap::Insert(_)));
        for rows in [inserts, updates] {
            for rows in split_by_bytes(rows) {
                let answers = self.send(&rows).await;
                for (SentRow { pending: mut row, next, .. }, answer) in rows.into_iter().zip(answers) {
                    let failed = match answer {
                        Answer::Done => {
                            stepped.push(SteppedRow { index: row.index, result: Ok(Ok(next)) });
                            continue;
                        }
                        Answer::Unclear => None,
                        Answer::Failed(error) => row.lost.after(error, row.last),
                    };
                    match failed {
                        Some(error) => stepped.push(SteppedRow { index: row.index, result: Err(error) }),
                        None => pending.push(row),
                    }
                }
            }
        }
        pending
    }

    /// Sends one request, and returns the result for each row.
    async fn send(&self, rows: &[SentRow]) -> Vec<Answer> {
        let Some(namespace) = rows.first().map(|row| row.pending.key.namespace.clone()) else { return Vec::new() };
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
            // Any one row may be the reason: each is sent alone later.
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
    let answer = |index| match failed.remove(&index) {
        // Another client inserted the row, or an earlier request of this step did, whose answer got lost.
        Some(error) if error.code() == Code::DuplicateKey => Answer::Unclear,
        Some(error) => Answer::Failed(error),
        None if is_complete => Answer::Done,
        None => Answer::Unclear,
    };
    (0..rows).map(answer).collect()
}

/// The requests of a round.
#[derive(Default)]
struct PlannedRequests {
    /// The rows that could not be read, and stay pending.
    unread: Vec<PendingRow>,
    sent: Vec<SentRow>,
}

/// Computes the rows to send.
fn plan_requests<E>(
    pending: Vec<PendingRow>,
    step: impl Fn(usize, &Row) -> Result<Step, E>,
    check: impl Fn(&Row) -> StoreResult<()>,
    stepped: &mut Vec<SteppedRow<E>>,
) -> PlannedRequests {
    let mut planned = PlannedRequests::default();
    for mut row in pending {
        let Some(known) = row.known.take() else {
            planned.unread.push(row);
            continue;
        };
        let result = match step(row.index, &known) {
            Ok(Step::Done) => Ok(Ok(known)),
            Err(why) => Ok(Err(RefusedStep { why, row: known, was_in_doubt: row.lost.may_be_done() })),
            Ok(Step::Change(next)) => match check(&next) {
                Err(error) => Err(error),
                Ok(()) => {
                    row.last = known.revision;
                    let swap = Swap::of(&row.key, known.revision, &next);
                    planned.sent.push(SentRow { pending: row, next, swap });
                    continue;
                }
            },
        };
        stepped.push(SteppedRow { index: row.index, result });
    }
    planned
}

/// Returns the rows for which the function returns no error; the others end with their error.
fn keep_pending<E>(
    pending: Vec<PendingRow>,
    mut failed: impl FnMut(&mut PendingRow) -> Option<StoreError>,
    stepped: &mut Vec<SteppedRow<E>>,
) -> Vec<PendingRow> {
    let mut kept = Vec::with_capacity(pending.len());
    for mut row in pending {
        match failed(&mut row) {
            Some(error) => stepped.push(SteppedRow { index: row.index, result: Err(error) }),
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
fn bytes_of_change(row: &Row) -> usize {
    row.lock.as_ref().map_or(0, |lock| lock.body.bytes())
}

#[cfg(test)]
mod tests {
    use handfast_mql::Code;
    use handfast_store::{Error as StoreError, Namespace, WriteError};

    use super::{Answer, RowSize, answers, groups};

    fn collection(name: &str) -> Namespace {
        Namespace::new("d", name).unwrap()
    }

    fn groups_of(rows: &[(Namespace, usize)]) -> Vec<Vec<usize>> {
        groups(rows.iter().map(|(namespace, bytes)| RowSize { namespace, bytes: *bytes }))
    }

    fn lengths(rows: &[(Namespace, usize)]) -> Vec<usize> {
        groups_of(rows).iter().map(Vec::len).collect()
    }

    #[test]
    fn few_rows_go_alone_and_many_by_collection() {
        let few = vec![(collection("a"), 10); 32];
        assert_eq!(lengths(&few), [1; 32]);
        let many = vec![(collection("a"), 10); 2500];
        assert_eq!(lengths(&many), [1000, 1000, 500]);
        let large = vec![(collection("a"), 1024 * 1024); 40];
        assert_eq!(lengths(&large), [4; 10]);
    }

    /// The first row is the primary, by which others decide about all rows.
    #[test]
    fn the_group_of_the_first_row_comes_first() {
        let row = |number| (collection(if number % 30 == 0 { "a" } else { "b" }), 10);
        let groups = groups_of(&(0..3000).map(row).collect::<Vec<_>>());
        assert_eq!(groups[0].len(), 100);
        assert!(groups[0].contains(&0));
        let mut indexes = groups.concat();
        indexes.sort_unstable();
        assert_eq!(indexes, (0..3000).collect::<Vec<_>>());
    }

    /// Checks which of three rows count as done.
    fn check(done: u64, errors: &[usize], expected: [bool; 3]) {
        let error = |index: &usize| WriteError { index: *index, error: StoreError::command(Code::BadValue, "no") };
        let answers = answers(3, done, errors.iter().map(error).collect());
        assert_eq!(answers.iter().map(|answer| matches!(answer, Answer::Done)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_total_that_is_too_small_leaves_each_row_unclear() {
        check(3, &[], [true; 3]);
        check(2, &[], [false; 3]);
        check(2, &[1], [true, false, true]);
        check(1, &[1], [false; 3]);
        check(0, &[0, 1, 2], [false; 3]);
    }
}
