//! The update operators, one family a file: how each compiles its operand and changes a field or element.

mod add_to_set;
mod arithmetic;
mod assign;
mod bit;
mod pull;
mod push;
mod set_of_values;

use bson::{RawBsonRef, RawDocument};

use crate::element::{Element, OwnedElement, elements, find, identical};
use crate::{Code, CompileOptions, Context, Error, Result, text};

use super::growth::GrowthLimit;
use super::path::{FieldName, UpdatePath};
use super::tree::{Container, Value};

pub(super) use arithmetic::Arithmetic;
pub(super) use assign::{CurrentDate, Extreme};
#[derive(Debug)]
pub(super) enum Action {
    Set(OwnedElement),
    SetOnInsert(OwnedElement),
    Unset,
    Extreme(Extreme),
    CurrentDate(CurrentDate),
    Arithmetic(Arithmetic),
    Bit(bit::Bit),
    Push(push::Push),
    AddToSet(add_to_set::AddToSet),
    Pull(pull::Pull),
    PullAll(pull::PullAll),
    Pop(pull::Pop),
    /// `$rename` at its target, with the index of the rename; the value is the one that was removed from the source.
    RenameTo(usize),
    /// `$rename` at its source: nothing is left to do, the path is only reserved.
    RenameFrom,
}
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) path: UpdatePath,
    pub(super) action: Action,
}

/// The effect of an operator on a field that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Creates the field, with its parents.
    Create,
    /// Leaves the document as it is, and fails if the field could not be created.
    Viable,
    /// Leaves the document as it is.
    Ignore,
}

/// The state that all operators of one application share.
pub(super) struct Scope<'a, 'c> {
    pub(super) document: &'a RawDocument,
    /// The document is a new one, made by an upsert.
    pub(super) inserting: bool,
    pub(super) context: &'c Context,
    /// The values that the `$rename`s took from their sources.
    pub(super) renamed: Vec<Option<Value<'a>>>,
}

/// The field or array element that an operator changes.
pub(super) struct Target<'t, 'a> {
    pub(super) container: &'t mut Container<'a>,
    pub(super) name: &'t FieldName,
    pub(super) at: Option<usize>,
    pub(super) growth: &'t mut GrowthLimit,
}

/// Reads the operand of the operator `name` at `path`; returns `None` for an unknown operator.
pub(super) fn compile(
    name: &str,
    path: &UpdatePath,
    operand: Element<'_>,
    options: &CompileOptions,
) -> Result<Option<Action>> {
    let boxed = || -> Result<OwnedElement> { Ok(OwnedElement::new(operand.value()?)) };
    Ok(Some(match name {
        "$set" => Action::Set(boxed()?),
        "$setOnInsert" => Action::SetOnInsert(boxed()?),
        "$unset" => Action::Unset,
        "$min" => Action::Extreme(Extreme::min(operand.value()?)),
        "$max" => Action::Extreme(Extreme::max(operand.value()?)),
        "$currentDate" => Action::CurrentDate(CurrentDate::compile(operand.value()?)?),
        "$inc" => Action::Arithmetic(Arithmetic::increment(path, operand.value()?)?),
        "$mul" => Action::Arithmetic(Arithmetic::multiply(path, operand.value()?)?),
        "$bit" => Action::Bit(bit::Bit::compile(operand.value()?)?),
        "$push" => Action::Push(push::Push::compile(operand)?),
        "$addToSet" => Action::AddToSet(add_to_set::AddToSet::compile(operand)?),
        "$pull" => Action::Pull(pull::Pull::compile(operand, options)?),
        "$pullAll" => Action::PullAll(pull::PullAll::compile(operand)?),
        "$pop" => Action::Pop(pull::Pop::compile(path, operand.value()?)?),
        _ => return Ok(None),
    }))
}

impl Action {
    /// Returns how many levels deeper than the path's last component the operand reaches.
    pub(super) fn nesting(&self) -> usize {
        match self {
            Action::Set(value) | Action::SetOnInsert(value) => nesting(value.element()),
            Action::Extreme(extreme) => nesting(extreme.operand()),
            Action::Push(push) => 1 + push.values().map(nesting).max().unwrap_or(0),
            Action::AddToSet(add) => 1 + add.values().map(nesting).max().unwrap_or(0),
            // The moved value is not known before the update is applied.
            Action::RenameTo(_) => usize::MAX / 2,
            _ => 0,
        }
    }

    pub(super) fn missing(&self, scope: &Scope<'_, '_>) -> Missing {
        match self {
            Action::Unset | Action::RenameFrom => Missing::Ignore,
            Action::SetOnInsert(_) if !scope.inserting => Missing::Ignore,
            Action::RenameTo(_) if !self.has_value_to_move(scope) => Missing::Ignore,
            Action::Pull(_) | Action::PullAll(_) | Action::Pop(_) => Missing::Viable,
            _ => Missing::Create,
        }
    }

    /// Tells whether the action is a `$rename` whose value exists here.
    pub(super) fn has_value_to_move(&self, scope: &Scope<'_, '_>) -> bool {
        matches!(self, Action::RenameTo(index) if matches!(scope.renamed.get(*index), Some(Some(_))))
    }

    /// Applies the action, and tells whether it touched anything.
    pub(super) fn apply<'a>(
        &'a self,
        path: &UpdatePath,
        target: Target<'_, 'a>,
        scope: &mut Scope<'a, '_>,
    ) -> Result<bool> {
        if target.at.is_none() && self.missing(scope) != Missing::Create {
            return Ok(false);
        }
        match self {
            Action::Set(value) => target.assign(Value::Borrowed(value.element())),
            Action::SetOnInsert(value) if scope.inserting => target.assign(Value::Borrowed(value.element())),
            Action::SetOnInsert(_) | Action::RenameFrom => Ok(false),
            Action::Unset => Ok(target.remove()),
            Action::Extreme(extreme) => extreme.apply(target, scope.context),
            Action::CurrentDate(date) => date.apply(target, scope),
            Action::Arithmetic(arithmetic) => arithmetic.apply(target, scope),
            Action::Bit(bit) => bit.apply(target, scope),
            Action::Push(push) => push.apply(target, scope),
            Action::AddToSet(add) => add.apply(target, scope.context),
            Action::Pull(pull) => pull.apply(target, scope),
            Action::PullAll(pull) => pull.apply(target, scope),
            Action::Pop(pop) => pop.apply(path, target),
            Action::RenameTo(index) => match scope.renamed.get_mut(*index).and_then(Option::take) {
                Some(value) => target.assign(value),
                None => Ok(false),
            },
        }
    }
}

impl<'t, 'a> Target<'t, 'a> {
    pub(super) fn current(&self) -> Option<Element<'_>> {
        self.container.element(self.at?)
    }

    /// Sets the value; returns `false` if the field already has the same bytes.
    pub(super) fn assign(self, value: Value<'a>) -> Result<bool> {
        match self.at {
            None => self.container.add(self.name, value, self.growth)?,
            Some(at) => {
                if let (Some(old), Some(new)) = (self.container.element(at), value.element())
                    && identical(old, new)
                {
                    return Ok(false);
                }
                self.container.replace(at, value);
            }
        }
        Ok(true)
    }

    /// Removes the field; in an array, replaces the element with `null`.
    fn remove(self) -> bool {
        let Some(at) = self.at else { return false };
        if !self.container.is_array() {
            self.container.take(at);
            return true;
        }
        if self.container.element(at).is_some_and(|element| matches!(element.value(), Ok(RawBsonRef::Null))) {
            return false;
        }
        self.container.replace(at, Value::Owned(OwnedElement::new(RawBsonRef::Null)));
        true
    }

    /// Opens the array in the field, and returns it with the limit of its growth. The caller has checked that there is a value.
    ///
    /// # Errors
    /// Returns the error of `wrong_type`, if the value is no array.
    fn into_array(
        self,
        wrong_type: impl FnOnce(RawBsonRef<'_>) -> Error,
    ) -> Result<(&'t mut Container<'a>, &'t mut GrowthLimit)> {
        let at = self.at.unwrap_or(usize::MAX);
        if let Some(element) = self.container.element(at)
            && !element.is_array()
        {
            return Err(wrong_type(element.value()?));
        }
        let missing = || Error::new(Code::InternalError, "an update operator found no array");
        Ok((self.container.child(at)?.ok_or_else(missing)?, self.growth))
    }
}

/// Returns the error of a `$rename` that would take from an array or put into one.
pub(super) fn rename_through_array(side: &str, path: &UpdatePath, depth: usize, scope: &Scope<'_, '_>) -> Error {
    let array = path.prefix(depth);
    let name = array.rsplit('.').next().unwrap_or_default();
    let message = format!(
        "The {side} field cannot be an array element, '{}' in doc with {} has an array field called '{name}'",
        path.text,
        id_field(scope.document),
    );
    Error::new(Code::BadValue, message)
}

/// Returns `_id: 1`, as messages name a document.
fn id_field(document: &RawDocument) -> String {
    match find(document, "_id").and_then(|id| id.map(|id| id.value()).transpose()) {
        Ok(Some(id)) => text::field("_id", id),
        _ => "no id".to_owned(),
    }
}

/// Returns how many levels of documents and arrays a value has: 0 for a scalar, 1 for `{}`.
fn nesting(element: Element<'_>) -> usize {
    let inner = match element.value() {
        Ok(RawBsonRef::Document(document)) => document,
        Ok(RawBsonRef::JavaScriptCodeWithScope(code)) => code.scope,
        _ => match element.as_array() {
            Ok(Some(array)) => array,
            _ => return 0,
        },
    };
    1 + elements(inner).flatten().map(nesting).max().unwrap_or(0)
}
