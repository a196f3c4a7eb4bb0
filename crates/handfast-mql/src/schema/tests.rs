use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};

use super::Schema;
use crate::expression::testing::context;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn accepts(schema: &Document, document: &Document) -> bool {
    Schema::compile(&raw(schema)).unwrap().accepts(&raw(document), &context()).unwrap()
}

/// Checks a schema of the field `a` with values that it accepts and that it refuses. A missing field is accepted.
fn check(schema: Document, accepted: &[Bson], refused: &[Bson]) {
    let schema = doc! { "properties": { "a": schema } };
    assert!(accepts(&schema, &doc! { "b": 1 }), "{schema}");
    for value in accepted {
        assert!(accepts(&schema, &doc! { "a": value }), "{schema} accepts {value:?}");
    }
    for value in refused {
        assert!(!accepts(&schema, &doc! { "a": value }), "{schema} refuses {value:?}");
    }
}

fn values<const N: usize>(values: [impl Into<Bson>; N]) -> [Bson; N] {
    values.map(Into::into)
}

#[test]
fn each_keyword_is_about_values_of_its_type() {
    let text = || Bson::from("x");
    let (one, two, half, long) = (|| Bson::Int32(1), || Bson::Int32(2), || Bson::Double(0.5), || Bson::Int64(1));
    let decimal = || Bson::Decimal128("1.5".parse().unwrap());
    check(doc! { "bsonType": "int" }, &[one()], &[long(), half(), text(), Bson::Null]);
    check(doc! { "bsonType": ["int", "null"] }, &[one(), Bson::Null], &[text()]);
    check(doc! { "bsonType": "number" }, &[one(), long(), half(), decimal()], &[text()]);
    check(doc! { "type": "boolean" }, &[true.into()], &[one()]);
    check(doc! { "type": ["number", "object"] }, &[decimal(), doc! {}.into()], &[text()]);
    check(doc! { "enum": [1, "x", { "a": 1, "b": 2 }] }, &[long(), text(), doc! { "b": 2, "a": 1 }.into()], &[two()]);
    check(doc! { "minimum": 1 }, &[one(), two(), text(), decimal()], &[half(), f64::NAN.into()]);
    check(doc! { "minimum": 1, "exclusiveMinimum": true }, &[two()], &[one()]);
    check(doc! { "maximum": 1, "exclusiveMaximum": false }, &[one(), half()], &[two()]);
    check(doc! { "maximum": 1, "exclusiveMaximum": true }, &[half()], &[one(), f64::NAN.into()]);
    check(doc! { "multipleOf": 0.5 }, &[half(), one(), text(), Bson::Int32(-3)], &values([0.75, 0.1]));
    check(doc! { "multipleOf": 3 }, &values([0, 9, -3]), &values([1, 10]));
    check(doc! { "minLength": 2, "maxLength": 3 }, &values(["ää", "abc"]), &values(["ä", "abcd", ""]));
    check(doc! { "pattern": "^a" }, &[Bson::from("ab"), one()], &values(["ba", ""]));
    let array = |items: &[i32]| Bson::from(items.iter().map(|item| Bson::Int32(*item)).collect::<Vec<_>>());
    check(doc! { "minItems": 1, "maxItems": 2 }, &[array(&[1]), text()], &[array(&[]), array(&[1, 2, 3])]);
    check(doc! { "uniqueItems": true }, &[array(&[1, 2]), text()], &[array(&[1, 2, 1])]);
    let documents = Bson::from(vec![Bson::from(doc! { "a": 1, "b": [1] }), doc! { "b": [1.0], "a": 1_i64 }.into()]);
    check(doc! { "uniqueItems": true }, &[], std::slice::from_ref(&documents));
    check(doc! { "uniqueItems": false }, &[documents], &[]);
    check(doc! { "items": { "minimum": 2 } }, &[array(&[]), array(&[2, 3])], &[array(&[2, 1])]);
    let places = doc! { "items": [{ "minimum": 2 }, {}] };
    check(places.clone(), &[array(&[]), array(&[2]), array(&[2, 0, 0])], &[array(&[1, 2])]);
    let with = |additional: Bson| doc! { "items": places.get("items").unwrap(), "additionalItems": additional };
    check(with(false.into()), &[array(&[2, 0])], &[array(&[2, 0, 0])]);
    check(with(true.into()), &[array(&[2, 0, 0])], &[array(&[0])]);
    check(with(doc! { "maximum": 5 }.into()), &[array(&[2, 9, 5])], &[array(&[2, 9, 6])]);
    // Without schemas by place there are no additional items.
    check(doc! { "additionalItems": false, "items": {} }, &[array(&[1, 2])], &[]);
    check(doc! { "minProperties": 1, "maxProperties": 1 }, &[doc! { "x": 1 }.into(), text()], &[doc! {}.into()]);
    check(doc! { "not": { "bsonType": "int" } }, &[text()], &[one()]);
    check(doc! { "allOf": [{ "minimum": 1 }, { "maximum": 1 }] }, &[one(), text()], &[two()]);
    check(doc! { "anyOf": [{ "bsonType": "int" }, { "bsonType": "string" }] }, &[one(), text()], &[Bson::Null]);
    check(doc! { "oneOf": [{ "minimum": 1 }, { "minimum": 2 }] }, &[one()], &[two(), text(), Bson::Int32(0)]);
}

#[test]
fn properties_of_documents() {
    let required = doc! { "required": ["a", "b"] };
    assert!(accepts(&required, &doc! { "b": null, "a": 1 }));
    assert!(!accepts(&required, &doc! { "a": 1 }));
    let closed = doc! { "properties": { "_id": {} }, "patternProperties": { "^s_": { "bsonType": "string" } }, "additionalProperties": false };
    assert!(accepts(&closed, &doc! { "_id": 1, "s_a": "x" }));
    assert!(!accepts(&closed, &doc! { "_id": 1, "s_a": 1 }));
    assert!(!accepts(&closed, &doc! { "_id": 1, "x": 1 }));
    let others = doc! { "properties": { "a": {} }, "additionalProperties": { "bsonType": "int" } };
    assert!(accepts(&others, &doc! { "a": "x", "b": 1 }));
    assert!(!accepts(&others, &doc! { "a": "x", "b": "x" }));
    let dependencies = doc! { "dependencies": { "card": ["address"], "b": { "required": ["c"] } } };
    assert!(accepts(&dependencies, &doc! {}));
    assert!(accepts(&dependencies, &doc! { "card": 1, "address": 2, "b": 1, "c": 1 }));
    assert!(!accepts(&dependencies, &doc! { "card": 1 }));
    assert!(!accepts(&dependencies, &doc! { "b": 1 }));
    assert!(!accepts(&doc! { "bsonType": "array" }, &doc! {}));
    let nested = doc! { "properties": { "a": { "properties": { "b": { "required": ["c"] } } } } };
    assert!(accepts(&nested, &doc! { "a": [{ "b": {} }] }), "an array is no document");
    assert!(!accepts(&nested, &doc! { "a": { "b": {} } }));
}

#[test]
fn mistakes_have_the_codes_of_the_server() {
    let cases = [
        (rawdoc! { "nonsense": 1 }, 9, "Unknown $jsonSchema keyword: nonsense"),
        (rawdoc! { "$ref": "x" }, 9, "'$ref' is not currently supported"),
        (rawdoc! { "properties": { "a": { "format": "x" } } }, 9, "'format' is not currently supported"),
        (rawdoc! { "type": "integer" }, 2, "'integer' is not currently supported"),
        (rawdoc! { "type": "int" }, 2, "Unknown type name alias: int"),
        (rawdoc! { "bsonType": "nonsense" }, 2, "Unknown type name alias: nonsense"),
        (rawdoc! { "bsonType": 1 }, 14, "'bsonType' must be either a string or an array of strings"),
        (rawdoc! { "bsonType": [] }, 9, "must name at least one type"),
        (rawdoc! { "bsonType": ["int", "int"] }, 9, "has duplicate value: int"),
        (rawdoc! { "type": "object", "bsonType": "object" }, 9, "both"),
        (rawdoc! { "title": 1 }, 14, "'title' must be of type string"),
        (rawdoc! { "maximum": "x" }, 14, "'maximum' must be a number"),
        (rawdoc! { "exclusiveMinimum": true }, 9, "'minimum' must be a present if exclusiveMinimum is present"),
        (rawdoc! { "minimum": 1, "exclusiveMinimum": 1 }, 14, "'exclusiveMinimum' must be a boolean"),
        (rawdoc! { "minLength": "x" }, 9, "Expected a number in: minLength"),
        (rawdoc! { "minLength": 1.5 }, 9, "Expected an integer in: minLength"),
        (rawdoc! { "minLength": -1 }, 9, "Expected a non-negative number in: minLength"),
        (rawdoc! { "multipleOf": 0 }, 9, "'multipleOf' must have a positive value"),
        (rawdoc! { "multipleOf": "x" }, 14, "'multipleOf' must be a number"),
        (rawdoc! { "pattern": 1 }, 14, "'pattern' must be a string"),
        (rawdoc! { "pattern": "(" }, 51_091, "Regular expression is invalid"),
        (rawdoc! { "allOf": 1 }, 14, "'allOf' must be an array"),
        (rawdoc! { "allOf": [] }, 2, "'allOf' must be a non-empty array"),
        (rawdoc! { "oneOf": [1] }, 14, "'oneOf' must be an array of objects, but found an element of type int"),
        (rawdoc! { "not": 1 }, 14, "'not' must be an object"),
        (rawdoc! { "enum": [] }, 9, "'enum' cannot be an empty array"),
        (rawdoc! { "enum": [1, 1.0] }, 9, "'enum' array cannot contain duplicate values"),
        (rawdoc! { "required": [] }, 9, "'required' cannot be an empty array"),
        (rawdoc! { "required": ["a", "a"] }, 9, "'required' array cannot contain duplicate values"),
        (rawdoc! { "required": [1] }, 14, "'required' must be an array of strings"),
        (rawdoc! { "properties": 1 }, 14, "'properties' must be an object"),
        (rawdoc! { "properties": { "a": 1 } }, 14, "Nested schema for $jsonSchema property 'a' must be an object"),
        (rawdoc! { "patternProperties": { "a": 1 } }, 14, "has property 'a' which is not an object"),
        (rawdoc! { "additionalProperties": 1 }, 14, "must be either an object or a boolean"),
        (rawdoc! { "dependencies": { "a": 1 } }, 14, "'dependencies' must be"),
        (rawdoc! { "dependencies": { "a": [] } }, 9, "'dependencies' cannot be an empty array"),
        (rawdoc! { "items": 1 }, 14, "'items' must be an array or an object, not int"),
        (rawdoc! { "items": [1] }, 14, "requires that each element of the array is an object"),
        (rawdoc! { "uniqueItems": 1 }, 14, "'uniqueItems' must be a boolean"),
    ];
    for (schema, code, text) in cases {
        let error = Schema::compile(&schema).unwrap_err();
        assert_eq!(error.code().0, code, "{schema:?}: {error}");
        assert!(error.message().contains(text), "{schema:?}: {error}");
    }
}

#[test]
fn a_report_says_which_rules_are_broken() {
    let schema = doc! {
        "title": "Student", "required": ["name", "year"],
        "properties": {
            "gpa": { "bsonType": ["double"], "description": "must be a double" },
            "tags": { "items": { "maxLength": 2 } },
            "pair": { "items": [{ "minimum": 5 }], "additionalItems": false },
            "n": { "oneOf": [{ "minimum": 1 }, { "minimum": 2 }], "multipleOf": 2, "maximum": 3, "exclusiveMaximum": true },
        },
        "additionalProperties": false, "maxProperties": 2,
        "dependencies": { "gpa": ["name"] },
    };
    let document = doc! { "gpa": 3, "tags": ["x", "long"], "pair": [1, 2], "n": 3, "x": 1 };
    let schema = Schema::compile(&raw(&schema)).unwrap();
    let report = schema.failures(&raw(&document), &context()).unwrap();
    let expected = doc! {
        "operatorName": "$jsonSchema", "title": "Student", "schemaRulesNotSatisfied": [
            {
                "operatorName": "maxProperties", "specifiedAs": { "maxProperties": 2 },
                "reason": "specified number of properties was not satisfied", "numberOfProperties": 5,
            },
            { "operatorName": "required", "specifiedAs": { "required": ["name", "year"] }, "missingProperties": ["name", "year"] },
            { "operatorName": "properties", "propertiesNotSatisfied": [
                { "propertyName": "gpa", "description": "must be a double", "details": [{
                    "operatorName": "bsonType", "specifiedAs": { "bsonType": ["double"] }, "reason": "type did not match",
                    "consideredValue": 3, "consideredType": "int",
                }] },
                { "propertyName": "tags", "details": [{
                    "operatorName": "items", "reason": "At least one item did not match the sub-schema", "itemIndex": 1, "details": [{
                        "operatorName": "maxLength", "specifiedAs": { "maxLength": 2 },
                        "reason": "specified string length was not satisfied", "consideredValue": "long",
                    }],
                }] },
                { "propertyName": "pair", "details": [
                    { "operatorName": "items", "details": [{ "itemIndex": 0, "details": [{
                        "operatorName": "minimum", "specifiedAs": { "minimum": 5 }, "reason": "comparison failed", "consideredValue": 1,
                    }] }] },
                    {
                        "operatorName": "additionalItems", "specifiedAs": { "additionalItems": false },
                        "reason": "found additional items", "additionalItems": [2],
                    },
                ] },
                { "propertyName": "n", "details": [
                    {
                        "operatorName": "maximum", "specifiedAs": { "maximum": 3, "exclusiveMaximum": true },
                        "reason": "comparison failed", "consideredValue": 3,
                    },
                    {
                        "operatorName": "multipleOf", "specifiedAs": { "multipleOf": 2 },
                        "reason": "considered value is not a multiple of the specified value", "consideredValue": 3,
                    },
                    { "operatorName": "oneOf", "reason": "more than one subschema matched", "matchingSchemaIndexes": [0, 1] },
                ] },
            ] },
            { "operatorName": "additionalProperties", "specifiedAs": { "additionalProperties": false }, "additionalProperties": ["x"] },
            { "operatorName": "dependencies", "failingDependencies": [{ "conditionalProperty": "gpa", "missingProperties": ["name"] }] },
        ],
    };
    assert_eq!(Document::try_from(report).unwrap(), expected);
}
