//! The handlers of ledgers.

use axum::response::Response;
use bson::doc;

use super::{Api, Result, body, command, date, path_id, put_integer};
use crate::id::Id;
use crate::problem::Problem;
use crate::request::Call;

pub(super) async fn open_account(api: &Api, call: Call) -> Result<Response> {
    document(api, call, "handfastOpenAccount", "account", &[]).await
}

pub(super) async fn post_entry(api: &Api, call: Call) -> Result<Response> {
    document(api, call, "handfastPostEntry", "entry", &["ts"]).await
}

pub(super) async fn post_hold(api: &Api, call: Call) -> Result<Response> {
    document(api, call, "handfastPostHold", "hold", &["expiresAt"]).await
}

/// Runs a command about the document of the body.
async fn document(api: &Api, call: Call, command: &str, argument: &str, dates: &[&str]) -> Result<Response> {
    let document = body(&call, dates)?;
    api.write(&call, doc! { command: call.path("ledger"), argument: document }).await
}

pub(super) async fn cancel_entry(api: &Api, call: Call) -> Result<Response> {
    of_path(api, call, "handfastCancelEntry", "entry", &["reason"]).await
}

pub(super) async fn capture_hold(api: &Api, call: Call) -> Result<Response> {
    of_path(api, call, "handfastCaptureHold", "hold", &["value"]).await
}

pub(super) async fn release_hold(api: &Api, call: Call) -> Result<Response> {
    of_path(api, call, "handfastReleaseHold", "hold", &[]).await
}

/// Runs a command about the entry or the hold of the path; the body has the other arguments.
async fn of_path(api: &Api, call: Call, name: &str, argument: &str, known: &[&str]) -> Result<Response> {
    let id = path_id(&call, argument)?;
    let mut command = command(&call, name, "ledger", known)?;
    command.insert(argument, doc! { "_id": id });
    api.write(&call, command).await
}

pub(super) async fn balance(api: &Api, call: Call) -> Result<Response> {
    let mut command = doc! { "handfastBalance": call.path("ledger"), "account": path_id(&call, "account")? };
    if let Some(at) = call.query("at") {
        command.insert("at", date("at", at)?);
    }
    if let Some(entry) = call.query("entry") {
        let Id(entry) = entry.parse().map_err(Problem::invalid)?;
        command.insert("entry", entry);
    }
    put_integer(&mut command, &call, "seqId")?;
    api.read(&call, command).await
}

pub(super) async fn reconcile(api: &Api, call: Call) -> Result<Response> {
    let command = command(&call, "handfastReconcileLedger", "ledger", &["count"])?;
    api.step(&call, command).await
}
