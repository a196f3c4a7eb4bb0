//! Whether a request may be sent a second time when nobody knows what became of the first (spec: resilience; seed 4).

use bson::raw::CStr;
use bson::{RawBsonRef, RawDocument};

use crate::{
    Aggregate, Delete, DeleteStatement, FindAndModify, IndexSpec, Modification, ReturnDocument, Update, UpdateSpec,
    UpdateStatement,
};

#[cfg(test)]
mod tests;

/// The update operators that leave a document as it is when they meet it a second time.
const IDEMPOTENT: [&str; 9] =
    ["$addToSet", "$max", "$min", "$pull", "$pullAll", "$rename", "$set", "$setOnInsert", "$unset"];

/// What a second try would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Repeat {
    /// Harm: it would count twice, or meet another document.
    Never,
    /// No harm. Its answer tells what became of the request only if it found what it looked for: where the first try
    /// has changed what the filter asks for, the second finds nothing.
    IfMatched,
    /// No harm, and its answer is as good as the first.
    Always,
}

/// Whether an update leaves a document that it has changed as it is when it is applied again: replacements, and documents
/// of `$set`, `$unset`, `$addToSet`, `$pull`, `$pullAll`, `$min`, `$max`, `$rename` and `$setOnInsert`. Not `$inc`, `$mul`,
/// `$push`, `$pop`, `$bit` and `$currentDate`, not pipelines, and not the positional `$`, which may choose another element.
pub fn is_idempotent(update: &UpdateSpec) -> bool {
    let UpdateSpec::Document(update) = update else { return false };
    update.iter().all(|field| match field {
        Ok((name, value)) if name.as_str().starts_with('$') => {
            IDEMPOTENT.contains(&name.as_str()) && !value.as_document().is_some_and(is_positional)
        }
        // A replacement's field.
        Ok(_) => true,
        Err(_) => false,
    })
}

/// Whether a path of an operator has the positional `$`, which stands for the element that the filter met.
fn is_positional(paths: &RawDocument) -> bool {
    paths.iter().flatten().any(|(path, _)| path.as_str().split('.').any(|part| part == "$"))
}

/// Of update statements, when no two documents have the same value in fields of which `is_unique` is true.
pub(super) fn of_update(request: &Update, is_unique: &dyn Fn(&str) -> bool) -> Repeat {
    let each = |statement: &UpdateStatement| match is_idempotent(&statement.update) {
        true if statement.multi => Repeat::Always,
        true => of_filter(&statement.filter, is_unique),
        false => Repeat::Never,
    };
    match request.statements.as_slice() {
        _ if request.ticket.is_some() => Repeat::Always,
        [one] => each(one),
        // One may change what another's filter asks for: that must be nothing but a key.
        several => all_or_never(several.iter().map(|one| if one.multi { Repeat::Never } else { each(one) })),
    }
}

/// Of delete statements: what is gone stays gone, so that only a statement that takes any one of several does harm.
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

/// Of a find-and-modify: the document after an idempotent change is the same after the second. The one before is lost.
pub(super) fn of_find_and_modify(request: &FindAndModify, is_unique: &dyn Fn(&str) -> bool) -> Repeat {
    let pinned = || of_filter(&request.filter, is_unique).min(Repeat::IfMatched);
    match &request.modification {
        _ if request.ticket.is_some() => Repeat::Always,
        Modification::Remove => pinned(),
        Modification::Update { update, returns: ReturnDocument::After, .. } if is_idempotent(update) => pinned(),
        Modification::Update { .. } => Repeat::Never,
    }
}

/// Of an aggregation: one that writes a collection does it once.
pub(super) fn of_aggregate(request: &Aggregate) -> Repeat {
    let writes = |(name, _): (&CStr, RawBsonRef<'_>)| matches!(name.as_str(), "$out" | "$merge");
    let writes = request.pipeline.iter().any(|stage| stage.iter().flatten().any(writes));
    if writes { Repeat::Never } else { Repeat::Always }
}

fn all_or_never(mut each: impl Iterator<Item = Repeat>) -> Repeat {
    if each.all(|repeat| repeat == Repeat::Always) { Repeat::Always } else { Repeat::Never }
}

/// Of a change of one document that this filter chooses.
fn of_filter(filter: &RawDocument, is_unique: &dyn Fn(&str) -> bool) -> Repeat {
    let mut conditions = filter.iter().flatten();
    let pinned = conditions.any(|(field, value)| is_unique(field.as_str()) && is_one_value(value));
    match filter.iter().count() {
        1 if pinned => Repeat::Always,
        _ if pinned => Repeat::IfMatched,
        _ => Repeat::Never,
    }
}

/// Whether a condition asks for one value. Several documents under a unique index may meet an array, or have no value.
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

/// The field of which a unique index holds the values of all documents. One of several fields does not choose one document
/// where there are arrays.
pub(super) fn unique_field(index: &IndexSpec) -> Option<String> {
    let mut fields = index.key.iter().flatten();
    let (Some((field, _)), None) = (fields.next(), fields.next()) else { return None };
    (index.unique && index.partial_filter.is_none()).then(|| field.as_str().to_owned())
}
