//! Escapes update operators inside a stored document.
//!
//! The plan of a transaction is stored in its document, so that another process can finish it. Not every store accepts
//! field names that begin with `$` or have dots in them. So both characters are replaced by the full-width characters
//! that look like them (U+FF04 and U+FF0E), as MongoDB's manual used to advise: `{＄inc: {stock．left: -1}}`.

use bson::{Bson, Document};

use crate::{Error, Result};

const DOLLAR: char = '\u{ff04}';
const DOT: char = '\u{ff0e}';

/// Returns the document with names that every store accepts.
///
/// # Errors
/// [`Error::Invalid`] for a name with one of the two full-width characters, which could not be told from an escaped
/// one.
pub(super) fn escaped(document: &Document) -> Result<Document> {
    if let Some(name) = names(document).find(|name| name.contains([DOLLAR, DOT])) {
        return Err(Error::invalid(format!("the field name {name} has a full-width dollar sign or full stop in it")));
    }
    Ok(renamed(document, &|name| name.replace('$', &DOLLAR.to_string()).replace('.', &DOT.to_string())))
}

/// Returns the document that [`escaped`] was given.
pub(super) fn unescaped(document: &Document) -> Document {
    renamed(document, &|name| name.replace(DOLLAR, "$").replace(DOT, "."))
}

/// Returns all names, including those of nested documents.
fn names(document: &Document) -> impl Iterator<Item = &String> {
    let mut open: Vec<&Bson> = document.values().collect();
    let mut names: Vec<&String> = document.keys().collect();
    while let Some(value) = open.pop() {
        match value {
            Bson::Document(inner) => {
                names.extend(inner.keys());
                open.extend(inner.values());
            }
            Bson::Array(items) => open.extend(items),
            _ => {}
        }
    }
    names.into_iter()
}

fn renamed(document: &Document, rename: &impl Fn(&str) -> String) -> Document {
    document.iter().map(|(name, value)| (rename(name), renamed_value(value, rename))).collect()
}

fn renamed_value(value: &Bson, rename: &impl Fn(&str) -> String) -> Bson {
    match value {
        Bson::Document(inner) => Bson::Document(renamed(inner, rename)),
        Bson::Array(items) => Bson::Array(items.iter().map(|item| renamed_value(item, rename)).collect()),
        other => other.clone(),
    }
}
