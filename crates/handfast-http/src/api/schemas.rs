//! The schemas of bodies and replies in the OpenAPI document.

use serde_json::{Value, json};

use super::parameters::path_parameter;
use super::queues::WAIT_MILLIS_MAX;
use crate::openapi::{Description, Login, object};

pub(super) fn description() -> Description {
    Description {
        title: "Handfast",
        summary: "Job queues, ledgers and other patterns in a document store, step by step",
        schemas: schemas(),
        problem_properties: json!({
            "code": { "type": "integer", "description": "The code of the server's error" },
            "codeName": { "type": "string" },
            "parts": {
                "type": "array",
                "description": "The parts that do not work",
                "items": object(&[("part", text("server or store")), ("detail", text("Why it does not work"))]),
            },
            "errInfo": { "type": "object", "description": "What the error is about" },
        }),
        login: Login::PasswordOrToken,
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

/// A page of a list of documents.
fn page(name: &str, item: &str) -> Value {
    let next = text("The text after of the next page; missing at the end");
    with_required(&[(name, list(document(item))), ("next", next)], &[name])
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
    let groups = [
        queue_schemas(),
        ledger_schemas(),
        two_phase_schemas(),
        synced_schemas(),
        tree_schemas(),
        token_schemas(),
        shared_schemas(),
    ];
    let groups = groups.into_iter().filter_map(|group| match group {
        Value::Object(schemas) => Some(schemas),
        _ => None,
    });
    Value::Object(groups.flatten().collect())
}

fn token_schemas() -> Value {
    let id = || text("The id, by which it is revoked");
    let name = || text("What it is for");
    let expires = || date("From when on it is refused; missing if it does not expire");
    let created = || date("When it was made");
    let shown = || [("_id", id()), ("name", name()), ("createdAt", created()), ("expiresAt", expires())];
    let token = text("The token, for the header Authorization: Bearer TOKEN");
    let made: Vec<_> = [("token", token)].into_iter().chain(shown()).collect();
    json!({
        "NewToken": with_required(&[("name", name()), ("expiresAt", expires())], &["name"]),
        "CreatedToken": with_required(&made, &["token", "_id", "name", "createdAt"]),
        "Tokens": object(&[("tokens", list(with_required(&shown(), &["_id", "name", "createdAt"])))]),
        "RevokedToken": object(&[("revoked", flag("Whether the user had such a token"))]),
    })
}

fn queue_schemas() -> Value {
    let id = || any("The id of the job");
    let claim = || with_required(&[("_id", id()), ("claim", any("The id of the claim"))], &["_id", "claim"]);
    let mut claimed = claim();
    claimed["additionalProperties"] = true.into();
    claimed["description"] = "The job as it was claimed, of which _id and claim are read".into();
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
                ("attemptsMax", whole(1, i64::from(u32::MAX), "The failures after which it is given up")),
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
        "Jobs": page("jobs", "A job, as it is stored"),
        "OneJob": object(&[("job", document("The job, as it is stored"))]),
        "RetriedJob": object(&[("retried", flag("Whether the job had been given up, and waits again"))]),
        "QueueDepth": with_required(
            &[
                ("due", count("Jobs that are due")),
                ("scheduled", count("Jobs whose time has not come")),
                ("processing", count("Jobs that workers have")),
                ("silent", count("Those of them whose workers are silent")),
                ("failed", count("Jobs that were given up")),
                ("canceled", count("Jobs that were canceled")),
                ("done", count("Jobs that are done")),
                ("foreign", count("Documents that cannot be read as jobs")),
                ("oldestDueMillis", millis("The time for which the oldest job has been due")),
                ("paused", flag("Whether workers claim no jobs")),
                ("pausedSince", date("The time of the pause")),
                ("reason", text("The reason of the pause")),
            ],
            &["due", "scheduled", "processing", "silent", "failed", "canceled", "done", "foreign", "paused"],
        ),
        "PauseReason": with_required(&[("reason", text("Why, for people; at most 2,000 characters"))], &[]),
        "ResumedQueue": object(&[("wasPaused", flag("Whether the queue was paused"))]),
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
        "Accounts": page("accounts", "An account, as it is stored; its balance has a request of its own"),
        "Entries": page("entries", "An entry, as it is stored"),
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
        "Statement": with_required(
            &[
                ("lines", list(object(&[
                    ("seqId", count("The place of the change")),
                    ("ts", date("When the entry was posted")),
                    ("entry", entry()),
                    ("proc", one_of(&["UNCOMMITTED", "COMMITTED"], "Whether the entry is final")),
                    ("state", one_of(&["VALID", "CANCELED", "ABANDONED"], "Whether the entry counts")),
                    ("type", text("The kind of change")),
                    ("value", amount("What the account got, in minor units; negative for what it gave")),
                    ("hold", amount("What is held by the change; negative for what is free again")),
                    ("asset", asset()),
                    ("balance", amount("The balance after the change")),
                    ("held", amount("What is held after the change")),
                ]))),
                ("next", count("The number after of the next page; missing at the end")),
            ],
            &["lines"],
        ),
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
        "Reconciled": object(&[
            ("committed", count("The entries that were committed")),
            ("expired", count("The holds that were freed")),
            ("failed", count("Those that failed; the log says why")),
        ]),
    })
}

/// The schemas that several groups of routes have, and those of exactly-once updates.
fn shared_schemas() -> Value {
    let failed = || count("Those that failed; the log says why");
    let more = || flag("Whether there may be more of them");
    json!({
        "Done": object(&[]),
        "Operations": object(&[("operations", list(document("A command that runs, or an open transaction, as currentOp has it")))]),
        "PendingSynced": page("documents", "A main document, as it is stored"),
        "Count": with_required(&[("count", at_most())], &[]),
        "Swept": object(&[("swept", count("Those that were done")), ("failed", failed()), ("more", more())]),
        "OnceUpdate": with_required(
            &[
                ("document", of_id("The document")),
                ("token", token()),
                ("update", update()),
                ("guard", guard()),
                ("upsert", flag("Whether a document that is missing is inserted")),
            ],
            &["document", "token", "update"],
        ),
        "AppliedUpdate": object(&[("applied", flag("Whether the update was made by this request; false if it was made before"))]),
        "PendingUpdates": with_required(
            &[
                ("update", update()),
                ("pending", text("The field of the tokens")),
                ("olderMillis", millis("The age of the tokens that are finished")),
                ("count", at_most()),
            ],
            &["update"],
        ),
        "Finished": object(&[("finished", count("The updates that were finished")), ("failed", failed()), ("more", more())]),
    })
}

fn at_most() -> Value {
    whole(1, 1_000, "The most of them to do in this request")
}

fn millis(description: &str) -> Value {
    whole(0, i64::MAX, description)
}

/// A document that has only its id.
fn of_id(description: &str) -> Value {
    let mut schema = object(&[("_id", any("The id"))]);
    schema["description"] = description.into();
    schema
}

fn token() -> Value {
    let digits = json!({ "type": "string", "pattern": "^[0-9a-fA-F]{24}$" });
    let mut token = object(&[("$oid", digits)]);
    token["description"] = "An ObjectId of 24 random hexadecimal digits, by which a repetition is recognised".into();
    token
}

fn update() -> Value {
    document("The operators of the update")
}

fn guard() -> Value {
    document("A filter that the document must match")
}

fn two_phase_schemas() -> Value {
    let id = || any("The id of the transaction");
    let state = || text("initial, pending, applied, done, canceling or canceled");
    let application = || text("The name of the program, which keeps it after a restart");
    let participant = with_required(
        &[
            ("collection", text("Its collection")),
            ("_id", any("Its id")),
            ("apply", update()),
            ("inverse", document("The operators that undo the update")),
            ("guard", guard()),
            ("finish", document("The operators of the end")),
        ],
        &["collection", "_id", "apply", "inverse"],
    );
    json!({
        "TwoPhaseSettings": with_required(
            &[
                ("accounts", document("The collection and the fields of the accounts")),
                ("participants", list(text("A further collection of participants"))),
                ("finishedMax", count("The number of finished transactions that are kept")),
            ],
            &[],
        ),
        "NewTwoPhase": with_required(
            &[
                ("_id", id()),
                ("source", any("The id of the account that pays")),
                ("destination", any("The id of the account that is paid")),
                ("value", whole(1, i64::MAX, "The amount")),
                ("participants", list(participant)),
            ],
            &["_id"],
        ),
        "TwoPhaseTransactions": page("transactions", "A transaction, as it is stored"),
        "TwoPhaseState": object(&[("_id", id()), ("state", state())]),
        "Application": object(&[("application", application())]),
        "TwoPhaseReason": object(&[("reason", text("Why it is canceled")), ("application", application())]),
        "Compensation": object(&[("by", of_id("The new transaction"))]),
        "TwoPhaseRecovery": with_required(
            &[
                ("application", application()),
                ("abandonedAfterMillis", millis("The time after which another program has ended")),
                ("waiting", flag("Whether transactions that nobody has claimed are carried out, too")),
                ("count", at_most()),
            ],
            &["application"],
        ),
        "RecoveredTwoPhase": object(&[
            ("recovered", count("The transactions of other programs that were carried out")),
            ("run", count("Those that nobody had claimed")),
            ("repaired", count("Those whose participants were repaired")),
            ("failed", count("Those that failed; the log says why")),
        ]),
    })
}

fn synced_schemas() -> Value {
    let synced = || flag("Whether the copies are up to date");
    let link = with_required(
        &[
            ("collection", text("The collection of the copies")),
            ("key", text("The field with the id of the main document")),
            ("fields", document("The name of each field and of its copy")),
            ("computed", document("The name of each computed copy, and its expression")),
            ("onDelete", any("unset, remove, keep, or {set: {..}}")),
            ("version", text("The field with the version of the copies")),
            ("syncing", text("The field of the flag")),
        ],
        &["collection", "key"],
    );
    json!({
        "Links": with_required(&[("links", list(link)), ("tokensMax", count("The number of tokens that are kept"))], &["links"]),
        "SyncedChange": with_required(&[("token", token()), ("update", update()), ("guard", guard())], &["token", "update"]),
        "SyncedVersion": object(&[("version", any("The version of the main document")), ("synced", synced())]),
        "DeletedSynced": object(&[("deleted", flag("Whether there was such a document")), ("synced", synced())]),
        "NewCopy": object(&[("collection", text("The collection of the copies")), ("document", document("The document, with its _id and the id of its main document"))]),
        "InsertedCopy": object(&[("_id", any("The id of the document")), ("synced", synced())]),
        "Sweep": with_required(
            &[("abandonedAfterMillis", millis("The age of the changes that are finished")), ("count", at_most())],
            &[],
        ),
        "SyncedAudit": object(&[
            ("copies", count("The copies that were compared")),
            ("inFlight", count("Those of changes that are in progress")),
            ("stale", count("Those that differ")),
            ("findings", list(document("A copy that differs"))),
        ]),
    })
}

fn tree_schemas() -> Value {
    let version = || count("The number of the version");
    let node = with_required(
        &[
            ("item", any("The id of the node")),
            ("content", document("What it holds")),
            ("remove", flag("Whether it is removed")),
        ],
        &["item"],
    );
    let root = || any("The root of the version");
    let found =
        object(&[("item", any("The id of the node")), ("version", version()), ("content", document("What it holds"))]);
    json!({
        "NewVersion": with_required(
            &[("token", token()), ("nodes", list(node)), ("root", root()), ("base", count("The version that the change was made from; 0 for none"))],
            &["token", "nodes"],
        ),
        "WrittenVersion": object(&[("version", version()), ("written", flag("Whether it was written by this request; false if it was there"))]),
        "TreeVersion": with_required(
            &[("exists", flag("Whether there is such a version")), ("version", version()), ("root", root()), ("nodes", list(found))],
            &["exists"],
        ),
    })
}
