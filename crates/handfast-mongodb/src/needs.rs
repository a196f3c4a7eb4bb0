//! Determines the capabilities that a request needs, before it is sent.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::collation::{VARIABLE, is_simple, simple};
use handfast_store::{
    Aggregate, Count, CreateIndexes, Delete, Distinct, Find, FindAndModify, Hint, Modification, ModifyCollection,
    RenameCollection, Result, Update, UpdateSpec,
};

use crate::capability::{Capabilities, Capability};

#[cfg(test)]
mod tests;

/// A request that may need capabilities.
pub(crate) trait Needs {
    /// Calls `need` for each needed capability, until it returns an error.
    fn needs(&self, need: &mut dyn FnMut(Capability) -> Result<()>) -> Result<()>;
}

/// Refuses a request that needs a missing capability.
///
/// # Errors
/// `CommandNotSupported` (115) with the name of the capability.
pub(crate) fn check(request: &impl Needs, capabilities: &Capabilities) -> Result<()> {
    if capabilities.missing().is_empty() {
        return Ok(());
    }
    request.needs(&mut |capability| capabilities.need(capability))
}

type Need<'n> = &'n mut dyn FnMut(Capability) -> Result<()>;

fn hint(hint: Option<&Hint>, need: Need<'_>) -> Result<()> {
    hint.map_or(Ok(()), |_| need(Capability::Hints))
}

fn variables(variables: &RawDocument, need: Need<'_>) -> Result<()> {
    for (name, _) in variables.iter().flatten() {
        if name == VARIABLE && is_simple(variables) {
            continue;
        }
        need(if name == VARIABLE { Capability::Collations } else { Capability::Variables })?;
    }
    Ok(())
}

fn collation(collation: Option<&RawDocumentBuf>, need: Need<'_>) -> Result<()> {
    collation.filter(|collation| **collation != simple()).map_or(Ok(()), |_| need(Capability::Collations))
}

fn change(update: &UpdateSpec, array_filters: &[bson::RawDocumentBuf], need: Need<'_>) -> Result<()> {
    match update {
        UpdateSpec::Pipeline(_) => need(Capability::PipelineUpdates)?,
        UpdateSpec::Document(document) => values(document, is_replacement(document), need)?,
    }
    if array_filters.is_empty() { Ok(()) } else { need(Capability::ArrayFilters) }
}

impl Needs for Find {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        hint(self.hint.as_ref(), need)?;
        variables(&self.variables, need)
    }
}

impl Needs for Count {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        hint(self.hint.as_ref(), need)?;
        collation(self.collation.as_ref(), need)
    }
}

impl Needs for Distinct {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        hint(self.hint.as_ref(), need)?;
        collation(self.collation.as_ref(), need)
    }
}

impl Needs for Aggregate {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        hint(self.hint.as_ref(), need)?;
        variables(&self.variables, need)
    }
}

impl Needs for Update {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        variables(&self.variables, need)?;
        for statement in &self.statements {
            id(&statement.filter, need)?;
            change(&statement.update, &statement.array_filters, need)?;
            hint(statement.hint.as_ref(), need)?;
            if !statement.sort.is_empty() {
                need(Capability::SortedUpdates)?;
            }
            if !statement.constants.is_empty() {
                need(Capability::Constants)?;
            }
        }
        Ok(())
    }
}

impl Needs for FindAndModify {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        variables(&self.variables, need)?;
        hint(self.hint.as_ref(), need)?;
        match &self.modification {
            Modification::Remove => Ok(()),
            Modification::Update { update, array_filters, .. } => {
                id(&self.filter, need)?;
                change(update, array_filters, need)
            }
        }
    }
}

impl Needs for Delete {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        variables(&self.variables, need)?;
        self.statements.iter().try_for_each(|statement| hint(statement.hint.as_ref(), need))
    }
}

impl Needs for CreateIndexes {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        for index in &self.indexes {
            let options = [
                (index.sparse, Capability::SparseIndexes),
                (index.partial_filter.is_some(), Capability::PartialIndexes),
                (index.expire_after_seconds.is_some(), Capability::ExpiringIndexes),
                (index.hidden, Capability::HiddenIndexes),
                (index.collation.as_ref().is_some_and(|collation| *collation != simple()), Capability::Collations),
            ];
            options.into_iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, capability)| need(capability))?;
        }
        Ok(())
    }
}

impl Needs for ModifyCollection {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        self.index.as_ref().map_or(Ok(()), |_| need(Capability::IndexChanges))
    }
}

impl Needs for RenameCollection {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        if self.from.database() != self.to.database() {
            need(Capability::RenameAcrossDatabases)?;
        }
        if self.drop_target { need(Capability::RenameOntoAnother) } else { Ok(()) }
    }
}

pub(crate) struct Stored<'d>(pub(crate) &'d RawDocument);

impl Needs for Stored<'_> {
    fn needs(&self, need: Need<'_>) -> Result<()> {
        id(self.0, need)?;
        values(self.0, true, need)
    }
}

/// Calls `need` for the `_id` of a written document or of a filter.
fn id(document: &RawDocument, need: Need<'_>) -> Result<()> {
    match document.get("_id") {
        Ok(Some(id)) if has_nan(id) => need(Capability::NanIds),
        _ => Ok(()),
    }
}

/// Returns whether a value is or contains NaN.
fn has_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(double) => double.is_nan(),
        RawBsonRef::Decimal128(decimal) => decimal.to_string() == "NaN",
        RawBsonRef::Document(document) => document.iter().flatten().any(|(_, inner)| has_nan(inner)),
        RawBsonRef::Array(elements) => elements.into_iter().flatten().any(has_nan),
        _ => false,
    }
}

/// Returns whether an update is a replacement, by its first field.
fn is_replacement(update: &RawDocument) -> bool {
    !update.iter().flatten().next().is_some_and(|(name, _)| name.as_str().starts_with('$'))
}

/// Calls `need` for the values of a document, and for its field names and arrays if it is stored unchanged: those of an
/// operator are paths and arguments. The document has passed the depth check.
fn values(document: &RawDocument, is_stored: bool, need: Need<'_>) -> Result<()> {
    for (name, value) in document.iter().flatten() {
        if is_stored && name.as_str().contains('.') {
            need(Capability::DottedNames)?;
        }
        self::value(value, is_stored, false, need)?;
    }
    Ok(())
}

fn value(value: RawBsonRef<'_>, is_stored: bool, is_element: bool, need: Need<'_>) -> Result<()> {
    match value {
        RawBsonRef::Document(document) => values(document, is_stored, need),
        RawBsonRef::Array(elements) => {
            if is_stored && is_element {
                need(Capability::NestedArrays)?;
            }
            elements.into_iter().flatten().try_for_each(|element| self::value(element, is_stored, true, need))
        }
        RawBsonRef::Decimal128(_) => need(Capability::Decimals),
        RawBsonRef::Double(double) if !double.is_finite() => need(Capability::InfiniteNumbers),
        RawBsonRef::MinKey | RawBsonRef::MaxKey => need(Capability::ExtremeKeys),
        RawBsonRef::JavaScriptCode(_)
        | RawBsonRef::JavaScriptCodeWithScope(_)
        | RawBsonRef::Symbol(_)
        | RawBsonRef::DbPointer(_)
        | RawBsonRef::Undefined => need(Capability::ObsoleteTypes),
        _ => Ok(()),
    }
}
