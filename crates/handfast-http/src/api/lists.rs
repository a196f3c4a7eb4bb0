//! The handlers of lists: jobs, accounts, entries, two-phase transactions and documents with a sync flag, a page at a time, and what runs now.

use axum::response::Response;
use bson::{Bson, Document, doc};

use super::found_patterns::{self, FoundPattern, LEDGER, QUEUE, SYNC_FLAG, TWO_PHASE};
use super::login::RequestClient;
use super::reads::{self, List, Page, Position};
use super::{Api, Result, answer, path_id};
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// The states of jobs, as documents store them.
pub(super) const JOB_STATES: [&str; 5] = ["TODO", "PROCESSING", "DONE", "FAILED", "CANCELED"];
/// The states of two-phase transactions.
pub(super) const TWO_PHASE_STATES: [&str; 6] = ["initial", "pending", "applied", "done", "canceling", "canceled"];
/// The selections of entries: by whether they are final, and by whether they count.
pub(super) const ENTRY_STATES: [&str; 5] = ["UNCOMMITTED", "COMMITTED", "VALID", "CANCELED", "ABANDONED"];

/// Returns the filter for documents in a state; for all without one.
///
/// # Errors
/// `invalid-request` for a state that there is not.
pub(super) fn in_state(field: &str, state: Option<&str>, states: &[&str]) -> Result<Document> {
    match state.filter(|state| !state.is_empty()) {
        None => Ok(Document::new()),
        Some(state) if states.contains(&state) => Ok(doc! { field: state }),
        Some(state) => Err(Problem::invalid(format!("state must be one of {}, and is {state:?}", states.join(", ")))),
    }
}

/// Returns the filter for the entries of a ledger that are selected by a state.
pub(super) fn entries_in_state(ledger: &FoundPattern, state: Option<&str>) -> Result<Document> {
    let field = if matches!(state, Some("UNCOMMITTED" | "COMMITTED")) { "proc" } else { "state" };
    in_state(ledger.field(field), state, &ENTRY_STATES)
}

pub(super) async fn jobs(api: &Api, call: Call) -> Result<Response> {
    let (mut client, queue) = of_kind(api, &call, "queue", QUEUE).await?;
    let mut filter = in_state(queue.field("state"), call.query("state"), &JOB_STATES)?;
    if let Some(kind) = call.query("type") {
        filter.insert(queue.field("type"), kind);
    }
    listed(&mut client, &call, &queue.collection, filter, "jobs").await
}

pub(super) async fn job(api: &Api, call: Call) -> Result<Response> {
    let id = path_id(&call, "job")?;
    let mut client = api.client(&call).await?;
    let job = reads::one(&mut client, call.path("database"), call.path("queue"), &id).await?;
    let job = job.ok_or_else(|| Problem::new(ProblemKind::Missing, format!("there is no job {id}")))?;
    Ok(answer(doc! { "job": job }))
}

pub(super) async fn accounts(api: &Api, call: Call) -> Result<Response> {
    let (mut client, ledger) = of_kind(api, &call, "ledger", LEDGER).await?;
    let accounts = account_collection(&ledger).to_owned();
    listed(&mut client, &call, &accounts, Document::new(), "accounts").await
}

pub(super) async fn entries(api: &Api, call: Call) -> Result<Response> {
    let (mut client, ledger) = of_kind(api, &call, "ledger", LEDGER).await?;
    let mut filter = entries_in_state(&ledger, call.query("state"))?;
    if let Some(account) = call.query("account") {
        let crate::id::Id(account) = account.parse().map_err(Problem::invalid)?;
        filter.insert(format!("{}.{}", ledger.field("changes"), ledger.field("account")), doc! { "$eq": account });
    }
    listed(&mut client, &call, &ledger.collection, filter, "entries").await
}

pub(super) async fn two_phase(api: &Api, call: Call) -> Result<Response> {
    let (mut client, found) = of_kind(api, &call, "collection", TWO_PHASE).await?;
    let filter = in_state(found.field("state"), call.query("state"), &TWO_PHASE_STATES)?;
    listed(&mut client, &call, &found.collection, filter, "transactions").await
}

pub(super) async fn pending(api: &Api, call: Call) -> Result<Response> {
    let (mut client, flag) = of_kind(api, &call, "collection", SYNC_FLAG).await?;
    listed(&mut client, &call, &flag.collection, doc! { flag.field("syncing"): { "$exists": true } }, "documents").await
}

/// Returns the commands that run, and the open transactions.
pub(super) async fn operations(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let mut reply = client.run("admin", &doc! { "currentOp": 1 }).await?;
    let operations = reply.remove("inprog").unwrap_or_else(|| Bson::Array(Vec::new()));
    Ok(answer(doc! { "operations": operations }))
}

/// Returns the collection of the accounts of a ledger.
pub(super) fn account_collection(ledger: &FoundPattern) -> &str {
    match ledger.settings.get_str("accounts") {
        Ok(accounts) => accounts,
        Err(_) => "account",
    }
}

/// Returns a client with the login of the request, and the pattern that its path names.
async fn of_kind(api: &Api, call: &Call, subject: &str, kind: &str) -> Result<(RequestClient, FoundPattern)> {
    let mut client = api.client(call).await?;
    let found = found_patterns::one(&mut client, call.path("database"), call.path(subject), kind).await?;
    Ok((client, found))
}

/// Answers with a page of a list.
async fn listed(
    client: &mut RequestClient,
    call: &Call,
    collection: &str,
    filter: Document,
    name: &str,
) -> Result<Response> {
    let list = List { database: call.path("database"), collection, filter };
    let Page { documents, next } = list.page(client, Position::read(call)?).await?;
    let mut reply = doc! { name: documents };
    if let Some(next) = next {
        reply.insert("next", next);
    }
    Ok(answer(reply))
}
