//! The stages `$listLocalSessions` and `$listSessions`: the sessions of clients. This server has all of them in memory, so both return
//! the same documents.

use std::collections::HashMap;

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{DateTime, RawDocument};
use handfast_mql::Code;
use handfast_mql::bson_type::type_name;
use sha2::{Digest, Sha256};

use super::Call;
use crate::arguments::Arguments;
use crate::auth::guard;
use crate::auth::role::Action;
use crate::auth::user::{UserId, UserName};
use crate::error::{CommandError, CommandResult};
use crate::writer::{Bytes, Uuid, Writer};

/// The users whose sessions are listed.
enum Users {
    All,
    /// The user of the connection; without a login all sessions that have no user.
    Own,
    Named(Vec<UserName>),
}

/// Returns the sessions of this user, or of the users that the options name, as documents.
///
/// # Errors
/// `Unauthorized` (13) for sessions of other users without the right to see them; the errors of the options.
pub(super) async fn stage(
    call: &Call<'_>,
    name: &'static str,
    options: RawBsonRef<'_>,
) -> CommandResult<Vec<RawDocumentBuf>> {
    let users = read(name, options)?;
    let own = call.client.login.user();
    let is_own = |user: &UserName| own.as_ref().is_some_and(|own| own.user.name == *user);
    let shows_others = match &users {
        Users::All => true,
        Users::Own => false,
        Users::Named(names) => !names.iter().all(is_own),
    };
    if shows_others {
        guard::require(call.shared, call.client, call.request, Action::Monitor, "")?;
    }
    let names: HashMap<UserId, UserName> = match &own {
        // Without users there is nothing to look up.
        None if !call.shared.options.authentication => HashMap::new(),
        Some(own) if !shows_others => HashMap::from([(own.user.id, own.user.name.clone())]),
        _ => call.shared.users.list(None).await?.into_iter().map(|user| (user.id, user.name)).collect(),
    };
    let is_meant = |user: Option<UserId>| match &users {
        Users::All => true,
        Users::Own => user == call.user_id(),
        Users::Named(meant) => user.and_then(|user| names.get(&user)).is_some_and(|name| meant.contains(name)),
    };
    let (now, time) = (call.shared.now(), call.shared.sources.clock.now());
    let listed = call.shared.sessions.list().into_iter().filter(|(id, _)| is_meant(id.user));
    let described = listed.map(|(id, last_use)| {
        let user = id.user.and_then(|user| names.get(&user));
        let ago = i64::try_from(now.saturating_sub(last_use).as_millis()).unwrap_or(i64::MAX);
        let mut writer = Writer::new();
        writer.begin_document("_id").put("id", Uuid(id.id)).put("uid", Bytes(&digest(user))).end();
        writer.put("lastUse", DateTime::from_millis(time.timestamp_millis().saturating_sub(ago)));
        writer.put_some("user", user.map(UserName::to_string));
        writer.finish()
    });
    Ok(described.collect())
}

/// Returns the hash by which MongoDB tells the users of sessions apart: that of `user@database`, or of nothing without a user.
fn digest(user: Option<&UserName>) -> [u8; 32] {
    let name = user.map(UserName::to_string).unwrap_or_default();
    Sha256::digest(name.as_bytes()).into()
}

fn read(name: &'static str, options: RawBsonRef<'_>) -> CommandResult<Users> {
    let RawBsonRef::Document(options) = options else {
        let text = format!("{name} options must be specified in an object, but found: {}", type_name(options));
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let mut arguments = Arguments::of_document(name, options)?;
    let all = arguments.flag("allUsers")?.unwrap_or(false);
    let named = arguments.documents("users")?.unwrap_or_default();
    arguments.finish()?;
    match (all, named.is_empty()) {
        (true, false) => {
            let text = format!("{name} may not specify {{allUsers:true}} and {{users:[...]}} at the same time");
            Err(CommandError::new(Code::UnsupportedFormat, text))
        }
        (true, true) => Ok(Users::All),
        (false, true) => Ok(Users::Own),
        (false, false) => {
            let names = named.into_iter().map(|user| user_name(name, user));
            Ok(Users::Named(names.collect::<CommandResult<_>>()?))
        }
    }
}

fn user_name(path: &'static str, user: &RawDocument) -> CommandResult<UserName> {
    let mut arguments = Arguments::of_document(path, user)?;
    let name = arguments.text("user")?;
    let name = arguments.required("user", name)?;
    let database = arguments.text("db")?;
    let database = arguments.required("db", database)?;
    arguments.finish()?;
    Ok(UserName::new(database, name)?)
}

#[cfg(test)]
mod tests;
