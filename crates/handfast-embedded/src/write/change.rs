//! Updating, deleting, and finding-and-modifying documents.

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::{Code, CompileOptions, Filter, Sort};
use handfast_store::change::{Change, CompiledFindAndModify, joined};
use handfast_store::{
    Applied, Changed, Delete, DeleteOutcome, DeleteStatement, Deleted, Durability, Error as StoreError, FindAndModify,
    FindAndModifyOutcome, Namespace, Result as StoreResult, Update, UpdateOutcome, UpdateStatement, WriteError,
    insertion, ticket,
};

use super::after_steps;
use super::insert::insert_one;
use super::judge::{Absent, Judge, Judging, Verdict, Write};
use super::target::Target;
use super::ticketed::Ticketed;
use crate::committer::Answer;
use crate::store::EmbeddedStore;

impl EmbeddedStore {
    pub(crate) async fn run_update(&self, request: Update) -> StoreResult<UpdateOutcome> {
        let Update { namespace, statements, ordered, durability, variables, ticket } = request;
        let steps = Steps::of(statements.iter().map(|statement| statement.multi), durability);
        ticket::check_statements(ticket, statements.iter().map(|statement| statement.multi))?;
        let ticketed = self.ticketed(ticket);
        let mut outcome = UpdateOutcome::default();
        let mut stepped = false;
        for (place, statement) in statements.into_iter().enumerate() {
            let ticketed = ticketed.map(|ticketed| ticketed.of_statement(place));
            let count = |changed| {
                stepped = true;
                outcome.count(place, changed);
            };
            let done = self.update_statement(&namespace, &statement, &variables, steps.answer, ticketed, count).await;
            let error = done.unwrap_or_else(Some);
            if let Some(error) = error {
                outcome.errors.push(refused(place, error)?);
                if ordered {
                    break;
                }
            }
        }
        if steps.need_settling(&outcome.errors) {
            self.settle(durability).await.map_err(|error| after_steps(error, stepped))?;
        }
        Ok(outcome)
    }

    async fn update_statement(
        &self,
        namespace: &Namespace,
        statement: &UpdateStatement,
        variables: &RawDocument,
        answer: Answer,
        ticketed: Option<Ticketed>,
        mut count: impl FnMut(Changed),
    ) -> StoreResult<Option<StoreError>> {
        let change = Arc::new(Change::of_statement(statement, variables)?);
        let variables = joined(variables, &statement.constants)?;
        let target = Arc::new(Target {
            namespace: namespace.clone(),
            filter: change.filter().clone(),
            sort: change.sort().clone(),
            hint: statement.hint.clone(),
            context: self.inner.sources.context(&variables),
        });
        let _stop = target.stop_on_drop();
        let bytes = statement.filter.as_bytes().len() + size_of_update(&statement.update);
        let absent = change.is_upsert().then(|| self.insert_absent(target.clone(), change.clone()));
        let mut judging = Judging::new(target.clone(), judge_change(target, change.clone()), absent);
        if change.is_multi() {
            let mut any = false;
            let each = |changed| {
                any = true;
                count(changed);
            };
            let error = self.change_all(&mut judging, bytes, each).await?;
            if any || error.is_some() || !change.is_upsert() {
                return Ok(error);
            }
        }
        let changed = self.change_one(judging, answer, bytes, ticketed).await?;
        changed.into_iter().for_each(count);
        Ok(None)
    }

    fn insert_absent(&self, target: Arc<Target>, change: Arc<Change>) -> Arc<Absent<Changed>> {
        let (ids, uuid) = (self.inner.sources.ids.clone(), self.uuid());
        let inserted = target.clone();
        Arc::new(Absent::new(
            move || change.insertion(&*ids, &target.context),
            move |writer, document| {
                insert_one(writer, &inserted.namespace, uuid, document)?;
                Ok(Changed::Upserted(insertion::id(document)?.into()))
            },
        ))
    }

    pub(crate) async fn run_delete(&self, request: Delete) -> StoreResult<DeleteOutcome> {
        let Delete { namespace, statements, ordered, durability, variables, ticket } = request;
        let steps = Steps::of(statements.iter().map(|statement| statement.multi), durability);
        ticket::check_statements(ticket, statements.iter().map(|statement| statement.multi))?;
        let ticketed = self.ticketed(ticket);
        let mut outcome = DeleteOutcome::default();
        for (place, statement) in statements.into_iter().enumerate() {
            let ticketed = ticketed.map(|ticketed| ticketed.of_statement(place));
            let done = self.delete_statement(&namespace, statement, &variables, steps.answer, ticketed).await;
            let (deleted, error) = done.unwrap_or_else(|error| (0, Some(error)));
            outcome.deleted += deleted;
            if let Some(error) = error {
                outcome.errors.push(refused(place, error)?);
                if ordered {
                    break;
                }
            }
        }
        if steps.need_settling(&outcome.errors) {
            self.settle(durability).await.map_err(|error| after_steps(error, outcome.deleted > 0))?;
        }
        Ok(outcome)
    }

    async fn delete_statement(
        &self,
        namespace: &Namespace,
        statement: DeleteStatement,
        variables: &RawDocument,
        answer: Answer,
        ticketed: Option<Ticketed>,
    ) -> StoreResult<(u64, Option<StoreError>)> {
        let options = CompileOptions::with_variables(variables)?;
        let target = Arc::new(Target {
            namespace: namespace.clone(),
            filter: Filter::compile(&statement.filter, &options)?,
            sort: Sort::compile(&RawDocumentBuf::new())?,
            hint: statement.hint,
            context: self.inner.sources.context(variables),
        });
        let _stop = target.stop_on_drop();
        let bytes = statement.filter.as_bytes().len();
        let judged = target.clone();
        let judge: Arc<Judge<Deleted>> = Arc::new(move |_, document| {
            let matches = judged.filter.matches(document, &judged.context)?;
            Ok(matches.then_some(Verdict { write: Write::Remove, told: Deleted(true) }))
        });
        let mut judging = Judging::new(target, judge, None);
        if statement.multi {
            let mut deleted = 0;
            let error = self.change_all(&mut judging, bytes, |Deleted(_)| deleted += 1).await?;
            return Ok((deleted, error));
        }
        let deleted = self.change_one(judging, answer, bytes, ticketed).await?;
        Ok((u64::from(deleted.is_some()), None))
    }

    pub(crate) async fn run_find_and_modify(&self, request: FindAndModify) -> StoreResult<FindAndModifyOutcome> {
        let claim = Arc::new(CompiledFindAndModify::compile(&request)?);
        let target = Arc::new(Target {
            namespace: request.namespace.clone(),
            filter: claim.filter().clone(),
            sort: claim.sort().clone(),
            hint: request.hint.clone(),
            context: self.inner.sources.context(&request.variables),
        });
        let _stop = target.stop_on_drop();
        let (claimed, judged) = (claim.clone(), target.clone());
        let judge: Arc<Judge<FindAndModifyOutcome>> = Arc::new(move |_, before| {
            let (write, after) = match claimed.change() {
                Some(change) => match change.apply(before, &judged.context)? {
                    Some(applied) if applied.modified => (Write::Put(applied.document.clone()), Some(applied.document)),
                    Some(applied) => (Write::Nothing, Some(applied.document)),
                    None => return Ok(None),
                },
                None if !judged.filter.matches(before, &judged.context)? => return Ok(None),
                None => (Write::Remove, None),
            };
            // If the answer cannot be made (a projection that fails), nothing is changed.
            let told = claimed.changed(before.to_owned(), after, &judged.context)?;
            Ok(Some(Verdict { write, told }))
        });
        let absent = self.claim_absent(&target, &claim);
        let bytes = request.filter.as_bytes().len() + size_of_modification(&request);
        let (answer, ticketed) = (request.durability.into(), self.ticketed(request.ticket));
        let outcome = self.change_one(Judging::new(target, judge, absent), answer, bytes, ticketed).await?;
        Ok(outcome.unwrap_or_default())
    }

    fn claim_absent(
        &self,
        target: &Arc<Target>,
        claim: &Arc<CompiledFindAndModify>,
    ) -> Option<Arc<Absent<FindAndModifyOutcome>>> {
        claim.change().filter(|change| change.is_upsert())?;
        let (ids, uuid) = (self.inner.sources.ids.clone(), self.uuid());
        let (making, made) = (claim.clone(), claim.clone());
        let (judged, target) = (target.clone(), target.clone());
        let make = move || match making.change() {
            Some(change) => change.insertion(&*ids, &judged.context),
            None => Err(StoreError::command(Code::InternalError, "a removal was asked for a document to insert")),
        };
        Some(Arc::new(Absent::new(make, move |writer, document| {
            insert_one(writer, &target.namespace, uuid, document)?;
            made.upserted(document, &target.context)
        })))
    }
}

/// What a statement makes of a document.
fn judge_change(target: Arc<Target>, change: Arc<Change>) -> Arc<Judge<Changed>> {
    Arc::new(move |_, document| {
        let applied = change.apply(document, &target.context)?;
        Ok(applied.map(|applied| match applied.modified {
            true => Verdict { write: Write::Put(applied.document), told: Changed::Modified },
            false => Verdict { write: Write::Nothing, told: Changed::Same },
        }))
    })
}

/// How the statements of a request are answered.
struct Steps {
    answer: Answer,
    /// Its one statement is as durable as was asked for once it is answered.
    settled: bool,
}

impl Steps {
    /// A request of one statement waits for the sync with it; one of many waits once, at its end.
    fn of(multi: impl ExactSizeIterator<Item = bool>, durability: Durability) -> Self {
        let alone = multi.len() == 1;
        Steps {
            answer: if alone { durability.into() } else { Answer::Applied },
            settled: alone && multi.into_iter().all(|multi| !multi),
        }
    }

    /// A refusal may tell of something that is not synced yet.
    fn need_settling(&self, errors: &[WriteError]) -> bool {
        !self.settled || !errors.is_empty()
    }
}

/// A statement that was refused. What may have happened must not be taken for one.
fn refused(index: usize, error: StoreError) -> StoreResult<WriteError> {
    match error.applied() {
        Applied::No => Ok(WriteError { index, error }),
        Applied::Maybe => Err(error),
    }
}

fn size_of_modification(request: &FindAndModify) -> usize {
    match &request.modification {
        handfast_store::Modification::Update { update, .. } => size_of_update(update),
        handfast_store::Modification::Remove => 0,
    }
}

fn size_of_update(update: &handfast_store::UpdateSpec) -> usize {
    match update {
        handfast_store::UpdateSpec::Document(document) => document.as_bytes().len(),
        handfast_store::UpdateSpec::Pipeline(stages) => stages.iter().map(|stage| stage.as_bytes().len()).sum(),
    }
}
