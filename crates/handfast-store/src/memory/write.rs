//! Writes to documents.

use std::sync::Arc;

use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_mql::sort::Sorter;
use handfast_mql::{CompileOptions, Context, Filter, Sort};

use super::candidates::AccessPath;
use super::state::{IdKey, State, Stored, hint_to_no_index, id_key};
use super::{MemoryStore, ticketed};
use crate::change::{Change, CompiledFindAndModify, joined};
use crate::ticket::Recorded;
use crate::{
    Changed, Delete, Deleted, FindAndModify, FindAndModifyOutcome, Hint, Inserted, Namespace, Result, Ticket, Update,
    UpdateOutcome, Validation, index, insertion,
};

impl MemoryStore {
    /// Inserts one document.
    pub(super) fn insert_document(
        &self,
        namespace: &Namespace,
        document: RawDocumentBuf,
        validation: Validation,
        ticket: Option<Ticket>,
    ) -> Result<Inserted> {
        let document = insertion::prepare(document, &*self.sources().ids)?;
        self.write_once(ticket, |state| self.add(state, namespace, document, validation).map(|()| Inserted))
    }

    /// Changes the state in one step, or returns the recorded result if the ticket was used.
    fn write_once<T: Recorded>(
        &self,
        ticket: Option<Ticket>,
        change: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let now = self.sources().steady_now();
        self.write(|state| ticketed::once(state, ticket, now, || self.sources().uuid(), change))
    }

    fn add(
        &self,
        state: &mut State,
        namespace: &Namespace,
        document: RawDocumentBuf,
        validation: Validation,
    ) -> Result<()> {
        state.collection_or_new(namespace, || self.sources().uuid())?;
        let context = self.sources().context(&RawDocumentBuf::new());
        state.validate(namespace, None, &document, validation, &context)?;
        state.add(namespace, document, None)
    }

    /// Runs one update statement and adds its effect to the outcome.
    pub(super) async fn update_statement(
        &self,
        request: &Update,
        index: usize,
        outcome: &mut UpdateOutcome,
    ) -> Result<()> {
        let statement = &request.statements[index];
        let namespace = &request.namespace;
        self.state().refuse_view(namespace)?;
        let change = Change::of_statement(statement, &request.variables)?;
        let context = self.sources().context(&joined(&request.variables, &statement.constants)?);
        let hint = statement.hint.as_ref();
        let ticket = request.ticket.map(|ticket| ticket.of_statement(index));
        let one = || {
            self.write_once(ticket, |state| {
                match first(state, namespace, change.filter(), change.sort(), hint, &context)? {
                    Some((id, _)) => change_one(state, namespace, &id, &change, &context),
                    None => self.upsert(state, namespace, &change, &context),
                }
            })
        };
        if !change.is_multi() {
            return one().map(|changed| outcome.count(index, changed));
        }
        let found = all(&self.state(), namespace, change.filter(), hint, &context)?;
        if found.is_empty() {
            // The update is tried again, now in one step with the insert.
            return one().map(|changed| outcome.count(index, changed));
        }
        for id in found {
            let changed = self.write(|state| change_one(state, namespace, &id, &change, &context))?;
            outcome.count(index, changed);
            // Other tasks run between two documents, as they would on a server.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn upsert(&self, state: &mut State, namespace: &Namespace, change: &Change, context: &Context) -> Result<Changed> {
        if !change.is_upsert() {
            return Ok(Changed::Nothing);
        }
        let document = change.insertion(&*self.sources().ids, context)?;
        let id = RawBson::from(insertion::id(&document)?);
        self.add(state, namespace, document, change.validation())?;
        Ok(Changed::Upserted(id))
    }

    pub(super) fn find_and_modify_one(&self, request: &FindAndModify) -> Result<FindAndModifyOutcome> {
        let namespace = &request.namespace;
        self.state().refuse_view(namespace)?;
        let claim = CompiledFindAndModify::compile(request)?;
        let context = self.sources().context(&request.variables);
        self.write_once(request.ticket, |state| {
            let hint = request.hint.as_ref();
            let found = first(state, namespace, claim.filter(), claim.sort(), hint, &context)?;
            match (found, claim.change()) {
                (Some((id, stored)), None) => {
                    state.remove(namespace, &id)?;
                    claim.changed(stored.document.clone(), None, &context)
                }
                (Some((id, stored)), Some(change)) => {
                    let Some(applied) = change.apply(&stored.document, &context)? else {
                        return Ok(FindAndModifyOutcome::default());
                    };
                    if applied.modified {
                        let (before, after, validation) = (&stored.document, &applied.document, change.validation());
                        state.validate(namespace, Some(before), after, validation, &context)?;
                        replace(state, namespace, &id, applied.document.clone())?;
                    }
                    claim.changed(stored.document.clone(), Some(applied.document), &context)
                }
                (None, Some(change)) if change.is_upsert() => {
                    let document = change.insertion(&*self.sources().ids, &context)?;
                    self.add(state, namespace, document.clone(), change.validation())?;
                    claim.upserted(&document, &context)
                }
                (None, _) => Ok(FindAndModifyOutcome::default()),
            }
        })
    }

    /// Runs one delete statement and adds the deleted documents to the count.
    pub(super) async fn delete_statement(&self, request: &Delete, index: usize, deleted: &mut u64) -> Result<()> {
        let statement = &request.statements[index];
        let namespace = &request.namespace;
        self.state().refuse_view(namespace)?;
        let filter = Filter::compile(&statement.filter, &CompileOptions::with_variables(&request.variables)?)?;
        let context = self.sources().context(&request.variables);
        let hint = statement.hint.as_ref();
        if !statement.multi {
            let ticket = request.ticket.map(|ticket| ticket.of_statement(index));
            let Deleted(one) = self.write_once(ticket, |state| {
                let found = first(state, namespace, &filter, &unsorted()?, hint, &context)?;
                match found {
                    Some((id, _)) => state.remove(namespace, &id).map(|_| Deleted(true)),
                    None => Ok(Deleted(false)),
                }
            })?;
            *deleted += u64::from(one);
            return Ok(());
        }
        for id in all(&self.state(), namespace, &filter, hint, &context)? {
            *deleted += self.write(|state| {
                let matches = match find(state, namespace, &id) {
                    Some(stored) => filter.matches(&stored.document, &context)?,
                    None => false,
                };
                if matches {
                    state.remove(namespace, &id)?;
                }
                Ok(u64::from(matches))
            })?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

fn change_one(
    state: &mut State,
    namespace: &Namespace,
    id: &IdKey,
    change: &Change,
    context: &Context,
) -> Result<Changed> {
    let Some(stored) = find(state, namespace, id) else { return Ok(Changed::Nothing) };
    let Some(applied) = change.apply(&stored.document, context)? else { return Ok(Changed::Nothing) };
    if applied.modified {
        state.validate(namespace, Some(&stored.document), &applied.document, change.validation(), context)?;
        replace(state, namespace, id, applied.document)?;
    }
    Ok(if applied.modified { Changed::Modified } else { Changed::Same })
}

fn unsorted() -> Result<Sort> {
    Ok(Sort::compile(RawDocument::from_bytes(b"\x05\0\0\0\0").map_err(handfast_mql::Error::from)?)?)
}

fn find(state: &State, namespace: &Namespace, id: &IdKey) -> Option<Arc<Stored>> {
    state.collections.get(namespace)?.documents.get(id).cloned()
}

fn replace(state: &mut State, namespace: &Namespace, id: &IdKey, document: RawDocumentBuf) -> Result<()> {
    let record = state.remove(namespace, id)?.map(|stored| stored.record);
    state.add(namespace, document, record)
}

/// Returns the first matching document.
fn first(
    state: &State,
    namespace: &Namespace,
    filter: &Filter,
    sort: &Sort,
    hint: Option<&Hint>,
    context: &Context,
) -> Result<Option<(IdKey, Arc<Stored>)>> {
    let Some(collection) = state.collections.get(namespace) else { return no_collection(hint) };
    let mut sorter = Sorter::new(Some(1), context);
    for (stored, _) in AccessPath::choose(collection, &filter.necessary_conditions(context), hint)?.documents() {
        if filter.matches(&stored.document, context)? {
            let id = id_key(insertion::id(&stored.document)?);
            if sort.is_empty() {
                return Ok(Some((id, stored)));
            }
            let bytes = stored.document.as_bytes().len();
            sorter.push(sort.key(&stored.document)?, (id, stored), bytes)?;
        }
    }
    Ok(sorter.into_sorted()?.next().transpose()?)
}

/// Returns all matching documents.
fn all(
    state: &State,
    namespace: &Namespace,
    filter: &Filter,
    hint: Option<&Hint>,
    context: &Context,
) -> Result<Vec<IdKey>> {
    let Some(collection) = state.collections.get(namespace) else { return no_collection(hint) };
    let mut found = Vec::new();
    for (stored, _) in AccessPath::choose(collection, &filter.necessary_conditions(context), hint)?.documents() {
        if filter.matches(&stored.document, context)? {
            found.push(id_key(insertion::id(&stored.document)?));
        }
    }
    Ok(found)
}

/// Returns the empty result for a collection that does not exist, or an error if the hint names an index other than the one on
/// `_id`.
pub(super) fn no_collection<T: Default>(hint: Option<&Hint>) -> Result<T> {
    match hint {
        Some(Hint::Name(name)) if name != index::ID_INDEX_NAME => Err(hint_to_no_index()),
        _ => Ok(T::default()),
    }
}
