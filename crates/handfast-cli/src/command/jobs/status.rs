//! `handfast jobs status`: counts jobs by state, and says what needs attention.

use anyhow::Result;
use bson::Bson;
use handfast_patterns::job_queue::{Depth, JobState, Pause, StateCount};
use serde_json::json;

use super::Queue;
use crate::console::Console;
use crate::exit::Exit;
use crate::id::extended_json;
use crate::listing::age;

/// Unknown states that are shown to people.
const UNKNOWN_SHOWN_MAX: usize = 10;

impl Queue {
    pub(super) async fn status(&self, console: Console) -> Result<Exit> {
        let queue = self.attach().await?;
        let (depth, paused) = (queue.depth().await?, queue.paused().await?);
        let Depth { due, scheduled, processing, silent, failed, canceled, foreign, oldest_due } = depth;
        let (known, unknown) = apart(queue.count_by_state().await?);
        let done = known.iter().find(|(state, _)| *state == JobState::Done).map_or(0, |(_, count)| *count);
        let text = || {
            let mut text = vec![self.collection.namespace.to_string()];
            let mut count = |state: &str, count: u64, remark: String| {
                text.push(format!("  {state:<12}{count:>10}  {remark}").trim_end().to_owned());
            };
            let oldest = oldest_due.map(|oldest| format!("the oldest for {}", age(oldest)));
            count("due", due, oldest.unwrap_or_default());
            count("scheduled", scheduled, String::new());
            let silence = format!("{silent} silent for longer than {}, or without a date", age(self.options.lease));
            count("processing", processing, if silent == 0 { String::new() } else { silence });
            count("done", done, String::new());
            count("failed", failed, String::new());
            count("canceled", canceled, String::new());
            text.extend(self.advice(&depth, paused.as_ref(), &unknown));
            text.join("\n")
        };
        let unknown_states = unknown.iter().map(|of| json!({ "state": extended_json(&of.state), "count": of.count }));
        let json = json!({
            "collection": self.collection.namespace.to_string(),
            "due": due,
            "oldest_due_seconds": oldest_due.map(|oldest| oldest.as_secs_f64()),
            "scheduled": scheduled,
            "processing": processing,
            "silent": silent,
            "done": done,
            "failed": failed,
            "canceled": canceled,
            "foreign": foreign,
            "unknown": unknown_states.collect::<Vec<_>>(),
            "paused": paused.as_ref().map(|pause| json!({ "since": extended_json(&pause.since.into()), "why": pause.why })),
        });
        console.report(text, &json)?;
        Ok(Exit::Good)
    }

    /// Returns what is unusual, and what can be done about it.
    fn advice(&self, depth: &Depth, paused: Option<&Pause>, unknown: &[StateCount]) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(Pause { since, why }) = paused {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            let since = age(self.collection.since(*since));
            lines.push(format!("paused for {since}{why}; workers claim no jobs until `jobs resume`"));
        }
        if !unknown.is_empty() {
            lines.push(in_unknown_states(unknown));
        }
        if depth.foreign > 0 {
            let foreign = match depth.foreign {
                1 => "1 document in the state TODO is not a job, and no worker claims it: `jobs list --state todo` names it"
                    .to_owned(),
                more => format!(
                    "{more} documents in the state TODO are not jobs, and no worker claims them: `jobs list --state todo` names them"
                ),
            };
            lines.push(foreign);
        }
        if depth.silent > 0 {
            let lease = age(self.options.lease);
            lines.push(format!(
                "next: `jobs recover --lease {lease}` returns the jobs of silent workers, if that is the lease of your workers"
            ));
        }
        if depth.failed > 0 {
            let next =
                "next: `jobs list --state failed` shows why they failed, `jobs retry` puts them back into the queue";
            lines.push(next.to_owned());
        }
        lines
    }
}

/// Separates the states of jobs from states that other programs have written.
fn apart(counted: Vec<StateCount>) -> (Vec<(JobState, u64)>, Vec<StateCount>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for of in counted {
        match &of.state {
            Bson::String(name) => match name.parse() {
                Ok(state) => known.push((state, of.count)),
                Err(_) => unknown.push(of),
            },
            _ => unknown.push(of),
        }
    }
    (known, unknown)
}

fn in_unknown_states(unknown: &[StateCount]) -> String {
    let all: u64 = unknown.iter().map(|of| of.count).sum();
    let shown = |of: &StateCount| format!("{} ({})", extended_json(&of.state), of.count);
    let mut names: Vec<_> = unknown.iter().take(UNKNOWN_SHOWN_MAX).map(shown).collect();
    if unknown.len() > names.len() {
        names.push(format!("and {} more", unknown.len() - names.len()));
    }
    let names = names.join(", ");
    match all {
        1 => format!("1 document has an unknown state, and no worker claims it: {names}"),
        all => format!("{all} documents have unknown states, and no worker claims them: {names}"),
    }
}
