//! Compiles schemas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::equality::canonical;
use super::{Additional, Bound, Counted, Dependency, Items, OtherProperties, Rule, Schema, Written};
use crate::bson_type::type_name;
use crate::filter::{RegexTest, TypeSet};
use crate::{Code, Error, Number, Result};

/// The keywords, each of which a schema has at most once.
const KEYWORDS: [&str; 29] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "bsonType",
    "dependencies",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Keywords of JSON Schema that MongoDB refuses, and those of its client-side encryption.
const UNSUPPORTED: [&str; 8] =
    ["$ref", "$schema", "default", "definitions", "format", "id", "encrypt", "encryptMetadata"];

fn failed(message: String) -> Error {
    Error::new(Code::FailedToParse, message)
}

fn mismatch(keyword: &str, expected: &str) -> Error {
    Error::new(Code::TypeMismatch, format!("$jsonSchema keyword '{keyword}' must be {expected}"))
}

/// The keywords of a schema and their operands.
struct Keywords<'s> {
    values: BTreeMap<&'s str, RawBsonRef<'s>>,
    whole: &'s Arc<RawDocumentBuf>,
}

/// Compiles a schema, which is a part of the outermost one.
pub(super) fn schema(whole: &Arc<RawDocumentBuf>, written: &RawDocument) -> Result<Schema> {
    let mut keywords = Keywords { values: BTreeMap::new(), whole };
    for element in written {
        let (keyword, value) = element?;
        let keyword = keyword.as_str();
        if UNSUPPORTED.contains(&keyword) {
            return Err(failed(format!("$jsonSchema keyword '{keyword}' is not currently supported")));
        }
        if !KEYWORDS.contains(&keyword) {
            return Err(failed(format!("Unknown $jsonSchema keyword: {keyword}")));
        }
        if keywords.values.insert(keyword, value).is_some() {
            return Err(failed(format!("Duplicate $jsonSchema keyword: {keyword}")));
        }
    }
    for keyword in ["title", "description"] {
        keywords.text(keyword)?;
    }
    let mut rules = Vec::new();
    rules.extend(keywords.bound(true)?.map(Rule::Bound));
    rules.extend(keywords.bound(false)?.map(Rule::Bound));
    for counted in Counted::ALL {
        rules.extend(keywords.count(counted.keyword())?.map(|limit| Rule::Count(counted, limit)));
    }
    rules.extend(keywords.pattern()?);
    rules.extend(keywords.multiple_of()?);
    rules.extend(keywords.unique_items()?);
    rules.extend(keywords.items()?);
    rules.extend(keywords.names("required")?.map(Rule::Required));
    rules.extend(keywords.objects()?);
    rules.extend(keywords.dependencies()?);
    rules.extend(keywords.schemas("allOf")?.map(Rule::AllOf));
    rules.extend(keywords.schemas("anyOf")?.map(Rule::AnyOf));
    rules.extend(keywords.schemas("oneOf")?.map(Rule::OneOf));
    if let Some(value) = keywords.get("not") {
        let RawBsonRef::Document(not) = value else { return Err(mismatch("not", "an object")) };
        rules.push(Rule::Not(Box::new(schema(whole, not)?)));
    }
    rules.extend(keywords.enumeration()?);
    rules.extend(keywords.types()?);
    let start = written.as_bytes().as_ptr().addr().saturating_sub(whole.as_bytes().as_ptr().addr());
    let bytes = start..start.saturating_add(written.as_bytes().len());
    Ok(Schema { written: Written { whole: Arc::clone(whole), bytes }, rules })
}

impl<'s> Keywords<'s> {
    fn get(&self, keyword: &str) -> Option<RawBsonRef<'s>> {
        self.values.get(keyword).copied()
    }

    fn text(&self, keyword: &str) -> Result<Option<&'s str>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(RawBsonRef::String(text)) => Ok(Some(text)),
            Some(_) => Err(mismatch(keyword, "of type string")),
        }
    }

    fn flag(&self, keyword: &str) -> Result<Option<bool>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(RawBsonRef::Boolean(flag)) => Ok(Some(flag)),
            Some(_) => Err(mismatch(keyword, "a boolean")),
        }
    }

    fn bound(&self, is_maximum: bool) -> Result<Option<Bound>> {
        let (keyword, exclusive) =
            if is_maximum { ("maximum", "exclusiveMaximum") } else { ("minimum", "exclusiveMinimum") };
        let is_exclusive = self.flag(exclusive)?;
        let Some(value) = self.get(keyword) else {
            return match is_exclusive {
                None => Ok(None),
                Some(_) => {
                    Err(failed(format!("$jsonSchema keyword '{keyword}' must be a present if {exclusive} is present")))
                }
            };
        };
        if Number::of(value).is_none() {
            return Err(mismatch(keyword, "a number"));
        }
        Ok(Some(Bound { is_maximum, is_exclusive: is_exclusive.unwrap_or(false), value: RawBson::from(value) }))
    }

    fn count(&self, keyword: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(keyword) else { return Ok(None) };
        let wrong =
            |expected: &str| failed(format!("Expected {expected} in: {keyword}: {}", crate::text::value(value)));
        let number = Number::of(value).ok_or_else(|| wrong("a number"))?;
        let number = number.to_i64_exact().ok_or_else(|| wrong("an integer"))?;
        u64::try_from(number).map(Some).map_err(|_| wrong("a non-negative number"))
    }

    fn pattern(&self) -> Result<Option<Rule>> {
        match self.get("pattern") {
            None => Ok(None),
            Some(RawBsonRef::String(pattern)) => Ok(Some(Rule::Pattern(RegexTest::compile(pattern, "")?))),
            Some(_) => Err(mismatch("pattern", "a string")),
        }
    }

    fn multiple_of(&self) -> Result<Option<Rule>> {
        let Some(value) = self.get("multipleOf") else { return Ok(None) };
        let divisor = Number::of(value).ok_or_else(|| mismatch("multipleOf", "a number"))?;
        if !divisor.is_finite() || divisor.is_negative() || divisor.is_zero() {
            return Err(failed("$jsonSchema keyword 'multipleOf' must have a positive value".into()));
        }
        Ok(Some(Rule::MultipleOf(divisor)))
    }

    fn unique_items(&self) -> Result<Option<Rule>> {
        Ok(self.flag("uniqueItems")?.unwrap_or(false).then_some(Rule::UniqueItems))
    }

    /// Reads `items` and `additionalItems`, which is about the items after those of an array of schemas.
    fn items(&self) -> Result<Vec<Rule>> {
        let additional = self.additional("additionalItems")?;
        match self.get("items") {
            None => Ok(Vec::new()),
            Some(RawBsonRef::Document(each)) => Ok(vec![Rule::Items(Items::Each(Box::new(schema(self.whole, each)?)))]),
            Some(RawBsonRef::Array(places)) => {
                let expected = "$jsonSchema keyword 'items' requires that each element of the array is an object";
                let schemas = schemas_of(self.whole, places, expected)?;
                let additional = additional.map(|additional| Rule::AdditionalItems(schemas.len(), additional));
                Ok([Rule::Items(Items::Places(schemas))].into_iter().chain(additional).collect())
            }
            Some(value) => Err(mismatch("items", &format!("an array or an object, not {}", type_name(value)))),
        }
    }

    /// Returns what is asked of other items or properties; `None` if nothing is.
    fn additional(&self, keyword: &str) -> Result<Option<Additional>> {
        match self.get(keyword) {
            None | Some(RawBsonRef::Boolean(true)) => Ok(None),
            Some(RawBsonRef::Boolean(false)) => Ok(Some(Additional::None)),
            Some(RawBsonRef::Document(each)) => Ok(Some(Additional::Each(Box::new(schema(self.whole, each)?)))),
            Some(_) => Err(mismatch(keyword, "either an object or a boolean")),
        }
    }

    fn names(&self, keyword: &str) -> Result<Option<Vec<String>>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(RawBsonRef::Array(names)) => names_of(keyword, names).map(Some),
            Some(_) => Err(mismatch(keyword, "an array")),
        }
    }

    /// Reads `properties`, `patternProperties` and `additionalProperties`.
    fn objects(&self) -> Result<Vec<Rule>> {
        let (mut rules, mut named, mut patterns) = (Vec::new(), BTreeSet::new(), Vec::new());
        if let Some(properties) = self.fields("properties")? {
            let mut schemas = Vec::new();
            for element in properties {
                let (name, value) = element?;
                let RawBsonRef::Document(property) = value else {
                    let text = format!("Nested schema for $jsonSchema property '{}' must be an object", name.as_str());
                    return Err(Error::new(Code::TypeMismatch, text));
                };
                named.insert(name.as_str().to_owned());
                schemas.push((name.as_str().to_owned(), schema(self.whole, property)?));
            }
            rules.push(Rule::Properties(schemas));
        }
        if let Some(properties) = self.fields("patternProperties")? {
            let mut schemas = Vec::new();
            for element in properties {
                let (pattern, value) = element?;
                let RawBsonRef::Document(property) = value else {
                    let text = format!(
                        "$jsonSchema keyword 'patternProperties' has property '{}' which is not an object",
                        pattern.as_str()
                    );
                    return Err(Error::new(Code::TypeMismatch, text));
                };
                let pattern = RegexTest::compile(pattern.as_str(), "")?;
                patterns.push(pattern.clone());
                schemas.push((pattern, schema(self.whole, property)?));
            }
            rules.push(Rule::PatternProperties(schemas));
        }
        if let Some(additional) = self.additional("additionalProperties")? {
            rules.push(Rule::AdditionalProperties(OtherProperties { named, patterns, additional }));
        }
        Ok(rules)
    }

    fn fields(&self, keyword: &str) -> Result<Option<&'s RawDocument>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(RawBsonRef::Document(fields)) => Ok(Some(fields)),
            Some(_) => Err(mismatch(keyword, "an object")),
        }
    }

    fn dependencies(&self) -> Result<Option<Rule>> {
        let Some(dependencies) = self.fields("dependencies")? else { return Ok(None) };
        let mut all = Vec::new();
        for element in dependencies {
            let (name, value) = element?;
            let dependency = match value {
                RawBsonRef::Document(dependent) => Dependency::Schema(schema(self.whole, dependent)?),
                RawBsonRef::Array(names) => Dependency::Properties(names_of("dependencies", names)?),
                _ => {
                    let expected =
                        format!("an object or an array for each property, and is not for '{}'", name.as_str());
                    return Err(mismatch("dependencies", &expected));
                }
            };
            all.push((name.as_str().to_owned(), dependency));
        }
        Ok(Some(Rule::Dependencies(all)))
    }

    fn schemas(&self, keyword: &str) -> Result<Option<Vec<Schema>>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(RawBsonRef::Array(array)) => {
                let expected = format!("$jsonSchema keyword '{keyword}' must be an array of objects");
                let schemas = schemas_of(self.whole, array, &expected)?;
                if schemas.is_empty() {
                    let text = format!("$jsonSchema keyword '{keyword}' must be a non-empty array");
                    return Err(Error::new(Code::BadValue, text));
                }
                Ok(Some(schemas))
            }
            Some(_) => Err(mismatch(keyword, "an array")),
        }
    }

    fn enumeration(&self) -> Result<Option<Rule>> {
        let Some(value) = self.get("enum") else { return Ok(None) };
        let RawBsonRef::Array(array) = value else { return Err(mismatch("enum", "an array")) };
        let mut choices = BTreeSet::new();
        for choice in array {
            if !choices.insert(canonical(choice?)) {
                return Err(failed("$jsonSchema keyword 'enum' array cannot contain duplicate values.".into()));
            }
        }
        if choices.is_empty() {
            return Err(failed("$jsonSchema keyword 'enum' cannot be an empty array".into()));
        }
        Ok(Some(Rule::Enum(choices)))
    }

    fn types(&self) -> Result<Option<Rule>> {
        match (self.get("type"), self.get("bsonType")) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(failed("Cannot specify both $jsonSchema keywords 'type' and 'bsonType'".into())),
            (Some(json), None) => {
                let aliases = type_names("type", json)?.into_iter().map(json_alias).collect::<Result<Vec<_>>>()?;
                Ok(Some(Rule::Type("type", TypeSet::of_aliases(&aliases)?)))
            }
            (None, Some(bson)) => {
                Ok(Some(Rule::Type("bsonType", TypeSet::of_aliases(&type_names("bsonType", bson)?)?)))
            }
        }
    }
}

/// Reads the name of a type, or an array of them.
fn type_names<'s>(keyword: &str, value: RawBsonRef<'s>) -> Result<Vec<&'s str>> {
    let wrong = || mismatch(keyword, "either a string or an array of strings");
    let array = match value {
        RawBsonRef::String(name) => return Ok(vec![name]),
        RawBsonRef::Array(array) => array,
        _ => return Err(wrong()),
    };
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for name in array {
        let RawBsonRef::String(name) = name? else { return Err(wrong()) };
        if !seen.insert(name) {
            return Err(failed(format!("$jsonSchema keyword '{keyword}' has duplicate value: {name}")));
        }
        names.push(name);
    }
    if names.is_empty() {
        return Err(failed(format!("$jsonSchema keyword '{keyword}' must name at least one type")));
    }
    Ok(names)
}

/// Returns the BSON alias of a type of JSON.
fn json_alias(name: &str) -> Result<&str> {
    match name {
        "boolean" => Ok("bool"),
        "array" | "number" | "null" | "object" | "string" => Ok(name),
        "integer" => Err(Error::new(Code::BadValue, "$jsonSchema type 'integer' is not currently supported.")),
        _ => Err(Error::new(Code::BadValue, format!("Unknown type name alias: {name}"))),
    }
}

fn schemas_of(whole: &Arc<RawDocumentBuf>, array: &RawArray, expected: &str) -> Result<Vec<Schema>> {
    let mut schemas = Vec::new();
    for value in array {
        let value = value?;
        let RawBsonRef::Document(each) = value else {
            let text = format!("{expected}, but found an element of type {}", type_name(value));
            return Err(Error::new(Code::TypeMismatch, text));
        };
        schemas.push(schema(whole, each)?);
    }
    Ok(schemas)
}

/// Reads names of properties, of which there is at least one and none twice.
fn names_of(keyword: &str, array: &RawArray) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for value in array {
        let value = value?;
        let RawBsonRef::String(name) = value else {
            let found = format!("an array of strings, but found an element of type {}", type_name(value));
            return Err(mismatch(keyword, &found));
        };
        names.push(name.to_owned());
    }
    if names.is_empty() {
        return Err(failed(format!("$jsonSchema keyword '{keyword}' cannot be an empty array")));
    }
    let mut sorted: Vec<_> = names.iter().collect();
    sorted.sort();
    if sorted.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(failed(format!("$jsonSchema keyword '{keyword}' array cannot contain duplicate values")));
    }
    Ok(names)
}
