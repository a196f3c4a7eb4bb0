//! Checks which fields a request may have in its context. This comes before everything else, so that a request that is refused here
//! leaves its transaction open.

use handfast_mql::Code;

use crate::commands::{Access, Command, InTransaction, SnapshotSupport};
use crate::error::{COMMAND_FAILED, CommandError, CommandResult};
use crate::options::Topology;
use crate::request::{Numbering, ReadConcern, Request, SNAPSHOT};
use crate::state::Shared;

/// The databases that hold the server's own data.
const INTERNAL_DATABASES: [&str; 3] = ["admin", "config", "local"];

/// Refuses fields that contradict each other or the command.
pub(crate) fn check(shared: &Shared, request: &Request<'_>, command: &Command) -> CommandResult<()> {
    let number = request.numbering.number();
    if number.is_some() && shared.options.topology == Topology::Standalone {
        // From this code and text drivers derive their advice to turn retryWrites off.
        let text = "Transaction numbers are only allowed on a replica set member or mongos";
        return Err(CommandError::new(Code::IllegalOperation, text));
    }
    if request.write_concern.unsatisfied.is_some() && shared.options.topology == Topology::Standalone {
        let text = "cannot use 'w' > 1, or a named mode, when a host is not replicated";
        return Err(CommandError::new(Code::BadValue, text));
    }
    check_linearizable(request)?;
    match request.numbering {
        Numbering::None if command.properties.in_transaction.is_end() => {
            let text = format!("{} must be run within a transaction", command.name);
            Err(CommandError::new(COMMAND_FAILED, text))
        }
        Numbering::RetryableWrite(_) if !command.properties.retryable => {
            let text = format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. autocommit:false was not provided, and {} is not a retryable write command.",
                request.name
            );
            Err(CommandError::new(NUMBER_ALONE, text))
        }
        Numbering::Transaction { starts, .. } => check_within(request, command, starts),
        Numbering::None | Numbering::RetryableWrite(_) => check_snapshot(shared, request, command),
    }
}

/// Refuses a linearizable pipeline that writes, because its output is not part of what it has read.
fn check_linearizable(request: &Request<'_>) -> CommandResult<()> {
    let is_linearizable = request.read_concern.is_some_and(|concern| concern.level == Some("linearizable"));
    if is_linearizable && request.access == Access::ReadAndStore {
        let text = "$out and $merge cannot be used with a 'linearizable' read concern level";
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    Ok(())
}

/// Refuses the read concern "snapshot" outside of a transaction, except for some reads on a member of a replica set.
fn check_snapshot(shared: &Shared, request: &Request<'_>, command: &Command) -> CommandResult<()> {
    let Some(ReadConcern { level: Some(SNAPSHOT), at }) = request.read_concern else { return Ok(()) };
    if command.properties.snapshots == SnapshotSupport::Refused || request.access == Access::ReadAndStore {
        let text = format!("Command {} does not support {{readConcern: {{level: \"snapshot\"}}}} here", request.name);
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    if at.is_some() && (shared.cluster_time.is_none() || request.session.is_none()) {
        let text = "atClusterTime needs a session, and a server that is a member of a replica set";
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    Ok(())
}

fn check_within(request: &Request<'_>, command: &Command, starts: bool) -> CommandResult<()> {
    let in_transaction = command.properties.in_transaction;
    if in_transaction == InTransaction::Refused {
        return Err(unsupported(format!("Cannot run '{}' in a multi-document transaction.", request.name)));
    }
    if starts && in_transaction != InTransaction::Allowed {
        return Err(unsupported(format!("Cannot run '{}' as the first operation in a transaction.", request.name)));
    }
    if !in_transaction.is_end() && !command.properties.names_databases {
        check_database(request.database)?;
    }
    if request.access == Access::ReadAndStore {
        return Err(unsupported("$out and $merge cannot run in a multi-document transaction.".to_owned()));
    }
    let invalid = |text: &str| Err(CommandError::new(Code::InvalidOptions, text));
    match request.read_concern {
        Some(_) if !starts => return invalid("Only the first command in a transaction may specify a readConcern"),
        Some(ReadConcern { at: Some(_), .. }) => return invalid("atClusterTime is not supported in a transaction"),
        Some(ReadConcern { level: Some(level), .. }) if !matches!(level, "local" | "majority" | SNAPSHOT) => {
            return invalid(
                "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a transaction",
            );
        }
        _ => {}
    }
    if request.has_write_concern && !in_transaction.is_end() {
        return invalid("writeConcern is not allowed within a multi-statement transaction");
    }
    Ok(())
}

/// Refuses the databases that hold the server's own data.
pub(crate) fn check_database(database: &str) -> CommandResult<()> {
    if INTERNAL_DATABASES.contains(&database) {
        let text = format!("Cannot run command against the '{database}' database in a transaction.");
        return Err(unsupported(text));
    }
    Ok(())
}

/// Returns the error for an operation that is not supported in a transaction.
pub(crate) fn unsupported(text: String) -> CommandError {
    CommandError::new(Code::OperationNotSupportedInTransaction, text)
}

const NUMBER_ALONE: Code = Code(50_768);
