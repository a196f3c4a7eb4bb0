//! `$min`, `$max` and `$currentDate`: operators that set a value or leave the present one.

use std::cmp::Ordering;

use bson::{RawBson, RawBsonRef};

use crate::element::{Element, OwnedElement};
use crate::{Code, Context, Error, Result, bson_type, order};

use super::super::tree::Value;
use super::{Scope, Target};

/// `$min` and `$max`.
#[derive(Debug)]
pub(in crate::update) struct Extreme {
    operand: OwnedElement,
    /// The order of operand and present value in which the operand replaces the value.
    wins: Ordering,
}

impl Extreme {
    pub(super) fn min(operand: RawBsonRef<'_>) -> Self {
        Extreme { operand: OwnedElement::new(operand), wins: Ordering::Less }
    }

    pub(super) fn max(operand: RawBsonRef<'_>) -> Self {
        Extreme { operand: OwnedElement::new(operand), wins: Ordering::Greater }
    }

    pub(super) fn operand(&self) -> Element<'_> {
        self.operand.element()
    }

    pub(super) fn apply<'a>(&'a self, target: Target<'_, 'a>, context: &Context) -> Result<bool> {
        if let Some(current) = target.current()
            && order::compare_under(self.operand.element().value()?, current.value()?, context.collation()) != self.wins
        {
            return Ok(false);
        }
        target.assign(Value::Borrowed(self.operand.element()))
    }
}
#[derive(Clone, Copy, Debug)]
pub(in crate::update) enum CurrentDate {
    Date,
    Timestamp,
}

impl CurrentDate {
    pub(super) fn compile(operand: RawBsonRef<'_>) -> Result<Self> {
        let bad = |message: String| Err(Error::new(Code::BadValue, message));
        let document = match operand {
            RawBsonRef::Boolean(_) => return Ok(CurrentDate::Date),
            RawBsonRef::Document(document) => document,
            other => {
                return bad(format!(
                    "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression \
                     ({{$type: 'timestamp/date'}}).",
                    bson_type::type_name(other)
                ));
            }
        };
        let mut kind = None;
        for field in document.iter() {
            let (name, value) = field?;
            kind = match (name.as_str(), value) {
                ("$type", RawBsonRef::String("date")) => Some(CurrentDate::Date),
                ("$type", RawBsonRef::String("timestamp")) => Some(CurrentDate::Timestamp),
                ("$type", _) => None,
                (other, _) => return bad(format!("Unrecognized $currentDate option: {other}")),
            };
        }
        match kind {
            Some(kind) => Ok(kind),
            None => bad(
                "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: \
                 'date'}}}"
                    .to_owned(),
            ),
        }
    }

    pub(super) fn apply(self, target: Target<'_, '_>, scope: &Scope<'_, '_>) -> Result<bool> {
        let value = match self {
            CurrentDate::Date => RawBson::DateTime(scope.context.now),
            CurrentDate::Timestamp => RawBson::Timestamp(scope.context.cluster_time),
        };
        target.assign(Value::Owned(OwnedElement::from(value)))
    }
}
