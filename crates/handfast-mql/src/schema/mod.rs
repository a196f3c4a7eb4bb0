//! `$jsonSchema`: the form of documents, as MongoDB's version of JSON Schema (draft 4) describes it.
//!
//! A keyword that is about one type of values holds for values of all others: `{minimum: 5}` accepts a text. A property that is missing
//! is asked for by `required` alone.
//!
//! ```text
//! {bsonType: "object", required: ["name"], properties: {age: {bsonType: "int", minimum: 0}}}
//! ```
//!
//! [`Schema::failures`] says which rules a value breaks, in the words of MongoDB's `errInfo`.
//!
//! Source: the MongoDB manual, "$jsonSchema" and "Schema Validation"; JSON Schema, draft 4, "Validation".

mod compile;
mod equality;
pub(crate) mod report;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bson::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::filter::{RegexTest, TypeSet};
use crate::{Context, Number, Result};
use equality::{canonical, duplicate};

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema {
    written: Written,
    rules: Vec<Rule>,
}

/// A schema as it was written: a part of the outermost one, which all of them share.
#[derive(Clone, Debug)]
struct Written {
    whole: Arc<RawDocumentBuf>,
    bytes: Range<usize>,
}

impl Written {
    /// Returns the part. Its bytes were a document when it was compiled.
    fn document(&self) -> &RawDocument {
        let bytes = self.whole.as_bytes().get(self.bytes.clone()).unwrap_or_default();
        RawDocument::from_bytes(bytes).unwrap_or(&self.whole)
    }
}

/// A keyword with its operand.
#[derive(Clone, Debug)]
enum Rule {
    /// `bsonType` or `type`, by its name.
    Type(&'static str, TypeSet),
    /// The canonical forms of the values.
    Enum(BTreeSet<Vec<u8>>),
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Box<Schema>),
    Bound(Bound),
    MultipleOf(Number),
    /// A number of characters, items or fields.
    Count(Counted, u64),
    Pattern(RegexTest),
    UniqueItems,
    Items(Items),
    /// The items from this place on.
    AdditionalItems(usize, Additional),
    Required(Vec<String>),
    Properties(Vec<(String, Schema)>),
    PatternProperties(Vec<(RegexTest, Schema)>),
    AdditionalProperties(OtherProperties),
    Dependencies(Vec<(String, Dependency)>),
}

/// `minimum` or `maximum`.
#[derive(Clone, Debug)]
struct Bound {
    is_maximum: bool,
    is_exclusive: bool,
    value: RawBson,
}

/// The things that a keyword counts, and whether its operand is their least or their greatest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    MinLength,
    MaxLength,
    MinItems,
    MaxItems,
    MinProperties,
    MaxProperties,
}

/// `items`.
#[derive(Clone, Debug)]
enum Items {
    /// Every item.
    Each(Box<Schema>),
    /// The item at each place.
    Places(Vec<Schema>),
}

/// `additionalItems` or `additionalProperties`.
#[derive(Clone, Debug)]
enum Additional {
    None,
    Each(Box<Schema>),
}

/// `additionalProperties`, with the properties that are none.
#[derive(Clone, Debug)]
struct OtherProperties {
    named: BTreeSet<String>,
    patterns: Vec<RegexTest>,
    additional: Additional,
}

/// The consequence of a property that exists.
#[derive(Clone, Debug)]
enum Dependency {
    Properties(Vec<String>),
    Schema(Schema),
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// MongoDB's code for an invalid schema, mostly `FailedToParse` (9) and `TypeMismatch` (14).
    pub fn compile(schema: &RawDocument) -> Result<Self> {
        let whole = Arc::new(schema.to_owned());
        compile::schema(&whole, &whole)
    }

    /// Returns the schema as it was written.
    pub fn written(&self) -> &RawDocument {
        self.written.document()
    }

    /// Tells whether a document has the form.
    ///
    /// # Errors
    /// Returns the error of a regular expression that takes too long, and that of an evaluation that is ended.
    pub fn accepts(&self, document: &RawDocument, context: &Context) -> Result<bool> {
        self.accepts_value(RawBsonRef::Document(document), context)
    }

    fn accepts_value(&self, value: RawBsonRef<'_>, context: &Context) -> Result<bool> {
        for rule in &self.rules {
            if !rule.accepts(value, context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Rule {
    fn accepts(&self, value: RawBsonRef<'_>, context: &Context) -> Result<bool> {
        context.step()?;
        Ok(match (self, value) {
            (Rule::Type(_, types), value) => types.contains(value.element_type()),
            (Rule::Enum(choices), value) => choices.contains(&canonical(value)),
            (Rule::AllOf(all), value) => count_accepting(all, value, context)? == all.len(),
            (Rule::AnyOf(any), value) => count_accepting(any, value, context)? > 0,
            (Rule::OneOf(one), value) => count_accepting(one, value, context)? == 1,
            (Rule::Not(not), value) => !not.accepts_value(value, context)?,
            (Rule::Bound(bound), value) => bound.accepts(value),
            (Rule::MultipleOf(divisor), value) => Number::of(value).is_none_or(|number| is_multiple(number, *divisor)),
            (Rule::Count(counted, limit), value) => counted.accepts(value, *limit),
            (Rule::Pattern(pattern), value @ RawBsonRef::String(_)) => pattern.accepts(value, context)?,
            (Rule::UniqueItems, RawBsonRef::Array(array)) => duplicate(array, context)?.is_none(),
            (Rule::Items(items), RawBsonRef::Array(array)) => items.first_refused(array, context)?.is_none(),
            (Rule::AdditionalItems(from, additional), RawBsonRef::Array(array)) => {
                additional.first_refused(array, *from, context)?.is_none()
            }
            (Rule::Required(names), RawBsonRef::Document(document)) => {
                count_look_ups(names.len(), document, context)?;
                names.iter().all(|name| has(document, name))
            }
            (Rule::Properties(properties), RawBsonRef::Document(document)) => {
                count_look_ups(properties.len(), document, context)?;
                for (name, schema) in properties {
                    if let Some(property) = crate::path::field(document, name)
                        && !schema.accepts_value(property, context)?
                    {
                        return Ok(false);
                    }
                }
                true
            }
            (Rule::PatternProperties(patterns), RawBsonRef::Document(document)) => {
                for element in document {
                    let (name, property) = element?;
                    for (pattern, schema) in patterns {
                        if pattern.accepts(RawBsonRef::String(name.as_str()), context)?
                            && !schema.accepts_value(property, context)?
                        {
                            return Ok(false);
                        }
                    }
                }
                true
            }
            (Rule::AdditionalProperties(others), RawBsonRef::Document(document)) => {
                for element in document {
                    let (name, property) = element?;
                    if others.are(name.as_str(), context)? && !others.additional.accepts(property, context)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Rule::Dependencies(dependencies), RawBsonRef::Document(document)) => {
                for (name, dependency) in dependencies {
                    if has(document, name) && !dependency.accepts(document, context)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => true,
        })
    }
}

fn count_accepting(schemas: &[Schema], value: RawBsonRef<'_>, context: &Context) -> Result<usize> {
    let mut count = 0;
    for schema in schemas {
        count += usize::from(schema.accepts_value(value, context)?);
    }
    Ok(count)
}

/// Counts the reading of a document for the look-up of each of these names.
fn count_look_ups(names: usize, document: &RawDocument, context: &Context) -> Result<()> {
    context.steps(names as u64)?;
    context.read(names.saturating_mul(document.as_bytes().len()))
}

fn has(document: &RawDocument, name: &str) -> bool {
    crate::path::field(document, name).is_some()
}

/// Tells whether a number is a whole multiple of another one.
fn is_multiple(number: Number, divisor: Number) -> bool {
    let (number, divisor) = (number.to_decimal(), divisor.to_decimal());
    number.remainder(divisor).is_zero()
}

impl Bound {
    fn accepts(&self, value: RawBsonRef<'_>) -> bool {
        let (Some(number), Some(bound)) = (Number::of(value), Number::of(self.value.as_raw_bson_ref())) else {
            return true;
        };
        // NaN is in no range, but equals itself.
        if number.is_nan() || bound.is_nan() {
            return number.is_nan() && bound.is_nan() && !self.is_exclusive;
        }
        let order = number.compare(&bound);
        let order = if self.is_maximum { order.reverse() } else { order };
        if self.is_exclusive { order.is_gt() } else { order.is_ge() }
    }
}

impl Counted {
    const ALL: [Counted; 6] = [
        Counted::MinLength,
        Counted::MaxLength,
        Counted::MinItems,
        Counted::MaxItems,
        Counted::MinProperties,
        Counted::MaxProperties,
    ];

    fn keyword(self) -> &'static str {
        match self {
            Counted::MinLength => "minLength",
            Counted::MaxLength => "maxLength",
            Counted::MinItems => "minItems",
            Counted::MaxItems => "maxItems",
            Counted::MinProperties => "minProperties",
            Counted::MaxProperties => "maxProperties",
        }
    }

    /// Returns the count of a value that the keyword is about.
    fn of(self, value: RawBsonRef<'_>) -> Option<usize> {
        match (self, value) {
            (Counted::MinLength | Counted::MaxLength, RawBsonRef::String(text)) => Some(text.chars().count()),
            (Counted::MinItems | Counted::MaxItems, RawBsonRef::Array(array)) => Some(array.iter_elements().count()),
            (Counted::MinProperties | Counted::MaxProperties, RawBsonRef::Document(document)) => {
                Some(document.iter_elements().count())
            }
            _ => None,
        }
    }

    fn accepts(self, value: RawBsonRef<'_>, limit: u64) -> bool {
        let Some(count) = self.of(value) else { return true };
        match self {
            Counted::MinLength | Counted::MinItems | Counted::MinProperties => count as u64 >= limit,
            Counted::MaxLength | Counted::MaxItems | Counted::MaxProperties => count as u64 <= limit,
        }
    }
}

impl Items {
    /// Returns the first item that is refused, with its place and the schema that refuses it.
    fn first_refused<'a>(
        &self,
        array: &'a RawArray,
        context: &Context,
    ) -> Result<Option<(usize, RawBsonRef<'a>, &Schema)>> {
        for (index, item) in array.into_iter().enumerate() {
            let item = item?;
            let schema = match self {
                Items::Each(schema) => schema,
                Items::Places(schemas) => match schemas.get(index) {
                    Some(schema) => schema,
                    None => break,
                },
            };
            if !schema.accepts_value(item, context)? {
                return Ok(Some((index, item, schema)));
            }
        }
        Ok(None)
    }
}

impl Additional {
    fn accepts(&self, value: RawBsonRef<'_>, context: &Context) -> Result<bool> {
        match self {
            Additional::None => Ok(false),
            Additional::Each(schema) => schema.accepts_value(value, context),
        }
    }

    /// Returns the first item from a place on that is refused, with its place.
    fn first_refused<'a>(
        &self,
        array: &'a RawArray,
        from: usize,
        context: &Context,
    ) -> Result<Option<(usize, RawBsonRef<'a>)>> {
        for (index, item) in array.into_iter().enumerate().skip(from) {
            let item = item?;
            if !self.accepts(item, context)? {
                return Ok(Some((index, item)));
            }
        }
        Ok(None)
    }
}

impl OtherProperties {
    /// Tells whether a property is neither named nor matched by a pattern.
    fn are(&self, name: &str, context: &Context) -> Result<bool> {
        context.step()?;
        if self.named.contains(name) {
            return Ok(false);
        }
        for pattern in &self.patterns {
            if pattern.accepts(RawBsonRef::String(name), context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Dependency {
    fn accepts(&self, document: &RawDocument, context: &Context) -> Result<bool> {
        match self {
            Dependency::Properties(names) => Ok(names.iter().all(|name| has(document, name))),
            Dependency::Schema(schema) => schema.accepts(document, context),
        }
    }
}

#[cfg(test)]
mod tests;
