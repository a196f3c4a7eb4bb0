//! The differences between two requests, by the paths of their fields.

use serde_json::{Map, Value};

/// A field that two requests do not have alike.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    path: String,
    arrived: Option<Value>,
    recorded: Option<Value>,
}

impl Difference {
    /// Returns the difference as a sentence without its end.
    pub(super) fn sentence(&self) -> String {
        let shown = |value: &Value| super::shortened(&value.to_string());
        match (&self.arrived, &self.recorded) {
            (Some(arrived), Some(recorded)) => {
                format!("{} is {}, and {} in the recording", self.path, shown(arrived), shown(recorded))
            }
            (Some(_), None) => format!("{} is not in the recording", self.path),
            (None, _) => format!("{} is missing", self.path),
        }
    }
}

/// Returns the fields in which the requests differ.
pub(super) fn differences(arrived: &Map<String, Value>, recorded: &Map<String, Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    of_objects("", arrived, recorded, &mut found);
    found
}

fn of_objects(path: &str, arrived: &Map<String, Value>, recorded: &Map<String, Value>, found: &mut Vec<Difference>) {
    let names = arrived.keys().chain(recorded.keys().filter(|name| !arrived.contains_key(*name)));
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        of_values(path, arrived.get(name), recorded.get(name), found);
    }
}

fn of_values(path: String, arrived: Option<&Value>, recorded: Option<&Value>, found: &mut Vec<Difference>) {
    match (arrived, recorded) {
        (Some(Value::Object(arrived)), Some(Value::Object(recorded)))
            if !is_scalar(arrived) && !is_scalar(recorded) =>
        {
            of_objects(&path, arrived, recorded, found);
        }
        (Some(Value::Array(arrived)), Some(Value::Array(recorded))) => {
            for index in 0..arrived.len().max(recorded.len()) {
                of_values(format!("{path}.{index}"), arrived.get(index), recorded.get(index), found);
            }
        }
        (arrived, recorded) if arrived == recorded => {}
        (arrived, recorded) => {
            found.push(Difference { path, arrived: arrived.cloned(), recorded: recorded.cloned() });
        }
    }
}

/// Returns whether an object of Extended JSON is a value such as `{"$numberInt":"1"}`.
fn is_scalar(object: &Map<String, Value>) -> bool {
    const SCALARS: [&str; 6] = ["$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$oid", "$date"];
    object.keys().next().is_some_and(|name| object.len() == 1 && SCALARS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Difference, differences};

    fn check(arrived: &Value, recorded: &Value, expected: &[&str]) {
        let found = differences(arrived.as_object().unwrap(), recorded.as_object().unwrap());
        assert_eq!(found.iter().map(Difference::sentence).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn differences_are_named_by_their_paths() {
        let int = |number: i32| json!({ "$numberInt": number.to_string() });
        check(&json!({ "a": 1 }), &json!({ "a": 1 }), &[]);
        let expected = r#"a.0.n is {"$numberInt":"1"}, and {"$numberInt":"2"} in the recording"#;
        check(&json!({ "a": [{ "n": int(1) }] }), &json!({ "a": [{ "n": int(2) }] }), &[expected]);
        check(&json!({ "b": 1 }), &json!({ "c": 1 }), &["b is not in the recording", "c is missing"]);
        check(&json!({ "a": [1, 2] }), &json!({ "a": [1] }), &["a.1 is not in the recording"]);
    }
}
