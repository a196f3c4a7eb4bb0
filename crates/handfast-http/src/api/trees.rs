//! The handlers of versioned trees.

use axum::response::Response;
use bson::{Bson, doc};

use super::{Api, Result, SUBJECT, command, path_id, put_integer};
use crate::id::Id;
use crate::problem::Problem;
use crate::request::Call;

pub(super) async fn write_tree(api: &Api, call: Call) -> Result<Response> {
    let mut command = command(&call, "handfastWriteTree", SUBJECT, &["token", "nodes", "root", "base"])?;
    command.insert("tree", path_id(&call, "tree")?);
    api.step(&call, command).await
}

pub(super) async fn read_tree(api: &Api, call: Call) -> Result<Response> {
    let mut command = doc! { "handfastReadTree": call.path(SUBJECT), "tree": path_id(&call, "tree")? };
    put_integer(&mut command, &call, "version")?;
    if let Some(items) = call.query("items") {
        let items = items.split(',').map(|item| item.parse().map(|Id(item)| item).map_err(Problem::invalid));
        command.insert("items", items.collect::<Result<Vec<Bson>>>()?);
    }
    api.read(&call, command).await
}

pub(super) async fn sweep_tree(api: &Api, call: Call) -> Result<Response> {
    let mut command = command(&call, "handfastSweepTree", SUBJECT, &["count"])?;
    command.insert("tree", path_id(&call, "tree")?);
    api.step(&call, command).await
}
