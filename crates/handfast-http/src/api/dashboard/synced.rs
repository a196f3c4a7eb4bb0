//! The pages of sync flags: the main documents whose copies are not up to date yet.

use axum::response::Response;
use bson::{Bson, Document, doc};

use super::super::found_patterns::{self, FoundPattern, SYNC_FLAG};
use super::super::reads::{self, List, Position, count};
use super::super::{Api, Result};
use super::html::encoded;
use super::layout::{Page, Section};
use super::parts::{Column, close_region, empty, failed_row, link, open_region, pager, table, text};
use super::values::{cell, cut, grouped};
use crate::id::shown;
use crate::request::Call;

fn path(database: &str, collection: &str) -> String {
    format!("/sync/{}/{}", encoded(database), encoded(collection))
}

/// Returns the filter for main documents whose flag is set.
fn flagged(found: &FoundPattern) -> Document {
    doc! { found.field("syncing"): { "$exists": true } }
}

pub(super) async fn all(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let mut page = Page::new(Section::Sync, "Sync flags").live();
    let mut rows = Vec::new();
    for found in found_patterns::all(&mut client, SYNC_FLAG).await? {
        let FoundPattern { database, collection, settings } = &found;
        let name = link(&path(database, collection), format!("{database}.{collection}"));
        let pending = match count(&mut client, database, collection, flagged(&found)).await {
            Ok(pending) => pending,
            Err(problem) => {
                rows.push(failed_row(name, &problem, 3));
                continue;
            }
        };
        let links = settings.get_array("links").map(Vec::as_slice).unwrap_or_default();
        let copies: Vec<&str> =
            links.iter().filter_map(|link| link.as_document()?.get_str("collection").ok()).collect();
        rows.push(vec![name, text(copies.join(", ")), text(grouped(pending))]);
    }
    open_region(&mut page.body, "flags", "Main documents");
    if rows.is_empty() {
        let hint = "They appear here when their links are declared: handfastOpenSyncFlag, POST /v1/{database}/synced/{collection}/open, or SyncFlag::open in Rust.";
        page.body.push(&empty("No documents are kept in step with copies", hint));
    } else {
        let columns = [Column::Text("Main documents"), Column::Text("Copies in"), Column::Number("Pending flags")];
        page.body.push(&table("Main documents and their copies", &columns, &rows));
    }
    close_region(&mut page.body);
    Ok(page.answer())
}

pub(super) async fn one(api: &Api, call: Call) -> Result<Response> {
    let (database, collection) = (call.path("database"), call.path("collection"));
    let mut client = api.client(&call).await?;
    let found = found_patterns::one(&mut client, database, collection, SYNC_FLAG).await?;
    let list = List { database, collection, filter: flagged(&found) };
    let reads::Page { documents, next } = list.page(&mut client, Position::read(&call)?).await?;
    let mut page = Page::new(Section::Sync, format!("{database}.{collection}")).live().below("Sync flags", "/sync");
    open_region(&mut page.body, "pending", "Documents whose copies are not up to date");
    if documents.is_empty() {
        page.body.push(&empty("All copies are up to date", "No main document has its flag set."));
    } else {
        let row = |document: &Document| {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            vec![
                link(&super::document::path(database, collection, &id), cut(&shown(&id))),
                cell(document.get(found.field("syncing"))),
                cell(document.get(found.field("syncVersion"))),
                cell(document.get(found.field("syncDeleted"))),
            ]
        };
        let rows: Vec<_> = documents.iter().map(row).collect();
        let columns =
            [Column::Text("Document"), Column::Text("Flag since"), Column::Number("Version"), Column::Text("Deleted")];
        page.body.push(&table("Pending flags", &columns, &rows));
        let own = path(database, collection);
        let with = |after: &str| format!("{own}?after={}", encoded(after));
        page.body.push(&pager(call.query("after").map(|_| own.as_str()), next.as_deref().map(with).as_deref()));
    }
    close_region(&mut page.body);
    Ok(page.answer())
}
