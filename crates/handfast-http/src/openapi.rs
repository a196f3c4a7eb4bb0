//! The OpenAPI document of a table of routes (OpenAPI Specification 3.1.1).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::access::RouteAccess;
use crate::problem::{MEDIA_TYPE, ProblemKind};
use crate::route::{Parameter, ParameterValue, Reply, Route};

/// The title and the schemas of a document.
pub(crate) struct Description {
    pub(crate) title: &'static str,
    pub(crate) summary: &'static str,
    /// The schemas that routes name.
    pub(crate) schemas: Value,
    /// Further properties of problems.
    pub(crate) problem_properties: Value,
    pub(crate) login: Login,
    /// The parameters that paths have, by name.
    pub(crate) path_parameters: fn(&str) -> Parameter,
}

/// How clients log in.
pub(crate) enum Login {
    /// By a token; reading may need none.
    Token,
    /// By the name and the password of a user, or by a token of a user, where the server has users.
    PasswordOrToken,
}

impl Login {
    /// Returns the names of the logins, with their schemes.
    fn schemes(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Login::Token => &[("token", "bearer")],
            Login::PasswordOrToken => &[("password", "basic"), ("token", "bearer")],
        }
    }

    /// Returns the logins that a route accepts; `{}` stands for none.
    fn of(&self, access: RouteAccess) -> Value {
        let logins = self.schemes().iter().map(|(name, _)| json!({ *name: [] }));
        match (access, self) {
            (RouteAccess::Open | RouteAccess::PublicWrite, _) => json!([]),
            (RouteAccess::Read, _) | (RouteAccess::Write | RouteAccess::PageWrite, Login::PasswordOrToken) => {
                [json!({})].into_iter().chain(logins).collect()
            }
            (RouteAccess::Write | RouteAccess::PageWrite, Login::Token) => logins.collect(),
        }
    }
}

/// Makes the document.
pub(crate) fn document<S>(routes: &[Route<S>], description: Description) -> Value {
    let (mut paths, mut tags) = (Map::new(), Vec::new());
    for route in routes {
        let tag = json!({ "name": route.tag.name, "description": route.tag.description });
        if !tags.contains(&tag) {
            tags.push(tag);
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.name()] = operation(route, &description);
    }
    let mut schemas = description.schemas.clone();
    let schemes = description.login.schemes().iter();
    let schemes: Map<String, Value> =
        schemes.map(|(name, scheme)| ((*name).to_owned(), json!({ "type": "http", "scheme": scheme }))).collect();
    schemas["Problem"] = problem(routes, &description);
    json!({
        "openapi": "3.1.1",
        "info": { "title": description.title, "summary": description.summary, "version": env!("CARGO_PKG_VERSION") },
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": schemes,
        },
    })
}

fn operation<S>(route: &Route<S>, description: &Description) -> Value {
    let of_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path = of_path.map(|name| parameter("path", &(description.path_parameters)(name)));
    let of_query = route.query.iter().map(|known| parameter("query", known));
    let of_headers = route.headers.iter().map(|known| parameter("header", known));
    let mut operation = json!({
        "operationId": route.operation,
        "tags": [route.tag.name],
        "summary": route.summary,
        "parameters": of_path.chain(of_query).chain(of_headers).collect::<Vec<_>>(),
        "responses": responses(route),
        "security": description.login.of(route.access),
    });
    if let Some(schema) = route.body {
        let required = description.schemas[schema]["required"].as_array().is_some_and(|names| !names.is_empty());
        operation["requestBody"] =
            json!({ "required": required, "content": { "application/json": reference(schema) } });
    }
    operation
}

/// Returns the schema of an object that has exactly these properties.
pub(crate) fn object(properties: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": names, "additionalProperties": false })
}

/// Returns the schema of the problems of all routes, and of requests without a route.
fn problem<S>(routes: &[Route<S>], description: &Description) -> Value {
    let mut kinds = vec![ProblemKind::NotFound, ProblemKind::MethodNotAllowed];
    kinds.extend(routes.iter().flat_map(Route::all_problems));
    kinds.sort();
    kinds.dedup();
    let mut properties = json!({
        "type": { "enum": kinds.into_iter().map(ProblemKind::uri).collect::<Vec<_>>() },
        "title": { "type": "string" },
        "status": { "type": "integer" },
        "detail": { "type": "string" },
        "outcome": { "enum": ["not_applied", "unknown"], "description": "What became of a request that writes" },
    });
    if let (Some(properties), Some(further)) = (properties.as_object_mut(), description.problem_properties.as_object())
    {
        properties.extend(further.clone());
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": false,
    })
}

fn parameter(place: &str, parameter: &Parameter) -> Value {
    let schema = match parameter.value {
        ParameterValue::Integer { maximum } => json!({ "type": "integer", "minimum": 1, "maximum": maximum }),
        ParameterValue::Place => json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        ParameterValue::OneOf { values } => json!({ "type": "string", "enum": values }),
        ParameterValue::Date => json!({ "type": "string", "format": "date" }),
        ParameterValue::Text { length_max } => json!({ "type": "string", "minLength": 1, "maxLength": length_max }),
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": schema,
    })
}

fn reference(schema: &str) -> Value {
    json!({ "schema": { "$ref": format!("#/components/schemas/{schema}") } })
}

fn responses<S>(route: &Route<S>) -> Value {
    let mut by_status: BTreeMap<u16, Vec<ProblemKind>> = BTreeMap::new();
    for kind in route.all_problems() {
        by_status.entry(kind.status().as_u16()).or_default().push(kind);
    }
    let content = match route.reply {
        Reply::Json { schema } => Some(json!({ "application/json": reference(schema) })),
        Reply::Text { media_types } => {
            let text = || json!({ "schema": { "type": "string" } });
            Some(media_types.iter().map(|media_type| ((*media_type).to_owned(), text())).collect::<Map<_, _>>().into())
        }
        Reply::Svg => Some(json!({ "image/svg+xml": { "schema": { "type": "string" } } })),
        Reply::Gif => Some(json!({ "image/gif": {} })),
        Reply::Document => Some(json!({ "application/json": { "schema": { "type": "object" } } })),
        Reply::NoContent | Reply::Page => None,
    };
    let mut success = json!({ "description": "success" });
    if let Some(content) = content {
        success["content"] = content;
    }
    let mut responses = Map::from_iter([(route.reply.status().as_u16().to_string(), success)]);
    // Before there is a route: the head of the request is too long to be read.
    for (status, what) in [("414", "the address is too long"), ("431", "the head of the request is too large")] {
        responses.insert(status.to_owned(), json!({ "description": what }));
    }
    for (status, kinds) in by_status {
        let described = kinds.iter().map(|kind| format!("`{}`: {}", kind.uri(), kind.title()));
        let mut response = json!({
            "description": described.collect::<Vec<_>>().join("; "),
            "content": { MEDIA_TYPE: reference("Problem") },
        });
        if kinds.iter().any(|kind| kind.has_retry_after()) {
            let seconds = json!({ "schema": { "type": "integer" }, "description": "seconds to wait" });
            response["headers"] = json!({ "Retry-After": seconds });
        }
        responses.insert(status.to_string(), response);
    }
    Value::Object(responses)
}
