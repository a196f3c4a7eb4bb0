//! The dashboard: pages that a browser shows, in front of the same commands as the API.
//!
//! A page is made on the server, so that its tables need no script. A script loads it again each few seconds, and replaces the regions that have changed (`data-region`);
//! another one draws the curves of the overview from `/v1/events`. A form that writes is sent by a page of the dashboard alone ([`RouteAccess::PageWrite`]).
//!
//! [`RouteAccess::PageWrite`]: crate::access::RouteAccess::PageWrite

mod browse;
mod collections;
mod document;
mod html;
mod layout;
mod ledgers;
mod operations;
mod overview;
mod parts;
mod queues;
pub(super) mod routes;
mod synced;
#[cfg(test)]
mod tests;
mod two_phase;
mod values;

use axum::response::Response;

use self::html::html;
use self::layout::{Page, Section};
use super::Result;
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

pub(crate) use layout::problem_page;

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of pages: their names, media types and contents.
const ASSETS: [(&str, &str, &str); 6] = [
    ("style.css", STYLE, include_str!("assets/style.css")),
    ("theme.js", SCRIPT, include_str!("assets/theme.js")),
    ("live.js", SCRIPT, include_str!("assets/live.js")),
    ("curves.js", SCRIPT, include_str!("assets/curves.js")),
    ("docs.js", SCRIPT, include_str!("../../counters/pages/docs.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// Returns a file that pages use.
async fn asset(call: Call) -> Result<Response> {
    let name = call.path("file");
    let file = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, media_type, text) =
        file.ok_or_else(|| Problem::new(ProblemKind::NotFound, format!("there is no file {name:?}")))?;
    Ok(layout::asset(media_type, text))
}

/// Returns the page that shows the OpenAPI document.
async fn docs() -> Result<Response> {
    let mut page = Page::new(Section::Api, "API").with_script("docs.js");
    html!(
        page.body,
        "<noscript><p>This page needs JavaScript. It shows the <a href=\"/openapi.json\">OpenAPI document</a>.</p></noscript>\
         <p><span id=\"state\" role=\"status\">loading</span> · <a href=\"/openapi.json\">OpenAPI document</a> · <a href=\"/metrics\">Metrics</a></p>\
         <h2 id=\"title\">HTTP API</h2><p id=\"summary\"></p><nav id=\"contents\" aria-label=\"Operations\"></nav><div id=\"operations\"></div>\
         <section id=\"schemas\" aria-labelledby=\"schemas-title\"><h2 id=\"schemas-title\">Schemas</h2></section>"
    );
    Ok(page.answer())
}
