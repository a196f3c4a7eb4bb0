//! The page of a collection: its documents by a filter, a sort order and a projection, its indexes, and the plan of the search.

use std::collections::{BTreeSet, HashMap};

use axum::response::Response;
use bson::{Bson, Document, doc};
use serde_json::Value;

use super::super::login::RequestClient;
use super::super::reads::{self, LIMIT, integer};
use super::super::{Api, Result};
use super::html::{Html, encoded, html};
use super::layout::{Page, Section};
use super::parts::{Column, close_region, empty, link, open_region, pager, table, text};
use super::values::{cell, cut, editable, grouped, indented, size};
use crate::access::refuse_other_sites;
use crate::id::{check_numbers, extended_json, shown};
use crate::problem::Problem;
use crate::request::Call;

/// The columns of the table of documents, beside that of the ids.
const FIELDS_MAX: usize = 8;
/// Limit on the names of one document that the table looks at.
const NAMES_MAX: usize = 500;
/// Limit on the documents that pages skip, as the search goes through all of them.
const SKIP_MAX: u32 = 1_000_000;

/// A search, as the query of the page has it.
struct Search {
    filter: Document,
    sort: Document,
    projection: Document,
    skip: u32,
}

/// Returns the path of the page of a collection.
pub(super) fn path(database: &str, collection: &str) -> String {
    format!("/collections/{}/{}", encoded(database), encoded(collection))
}

impl Search {
    fn read(call: &Call) -> Result<Self> {
        let skip = match call.query("skip") {
            None | Some("") => 0,
            Some(text) => text.parse().ok().filter(|skip| *skip <= SKIP_MAX).ok_or_else(|| {
                Problem::invalid(format!("skip must be an integer up to {SKIP_MAX}, and is {text:?}"))
            })?,
        };
        let part = |name| document(name, call.query(name));
        Ok(Search { filter: part("filter")?, sort: part("sort")?, projection: part("projection")?, skip })
    }

    fn command(&self, collection: &str, limit: u32) -> Document {
        doc! {
            "find": collection, "filter": self.filter.clone(), "sort": self.sort.clone(), "projection": self.projection.clone(),
            "skip": i64::from(self.skip), "limit": i64::from(limit),
        }
    }
}

/// Reads a document in Extended JSON; an empty one if there is no text.
fn document(name: &str, text: Option<&str>) -> Result<Document> {
    let text = text.unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(Document::new());
    }
    read_document(text).map_err(|why| Problem::invalid(format!("{name} {why}")))
}

/// Reads a document in Extended JSON. The error completes a sentence about it.
pub(super) fn read_document(text: &str) -> std::result::Result<Document, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    check_numbers(&value).map_err(|error| format!("is invalid: {error}"))?;
    match Bson::try_from(value) {
        Ok(Bson::Document(document)) => Ok(document),
        Ok(_) => Err("must be a document, such as {\"state\": \"new\"}".to_owned()),
        Err(error) => Err(format!("is no Extended JSON: {error}")),
    }
}

/// Returns the query of the page with another number of documents to skip.
fn query(call: &Call, skip: u32) -> String {
    let parts = ["filter", "sort", "projection"].map(|name| (name, call.query(name).unwrap_or_default()));
    let parts = parts.iter().filter(|(_, value)| !value.is_empty());
    let mut parts: Vec<String> = parts.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if skip > 0 {
        parts.push(format!("skip={skip}"));
    }
    parts.join("&")
}

pub(super) async fn page(api: &Api, call: Call) -> Result<Response> {
    let (database, collection) = (call.path("database"), call.path("collection"));
    let own = path(database, collection);
    let mut client = api.client(&call).await?;
    let mut page =
        Page::new(Section::Collections, format!("{database}.{collection}")).below("Collections", "/collections");
    page.body.push(&form(&call, &own));
    match found(&mut client, &call, database, collection).await {
        Ok((search, found)) => {
            open_region(&mut page.body, "documents", "Documents");
            if found.documents.is_empty() {
                page.body.push(&empty("No document matches", "Change the filter, or remove it to see all documents."));
            } else {
                html!(
                    page.body,
                    "<p class=\"note\">{} to {}</p>",
                    search.skip + 1,
                    u64::from(search.skip) + found.documents.len() as u64
                );
                page.body.push(&documents_table(database, collection, &found.documents));
            }
            // Fewer than a page may fit into a reply.
            let shown = u32::try_from(found.documents.len()).unwrap_or(LIMIT);
            let next = found.has_more.then(|| format!("{own}?{}", query(&call, search.skip.saturating_add(shown))));
            let first = (search.skip > 0).then(|| format!("{own}?{}", query(&call, 0)));
            page.body.push(&pager(first.as_deref(), next.as_deref()));
            close_region(&mut page.body);
        }
        Err(problem) if problem.kind == crate::problem::ProblemKind::InvalidRequest => {
            html!(page.body, "<p class=\"panel bad\" role=\"alert\" id=\"wrong\">{}</p>", problem.detail);
        }
        Err(problem) => return Err(problem),
    }
    indexes(&mut client, &mut page.body, database, collection).await?;
    Ok(page.answer())
}

async fn found(
    client: &mut RequestClient,
    call: &Call,
    database: &str,
    collection: &str,
) -> Result<(Search, reads::Found)> {
    let search = Search::read(call)?;
    let mut found = reads::find(client, database, search.command(collection, LIMIT + 1)).await?;
    found.has_more |= found.documents.len() > LIMIT as usize;
    found.documents.truncate(LIMIT as usize);
    Ok((search, found))
}

fn form(call: &Call, own: &str) -> Html {
    let mut html = Html::new();
    html!(html, "<form class=\"search\" method=\"get\" action=\"{}\" role=\"search\" aria-label=\"Documents\">", own);
    for (name, label, example) in [
        ("filter", "Filter", "{\"state\": \"new\"}"),
        ("sort", "Sort", "{\"_id\": -1}"),
        ("projection", "Projection", "{\"name\": 1}"),
    ] {
        html!(
            html,
            "<div class=\"field {}\"><label for=\"{}\">{}</label><input id=\"{}\" name=\"{}\" value=\"{}\" placeholder=\"{}\" spellcheck=\"false\" autocomplete=\"off\" autocapitalize=\"off\"></div>",
            name,
            name,
            label,
            name,
            name,
            call.query(name).unwrap_or_default(),
            example
        );
    }
    html!(
        html,
        "<div class=\"buttons\"><button class=\"primary\">Find</button><button formaction=\"{}/explain\">Explain</button></div></form>\n",
        own
    );
    html
}

/// Returns a table of the fields that most documents of the page have.
fn documents_table(database: &str, collection: &str, documents: &[Document]) -> Html {
    let mut fields: Vec<(&str, usize)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let names = documents.iter().flat_map(|document| document.keys().take(NAMES_MAX).map(String::as_str));
    for name in names.filter(|name| *name != "_id") {
        let place = *places.entry(name).or_insert(fields.len());
        match fields.get_mut(place) {
            Some((_, count)) => *count += 1,
            None => fields.push((name, 1)),
        }
    }
    let mut by_count = fields.clone();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let kept: BTreeSet<&str> = by_count.iter().take(FIELDS_MAX).map(|(name, _)| *name).collect();
    fields.retain(|(name, _)| kept.contains(name));
    let mut html = Html::new();
    html!(
        html,
        "<div class=\"scroll\" role=\"group\" aria-label=\"Documents\" tabindex=\"0\"><table class=\"documents\"><caption>Documents</caption><thead><tr><th scope=\"col\">_id</th>"
    );
    for (name, _) in &fields {
        let first = documents.iter().find_map(|document| document.get(*name));
        html!(html, "<th scope=\"col\" class=\"{}\">{}</th>", class_of(first), cut(name));
    }
    html!(html, "</tr></thead><tbody>");
    for document in documents {
        html!(html, "<tr><td data-label=\"_id\">");
        match document.get("_id") {
            Some(id) => html.push(&link(&super::document::path(database, collection, id), cut(&shown(id)))),
            None => html!(html, "–"),
        }
        html!(html, "</td>");
        for (name, _) in &fields {
            let value = document.get(*name);
            html!(html, "<td class=\"{}\" data-label=\"{}\">", class_of(value), cut(name));
            html.push(&cell(value));
            html!(html, "</td>");
        }
        html!(html, "</tr>");
    }
    html!(html, "</tbody></table></div>");
    html
}

/// Returns the class of a cell: numbers stand below each other.
fn class_of(value: Option<&Bson>) -> &'static str {
    match value {
        Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_)) => "number",
        _ => "text",
    }
}

/// Writes the table of indexes.
async fn indexes(client: &mut RequestClient, html: &mut Html, database: &str, collection: &str) -> Result<()> {
    let command = doc! { "listIndexes": collection, "cursor": { "batchSize": 1_000 } };
    // A collection that is not there has none.
    let Ok(found) = reads::first_batch(client, database, command).await else { return Ok(()) };
    let stats = client.run(database, &doc! { "collStats": collection }).await.unwrap_or_default();
    let sizes = stats.get_document("indexSizes").cloned().unwrap_or_default();
    open_region(html, "indexes", "Indexes");
    let row = |index: &Document| {
        let name = index.get_str("name").unwrap_or_default();
        let mut options = index.clone();
        for known in ["v", "key", "name", "ns"] {
            options.remove(known);
        }
        let options = if options.is_empty() { text("–") } else { cell(Some(&Bson::Document(options))) };
        vec![text(cut(name)), cell(index.get("key")), options, text(size(integer(&sizes, name)))]
    };
    let rows: Vec<_> = found.documents.iter().map(row).collect();
    let columns = [Column::Text("Index"), Column::Text("Key"), Column::Text("Options"), Column::Number("Size")];
    html.push(&table("Indexes", &columns, &rows));
    close_region(html);
    Ok(())
}

pub(super) async fn explain(api: &Api, call: Call) -> Result<Response> {
    // It runs the search, and a browser sends this request for the picture of any page.
    refuse_other_sites(&call.headers)?;
    let (database, collection) = (call.path("database"), call.path("collection"));
    let own = path(database, collection);
    let mut client = api.client(&call).await?;
    let search = Search::read(&call)?;
    let command = doc! { "explain": search.command(collection, LIMIT), "verbosity": "executionStats", "maxTimeMS": reads::TIME_MAX_MILLIS };
    let plan = client.run(database, &command).await?;
    let mut page = Page::new(Section::Collections, "Explain").below("Collections", "/collections");
    page = page.below(format!("{database}.{collection}"), format!("{own}?{}", query(&call, search.skip)));
    page.body.push(&form(&call, &own));
    let none = Document::new();
    let statistics = plan.get_document("executionStats").unwrap_or(&none);
    html!(page.body, "<dl class=\"tiles\">");
    for (name, field) in
        [("Returned", "nReturned"), ("Keys examined", "totalKeysExamined"), ("Documents examined", "totalDocsExamined")]
    {
        page.body.push(&super::parts::tile(name, &grouped(integer(statistics, field)), ""));
    }
    html!(
        page.body,
        "</dl><section aria-labelledby=\"plan-title\"><h2 id=\"plan-title\">Plan, the last stage first</h2><div class=\"plan\">"
    );
    let stages = statistics.get_document("executionStages").ok();
    let planner = plan.get_document("queryPlanner").and_then(|planner| planner.get_document("winningPlan")).ok();
    match stages.or(planner) {
        Some(stage) => page.body.push(&stage_tree(stage)),
        None => page.body.push(&empty("The store shows no plan", "The answer below is all that it says.")),
    }
    html!(
        page.body,
        "</div></section><details><summary>The whole answer</summary><pre class=\"json\" tabindex=\"0\">{}</pre></details>",
        indented(&editable(&plan))
    );
    Ok(page.answer())
}

/// Returns a stage of a plan with the stages that feed it, as a list in a list. Plans are as deep as they have stages.
fn stage_tree(stage: &Document) -> Html {
    let mut html = Html::new();
    let mut open = 0;
    let mut next = Some(stage);
    while let Some(stage) = next {
        html!(html, "<ul><li><div class=\"stage\"><strong>{}</strong>", stage.get_str("stage").unwrap_or("stage"));
        html!(html, "<dl>");
        for (name, value) in
            stage.iter().filter(|(name, _)| !["stage", "inputStage", "inputStages"].contains(&name.as_str()))
        {
            html!(html, "<div><dt>{}</dt><dd>", name);
            html.push(&cell(Some(value)));
            html!(html, "</dd></div>");
        }
        html!(html, "</dl></div>");
        open += 1;
        for other in stage.get_array("inputStages").map(Vec::as_slice).unwrap_or_default() {
            html!(
                html,
                "<ul><li><div class=\"stage\"><code>{}</code></div></li></ul>",
                cut(&extended_json(other).to_string())
            );
        }
        next = stage.get_document("inputStage").ok();
    }
    for _ in 0..open {
        html!(html, "</li></ul>");
    }
    html
}
