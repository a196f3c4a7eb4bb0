//! The outcomes of transactions that are run one after another.

use anyhow::Result;
use bson::Bson;
use handfast_patterns::TwoPhase;
use handfast_patterns::two_phase::TwoPhaseOutcome;
use serde_json::{Value, json};

use crate::command::pattern::FINDINGS_SHOWN_MAX;
use crate::console::Console;
use crate::exit::Exit;
use crate::id::{extended_json, shown};
use crate::listing::counted;

/// Transactions that are named in a report; more are only counted.
const NAMED_MAX: usize = 1000;

#[derive(Default)]
struct Outcomes {
    done: u64,
    canceled: u64,
    /// Transactions that other processes took over or removed.
    left: u64,
    /// Transactions that are not done, and why.
    not_done: Vec<(Bson, String)>,
}

/// Runs all transactions that no process works on. A canceled one is a failure.
///
/// # Errors
/// Returns a failure of the store; the transactions that ended before it are reported.
pub(super) async fn run_all(transactions: &TwoPhase, console: Console) -> Result<Exit> {
    let bar = console.progress("run", "transactions", 0);
    let mut outcomes = Outcomes::default();
    let ended = loop {
        match transactions.run_next().await {
            Ok(Some((id, outcome))) => outcomes.add(id, outcome),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        bar.inc(1);
    };
    bar.finish_and_clear();
    console.report(|| outcomes.text(), &outcomes.json())?;
    ended?;
    Ok(if outcomes.canceled + outcomes.left == 0 { Exit::Good } else { Exit::Failed })
}

impl Outcomes {
    fn add(&mut self, id: Bson, outcome: TwoPhaseOutcome) {
        let (count, why) = match outcome {
            TwoPhaseOutcome::Done => {
                self.done += 1;
                return;
            }
            TwoPhaseOutcome::Canceled { reason } => (&mut self.canceled, format!("canceled: {reason}")),
            TwoPhaseOutcome::TakenOver { by } => {
                let by = by.as_deref().unwrap_or("another application");
                (&mut self.left, format!("{by} works on it"))
            }
            TwoPhaseOutcome::Missing => (&mut self.left, "is not there any more".to_owned()),
        };
        *count += 1;
        if self.not_done.len() < NAMED_MAX {
            self.not_done.push((id, why));
        }
    }

    fn text(&self) -> String {
        let Outcomes { done, canceled, left, not_done } = self;
        let mut lines = vec![format!("done: {}", counted(*done, "transactions"))];
        if *canceled > 0 {
            lines.push(format!("canceled: {}", counted(*canceled, "transactions")));
        }
        if *left > 0 {
            lines.push(format!("left to others: {}", counted(*left, "transactions")));
        }
        let shown_lines = not_done.iter().take(FINDINGS_SHOWN_MAX);
        lines.extend(shown_lines.map(|(id, why)| format!("  {} {why}", shown(id))));
        if not_done.len() > FINDINGS_SHOWN_MAX {
            lines.push("  and more: `twophase list --state canceled` shows them".to_owned());
        }
        lines.join("\n")
    }

    fn json(&self) -> Value {
        let Outcomes { done, canceled, left, not_done } = self;
        let line = |(id, why): &(Bson, String)| json!({ "id": extended_json(id), "outcome": why });
        let not_done: Vec<_> = not_done.iter().map(line).collect();
        json!({ "done": done, "canceled": canceled, "left": left, "not_done": not_done })
    }
}
