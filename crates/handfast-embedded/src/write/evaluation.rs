//! The evaluation of a write: whether a document matches, and what the write does to it.
//!
//! An evaluation is a function of one document. Most are cheap and run on the committer's thread, for the newest state of the
//! document, while other operations wait. One that takes too many steps there is stopped, and repeated on another thread for
//! the state that the operation saw. The next operation applies the result if the document is still the same:
//!
//! ```text
//! operation 1    evaluate within few steps: too many    -> TooExpensive, with the document's state
//! off thread     evaluate within any number of steps    can be interrupted; others write meanwhile
//! operation 2    the same state: apply the result; another state: as operation 1
//! ```
//!
//! The validator of the collection is part of this: if it takes too many steps, its verdict is computed off thread, and the next
//! operation uses that verdict for the same states.
//!
//! An evaluation that loses this race some times may take many steps on the committer; if those are too few as well, the write
//! fails in the end. The document that an upsert inserts depends on no other, and is computed off thread at most once.

use std::sync::{Arc, OnceLock};

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::{Code, Context};
use handfast_store::ticket::Recorded;
use handfast_store::validation::{ExpensiveCheck, Verdict};
use handfast_store::{Error as StoreError, Result as StoreResult, Sources, Validation, WriteKind, blocking};

use super::target::Target;
use crate::catalog::Collection;
use crate::committer::Writer;
use crate::format::{CollectionId, StoredDocument};

/// Evaluations off thread after which a document that changes all the time is given many steps on the committer.
const RACES_MAX: u32 = 3;
/// The factor by which those are more than the steps of other writes.
pub(super) const MANY_STEPS_FACTOR: u64 = 50;
/// Evaluations off thread after which the write is refused.
const ATTEMPTS_MAX: u32 = 16;

/// The result of evaluating a write for one document. `T` is the document's part of the request's outcome.
pub(crate) enum Evaluated<T> {
    NoMatch,
    Unchanged(T),
    Replace(RawDocumentBuf, WriteKind, T),
    Remove(T),
}

/// The result of a write on the committer.
pub(crate) enum OnCommitter<T> {
    Done(T),
    /// There is no match: no document matched, or the one that a search found does not match any more.
    NoMatch,
    TooExpensive(TooExpensive),
}

/// A computation that takes too many steps for the committer's thread.
pub(crate) enum TooExpensive {
    Document(Box<DocumentState>),
    Upsert,
    Validator(Box<ExpensiveCheck>),
}

/// The state of a document that an operation saw.
#[derive(Clone)]
pub(crate) struct DocumentState {
    collection: Arc<Collection>,
    id_key: Vec<u8>,
    stored: StoredDocument,
}

/// The document that is inserted if none matches.
pub(crate) struct Upsert<T> {
    make: Box<MakeDocument>,
    insert: Box<InsertDocument<T>>,
    made: OnceLock<StoreResult<RawDocumentBuf>>,
}

type MakeDocument = dyn Fn() -> StoreResult<RawDocumentBuf> + Send + Sync;
type InsertDocument<T> = dyn Fn(&mut Writer<'_>, &RawDocumentBuf) -> StoreResult<T> + Send + Sync;
type EvaluateDocument<T> = dyn Fn(&Collection, &RawDocument) -> StoreResult<Evaluated<T>> + Send + Sync;

/// The evaluation of one write, from operation to operation.
pub(crate) struct Evaluation<T> {
    pub(crate) target: Arc<Target>,
    evaluate: Arc<EvaluateDocument<T>>,
    upsert: Option<Arc<Upsert<T>>>,
    validation: Validation,
    off_thread: Option<OffThread<T>>,
    /// The verdicts of validators that were computed off thread.
    verdicts: Vec<Arc<Verdict>>,
    /// Evaluations of the current document off thread.
    attempts: u32,
    /// The steps that the last evaluation on the committer took.
    pub(crate) steps: u64,
}

/// The result of an evaluation off thread, for the next operation.
struct OffThread<T> {
    state: DocumentState,
    result: Evaluated<T>,
}

impl<T: Recorded> Recorded for OnCommitter<T> {
    fn to_result(&self) -> Option<RawDocumentBuf> {
        match self {
            OnCommitter::Done(result) => result.to_result(),
            OnCommitter::NoMatch | OnCommitter::TooExpensive(_) => None,
        }
    }

    fn from_result(result: &RawDocument) -> StoreResult<Self> {
        T::from_result(result).map(OnCommitter::Done)
    }
}

impl<T> OnCommitter<T> {
    /// Returns the result of the last operation of a write.
    pub(crate) fn done(self) -> Option<T> {
        match self {
            OnCommitter::Done(result) => Some(result),
            OnCommitter::NoMatch | OnCommitter::TooExpensive(_) => None,
        }
    }
}

impl<T> Upsert<T> {
    /// Creates an upsert: `make` makes the document, and `insert` stages it.
    pub(crate) fn new(
        make: impl Fn() -> StoreResult<RawDocumentBuf> + Send + Sync + 'static,
        insert: impl Fn(&mut Writer<'_>, &RawDocumentBuf) -> StoreResult<T> + Send + Sync + 'static,
    ) -> Self {
        Upsert { make: Box::new(make), insert: Box::new(insert), made: OnceLock::new() }
    }
}

impl<T: Send + 'static> Evaluation<T> {
    pub(crate) fn new(
        target: Arc<Target>,
        evaluate: impl Fn(&Collection, &RawDocument) -> StoreResult<Evaluated<T>> + Send + Sync + 'static,
    ) -> Self {
        Evaluation {
            target,
            evaluate: Arc::new(evaluate),
            upsert: None,
            validation: Validation::default(),
            off_thread: None,
            verdicts: Vec::new(),
            attempts: 0,
            steps: 0,
        }
    }

    #[must_use]
    pub(crate) fn with_validation(self, validation: Validation) -> Self {
        Evaluation { validation, ..self }
    }

    #[must_use]
    pub(crate) fn with_upsert(self, upsert: Option<Upsert<T>>) -> Self {
        Evaluation { upsert: upsert.map(Arc::new), ..self }
    }

    pub(crate) fn is_upsert(&self) -> bool {
        self.upsert.is_some()
    }

    /// Returns the evaluation for the next operation, with the result that was computed off thread for it.
    pub(crate) fn for_operation(&mut self) -> Self {
        Evaluation {
            target: self.target.clone(),
            evaluate: self.evaluate.clone(),
            upsert: self.upsert.clone(),
            validation: self.validation,
            off_thread: self.off_thread.take(),
            verdicts: self.verdicts.clone(),
            attempts: self.attempts,
            steps: 0,
        }
    }

    /// Starts counting the attempts of another document.
    pub(crate) fn next_document(&mut self) {
        self.attempts = 0;
        self.verdicts.clear();
    }

    /// Computes off thread what was too expensive for the committer, for the next operation.
    ///
    /// # Errors
    /// Returns the error of the evaluation; `WriteConflict` (112) for a document that changes during each of many evaluations.
    pub(crate) async fn compute_off_thread(
        &mut self,
        too_expensive: TooExpensive,
        sources: &Sources,
    ) -> StoreResult<()> {
        if matches!(too_expensive, TooExpensive::Upsert) {
            return self.make_upsert_off_thread().await;
        }
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            let text = format!(
                "the document was changed {ATTEMPTS_MAX} times while its change was computed: try again, or compute less"
            );
            return Err(StoreError::command(Code::WriteConflict, text));
        }
        let state = match too_expensive {
            TooExpensive::Document(state) => *state,
            TooExpensive::Validator(check) => {
                self.verdicts = vec![Arc::new(check.run(sources).await?)];
                return Ok(());
            }
            TooExpensive::Upsert => return Ok(()),
        };
        let (evaluate, target) = (self.evaluate.clone(), self.target.clone());
        let evaluated = blocking(move || {
            target.draw_for(&state.id_key);
            let result = evaluate(&state.collection, state.stored.document()?)?;
            Ok(OffThread { state, result })
        });
        self.off_thread = Some(evaluated.await?);
        Ok(())
    }

    async fn make_upsert_off_thread(&self) -> StoreResult<()> {
        let Some(upsert) = self.upsert.clone() else {
            return Ok(());
        };
        blocking(move || upsert.made.get_or_init(|| (upsert.make)()).clone().map(drop)).await
    }
}

impl<T> Evaluation<T> {
    /// Evaluates a document in its newest state, and stages the change.
    pub(crate) fn change(
        &mut self,
        writer: &mut Writer<'_>,
        collection: &Arc<Collection>,
        id_key: &[u8],
        stored: &StoredDocument,
    ) -> StoreResult<OnCommitter<T>> {
        self.steps = 0;
        let evaluated = match self.off_thread.take_if(|done| done.state.is(collection.id, id_key, stored)) {
            Some(done) => done.result,
            None => {
                let document = stored.document()?;
                let steps_max = self.steps_max(writer);
                self.target.draw_for(id_key);
                let (result, steps) = within(&self.target.context, steps_max, || (self.evaluate)(collection, document));
                self.steps = steps;
                match result {
                    Some(result) => result?,
                    None => {
                        let (collection, stored) = (collection.clone(), stored.clone());
                        let state = DocumentState { collection, id_key: id_key.to_vec(), stored };
                        return Ok(OnCommitter::TooExpensive(TooExpensive::Document(Box::new(state))));
                    }
                }
            }
        };
        Ok(OnCommitter::Done(match evaluated {
            Evaluated::NoMatch => return Ok(OnCommitter::NoMatch),
            Evaluated::Unchanged(result) => result,
            Evaluated::Replace(after, kind, result) => {
                let before = Some(stored.document()?);
                let steps_max = self.steps_max(writer);
                writer.set_verdicts(self.verdicts.clone());
                writer.bound_checks(steps_max);
                let valid = writer.validate(collection, before, &after, self.validation);
                self.steps += steps_max - writer.check_steps_left().min(steps_max);
                if let Err(error) = valid {
                    return too_expensive_or(writer, error);
                }
                writer.put(collection, id_key, before, &after, kind)?;
                result
            }
            Evaluated::Remove(result) => {
                writer.remove(collection, id_key, stored.document()?)?;
                result
            }
        }))
    }

    /// Inserts the upsert's document, if the write is an upsert.
    pub(crate) fn insert(&self, writer: &mut Writer<'_>) -> StoreResult<OnCommitter<T>> {
        let Some(upsert) = &self.upsert else {
            return Ok(OnCommitter::NoMatch);
        };
        let made = match upsert.made.get() {
            Some(made) => made.clone(),
            None => match within(&self.target.context, self.steps_max(writer), &upsert.make).0 {
                // The same document in the next operation, with the same `_id`, if the validator of the collection takes long for it.
                Some(made) => upsert.made.get_or_init(|| made).clone(),
                None => return Ok(OnCommitter::TooExpensive(TooExpensive::Upsert)),
            },
        };
        let made = made?;
        writer.set_verdicts(self.verdicts.clone());
        writer.bound_checks(self.steps_max(writer));
        match (upsert.insert)(writer, &made) {
            Ok(inserted) => Ok(OnCommitter::Done(inserted)),
            Err(error) => too_expensive_or(writer, error),
        }
    }

    fn steps_max(&self, writer: &Writer<'_>) -> u64 {
        let steps_max = writer.steps_max();
        if self.attempts >= RACES_MAX { steps_max.saturating_mul(MANY_STEPS_FACTOR) } else { steps_max }
    }
}

impl DocumentState {
    fn is(&self, collection: CollectionId, id_key: &[u8], stored: &StoredDocument) -> bool {
        self.collection.id == collection && self.id_key == id_key && self.stored.bytes() == stored.bytes()
    }
}

/// Returns the check of a validator that was too expensive for the committer, or else the error.
fn too_expensive_or<T>(writer: &mut Writer<'_>, error: StoreError) -> StoreResult<OnCommitter<T>> {
    let check = writer.take_expensive_check().ok_or(error)?;
    Ok(OnCommitter::TooExpensive(TooExpensive::Validator(check)))
}

/// Evaluates in at most `steps_max` steps. Returns the result, or `None` if it takes more, and the number of steps taken.
fn within<R>(
    context: &Context,
    steps_max: u64,
    evaluate: impl FnOnce() -> StoreResult<R>,
) -> (Option<StoreResult<R>>, u64) {
    context.bound_steps(steps_max);
    let result = evaluate();
    let left = context.bound_steps(u64::MAX);
    let stopped = left == 0 && result.as_ref().is_err_and(|error| error.code() == Code::OperationFailed);
    ((!stopped).then_some(result), steps_max.saturating_sub(left))
}
