//! The stage `$indexStats`: how often each index of a collection was used since the server was started, or since a collection or index
//! of this name was dropped.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{Namespace, PlanSummary};

use super::Call;
use super::list_indexes::describe;
use crate::error::{CommandError, CommandResult};
use crate::metrics::PlanCounts;
use crate::writer::Writer;

/// Returns a document for each index; none if the collection does not exist.
///
/// # Errors
/// 28803 for options, `CommandNotSupportedOnView` (166) for a view, and the errors of the store.
pub(super) async fn stage(
    call: &Call<'_>,
    namespace: &Namespace,
    options: RawBsonRef<'_>,
) -> CommandResult<Vec<RawDocumentBuf>> {
    if !options.as_document().is_some_and(RawDocument::is_empty) {
        let text = "The $indexStats stage specification must be an empty object";
        return Err(CommandError::new(NOT_EMPTY, text));
    }
    let indexes = match call.store().list_indexes(namespace).await {
        Err(error) if error.code() == Code::NamespaceNotFound => Vec::new(),
        indexes => indexes?,
    };
    let used = call.shared.metrics.plans(&namespace.to_string()).ok_or_else(|| {
        let text =
            format!("the uses of the indexes of {namespace} are not counted: too many collections were used before");
        CommandError::new(Code::NotImplemented, text)
    })?;
    let since = used.since.unwrap_or_else(|| call.shared.started_at());
    let host = super::host_info::host_name();
    let described = indexes.iter().map(|index| {
        let mut writer = Writer::new();
        writer.put("name", &index.spec.name).put("key", &index.spec.key).put("host", &host);
        let count = uses(&used, &index.spec.key);
        writer.begin_document("accesses").put("ops", i64::try_from(count).unwrap_or(i64::MAX));
        writer.put("since", since).end().put("spec", describe(index));
        writer.finish()
    });
    Ok(described.collect())
}

/// Returns the number of commands that searched the index with this key.
fn uses(counts: &PlanCounts, key: &RawDocumentBuf) -> u64 {
    let by_key = counts.of(&PlanSummary::IndexScan(key.clone()));
    let is_of_ids = key.iter().next().and_then(Result::ok).is_some_and(|(name, _)| name == "_id");
    let by_id = if is_of_ids && key.iter().count() == 1 { counts.of(&PlanSummary::IdHack) } else { 0 };
    by_key + by_id
}

const NOT_EMPTY: Code = Code(28_803);

#[cfg(test)]
mod tests;
