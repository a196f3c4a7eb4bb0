//! The table of routes.

use handfast_counters::{ID_BYTES_MAX, IDS_MAX, KEY_BYTES_MAX, KIND_BYTES_MAX, TOP_ITEMS_MAX};

use super::badge::LABEL_CHARACTERS_MAX;
use super::{Service, handlers, pages, pixel};
use crate::access::RouteAccess;
use crate::metrics;
use crate::problem::ProblemKind;
use crate::route::{IDEMPOTENCY_KEY, Parameter, ParameterValue, Reply, Route, RouteMethod, Tag, VISITOR};

/// The id that no item can have, because it is a word of a path.
pub const RESERVED_ID: &str = "top";

/// Refuses the id that no item can have.
///
/// # Errors
/// The text says why.
pub fn check_reserved(id: &str) -> Result<(), String> {
    match id == RESERVED_ID {
        true => Err(format!("the id {RESERVED_ID:?} is a word of the path /v1/KIND/top: no item has it")),
        false => Ok(()),
    }
}

/// The number of items of a list of the top ones, if the request does not say.
pub(super) const TOP_ITEMS: usize = 10;
/// The number of days of a report, if the request does not say.
pub(super) const REPORT_DAYS: i64 = 30;

/// The maximum length of the name of a visitor, in bytes: room for what cookies and identifiers have.
pub(super) const VISITOR_BYTES_MAX: usize = 256;
/// The maximum length of a `User-Agent` in a body, in bytes.
pub(super) const USER_AGENT_BYTES_MAX: usize = 1_024;

const IDS_BYTES_MAX: usize = IDS_MAX * (ID_BYTES_MAX + 1);

const VIEWS: Tag = Tag { name: "views", description: "Count views, and delete what was counted" };
const FIGURES: Tag = Tag { name: "figures", description: "Read totals, daily figures and lists" };
const STATE: Tag = Tag { name: "state", description: "Ask how the service and its parts are" };
const PAGES: Tag =
    Tag { name: "pages", description: "Pages for people, and the description of the service for programs" };

pub(super) static ROUTES: [Route<Service>; 16] = [
    Route {
        method: RouteMethod::Post,
        path: "/v1/{kind}/{id}/views",
        operation: "countViews",
        tag: &VIEWS,
        summary: "Count views of an item, one or as many as the body says, and return its total",
        access: RouteAccess::Write,
        query: &[],
        headers: &[
            Parameter {
                name: IDEMPOTENCY_KEY,
                description: "A name for this request: a request with a key that was counted for the item is not counted again",
                required: false,
                value: ParameterValue::Text { length_max: KEY_BYTES_MAX },
            },
            Parameter {
                name: VISITOR,
                description: "A name for the visitor, of whom one view in a window is counted if the kind has one; the address and the User-Agent if it is not given",
                required: false,
                value: ParameterValue::Text { length_max: VISITOR_BYTES_MAX },
            },
        ],
        body: Some("Views"),
        reply: Reply::Json { schema: "CountedTotal" },
        problems: &[
            ProblemKind::TotalTooLarge,
            ProblemKind::QueueFull,
            ProblemKind::KeysFull,
            ProblemKind::DamagedData,
        ],
        handler: |service, call| Box::pin(handlers::count(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/v1/{kind}",
        operation: "getTotals",
        tag: &FIGURES,
        summary: "Return the totals of several items, in the order of the ids",
        access: RouteAccess::Read,
        query: &[Parameter {
            name: "ids",
            description: "The ids, separated by commas; at most 1000",
            required: true,
            value: ParameterValue::Text { length_max: IDS_BYTES_MAX },
        }],
        headers: &[],
        body: None,
        reply: Reply::Json { schema: "Totals" },
        problems: &[ProblemKind::DamagedData],
        handler: |service, call| Box::pin(handlers::totals(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/v1/{kind}/top",
        operation: "getTop",
        tag: &FIGURES,
        summary: "Return the items with the most saved views, altogether or on a day",
        access: RouteAccess::Read,
        query: &[
            Parameter {
                name: "n",
                description: "The number of items; 10 if it is not given",
                required: false,
                value: ParameterValue::Integer { maximum: TOP_ITEMS_MAX as u64 },
            },
            Parameter {
                name: "day",
                description: "The day whose views count; all days if it is not given",
                required: false,
                value: ParameterValue::Date,
            },
        ],
        headers: &[],
        body: None,
        reply: Reply::Json { schema: "Top" },
        problems: &[ProblemKind::DamagedData],
        handler: |service, call| Box::pin(handlers::top(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/v1/{kind}/{id}",
        operation: "getTotal",
        tag: &FIGURES,
        summary: "Return the total of an item; 0 for one that was never viewed",
        access: RouteAccess::Read,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Json { schema: "Total" },
        problems: &[ProblemKind::DamagedData],
        handler: |service, call| Box::pin(handlers::total(service, call)),
    },
    Route {
        method: RouteMethod::Delete,
        path: "/v1/{kind}/{id}",
        operation: "deleteItem",
        tag: &VIEWS,
        summary: "Delete an item with all views that were counted before",
        access: RouteAccess::Write,
        query: &[],
        headers: &[Parameter {
            name: IDEMPOTENCY_KEY,
            description: "A name for this request: a deletion of the item with a key that was carried out is not carried out again, and views that came since stay",
            required: false,
            value: ParameterValue::Text { length_max: KEY_BYTES_MAX },
        }],
        body: None,
        reply: Reply::NoContent,
        problems: &[ProblemKind::QueueFull, ProblemKind::KeysFull, ProblemKind::DamagedData],
        handler: |service, call| Box::pin(handlers::delete(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/v1/{kind}/{id}/daily",
        operation: "getDaily",
        tag: &FIGURES,
        summary: "Return the saved views of each day of a range, 0 for a day without any",
        access: RouteAccess::Read,
        query: &[
            Parameter {
                name: "from",
                description: "The first day; 29 days before the last one if it is not given",
                required: false,
                value: ParameterValue::Date,
            },
            Parameter {
                name: "to",
                description: "The last day; today if it is not given",
                required: false,
                value: ParameterValue::Date,
            },
        ],
        headers: &[],
        body: None,
        reply: Reply::Json { schema: "Daily" },
        problems: &[ProblemKind::DamagedData],
        handler: |service, call| Box::pin(handlers::daily(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/v1/{kind}/{id}/badge.svg",
        operation: "getBadge",
        tag: &FIGURES,
        summary: "Return the total of an item as a picture",
        access: RouteAccess::Read,
        query: &[Parameter {
            name: "label",
            description: "The text before the number, without control characters; `views` if it is not given",
            required: false,
            value: ParameterValue::Text { length_max: LABEL_CHARACTERS_MAX },
        }],
        headers: &[],
        body: None,
        reply: Reply::Svg,
        problems: &[ProblemKind::DamagedData],
        handler: |service, call| Box::pin(handlers::badge(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/v1/{kind}/{id}/pixel.gif",
        operation: "countViewByPixel",
        tag: &VIEWS,
        summary: "Count one view of an item, and return a picture of one transparent pixel. A HEAD request counts nothing",
        access: RouteAccess::PublicWrite,
        query: &[Parameter {
            name: "key",
            description: "A name for this view, as the header Idempotency-Key: a view with a key that was counted for the item is not counted again",
            required: false,
            value: ParameterValue::Text { length_max: KEY_BYTES_MAX },
        }],
        headers: &[],
        body: None,
        reply: Reply::Gif,
        problems: &[
            ProblemKind::NotFound,
            ProblemKind::TotalTooLarge,
            ProblemKind::QueueFull,
            ProblemKind::KeysFull,
            ProblemKind::DamagedData,
        ],
        handler: |service, call| Box::pin(pixel::count(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/healthz",
        operation: "getHealth",
        tag: &STATE,
        summary: "Say that the process answers",
        access: RouteAccess::Open,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Json { schema: "Health" },
        problems: &[],
        handler: |_, _| Box::pin(handlers::health()),
    },
    Route {
        method: RouteMethod::Get,
        path: "/readyz",
        operation: "getReadiness",
        tag: &STATE,
        summary: "Say whether the service can take views, and which parts do not work",
        access: RouteAccess::Open,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Json { schema: "Readiness" },
        problems: &[ProblemKind::Unavailable, ProblemKind::NotReady],
        handler: |service, _| Box::pin(handlers::readiness(service)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/metrics",
        operation: "getMetrics",
        tag: &STATE,
        summary: "Return the metrics of the service, as Prometheus reads them",
        access: RouteAccess::Read,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Text { media_types: &[metrics::MEDIA_TYPE] },
        problems: &[],
        handler: |service, _| Box::pin(handlers::metrics(service)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/status",
        operation: "getStatus",
        tag: &STATE,
        summary: "Return the state of this instance and of the queues, as its page shows it",
        access: RouteAccess::Read,
        query: &[Parameter {
            name: "kind",
            description: "The kind whose sums are in the answer: none before they were read, and then at most ten seconds old, or ten times as old as reading them took",
            required: false,
            value: ParameterValue::Text { length_max: KIND_BYTES_MAX },
        }],
        headers: &[],
        body: None,
        reply: Reply::Json { schema: "Status" },
        problems: &[ProblemKind::DamagedData],
        handler: |service, call| Box::pin(handlers::status(service, call)),
    },
    Route {
        method: RouteMethod::Get,
        path: "/",
        operation: "getPage",
        tag: &PAGES,
        summary: "Return the page that shows the figures",
        access: RouteAccess::Open,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Text { media_types: &[pages::HTML] },
        problems: &[],
        handler: |_, _| Box::pin(async { Ok(pages::INDEX.answer()) }),
    },
    Route {
        method: RouteMethod::Get,
        path: "/docs",
        operation: "getDocs",
        tag: &PAGES,
        summary: "Return the page that shows this document",
        access: RouteAccess::Open,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Text { media_types: &[pages::HTML] },
        problems: &[],
        handler: |_, _| Box::pin(async { Ok(pages::DOCS.answer()) }),
    },
    Route {
        method: RouteMethod::Get,
        path: "/assets/{file}",
        operation: "getAsset",
        tag: &PAGES,
        summary: "Return a file that the pages use",
        access: RouteAccess::Open,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Text { media_types: &[pages::CSS, pages::SCRIPT] },
        problems: &[ProblemKind::NotFound],
        handler: |_, call| Box::pin(async move { pages::asset(call.path("file")) }),
    },
    Route {
        method: RouteMethod::Get,
        path: "/openapi.json",
        operation: "getOpenApi",
        tag: &PAGES,
        summary: "Return this document",
        access: RouteAccess::Open,
        query: &[],
        headers: &[],
        body: None,
        reply: Reply::Document,
        problems: &[],
        handler: |service, _| Box::pin(handlers::document(service)),
    },
];

/// Returns the description of a parameter that paths have.
pub(super) fn path_parameter(name: &str) -> Parameter {
    match name {
        "kind" => Parameter {
            name: "kind",
            description: "A kind of items: lower-case letters, digits, `_` and `-`, with a letter first",
            required: true,
            value: ParameterValue::Text { length_max: KIND_BYTES_MAX },
        },
        "file" => Parameter {
            name: "file",
            description: "The name of a file",
            required: true,
            value: ParameterValue::Text { length_max: 32 },
        },
        _ => Parameter {
            name: "id",
            description: "The id of an item within its kind: letters, digits and `-._~:`, but not `top`",
            required: true,
            value: ParameterValue::Text { length_max: ID_BYTES_MAX },
        },
    }
}
