//! Reads the configuration file: values with the lines of their keys.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Spanned, Value};

use super::{Mistake, Origin, keys, one_line, unknown};

/// Returns the values of a file by key.
///
/// # Errors
/// Fails if the text is no TOML, or if a key is unknown.
pub(super) fn read(path: &Path, text: &str) -> Result<BTreeMap<String, (Value, Origin)>, Mistake> {
    let parsed: BTreeMap<Spanned<String>, Value> = toml::from_str(text).map_err(|error| {
        let (line, column) = position(text, error.span().map_or(0, |span| span.start));
        Mistake::Syntax { path: path.to_owned(), line, column, reason: one_line(error.message()) }
    })?;
    let known = keys();
    let mut values = BTreeMap::new();
    for (key, value) in parsed {
        let (line, _) = position(text, key.span().start);
        let key = key.into_inner();
        if !known.contains(&key) {
            let advice = unknown::advice_on_key(&key, &known);
            return Err(Mistake::UnknownKey { path: path.to_owned(), line, key, advice });
        }
        values.insert(key, (value, Origin::File { path: path.to_owned(), line }));
    }
    Ok(values)
}

/// Returns line and column of a byte, both from 1; the column in characters.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let (line, column) = (before.matches('\n').count(), before.rsplit('\n').next().unwrap_or_default());
    (line + 1, column.chars().count() + 1)
}
