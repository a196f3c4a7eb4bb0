//! The pages of ledgers: all ledgers, and the accounts and entries of one.

use axum::response::Response;
use bson::{Bson, Document, doc};

use super::super::found_patterns::{self, FoundPattern, LEDGER};
use super::super::lists::{account_collection, entries_in_state};
use super::super::login::RequestClient;
use super::super::reads::{self, List, Position, count, integer};
use super::super::{Api, Result};
use super::html::{Html, encoded, html};
use super::layout::{Page, Section};
use super::parts::{Column, Tab, close_region, empty, failed_row, link, mark, open_region, pager, table, tabs, text};
use super::values::{cell, cut, grouped};
use crate::id::shown;
use crate::request::Call;

/// The changes of an entry that a cell shows.
const CHANGES_MAX: usize = 4;

/// The lists of a ledger, by the values of `show`.
const LISTS: [(&str, &str); 5] = [
    ("Accounts", ""),
    ("All entries", "entries"),
    ("Uncommitted", "UNCOMMITTED"),
    ("Valid", "VALID"),
    ("Canceled", "CANCELED"),
];

fn path(database: &str, ledger: &str) -> String {
    format!("/ledgers/{}/{}", encoded(database), encoded(ledger))
}

pub(super) async fn all(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let mut page = Page::new(Section::Ledgers, "Ledgers").live();
    let mut rows = Vec::new();
    for ledger in found_patterns::all(&mut client, LEDGER).await? {
        let FoundPattern { database, collection, .. } = &ledger;
        let accounts = count(&mut client, database, account_collection(&ledger), Document::new()).await?;
        let entries = count(&mut client, database, collection, Document::new()).await?;
        let uncommitted = count_uncommitted(&mut client, &ledger).await?;
        rows.push(vec![
            link(&path(database, collection), format!("{database}.{collection}")),
            text(grouped(accounts)),
            text(grouped(entries)),
            text(grouped(uncommitted)),
        ]);
    }
    open_region(&mut page.body, "ledgers", "All ledgers");
    if rows.is_empty() {
        let hint = "A ledger appears here with its first entry: handfastPostEntry, POST /v1/{database}/ledgers/{ledger}/entries, or Ledger::open in Rust.";
        page.body.push(&empty("There is no ledger", hint));
    } else {
        let columns = [
            Column::Text("Ledger"),
            Column::Number("Accounts"),
            Column::Number("Entries"),
            Column::Number("Uncommitted"),
        ];
        page.body.push(&table("Ledgers", &columns, &rows));
    }
    close_region(&mut page.body);
    Ok(page.answer())
}

async fn count_uncommitted(client: &mut RequestClient, ledger: &FoundPattern) -> Result<i64> {
    count(client, &ledger.database, &ledger.collection, doc! { ledger.field("proc"): "UNCOMMITTED" }).await
}

pub(super) async fn one(api: &Api, call: Call) -> Result<Response> {
    let (database, name) = (call.path("database"), call.path("ledger"));
    let mut client = api.client(&call).await?;
    let ledger = found_patterns::one(&mut client, database, name, LEDGER).await?;
    let (own, show) = (path(database, name), call.query("show").unwrap_or_default());
    let position = Position::read(&call)?;
    let mut page = Page::new(Section::Ledgers, format!("{database}.{name}")).live().below("Ledgers", "/ledgers");
    let uncommitted = count_uncommitted(&mut client, &ledger).await?;
    let tab = |(name, value): (&'static str, &str)| Tab {
        name,
        value: value.to_owned(),
        count: (value == "UNCOMMITTED").then_some(uncommitted),
        is_bad: false,
    };
    html!(page.body, "<div id=\"tabs\" data-region>");
    page.body.push(&tabs("Lists of the ledger", &own, "show", show, &LISTS.map(tab)));
    html!(page.body, "</div>");
    let file = format!("/v1/{}/ledgers/{}/export?format", encoded(database), encoded(name));
    html!(page.body, "<p>All entries as a file: ");
    page.body.push(&link(&format!("{file}=jsonl"), "JSON Lines"));
    html!(page.body, ", ");
    page.body.push(&link(&format!("{file}=csv"), "CSV"));
    html!(page.body, "</p>");
    let is_accounts = show.is_empty();
    let (collection, filter) = match show {
        "" => (account_collection(&ledger), Document::new()),
        "entries" => (name, Document::new()),
        state => (name, entries_in_state(&ledger, Some(state))?),
    };
    let reads::Page { documents, next } = List { database, collection, filter }.page(&mut client, position).await?;
    open_region(&mut page.body, "list", if is_accounts { "Accounts" } else { "Entries" });
    if documents.is_empty() {
        page.body.push(&empty("Nothing here", "The ledger has no such documents."));
    } else if is_accounts {
        let rows = accounts(&mut client, database, name, &documents).await;
        let columns = [
            Column::Text("Account"),
            Column::Text("Asset"),
            Column::Number("Balance"),
            Column::Number("Available"),
            Column::Number("Held"),
            Column::Number("Not final"),
            Column::Number("Changes"),
            Column::Text("Statement"),
        ];
        page.body.push(&table("Accounts, in minor units", &columns, &rows));
    } else {
        let rows: Vec<_> = documents.iter().map(|entry| entry_row(&ledger, entry)).collect();
        let columns = [
            Column::Text("Entry"),
            Column::Text("Time"),
            Column::Text("Final"),
            Column::Text("State"),
            Column::Text("Changes"),
        ];
        page.body.push(&table("Entries", &columns, &rows));
    }
    let with = |after: &str| format!("{own}?show={}&after={}", encoded(show), encoded(after));
    let first = call.query("after").map(|_| format!("{own}?show={}", encoded(show)));
    page.body.push(&pager(first.as_deref(), next.as_deref().map(with).as_deref()));
    close_region(&mut page.body);
    Ok(page.answer())
}

/// Returns the rows of accounts with their balances.
async fn accounts(client: &mut RequestClient, database: &str, ledger: &str, accounts: &[Document]) -> Vec<Vec<Html>> {
    let mut rows = Vec::new();
    for account in accounts {
        let id = account.get("_id").cloned().unwrap_or(Bson::Null);
        let balance = client.run(database, &doc! { "handfastBalance": ledger, "account": id.clone() }).await;
        let balance = match balance {
            Ok(balance) => balance,
            Err(problem) => {
                rows.push(failed_row(text(cut(&shown(&id))), &problem, 8));
                continue;
            }
        };
        let number =
            |name: &str| if balance.contains_key(name) { text(grouped(integer(&balance, name))) } else { text("–") };
        rows.push(vec![
            text(cut(&shown(&id))),
            cell(balance.get("asset").or_else(|| account.get("asset"))),
            number("balance"),
            number("available"),
            number("held"),
            number("pending"),
            number("seqId"),
            files(database, ledger, &id),
        ]);
    }
    rows
}

/// Returns the links to the changes of an account.
fn files(database: &str, ledger: &str, account: &Bson) -> Html {
    let own = format!("/v1/{}/ledgers/{}/accounts/{}", encoded(database), encoded(ledger), encoded(&shown(account)));
    let mut html = link(&format!("{own}/statement"), "JSON");
    html!(html, ", ");
    html.push(&link(&format!("{own}/export?format=csv"), "CSV"));
    html
}

fn entry_row(ledger: &FoundPattern, entry: &Document) -> Vec<Html> {
    let FoundPattern { database, collection, .. } = ledger;
    let id = entry.get("_id").cloned().unwrap_or(Bson::Null);
    let state = |field: &str| mark(entry.get_str(ledger.field(field)).unwrap_or("unknown"));
    let changes = entry.get_array(ledger.field("changes")).map(Vec::as_slice).unwrap_or_default();
    let mut shown_changes = Html::new();
    html!(shown_changes, "<ul class=\"changes\">");
    for change in changes.iter().filter_map(Bson::as_document).take(CHANGES_MAX) {
        let account = change.get(ledger.field("account")).map(shown).unwrap_or_default();
        let asset = change.get_str(ledger.field("asset")).unwrap_or_default();
        html!(
            shown_changes,
            "<li><span>{}</span> <b>{} {}</b></li>",
            cut(&account),
            grouped(integer(change, ledger.field("value"))),
            asset
        );
    }
    if changes.len() > CHANGES_MAX {
        html!(shown_changes, "<li>and {} more</li>", changes.len() - CHANGES_MAX);
    }
    html!(shown_changes, "</ul>");
    vec![
        link(&super::document::path(database, collection, &id), cut(&shown(&id))),
        cell(entry.get(ledger.field("ts"))),
        state("proc"),
        state("state"),
        shown_changes,
    ]
}
