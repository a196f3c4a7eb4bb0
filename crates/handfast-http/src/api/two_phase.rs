//! The handlers of two-phase commits.

use axum::response::Response;
use bson::doc;

use super::{Api, Result, SUBJECT, body, command, of_path};
use crate::request::Call;

pub(super) async fn open_two_phase(api: &Api, call: Call) -> Result<Response> {
    let known = ["accounts", "participants", "finishedMax"];
    api.step(&call, command(&call, "handfastOpenTwoPhase", SUBJECT, &known)?).await
}

pub(super) async fn begin_two_phase(api: &Api, call: Call) -> Result<Response> {
    let transaction = body(&call, &[])?;
    api.write(&call, doc! { "handfastBeginTwoPhase": call.path(SUBJECT), "transaction": transaction }).await
}

pub(super) async fn advance_two_phase(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, of_path(&call, "handfastAdvanceTwoPhase", "transaction", &["application"])?).await
}

pub(super) async fn cancel_two_phase(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, of_path(&call, "handfastCancelTwoPhase", "transaction", &["reason", "application"])?).await
}

pub(super) async fn compensate_two_phase(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, of_path(&call, "handfastCompensateTwoPhase", "transaction", &["by"])?).await
}

pub(super) async fn recover_two_phase(api: &Api, call: Call) -> Result<Response> {
    let known = ["application", "abandonedAfterMillis", "waiting", "count"];
    api.step(&call, command(&call, "handfastRecoverTwoPhase", SUBJECT, &known)?).await
}
