//! The values of the command line and the environment, with their origins.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::Serialize;
use toml::{Table, Value};

use super::{Mistake, Origin, Settings, keys, table, variable};

/// Values by key.
#[derive(Debug, Default)]
pub(crate) struct ExplicitSettings(BTreeMap<String, (Value, Origin)>);

impl ExplicitSettings {
    /// Adds the flags of a group that have a value.
    ///
    /// # Errors
    /// Fails if TOML cannot hold a value, such as a path that is not UTF-8.
    pub(crate) fn add(&mut self, flags: &impl Serialize) -> Result<(), Mistake> {
        let table = Table::try_from(flags).map_err(|error| Mistake::Flags { reason: error.to_string() })?;
        let origin = |key: &str| Origin::Flag(format!("--{key}"));
        self.0.extend(table.into_iter().map(|(key, value)| (key.clone(), (value, origin(&key)))));
        Ok(())
    }

    /// Adds the variables of keys without a flag, so that a flag overrides a wrong variable.
    ///
    /// # Errors
    /// Fails if a variable is not UTF-8, or not the number or boolean of its key.
    pub(crate) fn add_environment(&mut self, read: impl Fn(&str) -> Option<OsString>) -> Result<(), Mistake> {
        let defaults = table(&Settings::default());
        for key in keys() {
            let name = variable(&key);
            let Some(text) = read(&name).filter(|_| !self.0.contains_key(&key)) else { continue };
            let text = text.into_string().map_err(|_| "it is not UTF-8".to_owned());
            match text.and_then(|text| typed(text, defaults.get(&key))) {
                Ok(value) => self.0.insert(key, (value, Origin::Environment(name))),
                Err(reason) => return Err(Mistake::Value { key, origin: Origin::Environment(name), reason }),
            };
        }
        Ok(())
    }

    pub(super) fn into_values(self) -> BTreeMap<String, (Value, Origin)> {
        self.0
    }
}

/// Parses text as the type of the setting's default; settings without a default are text.
fn typed(text: String, default: Option<&Value>) -> Result<Value, String> {
    match default {
        Some(Value::Integer(_)) => {
            text.parse().map(Value::Integer).map_err(|_| format!("a number is expected, not '{text}'"))
        }
        Some(Value::Boolean(_)) => truth(&text).map(Value::Boolean),
        _ => Ok(Value::String(text)),
    }
}

/// Parses the words that a flag takes as a boolean.
fn truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err(format!("true or false is expected, not '{text}'")),
    }
}
