//! The table of pages.

use super::super::Api;
use super::super::routes::STATE;
use super::{asset, browse, collections, docs, document, ledgers, operations, overview, queues, synced, two_phase};
use crate::access::RouteAccess;
use crate::route::{Parameter, ParameterValue, Reply, Route, RouteMethod};

/// The limit on the texts of queries, in bytes. A whole address has fewer.
const TEXT_BYTES_MAX: usize = 65_535;

const fn parameter(name: &'static str) -> Parameter {
    let value = ParameterValue::Text { length_max: TEXT_BYTES_MAX };
    Parameter { name, description: "", required: false, value }
}

/// The parameters of a list by state.
const BY_STATE: [Parameter; 4] = [parameter("state"), parameter("after"), parameter("limit"), parameter("notice")];
/// The parameters of a list by kind.
const BY_KIND: [Parameter; 3] = [parameter("show"), parameter("after"), parameter("limit")];
/// The parameters of a search.
const SEARCH: [Parameter; 4] = [parameter("filter"), parameter("sort"), parameter("projection"), parameter("skip")];
/// The message of a page after a write.
const NOTICE: [Parameter; 1] = [parameter("notice")];

const PAGE: Route<Api> = Route {
    method: RouteMethod::Get,
    path: "",
    operation: "pageApi",
    tag: &STATE,
    summary: "",
    access: RouteAccess::Read,
    query: &[],
    headers: &[],
    body: None,
    reply: Reply::Page,
    problems: &[],
    handler: |_, _| Box::pin(docs()),
};

/// A form of a page that writes.
const FORM: Route<Api> =
    Route { method: RouteMethod::Post, access: RouteAccess::PageWrite, body: Some("Form"), ..PAGE };

pub(in super::super) static ROUTES: [Route<Api>; 21] = [
    Route { path: "/", operation: "pageOverview", handler: |api, call| Box::pin(overview::page(api, call)), ..PAGE },
    Route { path: "/queues", operation: "pageQueues", handler: |api, call| Box::pin(queues::all(api, call)), ..PAGE },
    Route {
        path: "/queues/{database}/{queue}",
        query: &BY_STATE,
        operation: "pageQueue",
        handler: |api, call| Box::pin(queues::one(api, call)),
        ..PAGE
    },
    Route {
        path: "/queues/{database}/{queue}/jobs/{job}",
        query: &NOTICE,
        operation: "pageJob",
        handler: |api, call| Box::pin(queues::job(api, call)),
        ..PAGE
    },
    Route {
        path: "/queues/{database}/{queue}/jobs/{job}/retry",
        operation: "formRetryJob",
        handler: |api, call| Box::pin(queues::retry(api, call)),
        ..FORM
    },
    Route {
        path: "/queues/{database}/{queue}/jobs/{job}/cancel",
        operation: "formCancelJob",
        handler: |api, call| Box::pin(queues::cancel(api, call)),
        ..FORM
    },
    Route {
        path: "/queues/{database}/{queue}/pause",
        operation: "formPauseQueue",
        handler: |api, call| Box::pin(queues::pause(api, call)),
        ..FORM
    },
    Route {
        path: "/queues/{database}/{queue}/resume",
        operation: "formResumeQueue",
        handler: |api, call| Box::pin(queues::resume(api, call)),
        ..FORM
    },
    Route {
        path: "/ledgers",
        operation: "pageLedgers",
        handler: |api, call| Box::pin(ledgers::all(api, call)),
        ..PAGE
    },
    Route {
        path: "/ledgers/{database}/{ledger}",
        query: &BY_KIND,
        operation: "pageLedger",
        handler: |api, call| Box::pin(ledgers::one(api, call)),
        ..PAGE
    },
    Route {
        path: "/two-phase",
        operation: "pageTwoPhase",
        handler: |api, call| Box::pin(two_phase::all(api, call)),
        ..PAGE
    },
    Route {
        path: "/two-phase/{database}/{collection}",
        query: &BY_STATE,
        operation: "pageTwoPhaseCollection",
        handler: |api, call| Box::pin(two_phase::one(api, call)),
        ..PAGE
    },
    Route { path: "/sync", operation: "pageSynced", handler: |api, call| Box::pin(synced::all(api, call)), ..PAGE },
    Route {
        path: "/sync/{database}/{collection}",
        query: &BY_STATE,
        operation: "pageSyncedCollection",
        handler: |api, call| Box::pin(synced::one(api, call)),
        ..PAGE
    },
    Route {
        path: "/collections",
        operation: "pageCollections",
        handler: |api, call| Box::pin(collections::page(api, call)),
        ..PAGE
    },
    Route {
        path: "/collections/{database}/{collection}",
        query: &SEARCH,
        operation: "pageCollection",
        handler: |api, call| Box::pin(browse::page(api, call)),
        ..PAGE
    },
    Route {
        path: "/collections/{database}/{collection}/explain",
        query: &SEARCH,
        operation: "pageExplain",
        handler: |api, call| Box::pin(browse::explain(api, call)),
        ..PAGE
    },
    Route {
        path: "/collections/{database}/{collection}/documents/{document}",
        query: &NOTICE,
        operation: "pageDocument",
        handler: |api, call| Box::pin(document::page(api, call)),
        ..PAGE
    },
    Route {
        path: "/collections/{database}/{collection}/documents/{document}",
        operation: "formDocument",
        handler: |api, call| Box::pin(document::save(api, call)),
        ..FORM
    },
    Route {
        path: "/operations",
        operation: "pageOperations",
        handler: |api, call| Box::pin(operations::page(api, call)),
        ..PAGE
    },
    Route { path: "/docs", ..PAGE },
];

/// The files of pages, which tell nothing of the data.
pub(in super::super) static FILES: [Route<Api>; 1] = [Route {
    path: "/assets/{file}",
    operation: "pageFile",
    access: RouteAccess::Open,
    handler: |_, call| Box::pin(asset(call)),
    ..PAGE
}];
