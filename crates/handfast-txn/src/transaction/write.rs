//! The writes of a transaction: it finds the documents in its view, claims them, and buffers their new state.

use std::sync::Arc;

use bson::raw::CString;
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Context;
use handfast_mql::collation::{simple, with_variable};
use handfast_mql::expression::may_take_long;
use handfast_store::change::{Change, CompiledFindAndModify, joined};
use handfast_store::index::{Index, duplicate_key};
use handfast_store::selection::id_alone;
use handfast_store::validation::{NewState, Validator};
use handfast_store::{
    BatchLimit, Changed, Cursor, Delete, DeleteStatement, Find, FindAndModify, FindAndModifyOutcome, IdSource,
    IndexSpec, Modification, Namespace, Read, Result as StoreResult, Snapshot, Update, UpdateSpec, UpdateStatement,
    Validation, WriteKind, blocking_if, insertion,
};

use super::Inner;
use super::write_buffer::{DocumentChange, WriteMode, id_key, identity};
use crate::Holder;

/// The number of documents of a statement that are read at a time.
const STEP: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };

/// The steps that a validator may take for one document on the task of its statement. Beyond it another thread takes over.
const VALIDATION_STEPS_MAX: u64 = 20_000;

impl Inner {
    pub(super) async fn insert_one(
        &self,
        namespace: &Namespace,
        document: RawDocumentBuf,
        validation: Validation,
    ) -> StoreResult<()> {
        self.refuse_view(namespace)?;
        let document = insertion::prepare(document, &*self.shared.sources.ids)?;
        self.insert_prepared(namespace, document, validation).await
    }

    async fn insert_prepared(
        &self,
        namespace: &Namespace,
        document: RawDocumentBuf,
        validation: Validation,
    ) -> StoreResult<()> {
        let id = insertion::id(&document)?;
        // Before the document with this `_id` is looked for, as in a single write.
        self.validate(NewState { namespace, before: None, after: &document, validation }).await?;
        if self.get(namespace, id).await?.is_some() {
            return Err(duplicate_key(namespace, &IndexSpec::id(), &[Some(id)]));
        }
        let mode = WriteMode { kind: WriteKind::default(), validation };
        self.put(namespace, None, Some(document), mode).await
    }

    /// Returns a document as the transaction sees it.
    pub(super) async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> StoreResult<Option<RawDocumentBuf>> {
        let (own, snapshot) = self.open(|open| {
            self.note_read(open, || Read::Document(namespace.clone(), id.into()));
            Ok((open.writes.get(namespace, &id_key(id)), open.snapshot()))
        })?;
        match own {
            Some(written) => Ok(written.document.map(Arc::unwrap_or_clone)),
            None => snapshot.get(namespace, id).await,
        }
    }

    /// Writes the new state of a document, or its deletion. `before` is its state as the transaction sees it.
    async fn write(
        &self,
        namespace: &Namespace,
        before: Option<RawDocumentBuf>,
        after: Option<RawDocumentBuf>,
        mode: WriteMode,
    ) -> StoreResult<()> {
        after.as_deref().map_or(Ok(()), insertion::check_size)?;
        if let Some(after) = &after {
            self.validate(NewState { namespace, before: before.as_deref(), after, validation: mode.validation })
                .await?;
        }
        self.put(namespace, before, after, mode).await
    }

    /// Checks a document's new state by the validator that the collection has for this transaction. The commit checks again, and it alone
    /// mentions documents in the log.
    async fn validate(&self, state: NewState<'_>) -> StoreResult<()> {
        let validator = self.open(|open| match open.writes.creation(state.namespace) {
            Some(creation) => Validator::compile(&creation.options),
            None => Ok(open.snapshot().validator(state.namespace)),
        })?;
        let Some(validator) = validator.filter(|validator| validator.refuses()) else { return Ok(()) };
        let context = self.shared.sources.context(&RawDocumentBuf::new());
        let mut steps_left = VALIDATION_STEPS_MAX;
        match validator.check_within(&mut steps_left, state, &context) {
            Some(result) => result,
            None => validator.expensive(state).run(&self.shared.sources).await?.into_result(),
        }
    }

    /// Writes as [`Inner::write`] does, without the bound on the size of users' documents.
    pub(super) async fn put(
        &self,
        namespace: &Namespace,
        before: Option<RawDocumentBuf>,
        after: Option<RawDocumentBuf>,
        mode: WriteMode,
    ) -> StoreResult<()> {
        self.shared.check_not_own(namespace.database())?;
        let Some(any) = after.as_deref().or(before.as_deref()) else { return Ok(()) };
        let (id, key) = identity(any)?;
        let claims = self.open(|open| {
            let is_new = open.writes.get(namespace, &key).is_none();
            Ok(is_new.then(|| (Arc::clone(&open.claims), open.snapshot())))
        })?;
        if let Some((claims, snapshot)) = claims {
            // Before its first write of a document, the transaction sees what the snapshot has.
            claims.claim(namespace, id.as_raw_bson_ref(), before.as_deref(), &*snapshot).await?;
        }
        let indexes = self.indexes_of_write(namespace, after.as_deref()).await?;
        if let Some(after) = &after {
            self.shared.engine.check_document(after)?;
            for index in indexes.iter() {
                self.check_index(namespace, index, before.as_deref(), after).await?;
            }
        }
        self.open(|open| {
            open.writes.write(namespace, &indexes, DocumentChange { id, key, before, after, mode }, &self.options)
        })
    }

    /// Checks a document's new state against an index, as far as this transaction can see. The commit checks again.
    async fn check_index(
        &self,
        namespace: &Namespace,
        index: &Index,
        before: Option<&RawDocument>,
        after: &RawDocument,
    ) -> StoreResult<()> {
        let new = index.held(after)?;
        if !index.spec().unique {
            return Ok(());
        }
        let new = index.encoded(&new);
        let old = before.map(|before| index.keys(before)).transpose()?.unwrap_or_default().keys;
        let key = id_key(insertion::id(after)?);
        for taken in new.difference(&old) {
            let (holder, snapshot, own) = self.open(|open| {
                let holder = open.writes.holder(namespace, index, taken).cloned();
                Ok((holder, open.snapshot(), open.writes.of(namespace)))
            })?;
            if holder.is_some_and(|holder| holder != key) {
                return Err(index.duplicate(namespace, after, taken));
            }
            let found = match self.shared.engine.catalog().holder(snapshot.timestamp(), namespace, index, taken).await?
            {
                Holder::Nobody => Vec::new(),
                Holder::Document(id) => vec![id],
                Holder::ToBeFound => holders(&*snapshot, namespace, index, after, taken).await?,
            };
            for id in found {
                let other = id_key(id.as_raw_bson_ref());
                if other != key && !own.contains_key(&other) {
                    // The error shows the caller that the document exists: that is a read.
                    self.open(|open| {
                        self.note_read(open, || Read::Document(namespace.clone(), id));
                        Ok(())
                    })?;
                    return Err(index.duplicate(namespace, after, taken));
                }
            }
        }
        Ok(())
    }

    /// Runs an update statement, and calls a function with the result for each document.
    pub(super) async fn run_update(
        self: &Arc<Self>,
        request: &Update,
        statement: &UpdateStatement,
        mut count: impl FnMut(Changed) + Send,
    ) -> StoreResult<()> {
        let namespace = &request.namespace;
        let change = Arc::new(Change::of_statement(statement, &request.variables)?);
        let variables = joined(&request.variables, &statement.constants)?;
        let context = Arc::new(self.shared.sources.context(&variables));
        let _stop = context.interrupt.stop_on_drop();
        let loops = loops_in_statement(statement);
        self.claim_named(namespace, &statement.filter, &variables).await?;
        // Not before: the first claim of a transaction may wait, and takes a newer snapshot then.
        self.refuse_view(namespace)?;
        let mut found = match id_alone(&statement.filter, &variables) {
            Some(id) if statement.hint.is_none() => MatchedDocuments::Document(self.get(namespace, id).await?),
            _ => MatchedDocuments::Cursor(self.find(find_of(request, statement, variables.into_owned())).await?),
        };
        let mut any = false;
        while let Some(documents) = found.next_step().await? {
            for document in documents {
                any = true;
                let (apply, with) = (Arc::clone(&change), Arc::clone(&context));
                let run = move || apply.apply(&document, &with).map(|applied| (document, applied));
                let mode = WriteMode::of(&change);
                let (document, Some(applied)) = blocking_if(loops, run).await? else { continue };
                if applied.modified {
                    self.write(namespace, Some(document), Some(applied.document), mode).await?;
                    count(Changed::Modified);
                } else {
                    count(Changed::Same);
                }
            }
        }
        if !any && change.is_upsert() {
            let (ids, with) = (Arc::clone(&self.shared.sources.ids), Arc::clone(&context));
            let validation = change.validation();
            let document = blocking_if(loops, move || change.insertion(&*ids, &with)).await?;
            let (id, _) = identity(&document)?;
            self.insert_prepared(namespace, document, validation).await?;
            count(Changed::Upserted(id));
        }
        Ok(())
    }

    /// Runs a delete statement, and counts the deleted documents.
    pub(super) async fn run_delete(
        self: &Arc<Self>,
        request: &Delete,
        statement: &DeleteStatement,
        deleted: &mut u64,
    ) -> StoreResult<()> {
        let find = Find {
            hint: statement.hint.clone(),
            limit: (!statement.multi).then_some(1),
            variables: request.variables.clone(),
            ..Find::new(request.namespace.clone(), statement.filter.clone())
        };
        self.claim_named(&request.namespace, &statement.filter, &request.variables).await?;
        self.refuse_view(&request.namespace)?;
        let mut cursor = self.find(find).await?;
        while let Some(documents) = next_step(&mut *cursor).await? {
            for document in documents {
                self.write(&request.namespace, Some(document), None, WriteMode::default()).await?;
                *deleted += 1;
            }
        }
        Ok(())
    }

    pub(super) async fn run_find_and_modify(
        self: &Arc<Self>,
        request: &FindAndModify,
    ) -> StoreResult<FindAndModifyOutcome> {
        let compiled = Arc::new(CompiledFindAndModify::compile(request)?);
        let context = Arc::new(self.shared.sources.context(&request.variables));
        let _stop = context.interrupt.stop_on_drop();
        let loops = loops_in_find_and_modify(request);
        let namespace = &request.namespace;
        let find = Find {
            sort: request.sort.clone(),
            hint: request.hint.clone(),
            limit: Some(1),
            variables: request.variables.clone(),
            ..Find::new(namespace.clone(), request.filter.clone())
        };
        self.claim_named(namespace, &request.filter, &request.variables).await?;
        self.refuse_view(namespace)?;
        let mut cursor = self.find(find).await?;
        let found = next_step(&mut *cursor).await?.into_iter().flatten().next();
        let ids = Arc::clone(&self.shared.sources.ids);
        let effect = blocking_if(loops, move || evaluate(&compiled, found, &*ids, &context)).await?;
        // The answer is computed first: an error there changes nothing.
        match effect.write {
            Some(DocumentEffect::Insert(document)) => {
                self.insert_prepared(namespace, document, request.validation).await?;
            }
            Some(DocumentEffect::Change { before, after, mode }) => {
                self.write(namespace, Some(before), after, mode).await?;
            }
            None => {}
        }
        Ok(effect.outcome)
    }
}

/// The answer of a find-and-modify, and its write.
#[derive(Default)]
struct FindAndModifyEffect {
    outcome: FindAndModifyOutcome,
    write: Option<DocumentEffect>,
}

enum DocumentEffect {
    Insert(RawDocumentBuf),
    Change { before: RawDocumentBuf, after: Option<RawDocumentBuf>, mode: WriteMode },
}

fn evaluate(
    compiled: &CompiledFindAndModify,
    found: Option<RawDocumentBuf>,
    ids: &dyn IdSource,
    context: &Context,
) -> StoreResult<FindAndModifyEffect> {
    match (found, compiled.change()) {
        (Some(before), None) => {
            let outcome = compiled.changed(before.clone(), None, context)?;
            Ok(FindAndModifyEffect {
                outcome,
                write: Some(DocumentEffect::Change { before, after: None, mode: WriteMode::default() }),
            })
        }
        (Some(before), Some(change)) => {
            let Some(applied) = change.apply(&before, context)? else { return Ok(FindAndModifyEffect::default()) };
            let outcome = compiled.changed(before.clone(), Some(applied.document.clone()), context)?;
            let after = Some(applied.document);
            let mode = WriteMode::of(change);
            let write = applied.modified.then_some(DocumentEffect::Change { before, after, mode });
            Ok(FindAndModifyEffect { outcome, write })
        }
        (None, Some(change)) if change.is_upsert() => {
            let document = change.insertion(ids, context)?;
            let outcome = compiled.upserted(&document, context)?;
            Ok(FindAndModifyEffect { outcome, write: Some(DocumentEffect::Insert(document)) })
        }
        (None, _) => Ok(FindAndModifyEffect::default()),
    }
}

/// The documents that match a statement.
enum MatchedDocuments {
    Document(Option<RawDocumentBuf>),
    Cursor(Box<dyn Cursor>),
}

impl MatchedDocuments {
    async fn next_step(&mut self) -> StoreResult<Option<Vec<RawDocumentBuf>>> {
        match self {
            MatchedDocuments::Document(document) => Ok(document.take().map(|document| vec![document])),
            MatchedDocuments::Cursor(cursor) => next_step(&mut **cursor).await,
        }
    }
}

fn find_of(request: &Update, statement: &UpdateStatement, variables: RawDocumentBuf) -> Find {
    Find {
        sort: statement.sort.clone(),
        hint: statement.hint.clone(),
        limit: (!statement.multi).then_some(1),
        variables,
        ..Find::new(request.namespace.clone(), statement.filter.clone())
    }
}

fn loops_in_statement(statement: &UpdateStatement) -> bool {
    may_take_long(&statement.filter) || loops_in_change(&statement.update, &statement.array_filters)
}

fn loops_in_find_and_modify(request: &FindAndModify) -> bool {
    let in_change = match &request.modification {
        Modification::Remove => false,
        Modification::Update { update, array_filters, .. } => loops_in_change(update, array_filters),
    };
    in_change || may_take_long(&request.filter) || may_take_long(&request.projection)
}

fn loops_in_change(update: &UpdateSpec, array_filters: &[RawDocumentBuf]) -> bool {
    let in_update = match update {
        UpdateSpec::Document(document) => may_take_long(document),
        UpdateSpec::Pipeline(stages) => stages.iter().any(|stage| may_take_long(stage)),
    };
    in_update || array_filters.iter().any(|filter| may_take_long(filter))
}

/// Returns the next documents of a statement.
async fn next_step(cursor: &mut dyn Cursor) -> StoreResult<Option<Vec<RawDocumentBuf>>> {
    let documents = cursor.next_page(STEP).await?.documents;
    Ok((!documents.is_empty()).then_some(documents))
}

/// Returns the `_id`s of the documents of a snapshot that share a key of a unique index with this document.
async fn holders(
    snapshot: &dyn Snapshot,
    namespace: &Namespace,
    index: &Index,
    document: &RawDocument,
    key: &[u8],
) -> StoreResult<Vec<RawBson>> {
    let found = index.tuples(document)?;
    let Some(tuple) = found.tuples.iter().find(|tuple| index.encode(tuple) == key) else { return Ok(Vec::new()) };
    // The filter may match further documents: an array with the value as an element, or null for a missing field.
    let mut filter = RawDocumentBuf::new();
    for ((name, _), value) in index.spec().key.iter().flatten().zip(tuple) {
        let value = match value {
            // The index has this value for an empty array.
            Some(RawBsonRef::Undefined) => rawdoc! { "$eq": RawArrayBuf::new() },
            value => rawdoc! { "$eq": value.unwrap_or(RawBsonRef::Null) },
        };
        let name: CString = name.into();
        filter.append(name, value);
    }
    // Of an index by bytes, the default of the collection must not decide.
    let by_bytes = snapshot.default_collation(namespace).map(|_| simple());
    let collation = index.spec().collation.clone().or(by_bytes);
    let variables = with_variable(RawDocumentBuf::new(), collation.as_deref());
    let mut cursor = snapshot.find(Find { variables, ..Find::new(namespace.clone(), filter) }).await?;
    let mut holders = Vec::new();
    while let Some(documents) = next_step(&mut *cursor).await? {
        for document in documents {
            if index.keys(&document)?.keys.contains(key) {
                holders.push(insertion::id(&document)?.into());
            }
        }
    }
    Ok(holders)
}
