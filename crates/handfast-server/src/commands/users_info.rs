//! `usersInfo`: lists users, without their credentials.
//!
//! ```text
//! {usersInfo: 1}                     users of the database    {usersInfo: {forAllDBs: true}}   all users
//! {usersInfo: "ann"}                 user of the database       {usersInfo: ["ann", {user: "bob", db: "shop"}]}
//! {usersInfo: {user: "ann", db: "shop"}}   user of another database
//! ```

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;

use super::list_filter::ListFilter;
use super::{Access, Call, Command, Properties};
use crate::arguments::{Arguments, as_integer};
use crate::auth::guard::{self, Needs};
use crate::auth::role::Action;
use crate::auth::user::{User, UserName};
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "usersInfo",
    aliases: &[],
    help: "shows users",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("usersInfo");
    let filter = arguments.document_or_empty("filter")?;
    let custom_data = arguments.lenient_flag("showCustomData")?.unwrap_or(true);
    arguments.unsupported(&["showCredentials", "showPrivileges", "showAuthenticationRestrictions"])?;
    arguments.finish()?;
    let filter = ListFilter::compile(call.shared, &filter)?;
    let mut shown: Vec<RawDocumentBuf> = Vec::new();
    for user in users(call).await? {
        let document = user.to_shown(custom_data);
        if filter.matches(&document)? {
            shown.push(document);
        }
    }
    let mut writer = Writer::new();
    writer.array("users", &shown);
    Ok(writer.into())
}

/// Returns the users that the request names. A client may always see its own user.
async fn users(call: &Call<'_>) -> CommandResult<Vec<User>> {
    let database = call.request.database;
    let users = &call.shared.users;
    match call.request.subject {
        RawBsonRef::Document(document) if document.get("forAllDBs")?.is_some() => {
            may_view(call, "admin")?;
            Ok(users.list(None).await?)
        }
        RawBsonRef::Array(list) => {
            let mut found = Vec::new();
            for element in list {
                found.extend(one(call, &named(call, element?)?).await?);
            }
            Ok(found)
        }
        value @ (RawBsonRef::String(_) | RawBsonRef::Document(_)) => {
            Ok(one(call, &named(call, value)?).await?.into_iter().collect())
        }
        value if as_integer(value) == Some(1) => {
            may_view(call, database)?;
            Ok(users.list(Some(database)).await?)
        }
        _ => {
            let text = "usersInfo takes 1, a name, {user: .., db: ..}, a list of those, or {forAllDBs: true}";
            Err(CommandError::new(Code::BadValue, text))
        }
    }
}

async fn one(call: &Call<'_>, name: &UserName) -> CommandResult<Option<User>> {
    if call.client.login.user().is_none_or(|user| user.user.name != *name) {
        may_view(call, name.database())?;
    }
    Ok(call.shared.users.find(name).await?)
}

fn may_view(call: &Call<'_>, database: &str) -> CommandResult<()> {
    guard::require(call.shared, call.client, call.request, Action::ViewUsers, database)
}

fn named(call: &Call<'_>, value: RawBsonRef<'_>) -> CommandResult<UserName> {
    match value {
        RawBsonRef::String(name) => Ok(UserName::new(call.request.database, name)?),
        RawBsonRef::Document(document) => name_of(document),
        _ => Err(CommandError::new(Code::TypeMismatch, "a user is named by a string or by {user: .., db: ..}")),
    }
}

fn name_of(document: &RawDocument) -> CommandResult<UserName> {
    let mut arguments = Arguments::of_document("usersInfo", document)?;
    let (user, database) = (arguments.text("user")?, arguments.text("db")?);
    let name = UserName::new(arguments.required("db", database)?, arguments.required("user", user)?)?;
    arguments.finish()?;
    Ok(name)
}
