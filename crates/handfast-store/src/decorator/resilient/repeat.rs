//! Decides whether a request may be repeated when the outcome of the first attempt is unknown (spec: resilience; seed 4).

use bson::{RawBsonRef, RawDocument};

use crate::{
    Aggregate, Delete, DeleteStatement, FindAndModify, IndexSpec, Modification, ReturnDocument, Update, UpdateSpec,
    UpdateStatement,
};

#[cfg(test)]
mod tests;

/// The update operators whose second application changes nothing.
const IDEMPOTENT: [&str; 9] =
    ["$addToSet", "$max", "$min", "$pull", "$pullAll", "$rename", "$set", "$setOnInsert", "$unset"];

/// The effect of a second attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Repeat {
    /// The attempt may count twice or change another document.
    Never,
    /// The attempt is safe, but its outcome is that of the request only if a document matched: the first attempt may have changed
    /// the fields of the filter, and then the second one finds nothing.
    IfMatched,
    /// The attempt is safe, and its outcome is as good as the first one.
    Always,
}

/// Returns whether a second application of an update changes nothing: replacements, and `$set`, `$unset`, `$addToSet`, `$pull`,
/// `$pullAll`, `$min`, `$max`, `$rename` and `$setOnInsert`. Not `$inc`, `$mul`, `$push`, `$pop`, `$bit` and `$currentDate`, not
/// pipelines, and not the positional `$`, which may choose another element.
pub fn is_idempotent(update: &UpdateSpec) -> bool {
    let UpdateSpec::Document(update) = update else { return false };
    update.iter().all(|field| match field {
        Ok((name, value)) if name.as_str().starts_with('$') => {
            IDEMPOTENT.contains(&name.as_str()) && !value.as_document().is_some_and(is_positional)
        }
        // This is the first field of a replacement.
        Ok(_) => true,
        Err(_) => false,
    })
}

/// Returns whether a path of an operator has the positional `$`.
fn is_positional(paths: &RawDocument) -> bool {
    paths.iter().flatten().any(|(path, _)| path.as_str().split('.').any(|part| part == "$"))
}

/// Returns the effect of repeating an update. `is_unique` says which fields have a different value in every document.
pub(super) fn of_update(request: &Update, is_unique: &dyn Fn(&str) -> bool) -> Repeat {
    let each = |statement: &UpdateStatement| match is_idempotent(&statement.update) {
        true if statement.multi => Repeat::Always,
        true => of_filter(&statement.filter, is_unique),
        false => Repeat::Never,
    };
    match request.statements.as_slice() {
        _ if request.ticket.is_some() => Repeat::Always,
        [one] => each(one),
        // A statement may change the fields that another one's filter tests, so each filter may test only a key.
        several => all_or_never(several.iter().map(|one| if one.multi { Repeat::Never } else { each(one) })),
    }
}

/// Returns the effect of repeating a delete: only a statement that deletes any one of several documents is unsafe.
pub(super) fn of_delete(request: &Delete, is_unique: &dyn Fn(&str) -> bool) -> Repeat {
    let each = |statement: &DeleteStatement| match statement.multi {
        true => Repeat::Always,
        false => of_filter(&statement.filter, is_unique),
    };
    match request.statements.as_slice() {
        _ if request.ticket.is_some() => Repeat::Always,
        [one] => each(one),
        several => all_or_never(several.iter().map(each)),
    }
}

/// Returns the effect of repeating a find-and-modify. The document after an idempotent change is the same after the second
/// attempt; the one before it is lost.
pub(super) fn of_find_and_modify(request: &FindAndModify, is_unique: &dyn Fn(&str) -> bool) -> Repeat {
    let pinned = || of_filter(&request.filter, is_unique).min(Repeat::IfMatched);
    match &request.modification {
        _ if request.ticket.is_some() => Repeat::Always,
        Modification::Remove => pinned(),
        Modification::Update { update, returns: ReturnDocument::After, .. } if is_idempotent(update) => pinned(),
        Modification::Update { .. } => Repeat::Never,
    }
}

/// Returns the effect of repeating an aggregation: only one that writes is unsafe.
pub(super) fn of_aggregate(request: &Aggregate) -> Repeat {
    if request.writes() { Repeat::Never } else { Repeat::Always }
}

fn all_or_never(mut each: impl Iterator<Item = Repeat>) -> Repeat {
    if each.all(|repeat| repeat == Repeat::Always) { Repeat::Always } else { Repeat::Never }
}

/// Returns the effect of repeating a change of the one document that a filter selects.
fn of_filter(filter: &RawDocument, is_unique: &dyn Fn(&str) -> bool) -> Repeat {
    let mut conditions = filter.iter().flatten();
    let pinned = conditions.any(|(field, value)| is_unique(field.as_str()) && is_one_value(value));
    match filter.iter().count() {
        1 if pinned => Repeat::Always,
        _ if pinned => Repeat::IfMatched,
        _ => Repeat::Never,
    }
}

/// Returns whether a condition compares with one value. An array or a missing value may match several documents under a unique
/// index.
fn is_one_value(condition: RawBsonRef<'_>) -> bool {
    let value = match condition {
        RawBsonRef::Document(document) => {
            let mut fields = document.iter().flatten();
            match (fields.next(), fields.next()) {
                (Some((name, value)), None) if name.as_str() == "$eq" => value,
                (Some((name, _)), _) if name.as_str().starts_with('$') => return false,
                _ => condition,
            }
        }
        value => value,
    };
    use RawBsonRef as V;
    !matches!(value, V::Array(_) | V::RegularExpression(_) | V::Null | V::Undefined)
}

/// Returns the field of a unique index on one field that covers all documents. With several fields and arrays, one field does not
/// identify a document.
pub(super) fn unique_field(index: &IndexSpec) -> Option<String> {
    let mut fields = index.key.iter().flatten();
    let (Some((field, _)), None) = (fields.next(), fields.next()) else { return None };
    (index.unique && index.partial_filter.is_none()).then(|| field.as_str().to_owned())
}
