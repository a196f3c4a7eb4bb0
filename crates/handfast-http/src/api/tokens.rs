//! The handlers of tokens: those of the user who sends the request with its password.

use axum::response::Response;
use bson::{DateTime, doc};
use handfast_store::Error;

use super::command_server::TokenOwner;
use super::login::name_and_database;
use super::{Api, Result, answer, body, refuse_key};
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// The codes of the errors that have a problem of their own.
const BAD_VALUE: i32 = 2;
const USER_NOT_FOUND: i32 = 11;
const INVALID_NAMESPACE: i32 = 73;
const UNAUTHORIZED: i32 = 13;

pub(super) async fn create(api: &Api, call: Call) -> Result<Response> {
    refuse_key(&call)?;
    let mut body = body(&call, &["expiresAt"])?;
    let name = match body.remove("name") {
        Some(bson::Bson::String(name)) => name,
        _ => return Err(Problem::invalid("the body needs the field name, a text that says what the token is for")),
    };
    let expires_at: Option<DateTime> = match body.remove("expiresAt") {
        None | Some(bson::Bson::Null) => None,
        Some(bson::Bson::DateTime(at)) => Some(at),
        Some(other) => return Err(Problem::invalid(format!("expiresAt must be a date, and is {other}"))),
    };
    if let Some(unknown) = body.keys().next() {
        return Err(Problem::invalid(format!(
            "the body has the unknown field {unknown:?}; the fields are: name, expiresAt"
        )));
    }
    ensure_users(api)?;
    let mut client = api.client(&call).await?;
    let work = async move { client.tokens()?.add_token(&name, expires_at).await.map_err(|error| problem(&error)) };
    api.run_to_the_end(work).await
}

pub(super) async fn list(api: &Api, call: Call) -> Result<Response> {
    ensure_users(api)?;
    let owner = owner(&call);
    let mut client = api.client(&call).await?;
    let tokens = client.tokens()?.tokens(owner.as_ref()).await.map_err(|error| problem(&error))?;
    Ok(answer(doc! { "tokens": tokens }))
}

pub(super) async fn revoke(api: &Api, call: Call) -> Result<Response> {
    refuse_key(&call)?;
    ensure_users(api)?;
    let (owner, id) = (owner(&call), call.path("token").to_owned());
    let mut client = api.client(&call).await?;
    let work = async move {
        let revoked = client.tokens()?.revoke_token(owner.as_ref(), &id).await.map_err(|error| problem(&error))?;
        Ok(doc! { "revoked": revoked })
    };
    api.run_to_the_end(work).await
}

/// Returns the user whose tokens the request is about: `NAME@DATABASE`, or `NAME` for a user of `admin`.
fn owner(call: &Call) -> Option<TokenOwner> {
    let (name, database) = name_and_database(call.query("user")?);
    Some(TokenOwner { database: database.to_owned(), name: name.to_owned() })
}

/// Refuses tokens of nobody.
fn ensure_users(api: &Api) -> Result<()> {
    if api.logins.are_required() {
        return Ok(());
    }
    let text = "without --auth there are no users, and so no tokens: requests need none";
    Err(Problem::new(ProblemKind::Conflict, text))
}

fn problem(error: &Error) -> Problem {
    let kind = match error.code().0 {
        BAD_VALUE | INVALID_NAMESPACE => ProblemKind::InvalidRequest,
        USER_NOT_FOUND => ProblemKind::Missing,
        UNAUTHORIZED => ProblemKind::Forbidden,
        _ if error.applied() == handfast_store::Applied::Maybe => ProblemKind::OutcomeUnknown,
        _ => ProblemKind::Unavailable,
    };
    Problem::new(kind, error.message())
}
