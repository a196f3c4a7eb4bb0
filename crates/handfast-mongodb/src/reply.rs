//! Reads outcomes of the contract from answers, with pure functions.

use bson::raw::CString;
use bson::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_store::{
    CollectionStats, DeleteOutcome, FindAndModifyOutcome, IndexSpec, InsertOutcome, Result, UpdateOutcome, WriteError,
};

use crate::error::{Effect, incomplete, of_code, of_write_concern};

#[cfg(test)]
mod tests;

/// Fields of an answer that are not details of its error.
const NO_DETAILS: [&str; 9] =
    ["ok", "code", "codeName", "errmsg", "index", "errorLabels", "$clusterTime", "operationTime", "topologyVersion"];

/// Returns the details of an error beside code and message: `keyPattern` and `keyValue` of a duplicate key.
pub(crate) fn details(error: &RawDocument) -> Option<RawDocumentBuf> {
    let mut details = RawDocumentBuf::new();
    for (name, value) in error.iter().flatten() {
        if !NO_DETAILS.contains(&name.as_str()) {
            let name: CString = name.into();
            details.append(name, value);
        }
    }
    (!details.is_empty()).then_some(details)
}

/// Returns a field as a number; some servers count in doubles.
pub(crate) fn number(document: &RawDocument, field: &str) -> Option<i64> {
    match document.get(field).ok()?? {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        #[allow(clippy::cast_possible_truncation, reason = "counts are whole numbers far below 2^53")]
        RawBsonRef::Double(number) => Some(number as i64),
        _ => None,
    }
}

/// Returns a field as a count.
pub(crate) fn count(document: &RawDocument, field: &str) -> Option<u64> {
    u64::try_from(number(document, field)?).ok()
}

/// Returns a count that the answer to a write must have.
fn needed(reply: &RawDocument, field: &str) -> Result<u64> {
    count(reply, field).ok_or_else(|| incomplete(&format!("there is no {field}"), Effect::Several))
}

/// Returns the documents in an array field; none if there is no such field.
fn documents<'a>(reply: &'a RawDocument, field: &str) -> impl Iterator<Item = &'a RawDocument> {
    let array: Option<&RawArray> = reply.get_array(field).ok();
    array.into_iter().flatten().flatten().filter_map(RawBsonRef::as_document)
}

/// Returns an error if the write concern was not met.
pub(crate) fn check_write_concern(reply: &RawDocument) -> Result<()> {
    let Ok(error) = reply.get_document("writeConcernError") else { return Ok(()) };
    let code = number(error, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(64);
    let made = of_write_concern(code, error.get_str("errmsg").unwrap_or_default());
    Err(match details(error) {
        Some(details) => made.with_details(details),
        None => made,
    })
}

/// Returns the failed statements, by their index in the command plus `first`.
fn write_errors(reply: &RawDocument, first: usize) -> Vec<WriteError> {
    let mut errors: Vec<_> = documents(reply, "writeErrors").map(|error| write_error(error, first)).collect();
    errors.sort_by_key(|error| error.index);
    errors
}

fn write_error(error: &RawDocument, first: usize) -> WriteError {
    let index = number(error, "index").and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
    let code = number(error, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(8);
    let made = of_code(code, error.get_str("errmsg").unwrap_or_default(), Effect::One);
    let made = match details(error) {
        Some(details) => made.with_details(details),
        None => made,
    };
    WriteError { index: first + index, error: made }
}

/// Reads the answer to an insert of documents from index `first` of the request.
pub(crate) fn insert(reply: &RawDocument, first: usize, documents: usize, ordered: bool) -> Result<InsertOutcome> {
    check_write_concern(reply)?;
    let errors = write_errors(reply, first);
    let inserted = match (count(reply, "n"), errors.first()) {
        (Some(inserted), _) => inserted,
        // FerretDB 1 counts nothing beside errors.
        (None, Some(error)) if ordered => (error.index - first) as u64,
        (None, Some(_)) => documents.saturating_sub(errors.len()) as u64,
        (None, None) => return Err(incomplete("there is no n", Effect::Several)),
    };
    Ok(InsertOutcome { inserted, errors })
}

/// Reads the answer to an update whose first statement has the index `first` in the request.
pub(crate) fn update(reply: &RawDocument, first: usize) -> Result<UpdateOutcome> {
    check_write_concern(reply)?;
    let errors = write_errors(reply, first);
    let mut upserted = Vec::new();
    for one in documents(reply, "upserted") {
        let index = number(one, "index").and_then(|index| usize::try_from(index).ok());
        let id = one.get("_id").ok().flatten();
        let (Some(index), Some(id)) = (index, id) else {
            return Err(incomplete("an upserted document without index and _id", Effect::Several));
        };
        upserted.push((first + index, RawBson::from(id)));
    }
    let n = if errors.is_empty() { needed(reply, "n")? } else { count(reply, "n").unwrap_or(0) };
    Ok(UpdateOutcome {
        matched: n.saturating_sub(upserted.len() as u64),
        modified: count(reply, "nModified").unwrap_or(0),
        upserted,
        errors,
    })
}

/// Reads the answer to a delete whose first statement has the index `first` in the request.
pub(crate) fn delete(reply: &RawDocument, first: usize) -> Result<DeleteOutcome> {
    check_write_concern(reply)?;
    let errors = write_errors(reply, first);
    let deleted = if errors.is_empty() { needed(reply, "n")? } else { count(reply, "n").unwrap_or(0) };
    Ok(DeleteOutcome { deleted, errors })
}

/// Reads the answer to a find-and-modify.
pub(crate) fn find_and_modify(reply: &RawDocument) -> Result<FindAndModifyOutcome> {
    check_write_concern(reply)?;
    let value = reply.get_document("value").ok().map(RawDocument::to_owned);
    let last =
        reply.get_document("lastErrorObject").map_err(|_| incomplete("there is no lastErrorObject", Effect::One))?;
    let upserted = last.get("upserted").ok().flatten().map(RawBson::from);
    let matched = match last.get_bool("updatedExisting") {
        Ok(updated) => updated,
        Err(_) => number(last, "n").unwrap_or(0) > 0,
    };
    Ok(FindAndModifyOutcome { value, matched, upserted })
}

/// Reads an index of `listIndexes`, without fields that the contract lacks (text weights).
pub(crate) fn index(shown: &RawDocument) -> Result<IndexSpec> {
    let missing = |field: &str| incomplete(&format!("an index without {field}"), Effect::Nothing);
    let key = shown.get_document("key").map_err(|_| missing("key"))?;
    let name = shown.get_str("name").map_err(|_| missing("name"))?;
    let is = |field: &str| shown.get_bool(field).unwrap_or(false);
    Ok(IndexSpec {
        name: name.to_owned(),
        unique: is("unique"),
        sparse: is("sparse"),
        hidden: is("hidden"),
        background: shown.get_bool("background").ok(),
        partial_filter: shown.get_document("partialFilterExpression").ok().map(RawDocument::to_owned),
        expire_after_seconds: number(shown, "expireAfterSeconds"),
        collation: shown.get_document("collation").ok().map(RawDocument::to_owned),
        ..IndexSpec::new(key.to_owned())
    })
}

/// Reads the answer to `collStats`.
pub(crate) fn stats(reply: &RawDocument) -> CollectionStats {
    let sizes = reply.get_document("indexSizes").ok();
    let names = sizes.into_iter().flat_map(|sizes| sizes.iter().flatten());
    let index_bytes: Vec<_> = names
        .map(|(name, _)| name.as_str())
        .map(|name| (name.to_owned(), sizes.and_then(|sizes| count(sizes, name)).unwrap_or(0)))
        .collect();
    CollectionStats {
        exists: !index_bytes.is_empty() || count(reply, "nindexes").unwrap_or(0) > 0,
        count: count(reply, "count").unwrap_or(0),
        size_bytes: count(reply, "size").unwrap_or(0),
        storage_bytes: count(reply, "storageSize").unwrap_or(0),
        index_bytes,
    }
}
