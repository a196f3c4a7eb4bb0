//! The pages of two-phase commits: all collections of transactions, and the transactions of one by state.

use axum::response::Response;
use bson::{Bson, Document, doc};

use super::super::found_patterns::{self, FoundPattern, TWO_PHASE};
use super::super::lists::{TWO_PHASE_STATES, in_state};
use super::super::login::RequestClient;
use super::super::reads::{self, List, Position, count};
use super::super::{Api, Result};
use super::html::{Html, encoded, html};
use super::layout::{Page, Section};
use super::parts::{Column, Tab, close_region, empty, failed_row, link, mark, open_region, pager, table, tabs, text};
use super::values::{cell, cut, grouped};
use crate::id::shown;
use crate::request::Call;

fn path(database: &str, collection: &str) -> String {
    format!("/two-phase/{}/{}", encoded(database), encoded(collection))
}

pub(super) async fn all(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let mut page = Page::new(Section::TwoPhase, "Two-phase commits").live();
    let mut rows = Vec::new();
    for found in found_patterns::all(&mut client, TWO_PHASE).await? {
        let name = format!("{}.{}", found.database, found.collection);
        let name = link(&path(&found.database, &found.collection), name);
        rows.push(match counts(&mut client, &found).await {
            Ok(counts) => std::iter::once(name).chain(counts.map(|count| text(grouped(count)))).collect(),
            Err(problem) => failed_row(name, &problem, 1 + TWO_PHASE_STATES.len()),
        });
    }
    open_region(&mut page.body, "transactions", "Collections of transactions");
    if rows.is_empty() {
        let hint = "They appear here with their first transaction: handfastBeginTwoPhase, POST /v1/{database}/two-phase/{collection}/transactions, or TwoPhase::open in Rust.";
        page.body.push(&empty("There are no two-phase commits", hint));
    } else {
        let columns: Vec<Column> =
            std::iter::once(Column::Text("Transactions")).chain(TWO_PHASE_STATES.map(Column::Number)).collect();
        page.body.push(&table("Transactions by state", &columns, &rows));
    }
    close_region(&mut page.body);
    Ok(page.answer())
}

/// Returns the number of transactions in each state.
async fn counts(client: &mut RequestClient, found: &FoundPattern) -> Result<[i64; TWO_PHASE_STATES.len()]> {
    let mut counts = [0; TWO_PHASE_STATES.len()];
    for (count_of, state) in counts.iter_mut().zip(TWO_PHASE_STATES) {
        *count_of = count(client, &found.database, &found.collection, doc! { found.field("state"): state }).await?;
    }
    Ok(counts)
}

pub(super) async fn one(api: &Api, call: Call) -> Result<Response> {
    let (database, collection) = (call.path("database"), call.path("collection"));
    let mut client = api.client(&call).await?;
    let found = found_patterns::one(&mut client, database, collection, TWO_PHASE).await?;
    let (own, state) = (path(database, collection), call.query("state").unwrap_or_default());
    let filter = in_state(found.field("state"), Some(state), &TWO_PHASE_STATES)?;
    let list = List { database, collection, filter };
    let reads::Page { documents, next } = list.page(&mut client, Position::read(&call)?).await?;
    let mut page =
        Page::new(Section::TwoPhase, format!("{database}.{collection}")).live().below("Two-phase", "/two-phase");
    let counts = counts(&mut client, &found).await?;
    let mut all = vec![Tab { name: "All", value: String::new(), count: None, is_bad: false }];
    for (state, count) in TWO_PHASE_STATES.into_iter().zip(counts) {
        all.push(Tab { name: state, value: state.to_owned(), count: Some(count), is_bad: state == "canceling" });
    }
    html!(page.body, "<div id=\"tabs\" data-region>");
    page.body.push(&tabs("Transactions by state", &own, "state", state, &all));
    html!(page.body, "</div>");
    open_region(&mut page.body, "list", "Transactions");
    if documents.is_empty() {
        page.body.push(&empty("No transactions here", "There is no transaction in this state."));
    } else {
        let rows: Vec<_> = documents.iter().map(|document| row(&found, document)).collect();
        let columns = [
            Column::Text("Transaction"),
            Column::Text("State"),
            Column::Text("Last change"),
            Column::Text("Application"),
            Column::Text("Plan"),
            Column::Text("Reason"),
        ];
        page.body.push(&table("Transactions", &columns, &rows));
        let with = |after: &str| format!("{own}?state={}&after={}", encoded(state), encoded(after));
        let first = call.query("after").map(|_| format!("{own}?state={}", encoded(state)));
        page.body.push(&pager(first.as_deref(), next.as_deref().map(with).as_deref()));
    }
    close_region(&mut page.body);
    Ok(page.answer())
}

fn row(found: &FoundPattern, transaction: &Document) -> Vec<Html> {
    let id = transaction.get("_id").cloned().unwrap_or(Bson::Null);
    let value = |field: &str| cell(transaction.get(found.field(field)));
    vec![
        link(&super::document::path(&found.database, &found.collection, &id), cut(&shown(&id))),
        mark(transaction.get_str(found.field("state")).unwrap_or("unknown")),
        value("lastModified"),
        value("application"),
        plan(found, transaction),
        value("reason"),
    ]
}

/// Returns what a transaction changes: a transfer, or the number of its participants.
fn plan(found: &FoundPattern, transaction: &Document) -> Html {
    let mut html = Html::new();
    if let Ok(participants) = transaction.get_array(found.field("participants")) {
        html!(html, "{} participants", participants.len());
    } else {
        let id = |field: &str| transaction.get(found.field(field)).map(shown).unwrap_or_default();
        html!(html, "{} from {} to {}", id("value"), cut(&id("source")), cut(&id("destination")));
    }
    html
}
