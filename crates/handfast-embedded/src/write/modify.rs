//! Updates, deletes, and find-and-modify requests: each statement is compiled into a [`Target`] and an [`Evaluation`], and
//! carried out by [`change_one`] or [`change_many`].

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::{Code, CompileOptions, Filter, Sort};
use handfast_store::change::{Change, CompiledFindAndModify, joined};
use handfast_store::view::ViewCatalog as _;
use handfast_store::{
    Applied, Changed, Delete, DeleteOutcome, DeleteStatement, Deleted, Durability, Error as StoreError, FindAndModify,
    FindAndModifyOutcome, Namespace, Result as StoreResult, Update, UpdateOutcome, UpdateStatement, WriteError,
    default_collation, insertion, ticket,
};

use super::change_many::change_many;
use super::change_one::{Submission, change_one};
use super::context::{WriteContext, after_steps};
use super::evaluation::{Evaluated, Evaluation, Upsert};
use super::insert::insert_one;
use super::target::Target;
use super::ticketed::TicketedWrite;
use crate::committer::AnswerAfter;

pub(crate) async fn update(context: &WriteContext, request: Update) -> StoreResult<UpdateOutcome> {
    let Update { namespace, statements, ordered, durability, variables, ticket } = request;
    let variables = under_default(context, &namespace, variables);
    let durable = StatementDurability::of(statements.iter().map(|statement| statement.multi), durability);
    ticket::check_statements(ticket, statements.iter().map(|statement| statement.multi))?;
    let ticketed = context.ticketed(ticket);
    let update = UpdateRequest { context, namespace: &namespace, variables: &variables, answer: durable.answer };
    let mut outcome = UpdateOutcome::default();
    let mut any_applied = false;
    for (index, statement) in statements.into_iter().enumerate() {
        let ticketed = ticketed.map(|ticketed| ticketed.of_statement(index));
        let count = |changed| {
            any_applied = true;
            outcome.count(index, changed);
        };
        let done = update.statement(&statement, ticketed, count).await;
        let error = done.unwrap_or_else(Some);
        if let Some(error) = error {
            outcome.errors.push(refused(index, error)?);
            if ordered {
                break;
            }
        }
    }
    if durable.needs_wait(&outcome.errors) {
        context.wait_until_durable(durability).await.map_err(|error| after_steps(error, any_applied))?;
    }
    Ok(outcome)
}

/// Returns the variables of a request under the default collation that its collection has now. A request that finds another collection
/// of the name later was made before it.
fn under_default(context: &WriteContext, namespace: &Namespace, variables: RawDocumentBuf) -> RawDocumentBuf {
    let latest = context.latest();
    default_collation::with_default(variables, default_collation::of(latest.catalog.options(namespace)))
}

struct UpdateRequest<'r> {
    context: &'r WriteContext,
    namespace: &'r Namespace,
    variables: &'r RawDocument,
    answer: AnswerAfter,
}

impl UpdateRequest<'_> {
    /// Calls `count` for each document that matched or was inserted. Returns the error after which a multi-update stopped.
    async fn statement(
        &self,
        statement: &UpdateStatement,
        ticketed: Option<TicketedWrite>,
        mut count: impl FnMut(Changed),
    ) -> StoreResult<Option<StoreError>> {
        let change = Arc::new(Change::of_statement(statement, self.variables)?);
        let variables = joined(self.variables, &statement.constants)?;
        let target = Arc::new(Target {
            namespace: self.namespace.clone(),
            filter: change.filter().clone(),
            sort: change.sort().clone(),
            hint: statement.hint.clone(),
            context: self.context.sources.context(&variables),
        });
        let _stop = target.stop_on_drop();
        let bytes = statement.filter.as_bytes().len() + size_of_update(&statement.update);
        let upsert = change.is_upsert().then(|| upsert_of_update(self.context, &target, &change));
        let mut evaluation = evaluation_of_update(target, change.clone()).with_upsert(upsert);
        if change.is_multi() {
            let mut any = false;
            let each = |changed| {
                any = true;
                count(changed);
            };
            let error = change_many(self.context, &mut evaluation, bytes, each).await?;
            if any || error.is_some() || !change.is_upsert() {
                return Ok(error);
            }
        }
        let submission = Submission { answer: self.answer, bytes, ticketed };
        let changed = change_one(self.context, evaluation, submission).await?;
        changed.into_iter().for_each(count);
        Ok(None)
    }
}

fn evaluation_of_update(target: Arc<Target>, change: Arc<Change>) -> Evaluation<Changed> {
    let validation = change.validation();
    let evaluation = Evaluation::new(target.clone(), move |_, document| {
        Ok(match change.apply(document, &target.context)? {
            Some(applied) if applied.modified => Evaluated::Replace(applied.document, change.kind(), Changed::Modified),
            Some(_) => Evaluated::Unchanged(Changed::Same),
            None => Evaluated::NoMatch,
        })
    });
    evaluation.with_validation(validation)
}

fn upsert_of_update(context: &WriteContext, target: &Arc<Target>, change: &Arc<Change>) -> Upsert<Changed> {
    let (ids, uuid) = (context.sources.ids.clone(), context.new_uuid());
    let (made_for, inserted, change) = (target.clone(), target.clone(), change.clone());
    let validation = change.validation();
    Upsert::new(
        move || change.insertion(&*ids, &made_for.context),
        move |writer, document| {
            insert_one(writer, &inserted.namespace, uuid, document, validation)?;
            Ok(Changed::Upserted(insertion::id(document)?.into()))
        },
    )
}

pub(crate) async fn delete(context: &WriteContext, request: Delete) -> StoreResult<DeleteOutcome> {
    let Delete { namespace, statements, ordered, durability, variables, ticket } = request;
    let variables = under_default(context, &namespace, variables);
    let durable = StatementDurability::of(statements.iter().map(|statement| statement.multi), durability);
    ticket::check_statements(ticket, statements.iter().map(|statement| statement.multi))?;
    let ticketed = context.ticketed(ticket);
    let mut outcome = DeleteOutcome::default();
    for (index, statement) in statements.into_iter().enumerate() {
        let bytes = statement.filter.as_bytes().len();
        let ticketed = ticketed.map(|ticketed| ticketed.of_statement(index));
        let submission = Submission { answer: durable.answer, bytes, ticketed };
        let done = delete_statement(context, &namespace, statement, &variables, submission).await;
        let (deleted, error) = done.unwrap_or_else(|error| (0, Some(error)));
        outcome.deleted += deleted;
        if let Some(error) = error {
            outcome.errors.push(refused(index, error)?);
            if ordered {
                break;
            }
        }
    }
    if durable.needs_wait(&outcome.errors) {
        let waited = context.wait_until_durable(durability).await;
        waited.map_err(|error| after_steps(error, outcome.deleted > 0))?;
    }
    Ok(outcome)
}

/// Returns the number of deleted documents, and the error after which a multi-delete stopped.
async fn delete_statement(
    context: &WriteContext,
    namespace: &Namespace,
    statement: DeleteStatement,
    variables: &RawDocument,
    submission: Submission,
) -> StoreResult<(u64, Option<StoreError>)> {
    let options = CompileOptions::with_variables(variables)?;
    let target = Arc::new(Target {
        namespace: namespace.clone(),
        filter: Filter::compile(&statement.filter, &options)?,
        sort: Sort::compile(&RawDocumentBuf::new())?,
        hint: statement.hint,
        context: context.sources.context(variables),
    });
    let _stop = target.stop_on_drop();
    let evaluated = target.clone();
    let mut evaluation = Evaluation::new(target, move |_, document| {
        let matches = evaluated.filter.matches(document, &evaluated.context)?;
        Ok(if matches { Evaluated::Remove(Deleted(true)) } else { Evaluated::NoMatch })
    });
    if statement.multi {
        let mut deleted = 0;
        let error = change_many(context, &mut evaluation, submission.bytes, |Deleted(_)| deleted += 1).await?;
        return Ok((deleted, error));
    }
    let deleted = change_one(context, evaluation, submission).await?;
    Ok((u64::from(deleted.is_some()), None))
}

pub(crate) async fn find_and_modify(
    context: &WriteContext,
    request: FindAndModify,
) -> StoreResult<FindAndModifyOutcome> {
    let variables = under_default(context, &request.namespace, request.variables.clone());
    let request = FindAndModify { variables, ..request };
    let compiled = Arc::new(CompiledFindAndModify::compile(&request)?);
    let target = Arc::new(Target {
        namespace: request.namespace.clone(),
        filter: compiled.filter().clone(),
        sort: compiled.sort().clone(),
        hint: request.hint.clone(),
        context: context.sources.context(&request.variables),
    });
    let _stop = target.stop_on_drop();
    let upsert = upsert_of_find_and_modify(context, &target, &compiled);
    let evaluation = evaluation_of_find_and_modify(target, compiled).with_upsert(upsert);
    let bytes = request.filter.as_bytes().len() + size_of_modification(&request);
    let submission =
        Submission { answer: request.durability.into(), bytes, ticketed: context.ticketed(request.ticket) };
    Ok(change_one(context, evaluation, submission).await?.unwrap_or_default())
}

fn evaluation_of_find_and_modify(
    target: Arc<Target>,
    compiled: Arc<CompiledFindAndModify>,
) -> Evaluation<FindAndModifyOutcome> {
    let validation = compiled.change().map(Change::validation).unwrap_or_default();
    let evaluation = Evaluation::new(target.clone(), move |_, before| {
        // A projection that fails makes the evaluation fail, so that the document is not changed.
        let outcome = |after| compiled.changed(before.to_owned(), after, &target.context);
        let Some(change) = compiled.change() else {
            let matches = target.filter.matches(before, &target.context)?;
            return Ok(if matches { Evaluated::Remove(outcome(None)?) } else { Evaluated::NoMatch });
        };
        Ok(match change.apply(before, &target.context)? {
            Some(applied) if applied.modified => {
                let outcome = outcome(Some(applied.document.clone()))?;
                Evaluated::Replace(applied.document, change.kind(), outcome)
            }
            Some(applied) => Evaluated::Unchanged(outcome(Some(applied.document))?),
            None => Evaluated::NoMatch,
        })
    });
    evaluation.with_validation(validation)
}

fn upsert_of_find_and_modify(
    context: &WriteContext,
    target: &Arc<Target>,
    compiled: &Arc<CompiledFindAndModify>,
) -> Option<Upsert<FindAndModifyOutcome>> {
    let validation = compiled.change().filter(|change| change.is_upsert())?.validation();
    let (ids, uuid) = (context.sources.ids.clone(), context.new_uuid());
    let (making, made) = (compiled.clone(), compiled.clone());
    let (made_for, target) = (target.clone(), target.clone());
    let make = move || match making.change() {
        Some(change) => change.insertion(&*ids, &made_for.context),
        None => Err(StoreError::command(Code::InternalError, "a removal was asked for a document to insert")),
    };
    Some(Upsert::new(make, move |writer, document| {
        insert_one(writer, &target.namespace, uuid, document, validation)?;
        made.upserted(document, &target.context)
    }))
}

/// The durability of the statements of a request when they are answered.
struct StatementDurability {
    answer: AnswerAfter,
    /// The only statement is as durable as was asked for once it is answered.
    is_durable: bool,
}

impl StatementDurability {
    /// Chooses when a request waits for a sync: with one statement after it, with several once at the end of the request.
    fn of(multi: impl ExactSizeIterator<Item = bool>, durability: Durability) -> Self {
        let alone = multi.len() == 1;
        StatementDurability {
            answer: if alone { durability.into() } else { AnswerAfter::Applied },
            is_durable: alone && multi.into_iter().all(|multi| !multi),
        }
    }

    /// Returns whether the request must wait at its end. A refusal may rest on something that is not synced yet.
    fn needs_wait(&self, errors: &[WriteError]) -> bool {
        !self.is_durable || !errors.is_empty()
    }
}

/// Returns the refusal of a statement. An error after which the write may be applied is none, and ends the request.
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
