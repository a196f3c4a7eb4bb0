//! The frame of all pages: the head, the navigation, and the answers.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::html::{Html, html};
use crate::problem::{Outcome, Problem, ProblemKind};

/// Pages load nothing of others, have no script and no style in them, and are in no page of others.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const OWN_RESOURCES: (HeaderName, &str) = (HeaderName::from_static("cross-origin-resource-policy"), "same-origin");

/// The sections, with their paths.
const SECTIONS: [(Section, &str, &str); 8] = [
    (Section::Overview, "/", "Overview"),
    (Section::Queues, "/queues", "Job queues"),
    (Section::Ledgers, "/ledgers", "Ledgers"),
    (Section::TwoPhase, "/two-phase", "Two-phase"),
    (Section::Sync, "/sync", "Sync flags"),
    (Section::Collections, "/collections", "Collections"),
    (Section::Operations, "/operations", "Transactions"),
    (Section::Api, "/docs", "API"),
];

/// A section of the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Queues,
    Ledgers,
    TwoPhase,
    Sync,
    Collections,
    Operations,
    Api,
}

/// A page.
pub(super) struct Page {
    section: Section,
    title: String,
    /// The pages above it, with their paths.
    parents: Vec<(String, String)>,
    /// Whether a script loads the page again to keep its regions up to date.
    live: bool,
    /// A script of the page, beside those of all pages.
    script: Option<&'static str>,
    status: StatusCode,
    pub(super) body: Html,
}

impl Page {
    pub(super) fn new(section: Section, title: impl Into<String>) -> Self {
        Page {
            section,
            title: title.into(),
            parents: Vec::new(),
            live: false,
            script: None,
            status: StatusCode::OK,
            body: Html::new(),
        }
    }

    pub(super) fn live(self) -> Self {
        Page { live: true, ..self }
    }

    pub(super) fn with_script(self, script: &'static str) -> Self {
        Page { script: Some(script), ..self }
    }

    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Page { status, ..self }
    }

    /// Adds a page above this one.
    pub(super) fn below(mut self, name: impl Into<String>, path: impl Into<String>) -> Self {
        self.parents.push((name.into(), path.into()));
        self
    }

    pub(super) fn answer(self) -> Response {
        let mut page = Html::new();
        html!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{} · Handfast</title>\n<link rel=\"icon\" href=\"/assets/icon.svg\" type=\"image/svg+xml\">\n\
             <link rel=\"stylesheet\" href=\"/assets/style.css\">\n<script src=\"/assets/theme.js\"></script>\n\
             <script src=\"/assets/live.js\" defer></script>\n",
            self.title
        );
        if let Some(script) = self.script {
            html!(page, "<script src=\"/assets/{}\" defer></script>\n", script);
        }
        html!(page, "</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n");
        self.navigation(&mut page);
        let live = if self.live { "yes" } else { "no" };
        html!(page, "<main id=\"main\" tabindex=\"-1\" data-live=\"{}\">\n<div class=\"heading\">", live);
        if !self.parents.is_empty() {
            html!(page, "<nav class=\"crumbs\" aria-label=\"Above this page\">");
            for (name, path) in &self.parents {
                html!(page, "<a href=\"{}\">{}</a><span aria-hidden=\"true\">/</span>", path, name);
            }
            html!(page, "</nav>");
        }
        html!(page, "<h1>{}</h1>", self.title);
        if self.live {
            html!(page, "<p id=\"freshness\" class=\"freshness\" data-state=\"still\">as of this request</p>");
        }
        html!(page, "</div>\n");
        page.push(&self.body);
        html!(page, "\n</main>\n</body>\n</html>\n");
        let headers = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CACHE_CONTROL, "no-store"),
            (CONTENT_SECURITY_POLICY, POLICY),
            // Without a referrer, browsers do not say that a form is a page's own.
            (REFERRER_POLICY, "same-origin"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            OWN_RESOURCES,
        ];
        (self.status, headers, page.into_string()).into_response()
    }

    fn navigation(&self, page: &mut Html) {
        html!(
            page,
            "<header class=\"side\">\n<a class=\"brand\" href=\"/\"><img src=\"/assets/icon.svg\" alt=\"\" width=\"26\" height=\"26\">\
             <span>Handfast</span></a>\n<nav class=\"sections\" aria-label=\"Sections\"><ul>"
        );
        for (section, path, name) in SECTIONS {
            let current = if section == self.section { "page" } else { "false" };
            html!(page, "<li><a href=\"{}\" aria-current=\"{}\">{}</a></li>", path, current, name);
        }
        html!(
            page,
            "</ul></nav>\n<p class=\"foot\"><button id=\"theme\" type=\"button\" hidden>Theme: <span>auto</span></button>\
             <span class=\"version\">version {}</span></p>\n</header>\n",
            env!("CARGO_PKG_VERSION")
        );
    }
}

/// Answers with a file of the program.
pub(super) fn asset(media_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, media_type),
        // A new version of the program has new files under the same names.
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        OWN_RESOURCES,
    ];
    (headers, text).into_response()
}

/// Sends the browser to another page after a write.
pub(super) fn redirect(path: &str) -> Response {
    let mut response = (StatusCode::SEE_OTHER, [(CACHE_CONTROL, "no-store")]).into_response();
    // Paths are made of encoded parts.
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// Answers with a problem as a page. `outcome` is that of a request that writes, and `challenge` the way to log in.
pub(crate) fn problem_page(problem: &Problem, outcome: Option<Outcome>, challenge: &'static str) -> Response {
    let status = problem.kind.status();
    let mut page = Page::new(Section::Overview, problem.kind.title()).with_status(status);
    html!(page.body, "<div class=\"panel bad\" role=\"alert\"><p class=\"detail\">{}</p>", problem.detail);
    match outcome {
        Some(Outcome::NotApplied) => html!(page.body, "<p>Nothing was changed.</p>"),
        Some(Outcome::Unknown) => html!(page.body, "<p>Look whether it was applied before you try it again.</p>"),
        None => {}
    }
    if problem.kind == ProblemKind::Forbidden {
        html!(page.body, "<p>Ask for a role that allows it, or log in as another user.</p>");
    }
    html!(page.body, "<p><a href=\"/\" data-back>Back</a></p></div>");
    let mut response = page.answer();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}
