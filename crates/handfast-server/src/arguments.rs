//! Reads the fields of a command by name and type, with MongoDB's error messages.
//!
//! A command reads the fields that it knows from an [`Arguments`] and then calls [`Arguments::finish`], which refuses the first
//! field that was not read. So a misspelt or unsupported option is never silently ignored, and no second list of the known
//! fields has to be kept up to date.
//!
//! ```text
//! let mut arguments = call.arguments();
//! let filter = arguments.document("filter")?;          // absent or null: None
//! let limit = arguments.unsigned("limit")?;            // any number type; negative: refused
//! arguments.unsupported(&["tailable"])?;               // {tailable: true}: refused as not supported, not as unknown
//! arguments.finish()?;                                 // {fliter: ..}: "BSON field 'find.fliter' is an unknown field."
//! ```

use std::borrow::Cow;

use bson::DateTime;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::bson_type::type_name;
use handfast_mql::collation::simple;
use handfast_mql::{Code, Collation, Number};
use handfast_wire::Sequence;

use crate::error::{CommandError, CommandResult};

/// Fields that every command may have; they are read with the request.
pub(crate) const GENERIC: &[&str] = &[
    "$db",
    "$clusterTime",
    "$readPreference",
    "$queryOptions",
    "apiDeprecationErrors",
    "apiStrict",
    "apiVersion",
    "autocommit",
    "comment",
    "lsid",
    "maxTimeMS",
    "readConcern",
    "startTransaction",
    "txnNumber",
    "writeConcern",
];

/// The number of fields that few commands exceed.
pub(crate) const FIELDS_USUAL: usize = 8;

/// The only supported collation, which compares strings by their bytes.
const SIMPLE_LOCALE: &str = "simple";

/// A field of a command, or of a document inside it.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: RawBsonRef<'a>,
}

/// The fields of a command, or of a document inside it.
pub(crate) struct Arguments<'a> {
    /// The name of the document in messages: `find`, `update.updates`.
    path: &'static str,
    fields: Cow<'a, [Field<'a>]>,
    /// The fields that have been read, one bit for each position. No command knows 64 names: with more fields than bits, one
    /// that is unknown is among the first 64.
    read: u64,
    /// The marks of the names of all fields. A command asks for many more names than it has fields, and most absent ones are
    /// recognised by their mark.
    marks: u64,
    sequences: &'a [Sequence<'a>],
}

impl<'a> Arguments<'a> {
    /// Returns the arguments of a command: its fields without its name and those that every command may have.
    pub(crate) fn of_command(path: &'static str, fields: &'a [Field<'a>], sequences: &'a [Sequence<'a>]) -> Self {
        Arguments::of_fields(path, Cow::Borrowed(fields), sequences)
    }

    /// Returns the fields of a document inside a command.
    pub(crate) fn of_document(path: &'static str, document: &'a RawDocument) -> CommandResult<Self> {
        let mut fields = Vec::new();
        for element in document {
            let (name, value) = element?;
            fields.push(Field { name: name.as_str(), value });
        }
        Ok(Arguments::of_fields(path, Cow::Owned(fields), &[]))
    }

    fn of_fields(path: &'static str, fields: Cow<'a, [Field<'a>]>, sequences: &'a [Sequence<'a>]) -> Self {
        let marks = fields.iter().fold(0, |marks, field| marks | mark(field.name));
        Arguments { path, fields, read: 0, marks, sequences }
    }

    /// Reads a value of any type. Null counts as absent.
    #[inline]
    pub(crate) fn any(&mut self, name: &str) -> CommandResult<Option<RawBsonRef<'a>>> {
        let value = self.any_or_null(name)?;
        Ok(value.filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined)))
    }

    /// Reads a value of any type, including null.
    #[inline]
    pub(crate) fn any_or_null(&mut self, name: &str) -> CommandResult<Option<RawBsonRef<'a>>> {
        // If the name is a constant, its mark is computed at compile time. Most absent fields cost no more than this test.
        if self.marks & mark(name) == 0 { Ok(None) } else { self.take(name) }
    }

    /// Reads a value of one type. Null counts as absent.
    #[inline]
    fn typed<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(RawBsonRef<'a>) -> Option<T>,
    ) -> CommandResult<Option<T>> {
        let Some(value) = self.any(name)? else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.mismatch(name, value, expected))
    }

    fn take(&mut self, name: &str) -> CommandResult<Option<RawBsonRef<'a>>> {
        let mut found = None;
        for (place, field) in self.fields.iter().enumerate().filter(|(_, field)| field.name == name) {
            if found.replace(field.value).is_some() {
                let text = format!("BSON field '{}.{name}' is a duplicate field", self.path);
                return Err(CommandError::new(DUPLICATE_FIELD, text));
            }
            self.read |= bit(place);
        }
        Ok(found)
    }

    fn mismatch(&self, name: &str, value: RawBsonRef<'_>, expected: &str) -> CommandError {
        let kind = type_name(value);
        let text = format!("BSON field '{}.{name}' is the wrong type '{kind}', expected {expected}", self.path);
        CommandError::new(Code::TypeMismatch, text)
    }

    /// Returns the error for a required field that is missing.
    pub(crate) fn missing(&self, name: &str) -> CommandError {
        let text = format!("BSON field '{}.{name}' is missing but a required field", self.path);
        CommandError::new(MISSING_FIELD, text)
    }

    pub(crate) fn required<T>(&self, name: &str, value: Option<T>) -> CommandResult<T> {
        value.ok_or_else(|| self.missing(name))
    }

    #[inline]
    pub(crate) fn document(&mut self, name: &str) -> CommandResult<Option<&'a RawDocument>> {
        self.typed(name, "type 'object'", RawBsonRef::as_document)
    }

    /// Reads a document and copies it; an absent one is empty.
    pub(crate) fn document_or_empty(&mut self, name: &str) -> CommandResult<RawDocumentBuf> {
        Ok(self.document(name)?.map(RawDocument::to_owned).unwrap_or_default())
    }

    #[inline]
    pub(crate) fn text(&mut self, name: &str) -> CommandResult<Option<&'a str>> {
        self.typed(name, "type 'string'", RawBsonRef::as_str)
    }

    #[inline]
    pub(crate) fn array(&mut self, name: &str) -> CommandResult<Option<&'a RawArray>> {
        self.typed(name, "type 'array'", RawBsonRef::as_array)
    }

    /// Reads the documents of an array field, or of the document sequence of that name.
    pub(crate) fn documents(&mut self, name: &str) -> CommandResult<Option<Vec<&'a RawDocument>>> {
        if let Some(sequence) = self.sequences.iter().find(|sequence| sequence.identifier == name) {
            return Ok(Some(sequence.documents.clone()));
        }
        let Some(array) = self.array(name)? else { return Ok(None) };
        let mut documents = Vec::new();
        for (place, element) in array.into_iter().enumerate() {
            match element? {
                RawBsonRef::Document(document) => documents.push(document),
                other => return Err(self.mismatch(&format!("{name}.{place}"), other, "type 'object'")),
            }
        }
        Ok(Some(documents))
    }

    /// Reads the documents of an array field and copies them; an absent field has none.
    pub(crate) fn owned_documents(&mut self, name: &str) -> CommandResult<Vec<RawDocumentBuf>> {
        let documents = self.documents(name)?.unwrap_or_default();
        Ok(documents.into_iter().map(RawDocument::to_owned).collect())
    }

    /// Reads `true` or `false`; no number stands for either.
    #[inline]
    pub(crate) fn flag(&mut self, name: &str) -> CommandResult<Option<bool>> {
        self.typed(name, "type 'bool'", RawBsonRef::as_bool)
    }

    /// Reads `true`, `false`, or a number, of which 0 is `false`.
    #[inline]
    pub(crate) fn lenient_flag(&mut self, name: &str) -> CommandResult<Option<bool>> {
        self.typed(name, "types '[bool, long, int, decimal, double']", as_lenient_flag)
    }

    /// Reads a number of any type, without its fraction.
    #[inline]
    pub(crate) fn integer(&mut self, name: &str) -> CommandResult<Option<i64>> {
        self.typed(name, "types '[long, int, decimal, double']", as_integer)
    }

    /// Reads a number that is not negative.
    #[inline]
    pub(crate) fn unsigned(&mut self, name: &str) -> CommandResult<Option<u64>> {
        self.integer(name)?.map(|number| not_negative(name, number)).transpose()
    }

    /// Reads a number of any type that is an integer, such as an amount of money: no fraction of it is cut off.
    ///
    /// # Errors
    /// `BadValue` (2) for a fraction, and for a number that does not fit into 64 bits.
    pub(crate) fn exact_integer(&mut self, name: &str) -> CommandResult<Option<i64>> {
        let Some(number) = self.typed(name, "types '[long, int, decimal, double']", Number::of)? else {
            return Ok(None);
        };
        number.to_i64_exact().map(Some).ok_or_else(|| {
            let text = format!("BSON field '{}.{name}' must be an integer of 64 bits", self.path);
            CommandError::new(Code::BadValue, text)
        })
    }

    /// Reads a number of any type that is an integer and not negative, such as a number of milliseconds.
    ///
    /// # Errors
    /// `BadValue` (2) for a fraction, and for a number that does not fit into 64 bits; 51024 for a negative one.
    pub(crate) fn exact_unsigned(&mut self, name: &str) -> CommandResult<Option<u64>> {
        self.exact_integer(name)?.map(|number| not_negative(name, number)).transpose()
    }

    #[inline]
    pub(crate) fn date(&mut self, name: &str) -> CommandResult<Option<DateTime>> {
        self.typed(name, "type 'date'", RawBsonRef::as_datetime)
    }

    /// Refuses options that are known and not supported, unless they are null or `false`.
    pub(crate) fn unsupported(&mut self, names: &[&str]) -> CommandResult<()> {
        for name in names {
            match self.any(name)? {
                None | Some(RawBsonRef::Boolean(false)) => {}
                Some(_) => {
                    let text = format!("the option '{}.{name}' is not supported", self.path);
                    return Err(CommandError::new(Code::NotImplemented, text));
                }
            }
        }
        Ok(())
    }

    /// Accepts options that have no effect on this server.
    pub(crate) fn ignored(&mut self, names: &[&str]) -> CommandResult<()> {
        for name in names {
            self.any(name)?;
        }
        Ok(())
    }

    /// Returns the collation with all of its fields; `None` if there is none. The simple one overrides the default of a collection.
    pub(crate) fn collation(&mut self) -> CommandResult<Option<RawDocumentBuf>> {
        let Some(given) = self.document("collation")?.filter(|given| !given.is_empty()) else { return Ok(None) };
        Ok(Some(Collation::parse(given)?.map_or_else(simple, |collation| collation.document().to_owned())))
    }

    /// Returns the collation of a new collection or view; `None` for the simple one.
    pub(crate) fn new_collation(&mut self) -> CommandResult<Option<RawDocumentBuf>> {
        Ok(self.collation()?.filter(|collation| *collation != simple()))
    }

    /// Refuses a collation other than the simple one.
    pub(crate) fn simple_collation(&mut self) -> CommandResult<()> {
        let Some(collation) = self.document("collation")? else { return Ok(()) };
        match collation.get("locale")? {
            None if collation.is_empty() => Ok(()),
            Some(RawBsonRef::String(SIMPLE_LOCALE)) => Ok(()),
            _ => {
                let text =
                    format!("the option '{}.collation' is not supported, except {{locale: \"simple\"}}", self.path);
                Err(CommandError::new(Code::NotImplemented, text))
            }
        }
    }

    /// Refuses fields that were not read.
    pub(crate) fn finish(self) -> CommandResult<()> {
        match self.fields.iter().enumerate().find(|(place, _)| self.read & bit(*place) == 0) {
            None => Ok(()),
            Some((_, field)) => {
                let text = format!("BSON field '{}.{}' is an unknown field.", self.path, field.name);
                Err(CommandError::new(UNKNOWN_FIELD, text))
            }
        }
    }
}

fn not_negative(name: &str, number: i64) -> CommandResult<u64> {
    u64::try_from(number).map_err(|_| {
        let text = format!("BSON field '{name}' value must be >= 0, actual value '{number}'");
        CommandError::new(NEGATIVE_VALUE, text)
    })
}

/// Returns the bit of a position, or 0 beyond the 64th.
fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}

/// Returns one of 64 bits for a name. Different names may have the same bit.
#[inline]
fn mark(name: &str) -> u64 {
    let first = name.as_bytes().first().copied().unwrap_or_default();
    1 << ((usize::from(first) + 7 * name.len()) % 64)
}

// MongoDB has a code of its own for each check of its command parser.
const DUPLICATE_FIELD: Code = Code(40_413);
const MISSING_FIELD: Code = Code(40_414);
const UNKNOWN_FIELD: Code = Code(40_415);
const NEGATIVE_VALUE: Code = Code(51_024);

/// Returns the value of a number of any type.
pub(crate) fn as_number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Int32(number) => Some(f64::from(number)),
        #[expect(clippy::cast_precision_loss, reason = "compared with zero and bounds only")]
        RawBsonRef::Int64(number) => Some(number as f64),
        RawBsonRef::Double(number) => Some(number),
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Returns `true`, `false`, or what a number stands for, of which 0 is `false`.
pub(crate) fn as_lenient_flag(value: RawBsonRef<'_>) -> Option<bool> {
    value.as_bool().or_else(|| Some(as_number(value)? != 0.0))
}

/// Returns a number of any type without its fraction. A number that is out of range becomes the nearest bound, NaN becomes 0.
pub(crate) fn as_integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        #[expect(clippy::cast_possible_truncation, reason = "it saturates, and NaN becomes 0")]
        other => as_number(other).map(|number| number as i64),
    }
}

#[cfg(test)]
mod tests;
