//! The handlers of sync flags.

use axum::response::Response;
use bson::doc;

use super::{Api, Result, SUBJECT, command, of_path, put_integer};
use crate::request::Call;

pub(super) async fn open_sync_flag(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, command(&call, "handfastOpenSyncFlag", SUBJECT, &["links", "tokensMax"])?).await
}

pub(super) async fn set_synced(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, of_path(&call, "handfastSetSynced", "document", &["token", "update", "guard"])?).await
}

pub(super) async fn delete_synced(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, of_path(&call, "handfastDeleteSynced", "document", &[])?).await
}

pub(super) async fn insert_synced(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, command(&call, "handfastInsertSynced", SUBJECT, &["collection", "document"])?).await
}

pub(super) async fn sweep_synced(api: &Api, call: Call) -> Result<Response> {
    api.step(&call, command(&call, "handfastSweepSynced", SUBJECT, &["abandonedAfterMillis", "count"])?).await
}

pub(super) async fn audit_synced(api: &Api, call: Call) -> Result<Response> {
    let mut command = doc! { "handfastAuditSynced": call.path(SUBJECT) };
    put_integer(&mut command, &call, "count")?;
    api.read(&call, command).await
}
