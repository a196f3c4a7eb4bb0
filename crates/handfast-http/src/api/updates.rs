//! The handlers of exactly-once updates.

use axum::response::Response;

use super::{Api, Result, SUBJECT, command};
use crate::request::Call;

pub(super) async fn apply_once(api: &Api, call: Call) -> Result<Response> {
    let known = ["document", "token", "update", "guard", "upsert"];
    api.write(&call, command(&call, "handfastApplyOnce", SUBJECT, &known)?).await
}

pub(super) async fn finish_updates(api: &Api, call: Call) -> Result<Response> {
    let known = ["update", "pending", "olderMillis", "count"];
    api.step(&call, command(&call, "handfastFinishUpdates", SUBJECT, &known)?).await
}
