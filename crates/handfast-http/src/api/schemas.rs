//! The schemas of bodies and replies in the OpenAPI document.

use serde_json::{Value, json};

use super::queues::WAIT_MILLIS_MAX;
use super::routes::path_parameter;
use crate::openapi::{Description, Login, object};

pub(super) fn description() -> Description {
    Description {
        title: "Handfast",
        summary: "Job queues and ledgers in a document store, step by step",
        schemas: schemas(),
        problem_properties: json!({
            "code": { "type": "integer", "description": "The code of the server's error" },
            "codeName": { "type": "string" },
            "errInfo": { "type": "object", "description": "What the error is about" },
        }),
        login: Login::Password,
        path_parameters: path_parameter,
    }
}

/// Returns the schema of an object with these properties, of which some must be there.
fn with_required(properties: &[(&str, Value)], required: &[&str]) -> Value {
    let mut schema = object(properties);
    schema["required"] = json!(required);
    schema
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

/// A value of any type, in Extended JSON.
fn any(description: &str) -> Value {
    json!({ "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn whole(minimum: i64, maximum: i64, description: &str) -> Value {
    json!({ "type": "integer", "minimum": minimum, "maximum": maximum, "description": description })
}

fn amount(description: &str) -> Value {
    whole(i64::MIN, i64::MAX, description)
}

fn count(description: &str) -> Value {
    whole(0, i64::MAX, description)
}

fn one_of(values: &[&str], description: &str) -> Value {
    json!({ "enum": values, "description": description })
}

fn list(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

fn date(description: &str) -> Value {
    let text = json!({ "type": "string", "format": "date-time" });
    let extended = json!({ "type": "object", "properties": { "$date": {} }, "required": ["$date"] });
    json!({ "anyOf": [text, extended], "description": description })
}

fn document(description: &str) -> Value {
    json!({ "type": "object", "description": description })
}

fn schemas() -> Value {
    let mut schemas = queue_schemas();
    if let (Some(schemas), Value::Object(of_ledgers)) = (schemas.as_object_mut(), ledger_schemas()) {
        schemas.extend(of_ledgers);
    }
    schemas
}

fn queue_schemas() -> Value {
    let id = || any("The id of the job");
    let claim = || with_required(&[("_id", id()), ("claim", any("The id of the claim"))], &["_id", "claim"]);
    let mut claimed = claim();
    claimed["additionalProperties"] = true.into();
    claimed["description"] = "The job as it was claimed, of which _id and claim are read".into();
    let millis = |description: &str| whole(0, i64::MAX, description);
    let job = with_required(
        &[
            ("_id", id()),
            ("claim", any("The id of the claim, which the worker's further requests name")),
            ("type", text("The type, which selects the handler")),
            ("details", document("The details for the handler")),
            ("claims", count("How often the job was claimed")),
            ("attempts", count("How often it has failed")),
            ("priority", whole(i64::from(i32::MIN), i64::from(i32::MAX), "Larger ones come first")),
            ("ts", date("When it was enqueued")),
            ("order", text("The key of its order")),
            ("timeoutMillis", millis("The time that its handler may take")),
        ],
        &["_id", "claim", "type", "details", "claims", "attempts", "priority", "ts"],
    );
    json!({
        "NewJob": with_required(
            &[
                ("_id", any("The id; a new one if it is not given")),
                ("type", text("The type, which selects the handler")),
                ("details", document("The details for the handler")),
                ("priority", whole(i64::from(i32::MIN), i64::from(i32::MAX), "Larger ones come first")),
                ("runAt", date("The time before which the job is not claimed")),
                ("delayMillis", millis("The same, as a time from now")),
                ("attemptsMax", whole(0, i64::from(u32::MAX), "The failures after which it is given up")),
                ("timeoutMillis", millis("The time that its handler may take")),
                ("unique", text("A key that no other job may have")),
                ("uniqueWindowMillis", millis("The window of time in which the key is unique")),
                ("uniqueForEver", flag("Whether the key stays unique when the job is done")),
                ("order", text("The key of its order: jobs with the same key run one after the other")),
            ],
            &["type"],
        ),
        "EnqueuedJob": with_required(
            &[
                ("_id", id()),
                ("inserted", flag("Whether the job was added")),
                ("duplicateOf", any("The id of the job that has the key")),
            ],
            &["inserted"],
        ),
        "CanceledJob": object(&[("canceled", flag("Whether the job is canceled now, or will be when its worker returns it"))]),
        "Claim": with_required(
            &[
                ("worker", text("The name of the worker")),
                ("types", list(text("A type of jobs that the worker handles"))),
                ("count", whole(1, 100, "The most jobs to claim")),
                ("waitMillis", json!({
                    "type": "integer", "minimum": 0, "maximum": WAIT_MILLIS_MAX, "description": "The time to wait for a job if there is none",
                })),
            ],
            &["worker", "types"],
        ),
        "ClaimedJobs": object(&[
            ("jobs", list(job)),
            ("leaseMillis", millis("The time after which another worker gets a job whose claim is not renewed")),
        ]),
        "Renewal": with_required(&[("job", claimed.clone()), ("progress", any("The progress of the job"))], &["job"]),
        "Completion": with_required(&[("job", claimed.clone()), ("result", any("The result of the job"))], &["job"]),
        "Failure": with_required(
            &[
                ("job", claimed.clone()),
                ("error", text("What went wrong")),
                ("giveUp", flag("Whether the job will never succeed")),
            ],
            &["job", "error"],
        ),
        "Release": with_required(&[("job", claimed), ("delayMillis", millis("The time for which the job waits"))], &["job"]),
        "ClaimState": object(&[(
            "claimState",
            one_of(
                &["held", "cancelRequested", "lost"],
                "held; cancelRequested: stop and release the job; lost: another worker has it, or had it, and nothing was written",
            ),
        )]),
    })
}

fn ledger_schemas() -> Value {
    let account = || any("The id of the account");
    let entry = || any("The id of the entry");
    let asset = || text("The currency, or what else is counted");
    let metadata = || document("Data of the program");
    let hold_state = || one_of(&["open", "captured", "released", "expired"], "The state of the hold");
    let change = with_required(
        &[
            ("account", account()),
            ("value", amount("What the account gets, in minor units; negative for what it gives")),
            ("asset", asset()),
            ("type", text("A name for the kind of change")),
        ],
        &["account", "value", "asset"],
    );
    json!({
        "NewAccount": with_required(
            &[
                ("_id", account()),
                ("asset", asset()),
                ("minimum", amount("The least balance that is allowed")),
                ("sequence", flag("Whether places are taken from a counter, for an account that many entries change at once")),
            ],
            &["_id", "asset"],
        ),
        "Done": object(&[]),
        "NewEntry": with_required(
            &[("_id", entry()), ("changes", list(change)), ("ts", date("The time of the entry; now if it is not given")), ("metadata", metadata())],
            &["_id", "changes"],
        ),
        "PostedEntry": object(&[
            ("_id", entry()),
            ("posted", flag("Whether it was posted by this request; false if it was there")),
            ("state", text("VALID, or CANCELED for an entry that counts for nothing")),
        ]),
        "Reason": object(&[("reason", text("Why the entry is canceled"))]),
        "CanceledEntry": with_required(
            &[("canceled", flag("true")), ("reversedBy", any("The id of the entry that reverses a committed one"))],
            &["canceled"],
        ),
        "NewHold": with_required(
            &[
                ("_id", any("The id of the hold")),
                ("payer", account()),
                ("payee", account()),
                ("value", whole(1, i64::MAX, "The amount, in minor units")),
                ("asset", asset()),
                ("expiresAt", date("The time at which the amount is free again")),
                ("metadata", metadata()),
            ],
            &["_id", "payer", "payee", "value", "asset"],
        ),
        "PostedHold": object(&[
            ("_id", any("The id of the hold")),
            ("posted", flag("Whether it was posted by this request; false if it was there")),
            ("holdState", hold_state()),
        ]),
        "Capture": with_required(&[("value", whole(1, i64::MAX, "The part that the payee gets; all of it if it is not given"))], &[]),
        "ResolvedHold": object(&[("_id", any("The id of the entry that resolves the hold")), ("holdState", hold_state())]),
        "Balance": with_required(
            &[
                ("exists", flag("Whether there is such an account")),
                ("account", account()),
                ("asset", asset()),
                ("balance", amount("The balance, in minor units")),
                ("available", amount("The balance without what is held")),
                ("held", amount("What is held")),
                ("pending", amount("The part of the balance that is not committed")),
                ("seqId", amount("The place of the last change")),
                ("missing", count("The places that no entry has")),
            ],
            &["exists"],
        ),
        "Reconciliation": with_required(&[("count", whole(1, 1_000, "The most entries to commit, and holds to free"))], &[]),
        "Reconciled": object(&[
            ("committed", count("The entries that were committed")),
            ("expired", count("The holds that were freed")),
            ("failed", count("Those that failed; the log says why")),
        ]),
    })
}
