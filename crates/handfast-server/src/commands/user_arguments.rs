//! Reads names, roles and passwords in the arguments of the commands about users.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, Properties, Running};
use crate::arguments::Arguments;
use crate::auth::guard::{self, Needs};
use crate::auth::role::{Action, Role};
use crate::auth::user::UserName;
use crate::auth::users::{Change, Password};
use crate::error::{CommandError, CommandResult};

/// Returns the entry of a command that changes users.
pub(super) const fn command(
    name: &'static str,
    help: &'static str,
    run: for<'a> fn(&'a Call<'a>) -> Running<'a>,
) -> Command {
    Command {
        name,
        aliases: &[],
        help,
        access: Access::Write,
        needs: Needs::Database(Action::ManageUsers),
        admin_only: false,
        confidential: false,
        versioned: false,
        properties: Properties::DEFAULT,
        run,
    }
}

/// Reads the fields of a user besides its name.
pub(super) fn change(call: &Call<'_>, arguments: &mut Arguments<'_>) -> CommandResult<Change> {
    let password = password(arguments)?;
    let roles = roles(call, arguments, "roles")?;
    let custom_data = arguments.document("customData")?.map(ToOwned::to_owned);
    Ok(Change { password, roles, custom_data })
}

/// Reads the name of the user that the command changes.
pub(super) fn name(call: &Call<'_>) -> CommandResult<UserName> {
    match call.request.subject {
        RawBsonRef::String(name) => Ok(UserName::new(call.request.database, name)?),
        _ => Err(CommandError::new(Code::TypeMismatch, "the name of a user must be a string")),
    }
}

/// Reads a list of roles, as names or as `{role, db}`. Returns `None` if it is absent.
pub(super) fn roles(call: &Call<'_>, arguments: &mut Arguments<'_>, key: &str) -> CommandResult<Option<Vec<Role>>> {
    let Some(list) = arguments.array(key)? else { return Ok(None) };
    let mut roles = Vec::new();
    for element in list {
        roles.push(match element? {
            RawBsonRef::String(role) => Role::new(role, call.request.database)?,
            RawBsonRef::Document(named) => {
                let mut named = Arguments::of_document("roles", named)?;
                let (role, database) = (named.text("role")?, named.text("db")?);
                let role = Role::new(named.required("role", role)?, named.required("db", database)?)?;
                named.finish()?;
                role
            }
            _ => {
                let text = "a role must be a string or a document {role: .., db: ..}";
                return Err(CommandError::new(Code::TypeMismatch, text));
            }
        });
    }
    Ok(Some(roles))
}

/// Reads a password, and the options about it.
pub(super) fn password(arguments: &mut Arguments<'_>) -> CommandResult<Option<Password>> {
    let password = arguments.text("pwd")?.map(Password::new);
    if arguments.flag("digestPassword")? == Some(false) {
        let text = "passwords come as they are: 'digestPassword' must be true or absent";
        return Err(CommandError::new(Code::BadValue, text));
    }
    for mechanism in arguments.array("mechanisms")?.into_iter().flatten() {
        let mechanism = mechanism?;
        if mechanism.as_str() != Some(crate::auth::scram::MECHANISM) {
            let text = "the only mechanism is SCRAM-SHA-256";
            return Err(CommandError::new(Code::BadValue, text));
        }
    }
    arguments.unsupported(&["authenticationRestrictions"])?;
    Ok(password)
}

/// Refuses to grant or revoke a role on a database whose users the client may not manage.
pub(super) fn check_grant<'r>(call: &Call<'_>, roles: impl IntoIterator<Item = &'r Role>) -> CommandResult<()> {
    let mut roles = roles.into_iter();
    roles.try_for_each(|role| {
        guard::require(call.shared, call.client, call.request, Action::ManageUsers, role.database())
    })
}
