//! The page of what runs now: open transactions by age, and commands.

use axum::response::Response;
use bson::{Bson, Document, doc};

use super::super::reads::integer;
use super::super::{Api, Result};
use super::html::{Html, html};
use super::layout::{Page, Section};
use super::overview::is_true;
use super::parts::{Column, close_region, empty, open_region, table, text};
use super::values::{cell, cut, span};
use crate::request::Call;

pub(super) async fn page(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let reply = client.run("admin", &doc! { "currentOp": 1 }).await?;
    let operations = reply.get_array("inprog").map(Vec::as_slice).unwrap_or_default();
    let operations: Vec<&Document> = operations.iter().filter_map(Bson::as_document).collect();
    let mut page = Page::new(Section::Operations, "Transactions and commands").live();
    transactions(&mut page.body, &operations);
    commands(&mut page.body, &operations);
    Ok(page.answer())
}

fn transactions(html: &mut Html, operations: &[&Document]) {
    let mut open: Vec<(&Document, &Document)> = operations
        .iter()
        .filter_map(|operation| Some((*operation, operation.get_document("transaction").ok()?)))
        .collect();
    open.sort_by_key(|(_, transaction)| std::cmp::Reverse(integer(transaction, "timeOpenMicros")));
    open_region(html, "open", "Open transactions, the oldest first");
    if open.is_empty() {
        html.push(&empty("No transaction is open", "A transaction appears here from its first statement to its end."));
    } else {
        let row = |(operation, transaction): &(&Document, &Document)| {
            let session = operation.get_document("lsid").ok().and_then(|session| session.get("id"));
            let number =
                transaction.get_document("parameters").map_or(0, |parameters| integer(parameters, "txnNumber"));
            let statement = if is_true(operation.get("active")) {
                name(operation)
            } else {
                "waits for its next statement".to_owned()
            };
            vec![
                text(span(integer(transaction, "timeOpenMicros") / 1_000)),
                text(session.map(short).unwrap_or_default()),
                text(number),
                text(statement),
                cell(transaction.get("expiryTime")),
            ]
        };
        let columns = [
            Column::Number("Open for"),
            Column::Text("Session"),
            Column::Number("Number"),
            Column::Text("Statement"),
            Column::Text("Ends at the latest"),
        ];
        html.push(&table("Open transactions", &columns, &open.iter().map(row).collect::<Vec<_>>()));
    }
    close_region(html);
}

fn commands(html: &mut Html, operations: &[&Document]) {
    let mut running: Vec<&&Document> = operations.iter().filter(|operation| operation.contains_key("opid")).collect();
    running.sort_by_key(|operation| std::cmp::Reverse(integer(operation, "microsecs_running")));
    open_region(html, "running", "Running commands, the longest first");
    let row = |operation: &&&Document| {
        let mut command = Html::new();
        let text_of = operation.get("command").map(|command| command.clone().into_relaxed_extjson().to_string());
        html!(command, "<code>{}</code>", cut(&text_of.unwrap_or_default()));
        vec![
            text(span(integer(operation, "microsecs_running") / 1_000)),
            text(name(operation)),
            cell(operation.get("ns")),
            cell(operation.get("client")),
            cell(operation.get("appName")),
            command,
        ]
    };
    let columns = [
        Column::Number("Runs for"),
        Column::Text("Command"),
        Column::Text("Collection"),
        Column::Text("Client"),
        Column::Text("Program"),
        Column::Text("Arguments"),
    ];
    html.push(&table("Running commands", &columns, &running.iter().map(row).collect::<Vec<_>>()));
    html!(html, "<p class=\"note\">currentOp itself, by which this page was made, is one of them.</p>");
    close_region(html);
}

/// Returns the name of the command of an operation.
fn name(operation: &Document) -> String {
    let command = operation.get_document("command").ok();
    let first = command.and_then(|command| command.iter().next());
    first
        .map(
            |(name, value)| {
                if name == "$truncated" { value.as_str().unwrap_or_default().to_owned() } else { name.clone() }
            },
        )
        .unwrap_or_default()
}

/// Returns the beginning of the id of a session.
fn short(id: &Bson) -> String {
    match id {
        Bson::Binary(id) => id.bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect(),
        other => other.to_string(),
    }
}
