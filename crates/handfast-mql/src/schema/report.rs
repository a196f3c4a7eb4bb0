//! Which rules of a schema a value breaks, in the words of MongoDB's `errInfo`.

use bson::raw::CString;
use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::equality::duplicate;
use super::{Additional, Bound, Counted, Dependency, Items, OtherProperties, Rule, Schema, count_accepting, has};
use crate::bson_type::type_name;
use crate::filter::RegexTest;
use crate::path::field;
use crate::{Context, Result};

impl Schema {
    /// Says which rules a document breaks: `{operatorName: "$jsonSchema", schemaRulesNotSatisfied: [..]}`.
    ///
    /// # Errors
    /// Returns the errors of [`Schema::accepts`].
    pub fn failures(&self, document: &RawDocument, context: &Context) -> Result<RawDocumentBuf> {
        let mut report = rawdoc! { "operatorName": "$jsonSchema" };
        self.put_annotations(&mut report);
        put(&mut report, "schemaRulesNotSatisfied", self.broken(RawBsonRef::Document(document), context)?);
        Ok(report)
    }

    /// Describes each rule that a value breaks.
    fn broken(&self, value: RawBsonRef<'_>, context: &Context) -> Result<RawArrayBuf> {
        let mut all = RawArrayBuf::new();
        for rule in &self.rules {
            if !rule.accepts(value, context)? {
                let mut report = RawDocumentBuf::new();
                put(&mut report, "operatorName", rule.keyword());
                rule.describe(self.written(), value, context, &mut report)?;
                all.push(report);
            }
        }
        Ok(all)
    }

    fn put_annotations(&self, report: &mut RawDocumentBuf) {
        for name in ["title", "description"] {
            if let Some(text) = field(self.written(), name) {
                put(report, name, RawBson::from(text));
            }
        }
    }

    /// Describes how a property or an item breaks the schema.
    fn put_details(&self, report: &mut RawDocumentBuf, value: RawBsonRef<'_>, context: &Context) -> Result<()> {
        self.put_annotations(report);
        put(report, "details", self.broken(value, context)?);
        Ok(())
    }
}

/// Appends a field. The names are those of reports, and of conditions that were compiled.
pub(crate) fn put(report: &mut RawDocumentBuf, name: &str, value: impl Into<RawBson>) {
    if let Ok(name) = CString::try_from(name) {
        report.append(name, value.into());
    }
}

/// Appends the keywords with their operands, and the reason.
fn put_reason(report: &mut RawDocumentBuf, written: &RawDocument, keywords: &[&str], reason: &str) {
    put_operands(report, written, keywords);
    put(report, "reason", reason);
}

fn put_operands(report: &mut RawDocumentBuf, written: &RawDocument, keywords: &[&str]) {
    let mut operands = RawDocumentBuf::new();
    for keyword in keywords {
        if let Some(operand) = field(written, keyword) {
            put(&mut operands, keyword, RawBson::from(operand));
        }
    }
    put(report, "specifiedAs", operands);
}

fn put_considered(report: &mut RawDocumentBuf, value: RawBsonRef<'_>) {
    if let Some(value) = shown(value) {
        put(report, "consideredValue", value);
    }
}

/// Limit on the bytes of a value that a report shows: a document may be refused for many reasons, each of which would have a copy.
pub(crate) const SHOWN_BYTES_MAX: usize = 16 * 1024;

/// Returns a value for a report; `None` for one that is too large.
pub(crate) fn shown(value: RawBsonRef<'_>) -> Option<RawBson> {
    (bytes_of(value) <= SHOWN_BYTES_MAX).then(|| RawBson::from(value))
}

/// Returns about how many bytes a value has in a report.
pub(crate) fn bytes_of(value: RawBsonRef<'_>) -> usize {
    match value {
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::Array(array) => array.as_bytes().len(),
        RawBsonRef::String(text) => text.len(),
        RawBsonRef::Binary(binary) => binary.bytes.len(),
        _ => size_of::<RawBson>(),
    }
}

/// Returns a number as the shortest integer.
pub(crate) fn integer(number: usize) -> RawBson {
    i32::try_from(number).map_or_else(|_| RawBson::Int64(i64::try_from(number).unwrap_or(i64::MAX)), RawBson::Int32)
}

fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    for name in names {
        array.push(name);
    }
    array
}

impl Rule {
    fn keyword(&self) -> &'static str {
        match self {
            Rule::Type(keyword, _) => keyword,
            Rule::Enum(_) => "enum",
            Rule::AllOf(_) => "allOf",
            Rule::AnyOf(_) => "anyOf",
            Rule::OneOf(_) => "oneOf",
            Rule::Not(_) => "not",
            Rule::Bound(Bound { is_maximum: true, .. }) => "maximum",
            Rule::Bound(_) => "minimum",
            Rule::MultipleOf(_) => "multipleOf",
            Rule::Count(counted, _) => counted.keyword(),
            Rule::Pattern(_) => "pattern",
            Rule::UniqueItems => "uniqueItems",
            Rule::Items(_) => "items",
            Rule::AdditionalItems(..) => "additionalItems",
            Rule::Required(_) => "required",
            Rule::Properties(_) => "properties",
            Rule::PatternProperties(_) => "patternProperties",
            Rule::AdditionalProperties(_) => "additionalProperties",
            Rule::Dependencies(_) => "dependencies",
        }
    }

    /// Describes how a value breaks the rule.
    fn describe(
        &self,
        written: &RawDocument,
        value: RawBsonRef<'_>,
        context: &Context,
        report: &mut RawDocumentBuf,
    ) -> Result<()> {
        let keyword = self.keyword();
        let mut put_comparison = |keywords: &[&str], reason: &str| {
            put_reason(report, written, keywords, reason);
            put_considered(report, value);
        };
        match (self, value) {
            (Rule::Type(..), _) => {
                put_comparison(&[keyword], "type did not match");
                put(report, "consideredType", type_name(value));
            }
            (Rule::Enum(_), _) => put_comparison(&[keyword], "value was not found in enum"),
            (Rule::Bound(_), _) => {
                let exclusive = if keyword == "maximum" { "exclusiveMaximum" } else { "exclusiveMinimum" };
                put_comparison(&[keyword, exclusive], "comparison failed");
            }
            (Rule::MultipleOf(_), _) => {
                put_comparison(&[keyword], "considered value is not a multiple of the specified value");
            }
            (Rule::Pattern(_), _) => put_comparison(&[keyword], "regular expression did not match"),
            (Rule::Count(Counted::MinLength | Counted::MaxLength, _), _) => {
                put_comparison(&[keyword], "specified string length was not satisfied");
            }
            (Rule::Count(Counted::MinItems | Counted::MaxItems, _), _) => {
                put_comparison(&[keyword], "array did not match specified length");
            }
            (Rule::Count(counted, _), _) => {
                put_reason(report, written, &[keyword], "specified number of properties was not satisfied");
                put(report, "numberOfProperties", integer(counted.of(value).unwrap_or_default()));
            }
            (Rule::UniqueItems, RawBsonRef::Array(array)) => {
                put_comparison(&[keyword], "found a duplicate item");
                if let Some(twice) = duplicate(array, context)?.and_then(shown) {
                    put(report, "duplicatedValue", twice);
                }
            }
            (Rule::Not(_), _) => put(report, "reason", "child expression matched"),
            (Rule::AllOf(schemas) | Rule::AnyOf(schemas), _) => {
                put(report, "schemasNotSatisfied", refusing(schemas, value, context)?);
            }
            (Rule::OneOf(schemas), _) => match count_accepting(schemas, value, context)? {
                0 => put(report, "schemasNotSatisfied", refusing(schemas, value, context)?),
                _ => {
                    put(report, "reason", "more than one subschema matched");
                    let mut matching = RawArrayBuf::new();
                    for (index, schema) in schemas.iter().enumerate() {
                        if schema.accepts_value(value, context)? {
                            matching.push(integer(index));
                        }
                    }
                    put(report, "matchingSchemaIndexes", matching);
                }
            },
            (Rule::Items(items), RawBsonRef::Array(array)) => describe_items(items, array, context, report)?,
            (Rule::AdditionalItems(from, Additional::None), RawBsonRef::Array(array)) => {
                put_reason(report, written, &[keyword], "found additional items");
                let mut others = RawArrayBuf::new();
                for other in array.into_iter().skip(*from) {
                    if others.as_bytes().len() > SHOWN_BYTES_MAX {
                        break;
                    }
                    if let Some(other) = shown(other?) {
                        others.push(other);
                    }
                }
                put(report, keyword, others);
            }
            (Rule::AdditionalItems(from, additional @ Additional::Each(schema)), RawBsonRef::Array(array)) => {
                if let Some((index, item)) = additional.first_refused(array, *from, context)? {
                    put_item(report, "At least one additional item did not match the sub-schema", index);
                    put(report, "details", schema.broken(item, context)?);
                }
            }
            (Rule::Required(required), RawBsonRef::Document(document)) => {
                put_operands(report, written, &[keyword]);
                let missing = required.iter().map(String::as_str).filter(|name| !has(document, name));
                put(report, "missingProperties", names(missing));
            }
            (Rule::Properties(properties), RawBsonRef::Document(document)) => {
                put(report, "propertiesNotSatisfied", broken_properties(properties, document, context)?);
            }
            (Rule::PatternProperties(patterns), RawBsonRef::Document(document)) => {
                put(report, "details", broken_patterns(patterns, document, context)?);
            }
            (Rule::AdditionalProperties(others), RawBsonRef::Document(document)) => {
                describe_others(others, document, written, context, report)?;
            }
            (Rule::Dependencies(dependencies), RawBsonRef::Document(document)) => {
                put(report, "failingDependencies", broken_dependencies(dependencies, document, context)?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Describes the schemas that refuse a value, by their places.
fn refusing(schemas: &[Schema], value: RawBsonRef<'_>, context: &Context) -> Result<RawArrayBuf> {
    let mut all = RawArrayBuf::new();
    for (index, schema) in schemas.iter().enumerate() {
        if !schema.accepts_value(value, context)? {
            let mut report = RawDocumentBuf::new();
            put(&mut report, "index", integer(index));
            schema.put_details(&mut report, value, context)?;
            all.push(report);
        }
    }
    Ok(all)
}

fn describe_items(items: &Items, array: &RawArray, context: &Context, report: &mut RawDocumentBuf) -> Result<()> {
    match items {
        Items::Each(_) => {
            if let Some((index, item, schema)) = items.first_refused(array, context)? {
                put_item(report, "At least one item did not match the sub-schema", index);
                put(report, "details", schema.broken(item, context)?);
            }
        }
        Items::Places(schemas) => {
            let mut places = RawArrayBuf::new();
            for ((index, schema), item) in schemas.iter().enumerate().zip(array) {
                let item = item?;
                if !schema.accepts_value(item, context)? {
                    let mut place = rawdoc! { "itemIndex": integer(index) };
                    schema.put_details(&mut place, item, context)?;
                    places.push(place);
                }
            }
            put(report, "details", places);
        }
    }
    Ok(())
}

fn put_item(report: &mut RawDocumentBuf, reason: &str, index: usize) {
    put(report, "reason", reason);
    put(report, "itemIndex", integer(index));
}

fn broken_properties(
    properties: &[(String, Schema)],
    document: &RawDocument,
    context: &Context,
) -> Result<RawArrayBuf> {
    let mut all = RawArrayBuf::new();
    for (name, schema) in properties {
        let Some(property) = field(document, name) else { continue };
        if !schema.accepts_value(property, context)? {
            let mut report = RawDocumentBuf::new();
            put(&mut report, "propertyName", name.as_str());
            schema.put_details(&mut report, property, context)?;
            all.push(report);
        }
    }
    Ok(all)
}

fn broken_patterns(patterns: &[(RegexTest, Schema)], document: &RawDocument, context: &Context) -> Result<RawArrayBuf> {
    let mut all = RawArrayBuf::new();
    for element in document {
        let (name, property) = element?;
        for (pattern, schema) in patterns {
            if pattern.accepts(RawBsonRef::String(name.as_str()), context)?
                && !schema.accepts_value(property, context)?
            {
                let mut report = RawDocumentBuf::new();
                put(&mut report, "propertyName", name.as_str());
                put(&mut report, "regexMatched", pattern.source());
                schema.put_details(&mut report, property, context)?;
                all.push(report);
            }
        }
    }
    Ok(all)
}

fn describe_others(
    others: &OtherProperties,
    document: &RawDocument,
    written: &RawDocument,
    context: &Context,
    report: &mut RawDocumentBuf,
) -> Result<()> {
    let mut found = RawArrayBuf::new();
    for element in document {
        let (name, property) = element?;
        if !others.are(name.as_str(), context)? {
            continue;
        }
        match &others.additional {
            Additional::None => found.push(name.as_str()),
            Additional::Each(schema) => {
                if !schema.accepts_value(property, context)? {
                    put(report, "reason", "at least one additional property did not match the subschema");
                    put(report, "failingProperty", name.as_str());
                    put(report, "details", schema.broken(property, context)?);
                    return Ok(());
                }
            }
        }
    }
    put_operands(report, written, &["additionalProperties"]);
    put(report, "additionalProperties", found);
    Ok(())
}

fn broken_dependencies(
    dependencies: &[(String, Dependency)],
    document: &RawDocument,
    context: &Context,
) -> Result<RawArrayBuf> {
    let mut all = RawArrayBuf::new();
    for (name, dependency) in dependencies {
        if !has(document, name) || dependency.accepts(document, context)? {
            continue;
        }
        let mut report = RawDocumentBuf::new();
        put(&mut report, "conditionalProperty", name.as_str());
        match dependency {
            Dependency::Properties(required) => {
                let missing = required.iter().map(String::as_str).filter(|name| !has(document, name));
                put(&mut report, "missingProperties", names(missing));
            }
            Dependency::Schema(schema) => schema.put_details(&mut report, RawBsonRef::Document(document), context)?,
        }
        all.push(report);
    }
    Ok(all)
}
