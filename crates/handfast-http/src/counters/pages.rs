//! The pages: files of the program that a browser runs, which ask the routes for what they show.
//!
//! They are open to everybody, as they tell nothing: their script asks with the reader's token. No file has a script or a style in another, and none asks
//! another server, so the policy forbids both.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse as _, Response};

use crate::problem::{Problem, ProblemKind};

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const CSS: &str = "text/css; charset=utf-8";
pub(super) const SCRIPT: &str = "text/javascript; charset=utf-8";
/// The icon of a page is an empty `data:` URL, which keeps browsers from asking for one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";

pub(super) const INDEX: File = File { name: "index.html", media_type: HTML, text: include_str!("pages/index.html") };
pub(super) const DOCS: File = File { name: "docs.html", media_type: HTML, text: include_str!("pages/docs.html") };
const ASSETS: [File; 3] = [
    File { name: "page.css", media_type: CSS, text: include_str!("pages/page.css") },
    File { name: "page.js", media_type: SCRIPT, text: include_str!("pages/page.js") },
    File { name: "docs.js", media_type: SCRIPT, text: include_str!("pages/docs.js") },
];

/// A file of the program.
pub(super) struct File {
    name: &'static str,
    media_type: &'static str,
    text: &'static str,
}

impl File {
    pub(super) fn answer(&self) -> Response {
        let headers = [
            (CONTENT_TYPE, self.media_type),
            // A new version of the program has new files under the same names.
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, "no-referrer"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (headers, self.text).into_response()
    }
}

/// Returns a file that the pages use.
pub(super) fn asset(name: &str) -> Result<Response, Problem> {
    let file = ASSETS.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::new(ProblemKind::NotFound, format!("there is no file {name:?}")))?;
    Ok(file.answer())
}
