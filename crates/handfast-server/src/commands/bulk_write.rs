//! `bulkWrite`: inserts, updates and deletes on several collections in one command.
//!
//! ```text
//! {bulkWrite: 1, ops: [{insert: 0, document: ..}, {update: 1, filter: .., updateMods: ..}, {delete: 0, filter: ..}],
//!  nsInfo: [{ns: "db.a"}, {ns: "db.b"}], ordered: true, errorsOnly: false}
//! ```
//!
//! Consecutive inserts into the same collection become one request to the store, so that they share a sync. Each other operation is a
//! request of its own, because the reply has its counts. The results are a cursor with a document for each operation.

use bson::RawDocumentBuf;
use bson::raw::RawDocument;
use handfast_mql::Code;
use handfast_mql::collation::with_variable;
use handfast_store::{Delete, DeleteStatement, Insert, Namespace, Ticket, Update, UpdateStatement};

use super::get_more::{Opening, put_first_batch};
use super::insert::{InsertableDocuments, insertable_documents};
use super::write::{BypassOptions, UpdateNames, check_batch, check_single, put_error, update_statement};
use super::{Access, Call, Command, Counter, InTransaction, Properties, hint};
use crate::arguments::Arguments;
use crate::auth::guard::{Needs, Visitor, visit_full_name};
use crate::auth::role::Action;
use crate::batches::ListCursor;
use crate::error::{CommandError, CommandResult};
use crate::fail_points;
use crate::reply::Answer;
use crate::request::{Request, check_written};
use crate::transactions::{retried, rules};
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "bulkWrite",
    aliases: &[],
    help: "writes to several collections",
    access: Access::Write,
    needs: Needs::Visited(needs),
    admin_only: true,
    confidential: false,
    versioned: true,
    properties: Properties {
        retryable: true,
        in_transaction: InTransaction::Allowed,
        counter: Counter::PerStatement,
        names_databases: true,
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

/// An operation that has been read.
enum Operation<'a> {
    Insert(&'a RawDocument),
    Update(UpdateStatement),
    Delete(DeleteStatement),
}

/// An entry of `ops`.
struct BulkOperation<'a> {
    /// The index of its collection in `nsInfo`.
    namespace_index: usize,
    operation: Operation<'a>,
    collation: Option<RawDocumentBuf>,
}

/// The counts over all operations.
#[derive(Default)]
struct Totals {
    errors: u64,
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
}

impl Totals {
    /// Returns whether anything was written.
    fn any(&self) -> bool {
        self.inserted + self.modified + self.upserted + self.deleted > 0
    }

    fn put(&self, writer: &mut Writer) {
        for (name, count) in [
            ("nErrors", self.errors),
            ("nInserted", self.inserted),
            ("nMatched", self.matched),
            ("nModified", self.modified),
            ("nUpserted", self.upserted),
            ("nDeleted", self.deleted),
        ] {
            put_count(writer, name, count);
        }
    }

    /// Adds the counts of the operations before a failure to its error.
    fn with_totals(&self, error: CommandError) -> CommandError {
        let mut writer = Writer::new();
        if let Some(details) = &error.details {
            writer.put_all(details);
        }
        self.put(&mut writer);
        CommandError { partly: self.any(), details: Some(writer.finish()), ..error }
    }
}

impl Operation<'_> {
    fn is_multi(&self) -> bool {
        match self {
            Operation::Insert(_) => false,
            Operation::Update(statement) => statement.multi,
            Operation::Delete(statement) => statement.multi,
        }
    }
}

struct Bulk<'c, 'a> {
    call: &'c Call<'a>,
    namespaces: Vec<Namespace>,
    ordered: bool,
    errors_only: bool,
    bypass: BypassOptions,
    variables: RawDocumentBuf,
    results: Vec<RawDocumentBuf>,
    totals: Totals,
}

fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let infos = request.arguments("bulkWrite").documents("nsInfo")?.unwrap_or_default();
    infos.into_iter().try_for_each(|info| {
        let full = info.get_str("ns").unwrap_or_default();
        visit_full_name(full, &[Action::Write], visitor)
    })
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("bulkWrite");
    let operations = arguments.documents("ops")?;
    let operations = arguments.required("ops", operations)?;
    let infos = arguments.documents("nsInfo")?;
    let infos = arguments.required("nsInfo", infos)?;
    let batch_size = super::list_collections::batch_size(&mut arguments, "bulkWrite.cursor")?;
    let ordered = arguments.flag("ordered")?.unwrap_or(true);
    let errors_only = arguments.flag("errorsOnly")?.unwrap_or(false);
    let variables = call.variables(&mut arguments).await?;
    let bypass = BypassOptions::read(&mut arguments)?;
    arguments.finish()?;
    check_batch(operations.len())?;
    let namespaces = infos.into_iter().map(namespace).collect::<CommandResult<Vec<_>>>()?;
    // All operations are read before the first is applied, so that a malformed one at the end changes nothing.
    let operations = operations.into_iter().map(|document| read(document, namespaces.len(), bypass));
    let mut operations = operations.collect::<CommandResult<Vec<_>>>()?;
    check_single(call, operations.iter().map(|bulk| bulk.operation.is_multi()), "multi=true")?;
    if call.transaction_number().is_some() {
        for namespace in &namespaces {
            rules::check_database(namespace.database())?;
        }
    }
    let retried = call.retried(operations.len()).await?;
    let failed = fail_points::write::fail_statements(call, &retried, &mut operations);
    let mut bulk = Bulk {
        call,
        namespaces,
        ordered,
        errors_only,
        bypass,
        variables,
        results: Vec::new(),
        totals: Totals::default(),
    };
    let applied = bulk.apply(operations).await;
    applied.map_err(|error| bulk.totals.with_totals(error))?;
    if let Some(error) = failed.filter(|_| !ordered || bulk.totals.errors == 0) {
        bulk.failed(error.index, &error.error);
    }
    let Bulk { results, totals, .. } = bulk;
    let mut writer = Writer::new();
    let opening = Opening {
        namespace: "admin.$cmd.bulkWrite".to_owned(),
        // By default the first batch has all results that fit.
        batch_size: batch_size.or(Some(u64::MAX)),
        single_batch: false,
        no_timeout: false,
    };
    let cursor = Box::new(ListCursor::new(results));
    let reserved = put_first_batch(call, &mut writer, cursor, opening, call.shared.now()).await?;
    totals.put(&mut writer);
    retried::put(&mut writer, retried);
    Ok(Answer { reserved, refused: totals.errors > 0, ..Answer::from(writer) })
}

fn namespace(document: &RawDocument) -> CommandResult<Namespace> {
    let mut arguments = Arguments::of_document("bulkWrite.nsInfo", document)?;
    let full = arguments.text("ns")?;
    let full = arguments.required("ns", full)?;
    arguments.unsupported(&["collectionUUID", "encryptionInformation"])?;
    arguments.finish()?;
    match full.split_once('.') {
        Some((database, collection)) => {
            let namespace = Namespace::new(database, collection)?;
            check_written(&namespace)?;
            Ok(namespace)
        }
        None => {
            let text = format!("Invalid namespace specified for bulkWrite: '{full}'");
            Err(CommandError::new(Code::InvalidNamespace, text))
        }
    }
}

fn read(document: &RawDocument, namespaces: usize, bypass: BypassOptions) -> CommandResult<BulkOperation<'_>> {
    let kind = document.iter().next().transpose()?.map_or("", |(name, _)| name.as_str());
    let (path, kind) = match kind {
        "insert" => ("insert", "insert"),
        "update" => ("update", "update"),
        "delete" => ("delete", "delete"),
        other => {
            let text = format!("Unrecognized bulkWrite operation: '{other}'");
            return Err(CommandError::new(Code::FailedToParse, text));
        }
    };
    let mut arguments = Arguments::of_document(path, document)?;
    let namespace_index = arguments.unsigned(kind)?;
    let namespace_index = arguments.required(kind, namespace_index)?;
    let namespace_index = usize::try_from(namespace_index)
        .ok()
        .filter(|index| *index < namespaces)
        .ok_or_else(|| CommandError::new(Code::BadValue, "BulkWrite ops entry has an invalid nsInfo index."))?;
    let operation = match kind {
        "insert" => {
            let document = arguments.document("document")?;
            Operation::Insert(arguments.required("document", document)?)
        }
        "update" => {
            let names = UpdateNames { filter: "filter", update: "updateMods", constants: "constants" };
            Operation::Update(update_statement(&mut arguments, names, bypass)?)
        }
        _ => {
            let filter = arguments.document("filter")?;
            let filter = arguments.required("filter", filter)?.to_owned();
            let multi = arguments.flag("multi")?.unwrap_or(false);
            Operation::Delete(DeleteStatement { filter, multi, hint: hint(&mut arguments)? })
        }
    };
    let collation = arguments.collation()?;
    arguments.finish()?;
    Ok(BulkOperation { namespace_index, operation, collation })
}

impl Bulk<'_, '_> {
    async fn apply(&mut self, operations: Vec<BulkOperation<'_>>) -> CommandResult<()> {
        let mut position = 0;
        let mut operations = operations.into_iter().peekable();
        while let Some(BulkOperation { namespace_index, operation, collation }) = operations.next() {
            if self.ordered && self.totals.errors > 0 {
                break;
            }
            let Some(namespace) = self.namespaces.get(namespace_index).cloned() else { break };
            match operation {
                Operation::Insert(first) => {
                    let mut documents = vec![first];
                    let goes_on = |next: &BulkOperation<'_>| {
                        next.namespace_index == namespace_index && matches!(next.operation, Operation::Insert(_))
                    };
                    while let Some(BulkOperation { operation: Operation::Insert(next), .. }) =
                        operations.next_if(goes_on)
                    {
                        documents.push(next);
                    }
                    let count = documents.len();
                    self.insert(namespace, position, &documents).await?;
                    position += count;
                }
                Operation::Update(statement) => {
                    self.update(namespace, position, statement, collation.as_deref()).await?;
                    position += 1;
                }
                Operation::Delete(statement) => {
                    self.delete(namespace, position, statement, collation.as_deref()).await?;
                    position += 1;
                }
            }
        }
        Ok(())
    }

    async fn insert(&mut self, namespace: Namespace, first: usize, documents: &[&RawDocument]) -> CommandResult<()> {
        self.call.shared.metrics.operations.insert.add(documents.len() as u64);
        let now = (!self.bypass.keep_empty_timestamps).then(|| self.call.shared.sources.cluster_time());
        let InsertableDocuments { documents: stored, positions, refused } =
            insertable_documents(documents, self.ordered, now);
        let mut errors: Vec<Option<handfast_store::Error>> = vec![None; documents.len()];
        let mut tried = vec![false; documents.len()];
        if !stored.is_empty() {
            let request = Insert {
                namespace,
                documents: stored,
                ordered: self.ordered,
                durability: self.call.durability(),
                ticket: self.ticket(first),
                validation: self.bypass.validation,
            };
            let outcome = self.call.store().insert(request).await?;
            self.totals.inserted += outcome.inserted;
            let end = match outcome.errors.first() {
                Some(error) if self.ordered => error.index + 1,
                _ => positions.len(),
            };
            for position in positions.iter().take(end) {
                set(&mut tried, *position, true);
            }
            for error in outcome.errors {
                if let Some(position) = positions.get(error.index) {
                    set(&mut errors, *position, Some(error.error));
                }
            }
        }
        // In an ordered bulk write, a document that cannot be stored ends it, unless one before it has failed.
        if !self.ordered || errors.iter().all(Option::is_none) {
            for error in refused {
                set(&mut tried, error.index, true);
                set(&mut errors, error.index, Some(error.error));
            }
        }
        for (offset, (error, tried)) in errors.iter().zip(tried).enumerate() {
            match (tried, error) {
                (false, _) => {}
                (true, None) => self.succeeded(first + offset, 1, |_| {}),
                (true, Some(error)) => self.failed(first + offset, error),
            }
        }
        Ok(())
    }

    async fn update(
        &mut self,
        namespace: Namespace,
        position: usize,
        statement: UpdateStatement,
        collation: Option<&RawDocument>,
    ) -> CommandResult<()> {
        self.call.shared.metrics.operations.update.increment();
        let request = Update {
            namespace,
            statements: vec![statement],
            ordered: true,
            durability: self.call.durability(),
            ticket: self.ticket(position),
            variables: with_variable(self.variables.clone(), collation),
        };
        let outcome = self.call.store().update(request).await?;
        self.totals.matched += outcome.matched;
        self.totals.modified += outcome.modified;
        self.totals.upserted += outcome.upserted.len() as u64;
        match outcome.errors.first() {
            Some(error) => self.failed(position, &error.error),
            None => self.succeeded(position, outcome.matched + outcome.upserted.len() as u64, |writer| {
                put_count(writer, "nModified", outcome.modified);
                if let Some((_, id)) = outcome.upserted.first() {
                    writer.begin_document("upserted").put_any("_id", id.as_raw_bson_ref()).end();
                }
            }),
        }
        Ok(())
    }

    async fn delete(
        &mut self,
        namespace: Namespace,
        position: usize,
        statement: DeleteStatement,
        collation: Option<&RawDocument>,
    ) -> CommandResult<()> {
        self.call.shared.metrics.operations.delete.increment();
        let request = Delete {
            namespace,
            statements: vec![statement],
            ordered: true,
            durability: self.call.durability(),
            ticket: self.ticket(position),
            variables: with_variable(self.variables.clone(), collation),
        };
        let outcome = self.call.store().delete(request).await?;
        self.totals.deleted += outcome.deleted;
        match outcome.errors.first() {
            Some(error) => self.failed(position, &error.error),
            None => self.succeeded(position, outcome.deleted, |_| {}),
        }
        Ok(())
    }

    /// Returns the ticket of the operation at this position.
    fn ticket(&self, position: usize) -> Option<Ticket> {
        self.call.ticket().map(|ticket| ticket.of_statement(position))
    }

    fn succeeded(&mut self, position: usize, count: u64, more: impl FnOnce(&mut Writer)) {
        if self.errors_only {
            return;
        }
        let mut writer = Writer::new();
        writer.put("ok", 1.0).put("idx", i32::try_from(position).unwrap_or(i32::MAX));
        put_count(&mut writer, "n", count);
        more(&mut writer);
        self.results.push(writer.finish());
    }

    fn failed(&mut self, position: usize, error: &handfast_store::Error) {
        self.totals.errors += 1;
        let mut writer = Writer::new();
        writer.put("ok", 0.0).put("idx", i32::try_from(position).unwrap_or(i32::MAX));
        put_error(&mut writer, error);
        writer.put("n", 0);
        self.results.push(writer.finish());
    }
}

fn set<T>(list: &mut [T], position: usize, value: T) {
    if let Some(slot) = list.get_mut(position) {
        *slot = value;
    }
}

#[cfg(test)]
mod tests;
