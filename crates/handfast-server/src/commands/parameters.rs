//! The parameters of the server, which `getParameter` shows and of which `setParameter` changes some.

use std::time::Duration;

use bson::raw::RawBsonRef;
use handfast_txn::options::LIFETIME_MAX;
use handfast_wire::Compressor;

use super::Call;
use crate::arguments::as_integer;
use crate::auth::users::SCHEMA_VERSION;
use crate::sessions::{SESSION_TIMEOUT_MINUTES, SESSIONS_MAX};
use crate::writer::{Writer, put_count};

/// A parameter of the server.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// Writes its value under a name.
    pub(super) show: fn(&Call<'_>, &mut Writer, &str),
    /// Reads a new value, without setting it. `None` if it cannot be changed while the server runs.
    pub(super) set: Option<fn(RawBsonRef<'_>) -> Result<NewValue, String>>,
    /// Whether a setting of the server determines it at the start.
    pub(super) at_startup: bool,
}

/// A new value of a parameter.
pub(super) enum NewValue {
    /// It is the one that the parameter has.
    Same,
    CursorTimeout {
        millis: u64,
    },
    SlowOperation {
        millis: u64,
    },
    TransactionLifetime(Duration),
}

impl NewValue {
    /// Sets the parameter, until the server stops.
    pub(super) fn set(self, call: &Call<'_>) {
        match self {
            NewValue::Same => {}
            NewValue::CursorTimeout { millis } => call.shared.cursors.set_idle_timeout_millis(millis),
            NewValue::SlowOperation { millis } => call.shared.set_slow_millis(millis),
            NewValue::TransactionLifetime(lifetime) => call.shared.set_transaction_lifetime(lifetime),
        }
    }
}

/// All parameters, by name.
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "authSchemaVersion",
        show: |_, writer, name| {
            writer.put(name, SCHEMA_VERSION);
        },
        set: None,
        at_startup: false,
    },
    Parameter {
        name: "authenticationMechanisms",
        show: |_, writer, name| {
            writer.array(name, std::iter::empty::<&str>());
        },
        set: None,
        at_startup: false,
    },
    Parameter {
        name: "cursorTimeoutMillis",
        show: |call, writer, name| {
            let millis = call.shared.cursors.idle_timeout_millis();
            writer.put(name, i64::try_from(millis).unwrap_or(i64::MAX));
        },
        set: Some(|value| {
            let millis = at_least(value, 1)?;
            Ok(NewValue::CursorTimeout { millis })
        }),
        at_startup: true,
    },
    Parameter {
        name: "enableTestCommands",
        show: |call, writer, name| {
            writer.put(name, call.shared.fail_points.is_some());
        },
        set: None,
        at_startup: true,
    },
    Parameter {
        name: "featureCompatibilityVersion",
        show: |_, writer, name| {
            writer.begin_document(name).put("version", "8.0").end();
        },
        set: None,
        at_startup: false,
    },
    Parameter {
        name: "localLogicalSessionTimeoutMinutes",
        show: |_, writer, name| {
            writer.put(name, SESSION_TIMEOUT_MINUTES);
        },
        set: None,
        at_startup: false,
    },
    Parameter {
        name: "maxSessions",
        show: |_, writer, name| put_count(writer, name, SESSIONS_MAX as u64),
        set: None,
        at_startup: false,
    },
    Parameter {
        name: "networkMessageCompressors",
        show: |call, writer, name| {
            writer.array(name, call.shared.options.compressors.iter().copied().map(Compressor::name));
        },
        set: None,
        at_startup: true,
    },
    Parameter {
        name: "requireApiVersion",
        show: |_, writer, name| {
            writer.put(name, false);
        },
        set: Some(|value| match value {
            RawBsonRef::Boolean(false) => Ok(NewValue::Same),
            RawBsonRef::Boolean(true) => Err("the server cannot require an API version".to_owned()),
            _ => Err("it must be a boolean".to_owned()),
        }),
        at_startup: false,
    },
    Parameter {
        name: "slowOpThresholdMs",
        show: |call, writer, name| {
            writer.put(name, i32::try_from(call.shared.slow_millis()).unwrap_or(i32::MAX));
        },
        set: Some(|value| {
            let millis = at_least(value, 0)?;
            Ok(NewValue::SlowOperation { millis })
        }),
        at_startup: true,
    },
    Parameter {
        name: "transactionLifetimeLimitSeconds",
        show: |call, writer, name| {
            let seconds = call.shared.transaction_lifetime().as_millis().div_ceil(1_000);
            writer.put(name, i32::try_from(seconds).unwrap_or(i32::MAX));
        },
        set: Some(|value| {
            let lifetime = Duration::from_secs(at_least(value, 1)?);
            if lifetime > LIFETIME_MAX {
                return Err(format!("it must be at most {}", LIFETIME_MAX.as_secs()));
            }
            Ok(NewValue::TransactionLifetime(lifetime))
        }),
        at_startup: true,
    },
];

/// Reads a number that is not smaller than the given one.
fn at_least(value: RawBsonRef<'_>, min: u64) -> Result<u64, String> {
    let number = as_integer(value).ok_or_else(|| "it must be a number".to_owned())?;
    match u64::try_from(number) {
        Ok(number) if number >= min => Ok(number),
        _ => Err(format!("it must be greater than or equal to {min}")),
    }
}
