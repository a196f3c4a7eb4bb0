//! Paths of update operators: `a.b`, `a.0`, `a.$.b`, `a.$[].b`, `a.$[name].b`.

use std::cmp::Ordering;

use crate::{Code, Error, Result};

/// The largest number of components of a path: the nesting limit of documents, so that functions may recurse along a path.
pub(super) const COMPONENTS_MAX: usize = crate::depth::NESTING_MAX + 1;
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Component {
    /// A field of a document, or an index of an array.
    Field(FieldName),
    /// `$`: the array element that the filter matched.
    Positional,
    /// `$[]`: each element of an array.
    Every,
    /// `$[name]`: the elements that an array filter selects.
    Filtered(String),
}
#[derive(Clone, Debug)]
pub(super) struct UpdatePath {
    pub(super) text: String,
    pub(super) components: Vec<Component>,
}

impl UpdatePath {
    /// Parses the path of an update.
    ///
    /// # Errors
    /// Returns `EmptyFieldName` for an empty path or component; `BadValue` for a positional form in the first place or for
    /// more than one `$`; `Overflow` for more components than documents may nest.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::new(Code::EmptyFieldName, "An empty update path is not valid."));
        }
        let mut components = Vec::new();
        for part in text.split('.') {
            if part.is_empty() {
                let message = format!("The update path '{text}' contains an empty field name, which is not allowed.");
                return Err(Error::new(Code::EmptyFieldName, message));
            }
            if components.len() == COMPONENTS_MAX {
                let message = format!("a path may have at most {COMPONENTS_MAX} components");
                return Err(Error::new(Code::Overflow, message));
            }
            components.push(component(part));
        }
        match components.first() {
            Some(Component::Positional) => {
                let message =
                    format!("Cannot have positional (i.e. '$') element in the first position in path '{text}'");
                return Err(Error::new(Code::BadValue, message));
            }
            Some(Component::Every | Component::Filtered(_)) => {
                let message = format!(
                    "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{text}'"
                );
                return Err(Error::new(Code::BadValue, message));
            }
            _ => {}
        }
        if components.iter().filter(|component| **component == Component::Positional).count() > 1 {
            let message = format!("Too many positional (i.e. '$') elements found in path '{text}'");
            return Err(Error::new(Code::BadValue, message));
        }
        Ok(UpdatePath { text: text.to_owned(), components })
    }

    /// Tells whether the path names one field without looking at a document.
    pub(super) fn is_static(&self) -> bool {
        self.components.iter().all(|component| matches!(component, Component::Field(_)))
    }

    /// Returns the text of the first `count` components.
    pub(super) fn prefix(&self, count: usize) -> String {
        self.text.split('.').take(count).collect::<Vec<_>>().join(".")
    }

    /// Tells whether one of the paths is a prefix of the other.
    pub(super) fn overlaps(&self, other: &UpdatePath) -> bool {
        self.components.iter().zip(&other.components).all(|(a, b)| a == b)
    }
}

fn component(part: &str) -> Component {
    if part == "$" {
        return Component::Positional;
    }
    match part.strip_prefix("$[").and_then(|rest| rest.strip_suffix(']')) {
        Some("") => Component::Every,
        Some(identifier) => Component::Filtered(identifier.to_owned()),
        None => Component::Field(FieldName::new(part)),
    }
}

/// A field's name in the order in which one update adds new fields: numbers first, by value, then other names by their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FieldName(String);

impl FieldName {
    pub(super) fn new(name: impl Into<String>) -> Self {
        FieldName(name.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the array index that the name means in an array.
    pub(super) fn index(&self) -> Option<usize> {
        // `usize::from_str` would take a sign.
        if self.is_numeric() { self.0.parse().ok() } else { None }
    }

    fn is_numeric(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_digit())
    }
}

impl Ord for FieldName {
    fn cmp(&self, other: &Self) -> Ordering {
        let significant = |name: &FieldName| name.0.trim_start_matches('0').len();
        match (self.is_numeric(), other.is_numeric()) {
            (true, true) => significant(self)
                .cmp(&significant(other))
                .then_with(|| self.0.trim_start_matches('0').cmp(other.0.trim_start_matches('0')))
                // "01" and "1" are two names.
                .then_with(|| self.0.cmp(&other.0)),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.0.cmp(&other.0),
        }
    }
}

impl PartialOrd for FieldName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
