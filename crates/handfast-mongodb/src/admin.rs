//! Runs a command on the database `admin`.

use bson::RawDocumentBuf;
use handfast_store::Result;

use crate::connection::connect_client;
use crate::error::{Effect, incomplete, of_driver};
use crate::options;

/// Runs one command on the database `admin` of a server and waits for its answer without a time limit.
///
/// It looks for a server as [`connect`](crate::connect) does, but detects no capabilities. It sends the command once.
///
/// # Errors
/// `BadValue` (2) for a connection string that is not valid; errors of the network, of the authentication and of the server.
/// The outcome of the command is unknown if its answer is lost.
///
/// # Cancellation
/// The server may finish a command that it has begun.
pub async fn run_admin_command(uri: &str, command: RawDocumentBuf) -> Result<RawDocumentBuf> {
    let (client, _) = connect_client(options::parse(uri)?, None, options::SELECTION_TIMEOUT).await?;
    let reply = client.database("admin").run_raw_command(command).await;
    let reply = reply.map_err(|error| of_driver(error, Effect::Several))?;
    RawDocumentBuf::try_from(&reply).map_err(|error| incomplete(&error.to_string(), Effect::Several))
}
