//! The page of all collections with their sizes.

use axum::response::Response;
use bson::{Document, doc};

use super::super::found_patterns::{collections, databases};
use super::super::reads::integer;
use super::super::{Api, Result};
use super::html::html;
use super::layout::{Page, Section};
use super::parts::{Column, close_region, empty, link, open_region, table, text};
use super::values::{grouped, size};
use crate::problem::ProblemKind;
use crate::request::Call;

/// The problems of what has no sizes, or none that the user may see.
const IS_WITHOUT_SIZES: [ProblemKind; 3] = [ProblemKind::Forbidden, ProblemKind::InvalidRequest, ProblemKind::Missing];
/// Limit on the collections of a page.
const SHOWN_MAX: usize = 1_000;

pub(super) async fn page(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let mut page = Page::new(Section::Collections, "Collections").live();
    let (mut shown, mut is_cut) = (0, false);
    for (place, database) in databases(&mut client).await?.into_iter().enumerate() {
        let mut rows = Vec::new();
        for collection in collections(&mut client, &database).await? {
            if shown == SHOWN_MAX {
                is_cut = true;
                break;
            }
            shown += 1;
            let stats = match client.run(&database, &doc! { "collStats": collection.as_str() }).await {
                Ok(stats) => stats,
                // A view has no sizes, and a collection may be gone by now.
                Err(problem) if IS_WITHOUT_SIZES.contains(&problem.kind) => Document::new(),
                Err(problem) => return Err(problem),
            };
            let bytes = |name: &str| text(size(integer(&stats, name)));
            rows.push(vec![
                link(&super::browse::path(&database, &collection), collection),
                text(grouped(integer(&stats, "count"))),
                bytes("size"),
                bytes("avgObjSize"),
                text(grouped(integer(&stats, "nindexes"))),
                bytes("totalIndexSize"),
                bytes("totalSize"),
            ]);
        }
        if rows.is_empty() {
            continue;
        }
        open_region(&mut page.body, &format!("database-{place}"), &database);
        let columns = [
            Column::Text("Collection"),
            Column::Number("Documents"),
            Column::Number("Size"),
            Column::Number("Mean size"),
            Column::Number("Indexes"),
            Column::Number("Size of indexes"),
            Column::Number("On disk"),
        ];
        page.body.push(&table(&format!("Collections of {database}"), &columns, &rows));
        close_region(&mut page.body);
    }
    if shown == 0 {
        page.body.push(&empty(
            "There is no collection",
            "Insert a document with a MongoDB driver, and its collection appears here.",
        ));
    }
    if is_cut {
        html!(page.body, "<p class=\"note\">There are more collections than the {} of this page.</p>", SHOWN_MAX);
    }
    Ok(page.answer())
}
