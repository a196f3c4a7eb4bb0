//! The failures of requests: whether a request may have been applied, and what has to happen before it can be sent again.

use handfast_store::Applied;
use redis::RedisError;

use crate::Error;

/// The failure of a request to a server.
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) remedy: Remedy,
}

/// The step before a request is sent again. All but the first are for requests that were refused before they had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The caller decides.
    None,
    /// Another server is the master now: it must be connected to.
    Reconnect,
    /// Another server of the cluster has the key: the map must be read again.
    ReadMap,
    /// The key is being moved to another server of the cluster: that must end.
    Wait,
}

impl Failure {
    /// Makes a failure of an error: `lost` is whether a request without an answer may have been applied.
    pub(super) fn new(error: &RedisError, lost: Applied) -> Self {
        let refusal = refusal(error);
        let remedy = match refusal {
            Some("READONLY") => Remedy::Reconnect,
            Some("MOVED") => Remedy::ReadMap,
            Some("ASK" | "TRYAGAIN") => Remedy::Wait,
            _ => Remedy::None,
        };
        let applied = if refusal.is_some() { Applied::No } else { lost };
        Failure { error: unavailable(error.to_string(), applied), remedy }
    }

    /// Returns the failure of a request that did not get as far as its own step.
    pub(super) fn not_applied(self) -> Self {
        let error = match self.error {
            Error::Buffer { what, .. } => Error::Buffer { what, applied: Applied::No },
            other => other,
        };
        Failure { error, ..self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, remedy: Remedy::None }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

pub(super) fn unavailable(what: String, applied: Applied) -> Error {
    Error::Buffer { what: format!("Redis: {what}"), applied }
}

/// Returns the code with which the server refused a request before it had any effect. A script is refused before its first write, or not at all.
fn refusal(error: &RedisError) -> Option<&'static str> {
    const BEFORE: [&str; 14] = [
        "OOM",
        "READONLY",
        "MISCONF",
        "NOREPLICAS",
        "LOADING",
        "BUSY",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CROSSSLOT",
        "NOAUTH",
        "NOSCRIPT",
    ];
    let code = error.code()?;
    // Redis 6.2 wraps the error of a command in that of its script.
    let wrapped = error.detail().filter(|_| code == "ERR").unwrap_or_default();
    BEFORE.into_iter().find(|refusal| code == *refusal || wrapped.contains(&format!("-{refusal} ")))
}

#[cfg(test)]
mod tests {
    use handfast_store::Applied;
    use redis::{ErrorKind, RedisError};

    use super::{Failure, Remedy, refusal};

    fn answer(text: &str) -> RedisError {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
            .and_then(redis::Value::extract_error)
            .expect_err("an error")
    }

    #[test]
    fn a_refusal_before_the_first_write_had_no_effect() {
        for text in [
            "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:5.",
            "READONLY You can't write against a read only replica.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "LOADING Redis is loading the dataset in memory",
            "NOREPLICAS Not enough good replicas to write.",
            "BUSY Redis is busy running a script.",
            "NOAUTH Authentication required.",
            "ERR Error running script (call to f_1): @user_script:44: @user_script: 44: -OOM command not allowed",
        ] {
            assert!(refusal(&answer(text)).is_some(), "{text}");
        }
        for in_doubt in
            ["ERR Error running script: 44: attempt to index a nil value", "WRONGTYPE Operation against a key"]
        {
            assert_eq!(refusal(&answer(in_doubt)), None, "{in_doubt}");
        }
        assert_eq!(refusal(&RedisError::from((ErrorKind::Io, "connection reset"))), None);
    }

    #[test]
    fn a_request_is_sent_again_only_if_it_was_refused() {
        for (text, remedy) in [
            ("MOVED 3999 127.0.0.1:6381", Remedy::ReadMap),
            ("ASK 3999 127.0.0.1:6381", Remedy::Wait),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Remedy::Wait),
            ("READONLY You can't write against a read only replica.", Remedy::Reconnect),
            // As Redis 6.2 says it.
            (
                "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
                Remedy::Reconnect,
            ),
            ("CLUSTERDOWN The cluster is down", Remedy::None),
            ("ERR Script attempted to access a non local key in a cluster node", Remedy::None),
        ] {
            let failure = Failure::new(&answer(text), Applied::Maybe);
            assert_eq!(failure.remedy, remedy, "{text}");
            assert!(remedy == Remedy::None || failure.error.applied() == Applied::No, "{text}");
        }
    }
}
