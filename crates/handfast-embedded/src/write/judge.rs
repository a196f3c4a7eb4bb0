//! What a write does to a document, and where that is found out.
//!
//! A judgement is a function of the document alone: whether it matches, and what becomes of it. Most take less time than to
//! ask twice, and are made in the committer's turn. One that takes many steps there is broken off and made beside the
//! committer, where only its own caller waits, for the document as that turn has seen it; another turn applies it, if the
//! document is still the same:
//!
//! ```text
//! turn 1     judge within few steps: too many      -> Long: this document
//! beside     judge within any number of steps      heeds the interrupt; others write meanwhile
//! turn 2     the same document: apply; another one: as turn 1
//! ```
//!
//! Who loses that race some times gets many steps in a turn, and who needs more than those gives up in the end. The
//! document that an upsert inserts depends on nothing, and is made beside the committer at most once.

use std::sync::{Arc, OnceLock};

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::{Code, Context};
use handfast_store::{Error as StoreError, Result as StoreResult, blocking};

use super::target::Target;
use crate::catalog::Collection;
use crate::committer::Writer;
use crate::format::{CollectionId, StoredDocument};

/// Judgements beside the committer after which a document that changes all the time is given many steps in a turn.
const RACES_MAX: u32 = 3;
/// How many times the steps of others those are.
pub(super) const PATIENCE: u64 = 50;
/// Judgements beside the committer after which the write is refused.
const ATTEMPTS_MAX: u32 = 16;

/// What becomes of a document that matches, and what is told of it.
pub(crate) struct Verdict<T> {
    pub(crate) write: Write,
    pub(crate) told: T,
}

/// What becomes of a document.
pub(crate) enum Write {
    /// It stays as it is.
    Nothing,
    Put(RawDocumentBuf),
    Remove,
}

/// Judges a document; none if it does not match (any more).
pub(crate) type Judge<T> = dyn Fn(&Collection, &RawDocument) -> StoreResult<Option<Verdict<T>>> + Send + Sync;

impl<T> Verdict<T> {
    fn stage(
        self,
        writer: &mut Writer<'_>,
        collection: &Arc<Collection>,
        id_key: &[u8],
        stored: &StoredDocument,
    ) -> StoreResult<T> {
        match &self.write {
            Write::Nothing => {}
            Write::Put(document) => writer.put(collection, id_key, Some(stored.document()?), document)?,
            Write::Remove => writer.remove(collection, id_key, stored.document()?)?,
        }
        Ok(self.told)
    }
}

/// Stages a document.
type Stage<T> = dyn Fn(&mut Writer<'_>, &RawDocumentBuf) -> StoreResult<T> + Send + Sync;

/// The document that is inserted if none matches.
pub(crate) struct Absent<T> {
    make: Box<dyn Fn() -> StoreResult<RawDocumentBuf> + Send + Sync>,
    insert: Box<Stage<T>>,
    made: OnceLock<StoreResult<RawDocumentBuf>>,
}

impl<T> Absent<T> {
    /// `make` makes the document, `insert` stages it.
    pub(crate) fn new(
        make: impl Fn() -> StoreResult<RawDocumentBuf> + Send + Sync + 'static,
        insert: impl Fn(&mut Writer<'_>, &RawDocumentBuf) -> StoreResult<T> + Send + Sync + 'static,
    ) -> Self {
        Absent { make: Box::new(make), insert: Box::new(insert), made: OnceLock::new() }
    }
}

/// What a turn has found to take too long for it.
pub(crate) enum Long {
    Document(Box<Seen>),
    /// What is inserted if none matches.
    Insertion,
}

/// A document as a turn has seen it.
#[derive(Clone)]
pub(crate) struct Seen {
    collection: Arc<Collection>,
    id_key: Vec<u8>,
    stored: StoredDocument,
}

impl Seen {
    fn is(&self, collection: CollectionId, id_key: &[u8], stored: &StoredDocument) -> bool {
        self.collection.id == collection && self.id_key == id_key && self.stored.bytes() == stored.bytes()
    }
}

/// What was judged beside the committer, for the next turn.
pub(crate) struct Judged<T> {
    seen: Seen,
    verdict: Option<Verdict<T>>,
}

/// What came out of a judgement in a turn.
pub(crate) enum Outcome<T> {
    Done(T),
    /// It does not match.
    Other,
    Long(Long),
}

/// One write's judgements, turn after turn.
pub(crate) struct Judging<T> {
    pub(crate) target: Arc<Target>,
    judge: Arc<Judge<T>>,
    absent: Option<Arc<Absent<T>>>,
    judged: Option<Judged<T>>,
    /// Judgements so far beside the committer of the document at hand.
    attempts: u32,
}

/// A part of a judging that one turn takes along.
pub(crate) struct InTurn<T> {
    pub(crate) target: Arc<Target>,
    judge: Arc<Judge<T>>,
    absent: Option<Arc<Absent<T>>>,
    judged: Option<Judged<T>>,
    patient: bool,
    /// What the last judgement took.
    pub(crate) steps: u64,
}

impl<T: Send + 'static> Judging<T> {
    pub(crate) fn new(target: Arc<Target>, judge: Arc<Judge<T>>, absent: Option<Arc<Absent<T>>>) -> Self {
        Judging { target, judge, absent, judged: None, attempts: 0 }
    }

    pub(crate) fn inserts(&self) -> bool {
        self.absent.is_some()
    }

    /// For the next turn.
    pub(crate) fn turn(&mut self) -> InTurn<T> {
        InTurn {
            target: self.target.clone(),
            judge: self.judge.clone(),
            absent: self.absent.clone(),
            judged: self.judged.take(),
            patient: self.attempts >= RACES_MAX,
            steps: 0,
        }
    }

    /// A document was done with: the next one is another.
    pub(crate) fn next(&mut self) {
        self.attempts = 0;
    }

    /// Does beside the committer what was too long for a turn.
    ///
    /// # Errors
    /// Those of the judgement; `WriteConflict` (112) for a document that changes each time before it is through.
    pub(crate) async fn beside(&mut self, long: Long) -> StoreResult<()> {
        let seen = match long {
            Long::Document(seen) => *seen,
            Long::Insertion => return self.make().await,
        };
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            let text = format!(
                "the document was changed {ATTEMPTS_MAX} times while its change was computed: try again, or compute less"
            );
            return Err(StoreError::command(Code::WriteConflict, text));
        }
        let judge = self.judge.clone();
        let judged = blocking(move || {
            let verdict = judge(&seen.collection, seen.stored.document()?)?;
            Ok(Judged { seen, verdict })
        });
        self.judged = Some(judged.await?);
        Ok(())
    }

    async fn make(&self) -> StoreResult<()> {
        let Some(absent) = self.absent.clone() else {
            return Ok(());
        };
        blocking(move || absent.made.get_or_init(|| (absent.make)()).clone().map(drop)).await
    }
}

impl<T> InTurn<T> {
    /// Judges a document in its newest state, and stages what becomes of it.
    pub(crate) fn document(
        &mut self,
        writer: &mut Writer<'_>,
        collection: &Arc<Collection>,
        id_key: &[u8],
        stored: &StoredDocument,
    ) -> StoreResult<Outcome<T>> {
        self.steps = 0;
        let verdict = match self.judged.take_if(|judged| judged.seen.is(collection.id, id_key, stored)) {
            Some(judged) => judged.verdict,
            None => {
                let document = stored.document()?;
                let steps_max = self.steps_max(writer);
                let (verdict, steps) = within(&self.target.context, steps_max, || (self.judge)(collection, document));
                self.steps = steps;
                match verdict {
                    Some(verdict) => verdict?,
                    None => {
                        let (collection, stored) = (collection.clone(), stored.clone());
                        let seen = Seen { collection, id_key: id_key.to_vec(), stored };
                        return Ok(Outcome::Long(Long::Document(Box::new(seen))));
                    }
                }
            }
        };
        match verdict {
            Some(verdict) => verdict.stage(writer, collection, id_key, stored).map(Outcome::Done),
            None => Ok(Outcome::Other),
        }
    }

    /// Inserts what is inserted if none matches, if there is something.
    pub(crate) fn absent(&self, writer: &mut Writer<'_>) -> StoreResult<Outcome<T>> {
        let Some(absent) = &self.absent else {
            return Ok(Outcome::Other);
        };
        let made = match absent.made.get() {
            Some(made) => made.clone(),
            None => match within(&self.target.context, self.steps_max(writer), &absent.make).0 {
                Some(made) => made,
                None => return Ok(Outcome::Long(Long::Insertion)),
            },
        };
        (absent.insert)(writer, &made?).map(Outcome::Done)
    }

    fn steps_max(&self, writer: &Writer<'_>) -> u64 {
        let steps_max = writer.steps_max();
        if self.patient { steps_max.saturating_mul(PATIENCE) } else { steps_max }
    }
}

/// Evaluates within so many steps; none if it takes more. Also gives the steps it took.
fn within<R>(
    context: &Context,
    steps_max: u64,
    evaluate: impl FnOnce() -> StoreResult<R>,
) -> (Option<StoreResult<R>>, u64) {
    context.bound_steps(steps_max);
    let result = evaluate();
    let left = context.bound_steps(u64::MAX);
    let broken_off = left == 0 && result.as_ref().is_err_and(|error| error.code() == Code::OperationFailed);
    ((!broken_off).then_some(result), steps_max.saturating_sub(left))
}
