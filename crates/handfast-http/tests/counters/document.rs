//! The OpenAPI document, and whether an answer is one that it describes.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::Value;

use crate::world::{Answer, Client, World};

/// The OpenAPI document of a service.
pub(crate) struct Document(pub(crate) Value);

impl Document {
    /// Returns a request for each operation, with these values for the parameters of paths, and with a query if one has to be there.
    pub(crate) fn requests(&self, values: &[(&str, &str)], query: &str) -> Vec<String> {
        let mut requests = Vec::new();
        for (path, methods) in self.0["paths"].as_object().expect("paths") {
            let path = values.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
            for (method, operation) in methods.as_object().expect("methods") {
                let mut parameters = operation["parameters"].as_array().expect("a list").iter();
                let has_query = parameters.any(|found| found["in"] == "query" && found["required"] == true);
                let query = if has_query { format!("?{query}") } else { String::new() };
                requests.push(format!("{} {path}{query}", method.to_uppercase()));
            }
        }
        requests
    }

    /// Fails if the answer is none that the document describes. A path and a method that it does not have may give problems only.
    pub(crate) fn check(&self, method: &Method, path: &str, answer: &Answer) {
        let status = answer.status.as_u16();
        let method_name = match *method {
            Method::HEAD => "get".to_owned(),
            _ => method.as_str().to_ascii_lowercase(),
        };
        let Some(operation) = self.path(path).map(|path| &path[&method_name]).filter(|found| !found.is_null()) else {
            assert!([404, 405].contains(&status) || *method == Method::OPTIONS, "{method} {path}: {status}");
            return;
        };
        let reply = &operation["responses"][status.to_string()];
        assert!(!reply.is_null(), "{method} {path}: {status} is not in the document");
        let Some(content) = reply["content"].as_object() else {
            assert_eq!(answer.body, b"", "{method} {path}");
            return;
        };
        let media_type = answer.header("content-type").expect("a media type");
        let described =
            content.get(media_type).unwrap_or_else(|| panic!("{path}: {media_type} is not in the document"));
        assert_eq!(reply["headers"].get("Retry-After").is_some(), answer.header("retry-after").is_some());
        if *method != Method::HEAD && media_type.ends_with("json") {
            let json = answer.json();
            self.validate(&described["schema"], &json, path);
            if media_type.starts_with("application/problem") {
                let (kinds, kind) = (reply["description"].as_str(), json["type"].as_str().expect("a type"));
                let is_described = kinds.is_some_and(|kinds| kinds.contains(&format!("`{kind}`")));
                assert!(is_described, "{method} {path}: {kind} is not in the document");
            }
        }
    }

    /// Returns the entry of a path; one with fewer parameters is preferred, as `top` is to `{id}`.
    fn path(&self, path: &str) -> Option<&Value> {
        let parts: Vec<&str> = path.split('/').collect();
        let matches = |template: &str| {
            let template: Vec<&str> = template.split('/').collect();
            template.len() == parts.len()
                && template.iter().zip(&parts).all(|(known, part)| known.starts_with('{') || known == part)
        };
        let found = self.0["paths"].as_object()?.iter().filter(|(template, _)| matches(template));
        found.min_by_key(|(template, _)| template.matches('{').count()).map(|(_, entry)| entry)
    }

    /// Fails if a value is not as a schema says, in the keywords that the document uses.
    fn validate(&self, schema: &Value, value: &Value, place: &str) {
        if let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference.strip_prefix('#').expect("a reference within the document");
            let schema = self.0.pointer(pointer).unwrap_or_else(|| panic!("{reference} is not in the document"));
            return self.validate(schema, value, place);
        }
        if let Some(values) = schema["enum"].as_array() {
            assert!(values.contains(value), "{place}: {value} is none of {values:?}");
            return;
        }
        let is = |name: &str| match name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("{place}: the type {other}"),
        };
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(types) => types.iter().map(|name| name.as_str().expect("a type")).collect(),
            name => vec![name.as_str().expect("a type")],
        };
        assert!(types.into_iter().any(is), "{place}: {value} is not {}", schema["type"]);
        if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
            for (name, value) in object {
                let schema = properties.get(name).unwrap_or_else(|| panic!("{place}.{name} is not in the document"));
                self.validate(schema, value, &format!("{place}.{name}"));
            }
            for name in schema["required"].as_array().expect("a list") {
                assert!(object.contains_key(name.as_str().expect("a name")), "{place}: {name} is missing in {value}");
            }
        }
        for value in value.as_array().into_iter().flatten() {
            self.validate(&schema["items"], value, place);
        }
    }
}

/// Returns the names of groups that have a description.
fn names_of(tags: &Value) -> impl Iterator<Item = &str> {
    let described = tags.as_array().expect("a list").iter().filter(|tag| tag["description"] != "");
    described.map(|tag| tag["name"].as_str().expect("a name"))
}

#[tokio::test]
async fn the_document_describes_each_operation_whole() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let document = client.ask("GET /openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.1");
    let tags: BTreeSet<&str> = names_of(&document["tags"]).collect();
    let (mut operations, mut groups) = (Vec::new(), BTreeSet::new());
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            operations.push(operation["operationId"].as_str().expect("a name").to_owned());
            let groups_of_one = operation["tags"].as_array().expect("a list");
            assert_eq!(groups_of_one.len(), 1, "{method} {path} is in one group");
            groups.extend(groups_of_one.iter().filter_map(Value::as_str));
            let parameters = operation["parameters"].as_array().expect("a list");
            let names = parameters.iter().filter(|parameter| parameter["in"] == "path");
            let names: Vec<_> = names.map(|parameter| format!("{{{}}}", parameter["name"].as_str().unwrap())).collect();
            let of_path: Vec<_> = path.split('/').filter(|part| part.starts_with('{')).collect();
            assert_eq!(names, of_path, "{method} {path}");
            let is_write = method != "get";
            assert_eq!(operation["responses"].get("403").is_some(), is_write, "{method} {path}");
        }
    }
    assert_eq!(groups, tags, "each group has operations, and is described");
    let count = operations.len();
    operations.sort();
    operations.dedup();
    assert_eq!((operations.len(), count), (16, 16), "each has a name of its own: {operations:?}");
}

#[tokio::test]
#[should_panic(expected = "is not in the document")]
async fn an_answer_that_the_document_has_not_is_found() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let mut answer = client.ask("GET /v1/ads/7").await;
    answer.body = br#"{"kind":"ads","id":"7","total":0,"partial":false,"more":1}"#.to_vec();
    let document = Document(client.ask("GET /openapi.json").await.json());
    document.check(&Method::GET, "/v1/ads/7", &answer);
}

/// Returns the cells of the rows of the guide that begin with a word in backticks.
fn rows_of_the_guide() -> Vec<Vec<String>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/counters.md");
    let text = std::fs::read_to_string(path).expect("the guide");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).skip(1).collect()).collect()
}

#[tokio::test]
async fn the_guide_has_each_route_and_each_problem() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let document = client.ask("GET /openapi.json").await.json();
    let rows = rows_of_the_guide();
    let mut found: Vec<&str> = rows.iter().map(|row| row[0].as_str()).filter(|first| first.contains(" /")).collect();
    let mut expected = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let methods = methods.as_object().expect("methods").keys();
        expected.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    // The document is named above the table.
    expected.retain(|route| route != "GET /openapi.json");
    expected.sort();
    found.sort_unstable();
    assert_eq!(found, expected);
    let problems = problems_of(&document);
    assert!(problems.len() > 10, "{problems:?}");
    for (name, status) in problems {
        assert!(
            rows.iter().any(|row| row[0] == name && row[1] == status),
            "{name} {status} is not in docs/counters.md"
        );
    }
}

/// Returns the kinds of problems that a document names, each with its status.
fn problems_of(document: &Value) -> BTreeSet<(String, String)> {
    let values = |value: &Value| value.as_object().expect("an object").values().cloned().collect::<Vec<_>>();
    let operations = values(&document["paths"]).iter().flat_map(values).collect::<Vec<_>>();
    let responses =
        operations.iter().flat_map(|operation| operation["responses"].as_object().expect("responses").clone());
    let of_response = |(status, response): (String, Value)| {
        let description = response["description"].as_str().expect("a description").to_owned();
        let names = description.split('`').filter_map(|part| part.strip_prefix("urn:handfast:problem:"));
        names.map(|name| (name.to_owned(), status.clone())).collect::<Vec<_>>()
    };
    responses.flat_map(of_response).collect()
}
