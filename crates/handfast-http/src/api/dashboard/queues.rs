//! The pages of job queues: all queues, the jobs of one by state, and one job with what may be done to it.

use axum::response::Response;
use bson::{Bson, Document, doc};

use super::super::found_patterns::{self, FoundPattern, QUEUE};
use super::super::lists::{JOB_STATES, in_state};
use super::super::login::RequestClient;
use super::super::reads::{self, List, Position, integer};
use super::super::{Api, Result, path_id};
use super::html::{Html, encoded, html};
use super::layout::{Page, Section, redirect};
use super::overview::is_true;
use super::parts::{
    Column, Tab, close_region, empty, facts, failed_row, link, mark, notice, open_region, pager, table, tabs, text,
    tile,
};
use super::values::{cell, editable, grouped, id_in_path, indented, span};
use crate::id::shown;
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// The columns of the list of queues.
const COLUMNS: [Column; 8] = [
    Column::Text("Queue"),
    Column::Text("State"),
    Column::Number("Due"),
    Column::Number("Scheduled"),
    Column::Number("Processing"),
    Column::Number("Failed"),
    Column::Number("Done"),
    Column::Number("Oldest due"),
];

/// The messages after a write, by their names in the query.
const NOTICES: [(&str, &str); 6] = [
    ("retried", "The job waits in its queue again, with all its attempts."),
    ("not-retried", "The job was not retried: it is not one that was given up."),
    ("canceled", "The job is canceled, or will be when its worker returns it."),
    ("not-canceled", "The job was not canceled: it is over."),
    ("paused", "The queue is paused: no worker claims a job until you resume it."),
    ("resumed", "The queue is resumed."),
];

/// The parts of the bar that shows the jobs by state.
const BAR: [(&str, &str); 6] = [
    ("due", "due"),
    ("scheduled", "scheduled"),
    ("processing", "processing"),
    ("failed", "failed"),
    ("canceled", "canceled"),
    ("done", "done"),
];

/// What the page of a job says of it, with the names of the fields.
const FACTS: [(&str, &str); 8] = [
    ("Type", "type"),
    ("Enqueued", "ts"),
    ("Not before", "runAt"),
    ("Priority", "priority"),
    ("Claims", "claims"),
    ("Attempts that failed", "attempts"),
    ("Worker", "worker"),
    ("Finished", "finishedAt"),
];

/// Returns the path of the page of a queue.
fn path(database: &str, queue: &str) -> String {
    format!("/queues/{}/{}", encoded(database), encoded(queue))
}

pub(super) async fn all(api: &Api, call: Call) -> Result<Response> {
    let mut client = api.client(&call).await?;
    let mut page = Page::new(Section::Queues, "Job queues").live();
    let mut rows = Vec::new();
    for FoundPattern { database, collection, .. } in found_patterns::all(&mut client, QUEUE).await? {
        let name = link(&path(&database, &collection), format!("{database}.{collection}"));
        let depth = match depth(&mut client, &database, &collection).await {
            Ok(depth) => depth,
            Err(problem) => {
                rows.push(failed_row(name, &problem, COLUMNS.len()));
                continue;
            }
        };
        let count = |name: &str| text(grouped(integer(&depth, name)));
        let state = mark(if is_true(depth.get("paused")) { "paused" } else { "running" });
        let oldest =
            depth.get("oldestDueMillis").map_or_else(|| "–".to_owned(), |_| span(integer(&depth, "oldestDueMillis")));
        rows.push(vec![
            name,
            state,
            count("due"),
            count("scheduled"),
            count("processing"),
            count("failed"),
            count("done"),
            text(oldest),
        ]);
    }
    open_region(&mut page.body, "queues", "All queues");
    if rows.is_empty() {
        let hint = "A queue appears here when its first job is enqueued: handfastEnqueueJob, POST /v1/{database}/queues/{queue}/jobs, or JobQueue::open in Rust.";
        page.body.push(&empty("There is no job queue", hint));
    } else {
        page.body.push(&table("Job queues", &COLUMNS, &rows));
    }
    close_region(&mut page.body);
    Ok(page.answer())
}

pub(super) async fn one(api: &Api, call: Call) -> Result<Response> {
    let (database, queue) = (call.path("database"), call.path("queue"));
    let mut client = api.client(&call).await?;
    let found = found_patterns::one(&mut client, database, queue, QUEUE).await?;
    let depth = depth(&mut client, database, queue).await?;
    let (own, state) = (path(database, queue), call.query("state").unwrap_or_default());
    let filter = in_state(found.field("state"), Some(state), &JOB_STATES)?;
    let list = List { database, collection: queue, filter };
    let reads::Page { documents, next } = list.page(&mut client, Position::read(&call)?).await?;
    let mut page = Page::new(Section::Queues, format!("{database}.{queue}")).live().below("Job queues", "/queues");
    page.body.push(&notice(call.query("notice"), &NOTICES));
    page.body.push(&head(&depth, &own));
    let tabs_of = JOB_STATES.iter().map(|state| Tab {
        name: tab_name(state),
        value: (*state).to_owned(),
        count: Some(count_in(&depth, state)),
        is_bad: *state == "FAILED",
    });
    let all = Tab { name: "All", value: String::new(), count: None, is_bad: false };
    let all: Vec<Tab> = std::iter::once(all).chain(tabs_of).collect();
    html!(page.body, "<div id=\"tabs\" data-region>");
    page.body.push(&tabs("Jobs by state", &own, "state", state, &all));
    html!(page.body, "</div>");
    open_region(&mut page.body, "jobs", "Jobs");
    if documents.is_empty() {
        page.body.push(&empty("No jobs here", "The queue has no job in this state."));
    } else {
        page.body.push(&jobs_table(&found, &own, &documents));
        let with = |after: &str| format!("{own}?state={}&after={}", encoded(state), encoded(after));
        let first = call.query("after").map(|_| format!("{own}?state={}", encoded(state)));
        page.body.push(&pager(first.as_deref(), next.as_deref().map(with).as_deref()));
    }
    close_region(&mut page.body);
    Ok(page.answer())
}

async fn depth(client: &mut RequestClient, database: &str, queue: &str) -> Result<Document> {
    client.run(database, &doc! { "handfastQueueDepth": queue }).await
}

fn tab_name(state: &str) -> &'static str {
    match state {
        "TODO" => "Waiting",
        "PROCESSING" => "Processing",
        "DONE" => "Done",
        "FAILED" => "Failed",
        _ => "Canceled",
    }
}

fn count_in(depth: &Document, state: &str) -> i64 {
    match state {
        "TODO" => integer(depth, "due") + integer(depth, "scheduled"),
        "PROCESSING" => integer(depth, "processing"),
        "DONE" => integer(depth, "done"),
        "FAILED" => integer(depth, "failed"),
        _ => integer(depth, "canceled"),
    }
}

/// Returns the figures of a queue, its bar of states, and the buttons that pause and resume it.
fn head(depth: &Document, own: &str) -> Html {
    let mut html = Html::new();
    let is_paused = is_true(depth.get("paused"));
    html!(html, "<section id=\"depth\" data-region aria-label=\"Figures of the queue\">");
    if is_paused {
        html!(html, "<p class=\"panel warn\"><strong>Paused</strong> since ");
        html.push(&cell(depth.get("pausedSince")));
        html!(
            html,
            " {}</p>",
            depth
                .get_str("reason")
                .ok()
                .filter(|reason| !reason.is_empty())
                .map(|reason| format!("– {reason}"))
                .unwrap_or_default()
        );
    }
    html.push(&bar(depth));
    html!(html, "<dl class=\"tiles\">");
    let oldest =
        if depth.contains_key("oldestDueMillis") { span(integer(depth, "oldestDueMillis")) } else { "–".to_owned() };
    let silent = integer(depth, "silent");
    html.push(&tile("Due", &grouped(integer(depth, "due")), &format!("oldest {oldest}")));
    html.push(&tile("Scheduled", &grouped(integer(depth, "scheduled")), "for later"));
    html.push(&tile(
        "Processing",
        &grouped(integer(depth, "processing")),
        &if silent > 0 { format!("{} silent", grouped(silent)) } else { String::new() },
    ));
    html.push(&tile("Failed", &grouped(integer(depth, "failed")), "given up"));
    html.push(&tile("Canceled", &grouped(integer(depth, "canceled")), ""));
    html.push(&tile("Done", &grouped(integer(depth, "done")), "kept"));
    html!(html, "</dl></section>\n<div class=\"tools\">");
    if is_paused {
        html!(
            html,
            "<form method=\"post\" action=\"{}/resume\"><button id=\"resume\">Resume the queue</button></form>",
            own
        );
    } else {
        html!(
            html,
            "<form method=\"post\" action=\"{}/pause\" class=\"line\"><label for=\"reason\">Reason</label><input id=\"reason\" name=\"reason\" maxlength=\"200\" autocomplete=\"off\"><button id=\"pause\">Pause the queue</button></form>",
            own
        );
    }
    html!(html, "</div>");
    html
}

/// Returns the jobs by state as parts of a bar, with a legend.
fn bar(depth: &Document) -> Html {
    let counts = BAR.map(|(field, _)| integer(depth, field).max(0));
    let all: i64 = counts.iter().sum();
    let mut html = Html::new();
    if all == 0 {
        return html;
    }
    html!(
        html,
        "<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">"
    );
    let mut before = 0;
    for ((_, name), count) in BAR.iter().zip(counts) {
        // Of a thousand.
        let (from, to) = (before * 1_000 / all, (before + count) * 1_000 / all);
        html!(html, "<rect class=\"{}\" x=\"{}\" y=\"0\" width=\"{}\" height=\"10\"/>", name, from, to - from);
        before += count;
    }
    html!(html, "</svg><ul class=\"legend\" aria-hidden=\"true\">");
    for (_, name) in BAR {
        html!(html, "<li><i class=\"{}\"></i>{}</li>", name, name);
    }
    html!(html, "</ul>");
    html
}

fn jobs_table(queue: &FoundPattern, own: &str, jobs: &[Document]) -> Html {
    let columns = [
        Column::Text("Job"),
        Column::Text("Type"),
        Column::Text("State"),
        Column::Text("Enqueued"),
        Column::Number("Attempts"),
        Column::Text("Worker or error"),
        Column::Actions("Actions"),
    ];
    let row = |job: &Document| {
        let (id, state) = (job.get("_id").cloned().unwrap_or(Bson::Null), state_of(queue, job));
        let worker = job.get_document(queue.field("worker")).ok().and_then(|worker| worker.get(queue.field("name")));
        let note =
            if matches!(state, "FAILED" | "CANCELED") { job.get(queue.field("error")).or(worker) } else { worker };
        vec![
            link(&format!("{own}/jobs/{}", id_in_path(&id)), super::values::cut(&shown(&id))),
            cell(job.get(queue.field("type"))),
            mark(state),
            cell(job.get(queue.field("ts"))),
            text(grouped(integer(job, queue.field("attempts")))),
            cell(note),
            actions(own, &id, state),
        ]
    };
    table("Jobs", &columns, &jobs.iter().map(row).collect::<Vec<_>>())
}

fn state_of<'a>(queue: &FoundPattern, job: &'a Document) -> &'a str {
    job.get_str(queue.field("state")).unwrap_or("unknown")
}

/// Returns the buttons of what may be done to a job in a state.
fn actions(own: &str, id: &Bson, state: &str) -> Html {
    let mut html = Html::new();
    let (place, name) = (format!("{own}/jobs/{}", id_in_path(id)), super::values::cut(&shown(id)));
    let mut button = |step: &str, label: &str| {
        html!(
            html,
            "<form method=\"post\" action=\"{}/{}\"><button id=\"{}-{}\" aria-label=\"{} job {}\">{}</button></form>",
            place,
            step,
            step,
            name,
            label,
            name,
            label
        );
    };
    match state {
        "FAILED" => button("retry", "Retry"),
        "TODO" | "PROCESSING" => button("cancel", "Cancel"),
        _ => {}
    }
    html
}

pub(super) async fn job(api: &Api, call: Call) -> Result<Response> {
    let (database, queue, id) = (call.path("database"), call.path("queue"), path_id(&call, "job")?);
    let mut client = api.client(&call).await?;
    let found = found_patterns::one(&mut client, database, queue, QUEUE).await?;
    let job = reads::one(&mut client, database, queue, &id).await?;
    let job = job.ok_or_else(|| Problem::new(ProblemKind::Missing, format!("there is no job {}", shown(&id))))?;
    let (own, state) = (path(database, queue), state_of(&found, &job).to_owned());
    let mut page = Page::new(Section::Queues, format!("Job {}", shown(&id))).live();
    page = page.below("Job queues", "/queues").below(format!("{database}.{queue}"), own.clone());
    page.body.push(&notice(call.query("notice"), &NOTICES));
    let mut shown_facts = vec![("State", mark(&state))];
    let fields = FACTS.iter().map(|(name, field)| (*name, job.get(found.field(field))));
    shown_facts.extend(fields.filter(|(_, value)| value.is_some()).map(|(name, value)| (name, cell(value))));
    html!(page.body, "<section id=\"job\" data-region aria-label=\"The job\">");
    page.body.push(&facts(&shown_facts));
    if let Ok(error) = job.get_str(found.field("error")) {
        html!(page.body, "<div class=\"panel bad\"><h2>Last error</h2><pre>{}</pre></div>", error);
    }
    html!(page.body, "<div class=\"tools\">");
    page.body.push(&actions(&own, &id, &state));
    page.body.push(&link(&super::document::path(database, queue, &id), "Edit the document"));
    html!(
        page.body,
        "</div><h2>Document</h2><pre class=\"json\" tabindex=\"0\">{}</pre></section>",
        indented(&editable(&job))
    );
    Ok(page.answer())
}

pub(super) async fn retry(api: &Api, call: Call) -> Result<Response> {
    let reply = step_on_job(api, &call, "handfastRetryJob").await?;
    answer(&call, if is_true(reply.get("retried")) { "retried" } else { "not-retried" })
}

pub(super) async fn cancel(api: &Api, call: Call) -> Result<Response> {
    let reply = step_on_job(api, &call, "handfastCancelJob").await?;
    answer(&call, if is_true(reply.get("canceled")) { "canceled" } else { "not-canceled" })
}

async fn step_on_job(api: &Api, call: &Call, name: &str) -> Result<Document> {
    let job = doc! { "_id": path_id(call, "job")? };
    api.page_step(call, doc! { name: call.path("queue"), "job": job }).await
}

/// Leads to the page of the job with a message.
fn answer(call: &Call, notice: &str) -> Result<Response> {
    let own = path(call.path("database"), call.path("queue"));
    Ok(redirect(&format!("{own}/jobs/{}?notice={notice}", id_in_path(&path_id(call, "job")?))))
}

pub(super) async fn pause(api: &Api, call: Call) -> Result<Response> {
    let reason = call.form()?.into_iter().find(|(name, _)| name == "reason").map(|(_, reason)| reason);
    let command = doc! { "handfastPauseQueue": call.path("queue"), "reason": reason.unwrap_or_default() };
    api.page_step(&call, command).await?;
    Ok(redirect(&format!("{}?notice=paused", path(call.path("database"), call.path("queue")))))
}

pub(super) async fn resume(api: &Api, call: Call) -> Result<Response> {
    api.page_step(&call, doc! { "handfastResumeQueue": call.path("queue") }).await?;
    Ok(redirect(&format!("{}?notice=resumed", path(call.path("database"), call.path("queue")))))
}
