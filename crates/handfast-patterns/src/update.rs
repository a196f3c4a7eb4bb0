//! Combines the caller's update and the pattern's own into one update of one document.

use bson::{Bson, Document};

use crate::{Error, Result};

/// Returns the caller's update with ours added, operator by operator.
///
/// # Errors
/// [`Error::Invalid`] for a replacement, for a pipeline, and for an update of a field that the pattern writes.
pub(crate) fn merged(update: &Document, ours: &Document) -> Result<Document> {
    if update.is_empty() || update.keys().any(|name| !name.starts_with('$')) {
        return Err(Error::invalid("the update must consist of update operators, such as {$inc: {counter: 1}}"));
    }
    let our_paths: Vec<_> = ours.values().filter_map(Bson::as_document).flat_map(Document::keys).collect();
    let mut merged = update.clone();
    for (operator, fields) in update {
        let Bson::Document(fields) = fields else {
            return Err(Error::invalid(format!("{operator} must be followed by a document of fields")));
        };
        if let Some(path) = fields.keys().find(|path| our_paths.iter().any(|ours| is_within(path, ours))) {
            return Err(Error::invalid(format!("the update must not touch {path}, which is kept by the pattern")));
        }
    }
    for (operator, fields) in ours {
        let mut all = update.get_document(operator).cloned().unwrap_or_default();
        all.extend(fields.as_document().cloned().unwrap_or_default());
        merged.insert(operator, all);
    }
    Ok(merged)
}

/// Returns whether two paths are equal, or one of them leads through the other.
pub(crate) fn is_within(path: &str, ours: &str) -> bool {
    let leads_into = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    leads_into(path, ours) || leads_into(ours, path)
}
