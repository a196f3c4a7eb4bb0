//! Combines the caller's update and the pattern's own into one update of one document.

use bson::{Bson, Document};
use handfast_mql::{CompileOptions, Filter, Update, UpdateOptions, UpdateSource};

use crate::steps::raw;
use crate::{Error, Result};

/// Returns the caller's update with ours added, operator by operator.
///
/// # Errors
/// [`Error::Invalid`] for a replacement, for a pipeline, and for an update of a field that the pattern writes.
pub(crate) fn merged(update: &Document, ours: &Document) -> Result<Document> {
    let our_paths: Vec<_> =
        ours.values().filter_map(Bson::as_document).flat_map(Document::keys).map(String::as_str).collect();
    ensure_untouched(update, &our_paths)?;
    let mut merged = update.clone();
    for (operator, fields) in ours {
        let mut all = update.get_document(operator).cloned().unwrap_or_default();
        all.extend(fields.as_document().cloned().unwrap_or_default());
        merged.insert(operator, all);
    }
    Ok(merged)
}

/// Refuses an update of fields that the pattern keeps, and an update that does not consist of operators.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn ensure_untouched(update: &Document, kept: &[&str]) -> Result<()> {
    if update.is_empty() || update.keys().any(|name| !name.starts_with('$')) {
        return Err(Error::invalid("the update must consist of update operators, such as {$inc: {counter: 1}}"));
    }
    for (operator, fields) in update {
        let Bson::Document(fields) = fields else {
            return Err(Error::invalid(format!("{operator} must be followed by a document of fields")));
        };
        // The other field of a `$rename` is its value.
        let targets = fields.values().filter_map(Bson::as_str).filter(|_| operator == "$rename");
        let mut paths = fields.keys().map(String::as_str).chain(targets);
        if let Some(path) = paths.find(|path| kept.iter().any(|kept| is_within(path, kept))) {
            return Err(Error::invalid(format!("the update must not touch {path}, which is kept by the pattern")));
        }
    }
    Ok(())
}

/// Refuses an update by operators that no document allows: an unknown operator, paths in each other's way, or a change of
/// `_id`.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn ensure_possible(update: &Document) -> Result<()> {
    ensure_untouched(update, &["_id"])?;
    let update = raw(update)?;
    let options =
        UpdateOptions { array_filters: &[], compile: CompileOptions::default(), keep_empty_timestamps: false };
    let compiled = Update::compile(UpdateSource::Document(&update), &options);
    compiled.map(|_| ()).map_err(|error| Error::invalid(error.message()))
}

/// Refuses a filter that no document is compared with: an unknown operator, or a search.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn ensure_filter(filter: &Document) -> Result<()> {
    let compiled = Filter::compile(&raw(filter)?, &CompileOptions::default());
    compiled.map(|_| ()).map_err(|error| Error::invalid(error.message()))
}

/// Returns whether two paths are equal, or one of them leads through the other.
pub(crate) fn is_within(path: &str, ours: &str) -> bool {
    let leads_into = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    leads_into(path, ours) || leads_into(ours, path)
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::{ensure_untouched, merged};

    #[test]
    fn an_update_of_a_field_of_the_pattern_is_refused() {
        let ours = doc! { "$push": { "applied": 1 } };
        let refused: [Document; 6] = [
            doc! { "$set": { "applied": 1 } },
            doc! { "$set": { "applied.0": 1 } },
            doc! { "$rename": { "applied": "a" } },
            doc! { "$rename": { "a": "applied" } },
            doc! { "$rename": { "a": "applied.b" } },
            doc! { "a": 1 },
        ];
        for update in refused {
            assert!(merged(&update, &ours).is_err(), "{update}");
            assert!(ensure_untouched(&update, &["applied"]).is_err(), "{update}");
        }
        for update in [doc! { "$set": { "a": "applied" } }, doc! { "$rename": { "a": "b" } }] {
            assert!(merged(&update, &ours).is_ok() && ensure_untouched(&update, &["applied"]).is_ok(), "{update}");
        }
    }
}
