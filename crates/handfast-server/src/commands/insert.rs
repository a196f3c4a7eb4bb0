//! `insert`: inserts documents.

use bson::Timestamp;
use bson::raw::{RawDocument, RawDocumentBuf};
use handfast_mql::{Code, depth, update};
use handfast_store::{Insert, WriteError};
use handfast_wire::limits::DOCUMENT_BYTES_MAX;

use super::write::{self, BypassOptions, check_batch};
use super::{Access, Call, Command, Counter, InTransaction, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::fail_points;
use crate::reply::Answer;
use crate::transactions::retried;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "insert",
    aliases: &[],
    help: "inserts documents",
    access: Access::Write,
    needs: Needs::Collection(&[Action::Write]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties {
        retryable: true,
        in_transaction: InTransaction::Allowed,
        counter: Counter::PerStatement,
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.written_namespace()?;
    let mut arguments = call.arguments("insert");
    let documents = arguments.documents("documents")?;
    let documents = arguments.required("documents", documents)?;
    let ordered = arguments.flag("ordered")?.unwrap_or(true);
    let BypassOptions { keep_empty_timestamps, validation } = BypassOptions::read(&mut arguments)?;
    arguments.finish()?;
    check_batch(documents.len())?;
    call.shared.metrics.operations.insert.add(documents.len() as u64);
    let now = (!keep_empty_timestamps).then(|| call.shared.sources.cluster_time());
    let InsertableDocuments { mut documents, positions, mut refused } = insertable_documents(&documents, ordered, now);
    let (mut inserted, mut failed) = (0, Vec::new());
    let retried = call.retried(documents.len()).await?;
    let injected_error = fail_points::write::fail_statements(call, &retried, &mut documents);
    if !documents.is_empty() {
        let (durability, ticket) = (call.durability(), call.ticket());
        let insert = Insert { namespace, documents, ordered, durability, ticket, validation };
        let outcome = call.store().insert(insert).await?;
        (inserted, failed) = (outcome.inserted, outcome.errors);
    }
    failed.extend(injected_error.filter(|_| !ordered || failed.is_empty()));
    if ordered && !failed.is_empty() {
        // The documents behind the first error were not tried.
        refused.clear();
    }
    refused.extend(failed.into_iter().map(|error| WriteError {
        index: positions.get(error.index).copied().unwrap_or(error.index),
        error: error.error,
    }));
    refused.sort_by_key(|error| error.index);
    let mut writer = Writer::new();
    put_count(&mut writer, "n", inserted);
    write::put_errors(&mut writer, &refused);
    retried::put(&mut writer, retried.iter().filter_map(|position| positions.get(*position).copied()));
    Ok(Answer { refused: !refused.is_empty(), ..Answer::from(writer) })
}

/// The documents that can be inserted, with their positions in the command, and the errors of the others.
pub(super) struct InsertableDocuments {
    pub(super) documents: Vec<RawDocumentBuf>,
    pub(super) positions: Vec<usize>,
    pub(super) refused: Vec<WriteError>,
}

/// Removes the documents that are too large or too deep to be stored; if `ordered`, also those behind the first such one. In the
/// others a top-level `Timestamp(0, 0)` is replaced by the current time, if one is given.
pub(super) fn insertable_documents(
    documents: &[&RawDocument],
    ordered: bool,
    now: Option<Timestamp>,
) -> InsertableDocuments {
    let mut result = InsertableDocuments {
        documents: Vec::with_capacity(documents.len()),
        positions: Vec::new(),
        refused: Vec::new(),
    };
    for (index, document) in documents.iter().enumerate() {
        match storable(document, now) {
            Ok(stored) => {
                result.documents.push(stored);
                result.positions.push(index);
            }
            Err(error) => {
                result.refused.push(WriteError { index, error });
                if ordered {
                    break;
                }
            }
        }
    }
    result
}

fn storable(document: &RawDocument, now: Option<Timestamp>) -> handfast_store::Result<RawDocumentBuf> {
    let size = document.as_bytes().len();
    if size > DOCUMENT_BYTES_MAX {
        let text = format!("object to insert too large. size in bytes: {size}, max size: {DOCUMENT_BYTES_MAX}");
        return Err(handfast_store::Error::command(Code::BadValue, text));
    }
    // The depth check of the command allows more levels than a stored document may have.
    depth::check(document.as_bytes(), depth::Limits::default())?;
    let stamped = now.map(|now| update::stamp(document, now)).transpose()?.flatten();
    Ok(stamped.unwrap_or_else(|| document.to_owned()))
}

#[cfg(test)]
mod tests;
