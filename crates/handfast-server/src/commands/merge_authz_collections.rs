//! `_mergeAuthzCollections`: adds the users of a dump, which `mongorestore` has put into a collection.
//!
//! ```text
//! {_mergeAuthzCollections: 1, tempUsersCollection: "admin.tempusers", tempRolesCollection: "admin.temproles",
//!  drop: false,      whether the users that are not in the collection are removed
//!  db: "shop"}       the database whose users are added, or "" for all
//! ```

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{Find, Namespace, StoreExt};

use super::{Call, Command, user_arguments};
use crate::auth::guard;
use crate::auth::role::Action;
use crate::auth::user::User;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    admin_only: true,
    ..user_arguments::command("_mergeAuthzCollections", "adds the users of a dump", |call| Box::pin(run(call)))
};

/// The advice for a dump whose users cannot be added.
const WITHOUT_USERS: &str = "Restore the dump without its users and roles (mongorestore --nsExclude 'admin.system.*'), and create the users by createUser";

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("_mergeAuthzCollections");
    let users = arguments.text("tempUsersCollection")?.filter(|name| !name.is_empty());
    let roles = arguments.text("tempRolesCollection")?.filter(|name| !name.is_empty());
    let removes_others = arguments.flag("drop")?.unwrap_or(false);
    let database = arguments.text("db")?.filter(|name| !name.is_empty());
    arguments.finish()?;
    if users.is_none() && roles.is_none() {
        let text = "Must provide at least one of \"tempUsersCollection\" and \"tempRolesCollection\"";
        return Err(CommandError::new(Code::BadValue, text));
    }
    if let Some(roles) = roles
        && !documents(call, roles).await?.is_empty()
    {
        let text = format!(
            "the collection '{roles}' has roles that users have defined, which are not supported. {WITHOUT_USERS}"
        );
        return Err(CommandError::new(Code::NotImplemented, text));
    }
    let Some(users) = users else { return Ok(Answer::done()) };
    let mut users = documents(call, users).await?;
    users.retain(|user| database.is_none_or(|database| user.get_str("db").is_ok_and(|db| db == database)));
    users.iter().try_for_each(|user| check_restrictions(user))?;
    let unreadable =
        |error: handfast_store::Error| CommandError::new(error.code(), format!("{error}. {WITHOUT_USERS}"));
    let users =
        users.iter().map(|user| User::of_document(user).map_err(unreadable)).collect::<CommandResult<Vec<_>>>()?;
    let before = call.shared.users.list(None).await?;
    let is_changed = |user: &&User| {
        let is_removed = removes_others && database.is_none_or(|database| user.name.database() == database);
        is_removed || users.iter().any(|new| new.name.id() == user.name.id())
    };
    // Users that are replaced or removed lose their roles.
    for user in before.iter().filter(is_changed).chain(&users) {
        guard::require(call.shared, call.client, call.request, Action::ManageUsers, user.name.database())?;
        user_arguments::check_grant(call, &user.roles)?;
    }
    call.shared.users.merge(users, database, removes_others).await?;
    Ok(Answer::done())
}

/// Checks that a user may log in from anywhere, as restrictions of the addresses are not supported.
fn check_restrictions(user: &RawDocument) -> CommandResult<()> {
    match user.get("authenticationRestrictions")? {
        None | Some(RawBsonRef::Null) => return Ok(()),
        Some(RawBsonRef::Array(none)) if none.is_empty() => return Ok(()),
        Some(_) => {}
    }
    let id = user.get_str("_id").unwrap_or_default();
    let text = format!(
        "user '{id}' has authenticationRestrictions, which are not supported: without them it could log in from anywhere. {WITHOUT_USERS}"
    );
    Err(CommandError::new(Code::NotImplemented, text))
}

/// Returns the documents of a collection that the client may read.
async fn documents(call: &Call<'_>, full_name: &str) -> CommandResult<Vec<RawDocumentBuf>> {
    let (database, collection) = full_name.split_once('.').unwrap_or((full_name, ""));
    let namespace = Namespace::new(database, collection)?;
    if collection.starts_with("system.") {
        let text = format!("the collection '{full_name}' cannot have the users or roles of a dump");
        return Err(CommandError::new(Code::InvalidNamespace, text));
    }
    guard::require(call.shared, call.client, call.request, Action::Find, database)?;
    Ok(call.store().find_all(Find::new(namespace, RawDocumentBuf::new())).await?)
}

#[cfg(test)]
mod tests;
