//! The schemas of bodies and replies in the OpenAPI document.

use handfast_counters::VIEWS_MAX;
use serde_json::{Value, json};

use super::replies::NotCounted;
use super::routes::{USER_AGENT_BYTES_MAX, VISITOR_BYTES_MAX, path_parameter};
use crate::openapi::{Description, Login, object};

pub(super) fn description() -> Description {
    Description {
        title: "Handfast view counters",
        summary: "Counts views of items, each once, and returns totals and daily figures",
        schemas: schemas(),
        problem_properties: json!({ "parts": { "type": "array", "items": part() } }),
        login: Login::Token,
        path_parameters: path_parameter,
    }
}

/// Returns the schema of a part of the service that does not work.
fn part() -> Value {
    let text = || json!({ "type": "string" });
    object(&[("part", text()), ("detail", text())])
}

fn schemas() -> Value {
    let text = || json!({ "type": "string" });
    let day = || json!({ "type": "string", "format": "date" });
    let views = |description: &str| json!({ "type": "integer", "minimum": 0, "description": description });
    let total = || views("The number of views");
    let partial =
        || json!({ "type": "boolean", "description": "Whether the total is only a part: the store did not answer" });
    let list = |item: Value| json!({ "type": "array", "items": item });
    let (kind, id) = (text, text);

    let item_total = object(&[("id", id()), ("total", total()), ("partial", partial())]);
    let day_views = object(&[("day", day()), ("views", views("The saved views of the day"))]);
    let top_item = object(&[("id", id()), ("views", views("The saved views"))]);
    let part = part();
    let reasons = NotCounted::ALL.map(NotCounted::name);
    let mut counted_total = object(&[
        ("kind", kind()),
        ("id", id()),
        ("total", total()),
        ("partial", partial()),
        (
            "counted",
            json!({ "type": "boolean", "description": "Whether the views were counted, now or by an earlier request with the same key" }),
        ),
        ("reason", json!({ "enum": reasons, "description": "Why they were not counted" })),
    ]);
    counted_total["required"] = json!(["kind", "id", "total", "partial", "counted"]);
    let text_of = |length_max: usize, description: &str| json!({ "type": "string", "minLength": 1, "maxLength": length_max, "description": description });
    let mut body = object(&[
        ("n", json!({ "type": "integer", "minimum": 1, "maximum": VIEWS_MAX })),
        ("visitor", text_of(VISITOR_BYTES_MAX, "A name for the visitor, instead of the header Visitor")),
        ("user_agent", text_of(USER_AGENT_BYTES_MAX, "The User-Agent of the visitor, instead of the request's own")),
    ]);
    body["required"] = json!([]);
    let number = |description: &str| json!({ "type": "number", "minimum": 0, "description": description });
    let seconds = |description: &str| json!({ "type": ["number", "null"], "description": description });
    let queue = object(&[
        ("kind", kind()),
        ("requests", views("The requests whose views wait")),
        ("batches", views("The batches that are being saved")),
        ("oldest_seconds", seconds("The time for which the oldest request has waited")),
    ]);
    let mut of_kind = object(&[
        ("kind", kind()),
        ("views", views("The saved views of all items")),
        ("items", views("The number of items")),
        ("days", list(day_views.clone())),
    ]);
    of_kind["type"] = json!(["object", "null"]);
    of_kind["description"] = "The sums of the kind that was asked for, once they were read".into();
    let instance = object(&[
        ("name", json!({ "type": "string", "description": "A random name for each start of a program" })),
        ("version", text()),
        ("addresses", list(json!({ "type": "string", "description": "An address that the instance listens on" }))),
        ("uptime_seconds", number("The time since its start")),
        ("views", views("The views that it has counted since its start")),
        ("saved", views("The views that it has saved since its start")),
        ("seen_seconds", number("The time for which these figures are old; 0 for the instance that answers")),
    ]);
    let status = object(&[
        ("name", json!({ "type": "string", "description": "The name of the instance that answers" })),
        ("version", text()),
        ("buffer", text()),
        ("transactions", json!({ "type": "string", "enum": ["handfast", "none"] })),
        ("time_zone", text()),
        ("uptime_seconds", number("The time since the start of this instance")),
        ("views", views("The views that this instance has counted")),
        ("saved", views("The views that this instance has saved")),
        ("instances", list(instance)),
        ("ready", json!({ "type": "boolean" })),
        ("parts", list(part.clone())),
        ("queues", list(queue)),
        ("kind", of_kind),
    ]);
    json!({
        "Views": body,
        "Status": status,
        "CountedTotal": counted_total,
        "Total": object(&[("kind", kind()), ("id", id()), ("total", total()), ("partial", partial())]),
        "Totals": object(&[("kind", kind()), ("totals", list(item_total))]),
        "Daily": object(&[
            ("kind", kind()),
            ("id", id()),
            ("from", day()),
            ("to", day()),
            ("time_zone", json!({ "type": "string", "description": "The time zone in which days begin and end" })),
            ("views", views("The sum of the days")),
            ("days", list(day_views)),
        ]),
        "Top": object(&[("kind", kind()), ("day", json!({ "type": ["string", "null"] })), ("items", list(top_item))]),
        "Health": object(&[("status", text())]),
        "Readiness": object(&[("ready", json!({ "type": "boolean" })), ("parts", list(part))]),
    })
}
