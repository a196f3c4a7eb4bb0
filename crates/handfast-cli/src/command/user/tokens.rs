//! The tokens of a user: made, listed, revoked.

use anyhow::{Context as _, bail};
use bson::{Bson, DateTime};
use handfast_mql::Code;
use handfast_server::auth::{NewUserToken, UserToken};
use handfast_store::{Error, Sources};
use serde_json::{Value, json};

use super::arguments::{UserAddTokenArguments, UserRevokeTokenArguments, UserTokensArguments};
use super::{name, open};
use crate::configuration::Settings;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::id::extended_json;
use crate::listing::Listing;

pub(super) async fn add(
    settings: &Settings,
    arguments: &UserAddTokenArguments,
    console: Console,
) -> anyhow::Result<Exit> {
    let user = name(&arguments.user)?;
    let now = Sources::system()?.clock.now();
    let expires_at = arguments.expires.map(|time| {
        let millis =
            i64::try_from(time.0.as_millis()).ok().and_then(|millis| now.timestamp_millis().checked_add(millis));
        millis.map(DateTime::from_millis).context("--expires is too long")
    });
    let (embedded, users) = open(settings).await?;
    let made = users.add_token(&user, &arguments.purpose, now, expires_at.transpose()?).await;
    embedded.close().await?;
    let NewUserToken { token, text } = made.map_err(usage)?;
    let mut json = shown(&token);
    json["token"] = text.clone().into();
    console.report(|| format!("token {} of {user}, shown this once:\n{text}", token.id), &json)?;
    Ok(Exit::Good)
}

pub(super) async fn revoke(
    settings: &Settings,
    arguments: &UserRevokeTokenArguments,
    console: Console,
) -> anyhow::Result<Exit> {
    let user = name(&arguments.user)?;
    let (embedded, users) = open(settings).await?;
    let revoked = users.revoke_token(&user, &arguments.token).await;
    embedded.close().await?;
    if !revoked? {
        bail!("{user} has no token {}: `handfast user tokens` lists them", arguments.token);
    }
    console.report(|| format!("revoked {}", arguments.token), &json!({ "revoked": arguments.token }))?;
    Ok(Exit::Good)
}

pub(super) async fn list(
    settings: &Settings,
    arguments: &UserTokensArguments,
    console: Console,
) -> anyhow::Result<Exit> {
    let wanted = name(&arguments.user)?;
    let (embedded, users) = open(settings).await?;
    let user = users.find(&wanted).await;
    embedded.close().await?;
    let user = user?.with_context(|| format!("User '{wanted}' not found"))?;
    let mut listing = Listing::new(&["id", "name", "made", "expires"]);
    let now = Sources::system()?.clock.now();
    for token in &user.tokens {
        let time =
            |time: DateTime| time.try_to_rfc3339_string().unwrap_or_else(|_| time.timestamp_millis().to_string());
        let expires = match token.expires_at {
            None => "never".to_owned(),
            Some(at) if token.has_expired(now) => format!("{} (over)", time(at)),
            Some(at) => time(at),
        };
        listing.push([token.id.clone(), token.name.clone(), time(token.created_at), expires], shown(token));
    }
    console.list(&listing)?;
    Ok(Exit::Good)
}

fn shown(token: &UserToken) -> Value {
    json!({
        "_id": token.id,
        "name": token.name,
        "createdAt": extended_json(&Bson::DateTime(token.created_at)),
        "expiresAt": token.expires_at.map(|at| extended_json(&Bson::DateTime(at))),
    })
}

/// Returns an error of the arguments as one of usage.
fn usage(error: Error) -> anyhow::Error {
    match error.code() {
        Code::BadValue => Usage(error.message().to_owned()).into(),
        _ => error.into(),
    }
}
