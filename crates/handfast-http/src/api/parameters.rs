//! The parameters of routes.

use super::idempotency::KEY_BYTES_MAX;
use super::reads::LIMIT_MAX;
use super::statements;
use crate::route::{IDEMPOTENCY_KEY, Parameter, ParameterValue};

/// The limit on the names and ids of paths, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 1_024;

/// The limit on a list of ids, in bytes.
pub(super) const NODES_BYTES_MAX: usize = 32 * 1_024;

/// The header of requests that may be sent again.
pub(super) const KEY: [Parameter; 1] = [Parameter {
    name: IDEMPOTENCY_KEY,
    description: "A name for this request: a request with the name of one that was carried out within a day gets the answer of that one",
    required: false,
    value: ParameterValue::Text { length_max: KEY_BYTES_MAX },
}];

/// The moments of a balance.
pub(super) const MOMENTS: [Parameter; 3] = [
    Parameter {
        name: "at",
        description: "The time (RFC 3339) up to which entries count",
        required: false,
        value: ParameterValue::Text { length_max: 64 },
    },
    Parameter {
        name: "entry",
        description: "The id of the last entry that counts",
        required: false,
        value: ParameterValue::Text { length_max: NAME_BYTES_MAX },
    },
    Parameter {
        name: "seqId",
        description: "The place of the last change of the account that counts",
        required: false,
        value: ParameterValue::Integer { maximum: i64::MAX as u64 },
    },
];

pub(super) const FROM: Parameter = Parameter {
    name: "from",
    description: "The time (RFC 3339) from which changes are returned",
    required: false,
    value: ParameterValue::Text { length_max: 64 },
};
pub(super) const TO: Parameter = Parameter {
    name: "to",
    description: "The time (RFC 3339) before which changes are returned",
    required: false,
    value: ParameterValue::Text { length_max: 64 },
};
/// The part of an account's changes.
pub(super) const CHANGES: [Parameter; 4] = [
    FROM,
    TO,
    Parameter {
        name: "after",
        description: "The number next of the page before, after whose last change this one begins",
        required: false,
        value: ParameterValue::Place,
    },
    Parameter {
        name: "limit",
        description: "The most changes to return; 50 if it is not given",
        required: false,
        value: ParameterValue::Integer { maximum: statements::LINES_MAX as u64 },
    },
];
pub(super) const EXPORTED: [Parameter; 3] = [
    FROM,
    TO,
    Parameter {
        name: "format",
        description: "jsonl, lines of JSON, or csv",
        required: false,
        value: ParameterValue::OneOf { values: &["jsonl", "csv"] },
    },
];

pub(super) const COUNT: [Parameter; 1] = [Parameter {
    name: "count",
    description: "The most findings to show",
    required: false,
    value: ParameterValue::Integer { maximum: 1_000 },
}];

pub(super) const VERSION: [Parameter; 2] = [
    Parameter {
        name: "version",
        description: "The number of the version; the newest if it is not given",
        required: false,
        value: ParameterValue::Integer { maximum: i64::MAX as u64 },
    },
    Parameter {
        name: "items",
        description: "The ids of the nodes to return, separated by commas; all if it is not given",
        required: false,
        value: ParameterValue::Text { length_max: NODES_BYTES_MAX },
    },
];

pub(super) const STATE_OF: Parameter = Parameter {
    name: "state",
    description: "The state of those to return; all if it is not given",
    required: false,
    value: ParameterValue::Text { length_max: 64 },
};
pub(super) const AFTER: Parameter = Parameter {
    name: "after",
    description: "The text next of the page before, after whose last document this one begins",
    required: false,
    value: ParameterValue::Text { length_max: NODES_BYTES_MAX },
};
pub(super) const LIMIT: Parameter = Parameter {
    name: "limit",
    description: "The most documents to return; 50 if it is not given",
    required: false,
    value: ParameterValue::Integer { maximum: LIMIT_MAX as u64 },
};
/// The parameters of lists.
pub(super) const PAGE: [Parameter; 2] = [AFTER, LIMIT];
pub(super) const BY_STATE: [Parameter; 3] = [STATE_OF, AFTER, LIMIT];
pub(super) const JOBS: [Parameter; 4] = [
    STATE_OF,
    Parameter {
        name: "type",
        description: "The type of the jobs to return",
        required: false,
        value: ParameterValue::Text { length_max: NAME_BYTES_MAX },
    },
    AFTER,
    LIMIT,
];
pub(super) const ENTRIES: [Parameter; 4] = [
    STATE_OF,
    Parameter {
        name: "account",
        description: "The id of an account that the entries change",
        required: false,
        value: ParameterValue::Text { length_max: NAME_BYTES_MAX },
    },
    AFTER,
    LIMIT,
];

/// The queue whose events are sent.
pub(super) const OF_QUEUE: [Parameter; 2] = [
    Parameter {
        name: "database",
        description: "The database of a queue, for the events of the queue and not of the server",
        required: false,
        value: ParameterValue::Text { length_max: NAME_BYTES_MAX },
    },
    Parameter {
        name: "queue",
        description: "The collection of the queue",
        required: false,
        value: ParameterValue::Text { length_max: NAME_BYTES_MAX },
    },
];

/// The user whose tokens are meant.
pub(super) const OF_USER: [Parameter; 1] = [Parameter {
    name: "user",
    description: "Another user, NAME@DATABASE or NAME of admin: the request needs the role userAdmin of that database",
    required: false,
    value: ParameterValue::Text { length_max: 2 * NAME_BYTES_MAX },
}];

/// Returns the description of a parameter that paths have.
pub(super) fn path_parameter(name: &str) -> Parameter {
    let (name, description) = match name {
        "database" => ("database", "The database"),
        "queue" => ("queue", "The collection of the job queue"),
        "ledger" => ("ledger", "The collection of the ledger's entries"),
        "collection" => ("collection", "The collection"),
        "job" => ("job", "The id of a job: a text, 24 hexadecimal digits for an ObjectId, or Extended JSON"),
        "account" => {
            ("account", "The id of an account: a text, 24 hexadecimal digits for an ObjectId, or Extended JSON")
        }
        "entry" => ("entry", "The id of an entry: a text, 24 hexadecimal digits for an ObjectId, or Extended JSON"),
        "transaction" => (
            "transaction",
            "The id of a two-phase transaction: a text, 24 hexadecimal digits for an ObjectId, or Extended JSON",
        ),
        "document" => {
            ("document", "The id of a main document: a text, 24 hexadecimal digits for an ObjectId, or Extended JSON")
        }
        "tree" => ("tree", "The id of a tree: a text, 24 hexadecimal digits for an ObjectId, or Extended JSON"),
        "token" => ("token", "The id of a token"),
        _ => ("hold", "The id of a hold: a text, 24 hexadecimal digits for an ObjectId, or Extended JSON"),
    };
    Parameter { name, description, required: true, value: ParameterValue::Text { length_max: NAME_BYTES_MAX } }
}
