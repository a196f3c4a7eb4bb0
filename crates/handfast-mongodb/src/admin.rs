//! What a program asks of a server beside documents: one command on the database `admin`.

use bson::RawDocumentBuf;
use handfast_store::Result;

use crate::connection::contacted;
use crate::error::{Effect, incomplete, of_driver};
use crate::options;

/// Runs one command on the database `admin` of the server of a connection string, and waits for its answer as long as it takes.
/// Nothing is tried out before but whether a server is there, as [`connect`](crate::connect) does; and nothing is sent twice.
///
/// # Errors
/// `BadValue` (2) for a connection string that is not valid; those of the network, of the login, and of the server. An
/// answer that got lost leaves open what became of the command.
///
/// # Cancellation
/// What the server has begun, it may finish.
pub async fn run_admin_command(uri: &str, command: RawDocumentBuf) -> Result<RawDocumentBuf> {
    let (client, _) = contacted(options::parse(uri)?, None, options::SELECTION_TIMEOUT).await?;
    let reply = client.database("admin").run_raw_command(command).await;
    let reply = reply.map_err(|error| of_driver(error, Effect::Several))?;
    RawDocumentBuf::try_from(&reply).map_err(|error| incomplete(&error.to_string(), Effect::Several))
}
