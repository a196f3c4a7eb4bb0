//! The list of a collection's indexes: the comparison of a new definition with the existing ones, and the choice of indexes by
//! a selector.
//!
//! Two definitions are *the same index* if key, `unique`, `sparse`, partial filter and collation are equal; name, lifetime and
//! `hidden` are settings of it. No two indexes share a name, or are the same index.

use handfast_mql::Code;

use super::specification::INDEXES_MAX;
use crate::{Error, IndexSelector, IndexSpec, Namespace, Result, notation};

/// The result of comparing a new definition with the existing indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// The index exists.
    Exists,
    /// The index must be built.
    New,
}

/// Compares a valid definition with the existing indexes.
///
/// # Errors
/// `IndexKeySpecsConflict` (86) if another index has the name; `IndexOptionsConflict` (85) if the index exists with another name
/// or other settings; `CannotCreateIndex` (67) if there are too many.
pub fn addition(existing: &[IndexSpec], new: &IndexSpec) -> Result<Addition> {
    if new.is_id() {
        return Ok(Addition::Exists);
    }
    if let Some(named) = existing.iter().find(|spec| spec.name == new.name) {
        if !same_index(named, new) {
            let text = "An existing index has the same name as the requested index. When index names are not \
                        specified, they are auto generated and can cause conflicts.";
            return Err(conflict(Code::IndexKeySpecsConflict, text, named, new));
        }
        if !same_settings(named, new) {
            let text = "An equivalent index already exists with the same name but different options.";
            return Err(conflict(Code::IndexOptionsConflict, text, named, new));
        }
        return Ok(Addition::Exists);
    }
    if let Some(twin) = existing.iter().find(|spec| same_index(spec, new)) {
        if !same_settings(twin, new) {
            let text = "An equivalent index already exists with a different name and options.";
            return Err(conflict(Code::IndexOptionsConflict, text, twin, new));
        }
        let text = format!("Index already exists with a different name: {}", twin.name);
        return Err(Error::command(Code::IndexOptionsConflict, text));
    }
    if existing.len() >= INDEXES_MAX {
        let text = format!("add index fails, too many indexes, the limit is {INDEXES_MAX}");
        return Err(Error::command(Code::CannotCreateIndex, text));
    }
    Ok(Addition::New)
}

/// Returns the positions of the indexes to drop, in the order of the list.
///
/// # Errors
/// `IndexNotFound` (27); `InvalidOptions` (72) for the index on `_id`; `AmbiguousIndexKeyPattern` (181) for a key of several
/// indexes.
pub fn dropped(namespace: &Namespace, existing: &[IndexSpec], selector: &IndexSelector) -> Result<Vec<usize>> {
    let mut indexes = match selector {
        IndexSelector::All => (0..existing.len()).filter(|&index| !existing[index].is_id()).collect(),
        IndexSelector::Names(names) => {
            let mut indexes = Vec::with_capacity(names.len());
            for name in names {
                indexes.push(named(namespace, existing, name)?);
            }
            indexes
        }
        IndexSelector::Key(key) => vec![keyed(existing, key)?],
    };
    indexes.sort_unstable();
    indexes.dedup();
    if indexes.iter().any(|&index| existing[index].is_id()) {
        return Err(Error::command(Code::InvalidOptions, "cannot drop _id index"));
    }
    Ok(indexes)
}

/// Returns the position of the one index that a selector names.
///
/// # Errors
/// `IndexNotFound` (27); `AmbiguousIndexKeyPattern` (181); `BadValue` (2) if the selector does not name exactly one.
pub fn selected(namespace: &Namespace, existing: &[IndexSpec], selector: &IndexSelector) -> Result<usize> {
    match selector {
        IndexSelector::Names(names) if names.len() == 1 => named(namespace, existing, &names[0]),
        IndexSelector::Key(key) => keyed(existing, key),
        _ => Err(Error::command(Code::BadValue, "exactly one index must be named")),
    }
}

fn named(namespace: &Namespace, existing: &[IndexSpec], name: &str) -> Result<usize> {
    existing.iter().position(|spec| spec.name == name).ok_or_else(|| {
        Error::command(Code::IndexNotFound, format!("index not found with name [{name}] in {namespace}"))
    })
}

/// MongoDB's code for a key of several indexes.
const AMBIGUOUS_INDEX_KEY_PATTERN: Code = Code(181);

fn keyed(existing: &[IndexSpec], key: &bson::RawDocument) -> Result<usize> {
    let mut matching = existing.iter().enumerate().filter(|(_, spec)| same_key(&spec.key, key));
    match (matching.next(), matching.next()) {
        (None, _) => {
            let text = format!("can't find index with key: {}", notation::document(key));
            Err(Error::command(Code::IndexNotFound, text))
        }
        (Some((index, _)), None) => Ok(index),
        (Some((_, one)), Some((_, other))) => Err(Error::command(
            AMBIGUOUS_INDEX_KEY_PATTERN,
            format!(
                "{} indexes with key {}: '{}', '{}'; drop by name",
                2,
                notation::document(key),
                one.name,
                other.name
            ),
        )),
    }
}

/// Returns whether two key patterns have the same fields, in the same order, with the same directions (`1` equals `1.0`).
pub fn same_key(one: &bson::RawDocument, other: &bson::RawDocument) -> bool {
    let mut others = other.iter().flatten();
    let all = one.iter().flatten().all(|(name, value)| {
        others.next().is_some_and(|(other_name, other_value)| {
            name.as_str() == other_name.as_str() && super::specification::same_direction(value, other_value)
        })
    });
    all && others.next().is_none()
}

fn same_index(one: &IndexSpec, other: &IndexSpec) -> bool {
    same_key(&one.key, &other.key)
        && one.unique == other.unique
        && one.sparse == other.sparse
        && one.partial_filter == other.partial_filter
        && one.collation == other.collation
}

fn same_settings(one: &IndexSpec, other: &IndexSpec) -> bool {
    one.expire_after_seconds == other.expire_after_seconds && one.hidden == other.hidden
}

fn conflict(code: Code, text: &str, existing: &IndexSpec, new: &IndexSpec) -> Error {
    let (new, existing) = (notation::document(&new.to_document()), notation::document(&existing.to_document()));
    Error::command(code, format!("{text} Requested index: {new}, existing index: {existing}"))
}
