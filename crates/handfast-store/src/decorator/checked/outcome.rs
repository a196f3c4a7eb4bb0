//! Checks that the numbers of an outcome fit the request and each other.

use super::{CheckResult, codes, require};
use crate::decorator::Operation;
use crate::{
    CollectionStats, DeleteOutcome, FindAndModifyOutcome, IndexInfo, InsertOutcome, UpdateOutcome, WriteError, index,
};

/// Checks that the errors have ascending indexes within the request, and that an ordered request has at most one.
fn errors(operation: Operation, errors: &[WriteError], ordered: bool, count: usize) -> CheckResult {
    require!(!ordered || errors.len() <= 1, "{} errors of an ordered request", errors.len());
    require!(errors.windows(2).all(|pair| pair[0].index < pair[1].index), "the indexes of errors do not ascend");
    for error in errors {
        require!(error.index < count, "an error at index {} of {count}", error.index);
        codes::error(operation, &error.error)?;
    }
    Ok(())
}

/// Returns how many statements were tried.
fn tried(errors: &[WriteError], ordered: bool, count: usize) -> usize {
    match errors.first() {
        Some(error) if ordered => error.index + 1,
        _ => count,
    }
}

pub(super) fn insert(count: usize, ordered: bool, outcome: &InsertOutcome) -> CheckResult {
    errors(Operation::Insert, &outcome.errors, ordered, count)?;
    let tried = tried(&outcome.errors, ordered, count);
    let (inserted, failed) = (outcome.inserted, outcome.errors.len());
    require!(inserted + failed as u64 == tried as u64, "{inserted} in and {failed} not, of {tried} tried");
    Ok(())
}

/// The settings of an update statement that bound its outcome.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) multi: bool,
    pub(super) upsert: bool,
}

pub(super) fn update(shapes: &[Shape], ordered: bool, outcome: &UpdateOutcome) -> CheckResult {
    errors(Operation::Update, &outcome.errors, ordered, shapes.len())?;
    let tried = tried(&outcome.errors, ordered, shapes.len());
    let UpdateOutcome { matched, modified, upserted, .. } = outcome;
    require!(modified <= matched, "{modified} modified of {matched} matched");
    require!(upserted.windows(2).all(|pair| pair[0].0 < pair[1].0), "the indexes of upserts do not ascend");
    for (index, _) in upserted {
        require!(*index < tried, "an upsert at index {index} of {tried} tried");
        require!(shapes[*index].upsert, "statement {index} does not upsert, but did");
        require!(outcome.errors.iter().all(|error| error.index != *index), "statement {index} upserted and failed");
    }
    let ones = shapes[..tried].iter().filter(|shape| !shape.multi).count();
    if ones == tried {
        let (all, failed) = (*matched + upserted.len() as u64, outcome.errors.len() as u64);
        require!(
            all + failed <= tried as u64,
            "{matched} matched, {} upserted and {failed} failed of {tried} statements for one document each",
            upserted.len()
        );
    }
    Ok(())
}

pub(super) fn delete(multi: &[bool], ordered: bool, outcome: &DeleteOutcome) -> CheckResult {
    errors(Operation::Delete, &outcome.errors, ordered, multi.len())?;
    let tried = tried(&outcome.errors, ordered, multi.len());
    if multi[..tried].iter().all(|multi| !multi) {
        let (deleted, failed) = (outcome.deleted, outcome.errors.len() as u64);
        require!(deleted + failed <= tried as u64, "{deleted} deleted by {tried} statements for one document each");
    }
    Ok(())
}

/// The settings of a find-and-modify that bound its outcome.
#[derive(Clone, Copy)]
pub(super) struct FindAndModifyShape {
    pub(super) remove: bool,
    pub(super) upsert: bool,
    pub(super) after: bool,
}

pub(super) fn find_and_modify(asked: FindAndModifyShape, outcome: &FindAndModifyOutcome) -> CheckResult {
    let FindAndModifyOutcome { value, matched, upserted } = outcome;
    require!(!(*matched && upserted.is_some()), "something matched, and was upserted all the same");
    require!(upserted.is_none() || asked.upsert, "no upsert was asked for");
    require!(upserted.is_none() || !asked.remove, "a removal upserted");
    let shown = *matched || (asked.after && upserted.is_some());
    require!(value.is_some() == shown, "the document is {value:?}, with matched {matched} and upserted {upserted:?}");
    Ok(())
}

pub(super) fn indexes(indexes: &[IndexInfo]) -> CheckResult {
    let first = indexes.first().ok_or("no index at all")?;
    require!(first.spec.name == index::ID_INDEX_NAME, "the first index is '{}'", first.spec.name);
    for (index, info) in indexes.iter().enumerate() {
        info.spec.validate().map_err(|error| format!("index '{}' is not valid: {error}", info.spec.name))?;
        let twice = indexes[..index].iter().any(|other| other.spec.name == info.spec.name);
        require!(!twice, "two indexes are named '{}'", info.spec.name);
    }
    Ok(())
}

/// Checks that names are in ascending order without duplicates.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> CheckResult {
    let mut last: Option<&str> = None;
    for name in names {
        require!(last.is_none_or(|last| last < name), "'{name}' after '{}'", last.unwrap_or_default());
        last = Some(name);
    }
    Ok(())
}

pub(super) fn stats(stats: &CollectionStats) -> CheckResult {
    if !stats.exists {
        let zeros = stats.count == 0 && stats.size_bytes == 0 && stats.index_bytes.is_empty();
        require!(zeros, "a collection that does not exist has {stats:?}");
        return Ok(());
    }
    // The smallest document with an _id has 10 bytes.
    require!(stats.size_bytes >= stats.count * 10, "{} documents in {} bytes", stats.count, stats.size_bytes);
    let first = stats.index_bytes.first().map(|(name, _)| name.as_str());
    require!(first == Some(index::ID_INDEX_NAME), "the first index is {first:?}");
    Ok(())
}
