//! Array filters: the conditions behind `$[name]` in a path.
//!
//! `{"x.qty": {$lt: 5}}` is an ordinary filter over a document whose only field is called `x`: the array element under
//! test is put into such a document. So an array filter means exactly what the same filter means in a query.

use bson::{RawDocument, RawDocumentBuf};

use crate::element::{Element, elements};
use crate::raw_writer::RawWriter;
use crate::{Code, CompileOptions, Context, Error, Filter, Result, text};
#[derive(Debug)]
pub(super) struct ArrayFilter {
    identifier: String,
    filter: Filter,
}

/// The conditions of an update; those that its paths use are marked.
#[derive(Debug, Default)]
pub(super) struct ArrayFilters {
    filters: Vec<ArrayFilter>,
    used: Vec<bool>,
}

impl ArrayFilters {
    /// Compiles array filters.
    ///
    /// # Errors
    /// Returns `FailedToParse` (9) for a filter without or with several names, or for a second one of the same name; `BadValue`
    /// (2) for a name that is not alphanumeric and starts with a lower-case letter.
    pub(super) fn compile(documents: &[RawDocumentBuf], options: &CompileOptions) -> Result<Self> {
        let mut filters: Vec<ArrayFilter> = Vec::with_capacity(documents.len());
        for document in documents {
            let caused = |error: Error| {
                Error::new(error.code(), format!("Error parsing array filter :: caused by :: {}", error.message()))
            };
            let identifier = identifier(document).map_err(caused)?;
            if filters.iter().any(|filter| filter.identifier == identifier) {
                let message = format!("Found multiple array filters with the same top-level field name {identifier}");
                return Err(Error::new(Code::FailedToParse, message));
            }
            let filter = Filter::compile(document, options).map_err(caused)?;
            filters.push(ArrayFilter { identifier, filter });
        }
        let used = vec![false; filters.len()];
        Ok(ArrayFilters { filters, used })
    }

    /// Returns the index of the filter that `$[identifier]` in `path` refers to.
    pub(super) fn position(&mut self, identifier: &str, path: &str) -> Result<usize> {
        let Some(index) = self.filters.iter().position(|filter| filter.identifier == identifier) else {
            let message = format!("No array filter found for identifier '{identifier}' in path '{path}'");
            return Err(Error::new(Code::BadValue, message));
        };
        if let Some(used) = self.used.get_mut(index) {
            *used = true;
        }
        Ok(index)
    }

    /// Returns the filters, once all paths are known.
    ///
    /// # Errors
    /// `FailedToParse` (9) if one of them is not used.
    pub(super) fn finish(self, update: &RawDocument) -> Result<Vec<ArrayFilter>> {
        for (filter, used) in self.filters.iter().zip(&self.used) {
            if !used {
                let message = format!(
                    "The array filter for identifier '{}' was not used in the update {}",
                    filter.identifier,
                    text::document(update)
                );
                return Err(Error::new(Code::FailedToParse, message));
            }
        }
        Ok(self.filters)
    }
}

impl ArrayFilter {
    /// Tells whether an array element is selected. `buffer` is reused from call to call.
    pub(super) fn selects(&self, element: Element<'_>, buffer: &mut Vec<u8>, context: &Context) -> Result<bool> {
        buffer.clear();
        let mut writer = RawWriter::new(buffer);
        writer.copy_as(&self.identifier, element);
        writer.finish()?;
        self.filter.matches(RawDocument::from_bytes(buffer.as_slice())?, context)
    }
}

/// Returns the one name that all paths of the filter start with.
fn identifier(filter: &RawDocument) -> Result<String> {
    let mut found = None;
    collect(filter, &mut found)?;
    let Some(identifier) = found else {
        let message = "Cannot use an expression without a top-level field name in arrayFilters";
        return Err(Error::new(Code::FailedToParse, message));
    };
    let mut characters = identifier.chars();
    let valid = characters.next().is_some_and(|first| first.is_ascii_lowercase())
        && characters.all(|character| character.is_ascii_alphanumeric());
    if !valid {
        let message = format!(
            "The top-level field name must be an alphanumeric string beginning with a lowercase letter, found \
             '{identifier}'"
        );
        return Err(Error::new(Code::BadValue, message));
    }
    Ok(identifier)
}

fn collect(filter: &RawDocument, found: &mut Option<String>) -> Result<()> {
    for field in elements(filter) {
        let field = field?;
        match field.name() {
            "$and" | "$or" | "$nor" => {
                let Some(branches) = field.as_array()? else { continue };
                for branch in elements(branches) {
                    if let Some(branch) = branch?.as_document()? {
                        collect(branch, found)?;
                    }
                }
            }
            // The compilation of the filter refuses other operators.
            operator if operator.starts_with('$') => {}
            path => {
                let name = path.split('.').next().unwrap_or_default();
                match found {
                    None => *found = Some(name.to_owned()),
                    Some(other) if other == name => {}
                    Some(other) => {
                        let message = format!("Expected a single top-level field name, found '{other}' and '{name}'");
                        return Err(Error::new(Code::FailedToParse, message));
                    }
                }
            }
        }
    }
    Ok(())
}
