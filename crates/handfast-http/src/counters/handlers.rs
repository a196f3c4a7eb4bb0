//! The handlers of the routes: each turns a request into a call of the counters, and the result into a reply.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, USER_AGENT};
use axum::response::{IntoResponse as _, Response};
use handfast_counters::jiff::ToSpan as _;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{CountOutcome, Error, IdempotencyKey, Item, ItemId, Kind, Total, View, parse_day};
use handfast_store::Applied;
use serde::{Deserialize, Serialize};
use serde_json::{Number, json};

use super::Service;
use super::badge;
use super::bots::{BotPolicy, is_bot};
use super::replies::{
    CountReply, DailyReply, DayReply, ItemTotal, NotCounted, TopItemReply, TopReply, TotalReply, TotalsReply,
};
use super::routes::{REPORT_DAYS, TOP_ITEMS, USER_AGENT_BYTES_MAX, VISITOR_BYTES_MAX, check_reserved};
use super::status::PartReply;
use crate::metrics::MEDIA_TYPE;
use crate::problem::{Problem, ProblemKind};
use crate::request::{Call, present};
use crate::route::{IDEMPOTENCY_KEY, VISITOR};

type Result<T, E = Problem> = std::result::Result<T, E>;

/// The body of a request that counts views.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Views {
    #[serde(default, deserialize_with = "present")]
    n: Option<Number>,
    /// A name for the visitor.
    #[serde(default, deserialize_with = "present")]
    visitor: Option<String>,
    /// The `User-Agent` of the visitor, if a site's server sends the request.
    #[serde(default, deserialize_with = "present")]
    user_agent: Option<String>,
}

impl Views {
    fn number(&self) -> Result<u32> {
        let Some(number) = &self.n else { return Ok(1) };
        let views = number.as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        views.ok_or_else(|| Problem::invalid(format!("the field n must be a positive integer, and is {number}")))
    }

    /// Returns the name that the request gives its visitor.
    fn visitor<'a>(&'a self, call: &'a Call) -> Result<Option<&'a str>> {
        let visitor = match (self.visitor.as_deref(), call.header(VISITOR)?) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid(
                    "the header visitor and the field visitor are both there: send one of them",
                ));
            }
            (field, header) => field.or(header),
        };
        in_limits("visitor", visitor, VISITOR_BYTES_MAX)
    }

    /// Returns the `User-Agent` of the visitor; empty if there is none.
    fn user_agent<'a>(&'a self, call: &'a Call) -> Result<Cow<'a, str>> {
        let field = in_limits("user_agent", self.user_agent.as_deref(), USER_AGENT_BYTES_MAX)?;
        Ok(field.map_or_else(|| user_agent(call), Cow::Borrowed))
    }
}

/// Returns the `User-Agent` of a request; empty if there is none. Bytes that are not UTF-8 are replaced.
pub(super) fn user_agent(call: &Call) -> Cow<'_, str> {
    call.headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes())).unwrap_or_default()
}

fn in_limits<'a>(name: &str, value: Option<&'a str>, bytes_max: usize) -> Result<Option<&'a str>> {
    match value {
        Some(text) if !(1..=bytes_max).contains(&text.len()) => {
            Err(Problem::invalid(format!("{name} must have 1 to {bytes_max} bytes, and has {}", text.len())))
        }
        value => Ok(value),
    }
}

pub(super) async fn count(service: &Service, call: Call) -> Result<Response> {
    let item = item(&call)?;
    let key = call.header(IDEMPOTENCY_KEY)?.map(IdempotencyKey::new).transpose()?;
    let body = call.json::<Views>()?.unwrap_or_default();
    let agent = body.user_agent(&call)?;
    let reader = Reader { name: body.visitor(&call)?, address: call.address, agent: &agent };
    let view = View { key, ..View::new(item, body.number()?, service.counters.today()?)? };
    let (total, reason) = match count_of_reader(service, view.clone(), reader).await? {
        Counted::Yes(total) => (total, None),
        Counted::No(reason, Some(total)) => (total, Some(reason)),
        Counted::No(reason, None) => (total_of(service, &view.item).await?, Some(reason)),
    };
    json_reply(&CountReply::new(&view.item, total, reason))
}

/// The reader whose view is counted, as far as the request tells.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// The name that the request gives its visitor.
    pub(super) name: Option<&'a str>,
    pub(super) address: Option<IpAddr>,
    /// The `User-Agent`; empty if there is none.
    pub(super) agent: &'a str,
}

/// The result of [`count_of_reader`].
pub(super) enum Counted {
    Yes(Total),
    /// Nothing was counted. The total of the item is there if it was read on the way.
    No(NotCounted, Option<Total>),
}

/// Counts a view, if the rules of its kind let the reader count.
pub(super) async fn count_of_reader(service: &Service, view: View, reader: Reader<'_>) -> Result<Counted> {
    let (item, number) = (&view.item, view.views);
    let bots = service.bots_of_kinds.get(&item.kind).unwrap_or(&service.bots);
    if *bots == BotPolicy::Refuse && is_bot(reader.agent) {
        service.views.left_out(number, NotCounted::Bot);
        return Ok(Counted::No(NotCounted::Bot, None));
    }
    let visitor = match service.visitor_windows.get(&item.kind) {
        None => None,
        Some(_) if number > 1 => {
            let detail = format!(
                "the field n must be 1, and is {number}: one view of a visitor of {} is counted at a time",
                item.kind
            );
            return Err(Problem::invalid(detail));
        }
        Some(window) => {
            // A name that is given, and one that is made of an address, are never the same.
            let Reader { name, address, agent } = reader;
            let name = match (name, address) {
                (Some(name), _) => format!("name {name}"),
                (None, Some(address)) => format!("address {address} {agent}"),
                (None, None) => format!("agent {agent}"),
            };
            Some(service.counters.visitor(item, &name, *window).await?)
        }
    };
    let advice = match view.key {
        Some(_) => "send it again with the same Idempotency-Key: it is counted once in all",
        None => "without an Idempotency-Key a second request may count it twice",
    };
    let view = View { visitor, ..view };
    let outcome = service.counters.count(&view).await;
    match outcome.map_err(|error| written(error, advice))? {
        CountOutcome::Counted(total) => {
            service.views.counted(number);
            Ok(Counted::Yes(total))
        }
        CountOutcome::Repeated(total) => {
            service.views.left_out(number, NotCounted::Repeated);
            Ok(Counted::No(NotCounted::Repeated, Some(total)))
        }
    }
}

pub(super) async fn metrics(service: &Service) -> Result<Response> {
    let headers = [(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, "no-store")];
    Ok((headers, super::metrics::text(service).await).into_response())
}

pub(super) async fn delete(service: &Service, call: Call) -> Result<Response> {
    let item = item(&call)?;
    let key = call.header(IDEMPOTENCY_KEY)?.map(IdempotencyKey::new).transpose()?;
    let advice = match key {
        Some(_) => "send it again with the same Idempotency-Key: it is carried out once in all",
        None => "without an Idempotency-Key a second request deletes what was counted until then",
    };
    let deleted = service.counters.delete(&item, key.as_ref()).await;
    deleted.map_err(|error| written(error, advice))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn total(service: &Service, call: Call) -> Result<Response> {
    let item = item(&call)?;
    let total = total_of(service, &item).await?;
    json_reply(&TotalReply::new(&item, total))
}

pub(super) async fn totals(service: &Service, call: Call) -> Result<Response> {
    let kind = Kind::new(call.path("kind"))?;
    let ids = call.query("ids").filter(|ids| !ids.is_empty());
    let ids = ids.ok_or_else(|| Problem::invalid("the query parameter ids is missing: ids=a,b,c names the items"))?;
    let ids = ids.split(',').map(item_id).collect::<Result<Vec<_>>>()?;
    let totals = service.counters.totals(&kind, &ids).await?;
    let totals = ids.iter().zip(totals).map(|(id, total)| ItemTotal::new(id, total)).collect();
    json_reply(&TotalsReply { kind: kind.as_str(), totals })
}

pub(super) async fn daily(service: &Service, call: Call) -> Result<Response> {
    let item = item(&call)?;
    let to = match date(&call, "to")? {
        Some(to) => to,
        None => service.counters.today()?,
    };
    let from = match date(&call, "from")? {
        Some(from) => from,
        None => first_of_report(to)?,
    };
    let days = service.counters.daily(&item, from, to).await?;
    let time_zone = service.counters.options().time_zone.iana_name().unwrap_or("UTC").to_owned();
    let views = days.iter().map(|day| day.views).sum();
    let days = days.into_iter().map(|day| DayReply { day: day.day.to_string(), views: day.views }).collect();
    let (kind, id) = (item.kind.as_str(), item.id.as_str());
    json_reply(&DailyReply { kind, id, from: from.to_string(), to: to.to_string(), time_zone, views, days })
}

/// Returns the first day of a report that ends with a day. Days of the year 0 are the first that can be written.
fn first_of_report(to: Date) -> Result<Date> {
    let from = to.checked_sub((REPORT_DAYS - 1).days()).ok().filter(|from| from.year() >= 0);
    from.ok_or_else(|| {
        Problem::invalid(format!(
            "the query parameter from is missing: the {REPORT_DAYS} days up to {to} begin before 0000-01-01, the first day"
        ))
    })
}

pub(super) async fn top(service: &Service, call: Call) -> Result<Response> {
    let kind = Kind::new(call.path("kind"))?;
    let items = match call.query("n") {
        None => TOP_ITEMS,
        Some(text) => text.parse().map_err(|_| {
            Problem::invalid(format!("the query parameter n must be a positive integer, and is {text:?}"))
        })?,
    };
    let day = date(&call, "day")?;
    let items = service.counters.top(&kind, items, day).await?;
    let items = items.iter().map(|item| TopItemReply { id: item.id.as_str(), views: item.views }).collect();
    json_reply(&TopReply { kind: kind.as_str(), day: day.map(|day| day.to_string()), items })
}

pub(super) async fn badge(service: &Service, call: Call) -> Result<Response> {
    let item = item(&call)?;
    let label = badge::Label::new(call.query("label").unwrap_or("views"))?;
    let total = total_of(service, &item).await?;
    let headers = [(CONTENT_TYPE, "image/svg+xml"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, format!("{}\n", badge::svg(&label, total))).into_response())
}

pub(super) async fn health() -> Result<Response> {
    json_reply(&json!({ "status": "ok" }))
}

pub(super) async fn readiness(service: &Service) -> Result<Response> {
    let (ready, parts) = parts(service).await;
    let parts = json!(parts);
    if ready {
        return json_reply(&json!({ "ready": true, "parts": parts }));
    }
    let problem = Problem::new(ProblemKind::NotReady, "views cannot be counted now: `parts` names what does not work");
    let members = [("parts".to_owned(), parts)].into_iter().collect();
    Err(Problem { members, ..problem })
}

/// Returns whether views can be counted, and the parts that do not work.
pub(super) async fn parts(service: &Service) -> (bool, Vec<PartReply>) {
    let readiness = service.counters.readiness().await;
    // The errors may name servers, which is for the log and not for everybody.
    let parts = readiness.errors().map(|(part, error)| {
        tracing::debug!(part, %error, "a part does not work");
        PartReply { part, detail: class(error) }
    });
    (readiness.takes_views(), parts.collect())
}

pub(super) async fn status(service: &Service, call: Call) -> Result<Response> {
    let kind = call.query("kind").map(Kind::new).transpose()?;
    json_reply(&super::status::status(service, kind).await?)
}

pub(super) async fn document(service: &Service) -> Result<Response> {
    Ok(([(CONTENT_TYPE, "application/json")], service.document.clone()).into_response())
}

async fn total_of(service: &Service, item: &Item) -> Result<Total> {
    let totals = service.counters.totals(&item.kind, std::slice::from_ref(&item.id)).await?;
    let total = totals.into_iter().next();
    total.ok_or_else(|| Problem::new(ProblemKind::DamagedData, "there is no total for an item that was asked for"))
}

/// Returns the item that the path names.
pub(super) fn item(call: &Call) -> Result<Item> {
    Ok(Item { kind: Kind::new(call.path("kind"))?, id: item_id(call.path("id"))? })
}

fn item_id(id: &str) -> Result<ItemId> {
    check_reserved(id).map_err(Problem::invalid)?;
    Ok(ItemId::new(id)?)
}

/// Returns a day of the query.
fn date(call: &Call, name: &str) -> Result<Option<Date>> {
    let Some(text) = call.query(name) else { return Ok(None) };
    let wrong = || Problem::invalid(format!("the query parameter {name} must be a day as 2026-11-30, and is {text:?}"));
    parse_day(text).map(Some).ok_or_else(wrong)
}

fn json_reply(reply: &impl Serialize) -> Result<Response> {
    let mut body = serde_json::to_vec(reply)
        .map_err(|error| Problem::new(ProblemKind::DamagedData, format!("the reply cannot be written: {error}")))?;
    // A terminal shows its prompt on a line of its own.
    body.push(b'\n');
    // A total is of this moment.
    Ok(([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response())
}

/// Returns the problem of a request that writes; `advice` says what to do if its outcome is unknown.
fn written(error: Error, advice: &str) -> Problem {
    if error.applied() == Applied::No {
        return error.into();
    }
    tracing::debug!(%error, "the outcome of a request is unknown");
    let detail = format!("whether the request was applied is unknown: {advice}");
    Problem::new(ProblemKind::OutcomeUnknown, detail)
}

/// Returns what an error is, without what it was about.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Invalid { .. } => "it is not set up right: the log of the service says more",
        Error::Full { .. } => "the queue is full",
        Error::TotalTooLarge { .. } => "the total is too large",
        Error::KeysFull { .. } => "no further idempotency key can be remembered",
        Error::Buffer { .. } => "the cache and the queue are unavailable",
        Error::WrongQueue { .. } => {
            "the Redis of the service has the queue of another store: the log of the service says more"
        }
        Error::Damaged { .. } => "a document of the counters cannot be read: `handfast counters verify` finds it",
        Error::Store(_) => "the store is unavailable",
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = match &error {
            Error::Invalid { .. } | Error::TotalTooLarge { .. } | Error::Full { .. } | Error::KeysFull { .. } => {
                error.to_string()
            }
            Error::Buffer { .. } | Error::WrongQueue { .. } | Error::Damaged { .. } | Error::Store(_) => {
                class(&error).to_owned()
            }
        };
        let kind = match &error {
            Error::Invalid { .. } => ProblemKind::InvalidRequest,
            Error::TotalTooLarge { .. } => ProblemKind::TotalTooLarge,
            Error::Full { .. } => ProblemKind::QueueFull,
            Error::KeysFull { .. } => ProblemKind::KeysFull,
            Error::Damaged { .. } => {
                tracing::error!(%error, "data of the counters is damaged");
                ProblemKind::DamagedData
            }
            Error::Buffer { .. } | Error::WrongQueue { .. } | Error::Store(_) => {
                tracing::debug!(%error, "a part of the counters is unavailable");
                ProblemKind::Unavailable
            }
        };
        let retry_after = match error {
            Error::KeysFull { wait, .. } => Some(wait),
            _ => None,
        };
        Problem { retry_after, ..Problem::new(kind, detail) }
    }
}
