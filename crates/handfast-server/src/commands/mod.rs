//! The commands, one file each.
//!
//! A file holds its [`Command`]: the name, the properties, and a function from a [`Call`] to an answer. The function reads its
//! arguments, refuses unknown ones, sends a request to the store, and writes the reply. [`COMMANDS`] lists all commands. A new command
//! is a file and a line there. The rest of the server reads the properties of a command, and never compares its name.

mod abort_transaction;
mod aggregate;
mod build_info;
mod bulk_write;
mod change_stream;
mod cluster_parameters;
mod coll_mod;
mod coll_stats;
mod commit_transaction;
mod compact;
mod configure_fail_point;
mod conn_pool_stats;
mod connection_status;
mod count;
mod create;
mod create_indexes;
mod create_user;
mod current_op;
mod data_size;
mod db_hash;
mod db_stats;
mod delete;
mod distinct;
mod drop;
mod drop_connections;
mod drop_database;
mod drop_indexes;
mod drop_user;
mod end_sessions;
mod exactly_once;
mod explain;
mod find;
mod find_and_modify;
mod fsync;
mod get_cmd_line_opts;
mod get_log;
pub(crate) mod get_more;
mod get_parameter;
mod grant_roles;
mod handfast_backup;
mod hello;
mod host_info;
mod index_stats;
mod insert;
mod jobs;
mod kill_cursors;
mod kill_op;
mod kill_sessions;
mod ledger;
mod list_collections;
mod list_commands;
mod list_databases;
mod list_filter;
mod list_indexes;
mod list_sessions;
mod lock_info;
mod log_rotate;
mod logout;
mod merge_authz_collections;
mod parameters;
mod pattern_steps;
mod ping;
mod plan_cache;
mod profile;
mod properties;
mod query_settings;
mod read_write_concern_defaults;
mod refresh_sessions;
mod rename_collection;
mod replica_set;
mod rotate_certificates;
mod sasl;
mod server_status;
mod set_parameter;
mod stages;
mod start_session;
mod sync_flag;
mod top;
mod two_phase;
mod update;
mod update_user;
mod user_arguments;
mod users_info;
mod validate;
mod validate_db_metadata;
mod versioned_tree;
mod wait_for_fail_point;
mod whats_my_uri;
mod write;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use bson::{RawDocumentBuf, Timestamp};
use handfast_mql::Code;
use handfast_mql::collation::VARIABLE;
use handfast_store::{DocumentStore, Hint, Namespace, Ticket};

pub(crate) use self::properties::{Access, Counter, InTransaction, Properties, SnapshotSupport, TimeLimit};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::user::UserId;
use crate::error::{CommandError, CommandResult};
use crate::operations::Operation;
use crate::reply::Answer;
use crate::request::Request;
use crate::state::{Client, Shared};
use crate::transactions::{RequestContext, retried};

/// A command that runs.
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    pub(crate) request: &'a Request<'a>,
    pub(crate) operation: &'a Operation<'a>,
    /// The transaction, retryable write or snapshot that the command is part of.
    pub(crate) context: &'a RequestContext,
}

impl<'a> Call<'a> {
    /// Returns the store of the command: the transaction that it is part of, or the database's store.
    pub(crate) fn store(&self) -> &'a dyn DocumentStore {
        match self.context.transaction() {
            Some(transaction) => transaction,
            None => self.shared.database.store(),
        }
    }

    /// Returns the ticket of a retryable write, under which the store remembers its results.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self.context {
            RequestContext::RetryableWrite { ticket, .. } => Some(*ticket),
            RequestContext::Plain | RequestContext::Snapshot(_) | RequestContext::Transaction { .. } => None,
        }
    }

    /// Refuses a view, for a command that needs a collection.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166), and the errors of the store.
    async fn refuse_view(&self, namespace: &Namespace) -> CommandResult<()> {
        match self.store().list_indexes(namespace).await {
            Err(error) if error.code() != Code::NamespaceNotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns the number of the transaction that the command is part of.
    pub(crate) fn transaction_number(&self) -> Option<i64> {
        match self.context {
            RequestContext::Transaction { open, .. } => Some(open.number),
            RequestContext::Plain | RequestContext::Snapshot(_) | RequestContext::RetryableWrite { .. } => None,
        }
    }

    /// Returns the `atClusterTime` of the snapshot that the command reads outside of a transaction.
    pub(crate) fn snapshot_at(&self) -> Option<Timestamp> {
        match self.context {
            RequestContext::Snapshot(read) => Some(read.at),
            RequestContext::Plain | RequestContext::RetryableWrite { .. } | RequestContext::Transaction { .. } => None,
        }
    }

    /// Returns which of its `count` statements were applied by an earlier attempt.
    pub(crate) async fn retried(&self, count: usize) -> CommandResult<BTreeSet<usize>> {
        retried::statements_done(self.shared, self.context, count).await
    }

    pub(crate) fn arguments(&self, path: &'static str) -> Arguments<'a> {
        self.request.arguments(path)
    }

    /// Returns the durability that the writes of this command need.
    pub(crate) fn durability(&self) -> handfast_store::Durability {
        self.request.durability(self.shared.options.durability)
    }

    /// Returns the user who runs it.
    pub(crate) fn user_id(&self) -> Option<UserId> {
        self.client.user_id()
    }

    /// Evaluates the command's `let`.
    pub(crate) async fn variables(&self, arguments: &mut Arguments<'_>) -> CommandResult<RawDocumentBuf> {
        let variables = arguments.document_or_empty("let")?;
        if variables.is_empty() {
            return Ok(variables);
        }
        if variables.get(VARIABLE.as_str())?.is_some() {
            let text = format!("'{VARIABLE}' starts with an invalid character for a user variable name");
            return Err(CommandError::new(Code::FailedToParse, text));
        }
        Ok(self.shared.sources.evaluate(variables).await?)
    }
}

type Running<'a> = Pin<Box<dyn Future<Output = CommandResult<Answer>> + Send + 'a>>;

/// A command that the server knows.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// Names that old clients use.
    pub(crate) aliases: &'static [&'static str],
    /// The description in `listCommands`.
    pub(crate) help: &'static str,
    pub(crate) access: Access,
    /// The authorization that it needs.
    pub(crate) needs: Needs,
    /// Whether it runs on the database `admin` only.
    pub(crate) admin_only: bool,
    /// Whether its requests hold passwords or proofs, which `currentOp` does not show.
    pub(crate) confidential: bool,
    /// Whether it belongs to MongoDB's Stable API, version 1.
    pub(crate) versioned: bool,
    pub(crate) properties: Properties,
    pub(crate) run: for<'a> fn(&'a Call<'a>) -> Running<'a>,
}

/// All commands, by name.
pub(crate) const COMMANDS: &[Command] = &[
    merge_authz_collections::COMMAND,
    abort_transaction::COMMAND,
    aggregate::COMMAND,
    compact::AUTO,
    build_info::COMMAND,
    bulk_write::COMMAND,
    coll_mod::COMMAND,
    coll_stats::COMMAND,
    commit_transaction::COMMAND,
    compact::COMPACT,
    connection_status::COMMAND,
    conn_pool_stats::COMMAND,
    count::COMMAND,
    create::COMMAND,
    create_indexes::COMMAND,
    create_user::COMMAND,
    current_op::COMMAND,
    data_size::COMMAND,
    db_hash::COMMAND,
    db_stats::COMMAND,
    delete::COMMAND,
    distinct::COMMAND,
    drop::COMMAND,
    drop_user::ALL,
    drop_connections::COMMAND,
    drop_database::COMMAND,
    drop_indexes::COMMAND,
    drop_user::COMMAND,
    end_sessions::COMMAND,
    explain::COMMAND,
    find::COMMAND,
    find_and_modify::COMMAND,
    fsync::FSYNC,
    fsync::UNLOCK,
    cluster_parameters::GET,
    get_cmd_line_opts::COMMAND,
    read_write_concern_defaults::GET,
    get_log::COMMAND,
    get_more::COMMAND,
    get_parameter::COMMAND,
    grant_roles::GRANT,
    two_phase::advance::COMMAND,
    exactly_once::apply::COMMAND,
    sync_flag::audit::COMMAND,
    handfast_backup::COMMAND,
    ledger::balance::COMMAND,
    two_phase::begin::COMMAND,
    ledger::cancel::COMMAND,
    jobs::cancel::COMMAND,
    two_phase::cancel::COMMAND,
    ledger::capture::COMMAND,
    jobs::claim::COMMAND,
    two_phase::compensate::COMMAND,
    jobs::complete::COMMAND,
    sync_flag::delete::COMMAND,
    jobs::enqueue::COMMAND,
    jobs::fail::COMMAND,
    exactly_once::finish::COMMAND,
    sync_flag::insert::COMMAND,
    ledger::open_account::COMMAND,
    sync_flag::open::COMMAND,
    two_phase::open::COMMAND,
    jobs::pause::PAUSE,
    ledger::post::COMMAND,
    ledger::post_hold::COMMAND,
    jobs::depth::COMMAND,
    versioned_tree::read::COMMAND,
    ledger::reconcile::COMMAND,
    two_phase::recover::COMMAND,
    ledger::release::COMMAND,
    jobs::release::COMMAND,
    jobs::renew::COMMAND,
    jobs::pause::RESUME,
    jobs::retry::COMMAND,
    sync_flag::set::COMMAND,
    ledger::statement::COMMAND,
    sync_flag::sweep::COMMAND,
    versioned_tree::sweep::COMMAND,
    versioned_tree::write::COMMAND,
    hello::COMMAND,
    host_info::COMMAND,
    insert::COMMAND,
    hello::LEGACY,
    kill_sessions::ALL,
    kill_sessions::BY_PATTERN,
    kill_cursors::COMMAND,
    kill_op::COMMAND,
    kill_sessions::COMMAND,
    list_collections::COMMAND,
    list_commands::COMMAND,
    list_databases::COMMAND,
    list_indexes::COMMAND,
    lock_info::COMMAND,
    logout::COMMAND,
    log_rotate::COMMAND,
    ping::COMMAND,
    plan_cache::CLEAR,
    plan_cache::CLEAR_FILTERS,
    plan_cache::LIST_FILTERS,
    plan_cache::SET_FILTER,
    profile::COMMAND,
    refresh_sessions::COMMAND,
    query_settings::REMOVE,
    rename_collection::COMMAND,
    replica_set::CONFIG,
    replica_set::STATUS,
    grant_roles::REVOKE,
    rotate_certificates::COMMAND,
    sasl::CONTINUE,
    sasl::START,
    server_status::COMMAND,
    cluster_parameters::SET,
    read_write_concern_defaults::SET,
    set_parameter::COMMAND,
    query_settings::SET,
    start_session::COMMAND,
    top::COMMAND,
    update::COMMAND,
    update_user::COMMAND,
    users_info::COMMAND,
    validate::COMMAND,
    validate_db_metadata::COMMAND,
    whats_my_uri::COMMAND,
];

/// The commands that need `--test-commands`.
pub(crate) const TEST_COMMANDS: &[Command] = &[configure_fail_point::COMMAND, wait_for_fail_point::COMMAND];

pub(crate) fn find_for_tests(name: &str) -> Option<&'static Command> {
    TEST_COMMANDS.iter().find(|command| command.name == name)
}

/// Returns the command of this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name || command.aliases.contains(&name))
}

/// Reads `hint`: an index by name or key.
fn hint(arguments: &mut Arguments<'_>) -> CommandResult<Option<Hint>> {
    use bson::RawBsonRef;
    match arguments.any("hint")? {
        None => Ok(None),
        Some(RawBsonRef::String("")) => Ok(None),
        Some(RawBsonRef::String(name)) => Ok(Some(Hint::Name(name.to_owned()))),
        Some(RawBsonRef::Document(key)) if key.is_empty() => Ok(None),
        Some(RawBsonRef::Document(key)) => Ok(Some(Hint::Key(key.to_owned()))),
        Some(_) => {
            let text = "Hint must be a string or an object";
            Err(CommandError::new(handfast_mql::Code::FailedToParse, text))
        }
    }
}

/// Returns a sort and a hint, in which a sort by `$natural` is replaced by the hint of the same name. Natural order, forwards or
/// backwards, is that of a scan of the collection.
///
/// # Errors
/// `BadValue` (2) for another direction than 1 and -1, for other fields beside it, and for a hint to something else.
fn natural_order(sort: RawDocumentBuf, hint: Option<Hint>) -> CommandResult<(RawDocumentBuf, Option<Hint>)> {
    let Some(direction) = sort.get(NATURAL)? else { return Ok((sort, hint)) };
    let refused = |text: String| Err(CommandError::new(handfast_mql::Code::BadValue, text));
    if sort.iter().count() > 1 {
        return refused(format!("Cannot include '$natural' in compound sort: {}", handfast_mql::text::document(&sort)));
    }
    let Some(direction) = natural_direction(direction) else {
        return refused("$natural sort cannot be set to a value other than -1 or 1.".to_owned());
    };
    let agrees = match &hint {
        None => true,
        Some(Hint::Key(key)) => key.get(NATURAL)?.and_then(natural_direction) == Some(direction),
        Some(Hint::Name(_)) => false,
    };
    if !agrees {
        return refused("a sort by $natural needs the same hint or none".to_owned());
    }
    Ok((RawDocumentBuf::new(), Some(Hint::Key(bson::rawdoc! { "$natural": direction }))))
}

fn natural_direction(value: bson::RawBsonRef<'_>) -> Option<i32> {
    let number = handfast_mql::Number::of(value)?.to_i64_exact()?;
    i32::try_from(number).ok().filter(|direction| matches!(direction, 1 | -1))
}

/// The name of the order in which documents are stored.
const NATURAL: &str = "$natural";

#[cfg(test)]
mod tests;
