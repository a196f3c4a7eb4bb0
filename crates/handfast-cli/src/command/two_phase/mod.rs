//! `handfast twophase`: shows two-phase transactions, and finishes or repairs them.

pub(super) mod arguments;
mod outcomes;
pub(super) mod settings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Bson, doc};
use handfast_patterns::TwoPhase;
use handfast_patterns::two_phase::{
    Cancel, Finding, Plan, Record, Remedy, State, StateCount, TwoPhaseOptions, TwoPhaseOutcome, TwoPhaseStatus,
    Verified,
};
use serde_json::{Value, json};

use self::arguments::TwoPhaseArguments;
use crate::command::pattern::{ItemOutcomes, OpenedCollection, first_findings, report_rounds, rounds, with_collection};
use crate::console::{Console, write_error};
use crate::exit::Exit;
use crate::flags::LimitFlags;
use crate::id::{Id, extended_json, shown as id};
use crate::listing::{Listing, age, counted};

/// Participants of a page that is verified or repaired.
const PAGE: u32 = 500;

/// The default collection of the accounts.
pub(crate) const ACCOUNTS: &str = "accounts";

pub(super) fn run(arguments: &TwoPhaseArguments) -> Result<Exit> {
    let transactions = arguments.transactions();
    with_collection(&transactions.open, &transactions.collection, |collection, console| {
        execute(collection, arguments, console)
    })
}

async fn execute(collection: OpenedCollection, arguments: &TwoPhaseArguments, console: Console) -> Result<Exit> {
    let (options, recorded) = settings::options(&collection, arguments.transactions()).await?;
    let states: Vec<_> = State::ALL.into_iter().map(State::name).collect();
    collection.ensure_holds("two-phase transactions", doc! { &options.fields.state: { "$in": states } }).await?;
    if arguments.needs_settings() {
        settings::ensure_all_is_seen(&collection, &options, recorded).await?;
    }
    let transactions = Transactions { collection, options };
    match arguments {
        TwoPhaseArguments::Status { .. } => transactions.status(console).await,
        TwoPhaseArguments::List { states, limit, .. } => {
            let states: Vec<State> = states.iter().map(|state| (*state).into()).collect();
            transactions.list(&states, *limit, console).await
        }
        TwoPhaseArguments::Show { id, .. } => transactions.show(id, console).await,
        TwoPhaseArguments::Recover { .. } => transactions.recover_and_judge(console).await,
        TwoPhaseArguments::Run { ids, all: false, .. } => transactions.run(ids, console).await,
        TwoPhaseArguments::Run { all: true, .. } => transactions.run_all(console).await,
        TwoPhaseArguments::Cancel { ids, reason, .. } => transactions.cancel(ids, reason, console).await,
        TwoPhaseArguments::Compensate { id, by, .. } => transactions.compensate(id, by, console).await,
        TwoPhaseArguments::Verify { .. } => transactions.verify(console).await,
        TwoPhaseArguments::Purge { older, .. } => transactions.purge(older.0, console).await,
        TwoPhaseArguments::Settings { set, .. } => {
            settings::settings(&transactions.collection, set.then_some(&transactions.options), console).await
        }
    }
}

struct Transactions {
    collection: OpenedCollection,
    options: TwoPhaseOptions,
}

impl Transactions {
    /// Opens the transactions without creating indexes or recording settings.
    async fn attach(&self) -> Result<TwoPhase> {
        let OpenedCollection { store, sources, namespace } = &self.collection;
        Ok(TwoPhase::attach(store.clone(), namespace.clone(), sources.clone(), self.options.clone()).await?)
    }

    /// Opens with all indexes.
    async fn open(&self) -> Result<TwoPhase> {
        let OpenedCollection { store, sources, namespace } = &self.collection;
        Ok(TwoPhase::open_with(store.clone(), namespace.clone(), sources.clone(), self.options.clone()).await?)
    }

    async fn status(&self, console: Console) -> Result<Exit> {
        let TwoPhaseStatus { states, abandoned } = self.attach().await?.status().await?;
        let mut text = vec![self.collection.namespace.to_string()];
        for StateCount { state, count, oldest } in &states {
            let oldest = oldest.filter(|_| !state.is_final()).map(|oldest| format!("the oldest for {}", age(oldest)));
            text.push(
                format!("  {:<10}{count:>10}  {}", state.name(), oldest.unwrap_or_default()).trim_end().to_owned(),
            );
        }
        if abandoned > 0 {
            let after = age(self.options.abandoned_after);
            text.push(format!("unchanged for longer than {after}, or with a date that is further ahead: {abandoned}"));
            text.push("next: `twophase recover` finishes them".to_owned());
        }
        if states.iter().any(|state| state.state == State::Initial && state.count > 0) {
            text.push(
                "next: a worker of the application carries out the initial ones, or `twophase run --all`".to_owned(),
            );
        }
        let state = |StateCount { state, count, oldest }: &StateCount| json!({ "state": state.name(), "count": count, "oldest_seconds": oldest.map(|oldest| oldest.as_secs_f64()) });
        let json = json!({
            "collection": self.collection.namespace.to_string(),
            "states": states.iter().map(state).collect::<Vec<_>>(),
            "abandoned": abandoned,
        });
        console.report(|| text.join("\n"), &json)?;
        Ok(Exit::Good)
    }

    async fn list(&self, states: &[State], limit: LimitFlags, console: Console) -> Result<Exit> {
        let states = match states {
            [] => &[State::Pending, State::Applied, State::Canceling, State::Initial],
            states => states,
        };
        let transactions = self.attach().await?;
        let mut listing = Listing::new(&["id", "state", "for", "application", "what", "reason"]);
        let mut exit = Exit::Good;
        for state in states {
            for record in transactions.list_each(*state, limit.and_one()).await? {
                match record {
                    Ok(record) => listing.push(self.cells(&record), line(&record)),
                    Err(odd) => {
                        write_error(&odd.into());
                        exit = Exit::Failed;
                    }
                }
            }
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(exit)
    }

    fn cells(&self, record: &Record) -> [String; 6] {
        [
            id(&record.id),
            record.state.to_string(),
            self.collection.ago(record.last_modified),
            record.application.clone().unwrap_or_default(),
            what(record),
            record.reason.clone().unwrap_or_default(),
        ]
    }

    async fn show(&self, wanted: &Id, console: Console) -> Result<Exit> {
        let record =
            self.attach().await?.show(wanted.0.clone()).await?.with_context(|| self.collection.missing(&wanted.0))?;
        self.collection.show(console, &wanted.0, Some(self.remark(&record))).await?;
        Ok(Exit::Good)
    }

    /// Returns what the state of a transaction means, and what can be done.
    fn remark(&self, record: &Record) -> String {
        let since = age(self.collection.since(record.last_modified));
        match record.state {
            State::Initial => format!("no process has worked on it for {since}: `twophase run` runs it"),
            State::Pending | State::Applied | State::Canceling => {
                let by = record.application.as_deref().unwrap_or("an unknown application");
                format!("{by} has been working on it for {since}: `twophase recover` finishes it if it is abandoned")
            }
            State::Done => match &record.compensation {
                Some(by) => format!("done {since} ago: transaction {} was begun to reverse it", id(by)),
                None => format!("done {since} ago: `twophase compensate` reverses it"),
            },
            State::Canceled => {
                format!("canceled {since} ago: {}", record.reason.as_deref().unwrap_or("no reason is recorded"))
            }
        }
    }

    async fn recover(&self, console: Console) -> Result<Exit> {
        let transactions = self.open().await?;
        let [done, canceled] = [AtomicU64::new(0), AtomicU64::new(0)];
        let tell = |outcome: &TwoPhaseOutcome| match outcome {
            TwoPhaseOutcome::Done => _ = done.fetch_add(1, Ordering::Relaxed),
            TwoPhaseOutcome::Canceled { .. } => _ = canceled.fetch_add(1, Ordering::Relaxed),
            // Another application was faster, and finishes it.
            TwoPhaseOutcome::TakenOver { .. } | TwoPhaseOutcome::Missing => {}
        };
        let round = rounds(console, "recover", "transactions", |batch| transactions.recover_each(batch, tell)).await?;
        let repaired = transactions.repair(PAGE).await?;
        if repaired.done > 0 {
            let done = repaired.done;
            console.remark(&format!("participants of finished transactions that were repaired: {done}"));
        }
        if repaired.failed > 0 {
            let failed = repaired.failed;
            console.remark(&format!("participants that cannot be repaired: {failed}; `twophase verify` shows why"));
        }
        let [done, canceled] = [done, canceled].map(AtomicU64::into_inner);
        let failed = round.failed + repaired.failed;
        let text = || {
            let ended = format!("finished: {done} done, {canceled} canceled");
            if failed == 0 { ended } else { format!("{ended}; {failed} failed: the log says why; repeat the command") }
        };
        console.report(text, &json!({ "done": done, "canceled": canceled, "failed": failed }))?;
        Ok(if failed == 0 { Exit::Good } else { Exit::Failed })
    }

    /// Recovers transactions, and reports those that cannot be finished.
    async fn recover_and_judge(&self, console: Console) -> Result<Exit> {
        let exit = self.recover(console).await?;
        let findings = self.attach().await?.verify(PAGE, |_| ()).await?.findings;
        if findings.count() == 0 {
            return Ok(exit);
        }
        console.remark("these stay as they are:");
        first_findings(&findings, findings.count()).iter().for_each(|line| console.remark(line));
        Ok(Exit::GuaranteeBroken)
    }

    async fn run(&self, ids: &[Id], console: Console) -> Result<Exit> {
        let transactions = self.open().await?;
        let mut outcomes = ItemOutcomes::new();
        for Id(wanted) in ids {
            let (asked, outcome) = outcome_text(&transactions.run(wanted.clone()).await?);
            outcomes.push(wanted, asked, outcome);
        }
        outcomes.report(console)
    }

    async fn run_all(&self, console: Console) -> Result<Exit> {
        outcomes::run_all(&self.open().await?, console).await
    }

    async fn cancel(&self, ids: &[Id], reason: &str, console: Console) -> Result<Exit> {
        let transactions = self.open().await?;
        let mut outcomes = ItemOutcomes::new();
        for Id(wanted) in ids {
            let (asked, outcome) = match transactions.cancel(wanted.clone(), reason).await? {
                Cancel::Canceled => (true, "canceled"),
                Cancel::TooLate => (false, "is applied: `twophase compensate` takes it back"),
                Cancel::TakenOver => (false, "another application is rolling it back"),
                Cancel::Missing => (false, "is not there"),
            };
            outcomes.push(wanted, asked, outcome);
        }
        outcomes.report(console)
    }

    async fn compensate(&self, wanted: &Id, by: &Id, console: Console) -> Result<Exit> {
        let transactions = self.open().await?;
        transactions.compensate(wanted.0.clone(), by.0.clone()).await?;
        let mut outcomes = ItemOutcomes::new();
        let (asked, outcome) = outcome_text(&transactions.run(by.0.clone()).await?);
        outcomes.push(&by.0, asked, outcome);
        outcomes.report(console)
    }

    async fn verify(&self, console: Console) -> Result<Exit> {
        let bar = console.progress("verify", "participants", 0);
        let tell = |so_far: &Verified| bar.set_position(so_far.participants);
        let verified = self.attach().await?.verify(PAGE, tell).await?;
        bar.finish_and_clear();
        console.report(|| text(&verified), &findings(&verified))?;
        Ok(if verified.is_clean() { Exit::Good } else { Exit::GuaranteeBroken })
    }

    async fn purge(&self, older: Duration, console: Console) -> Result<Exit> {
        let transactions = self.attach().await?;
        let round = rounds(console, "purge", "transactions", |batch| transactions.purge(older, batch)).await?;
        report_rounds(console, "removed", "transactions", round)
    }
}

/// Returns whether the outcome is the wanted one, and its text.
fn outcome_text(outcome: &TwoPhaseOutcome) -> (bool, String) {
    match outcome {
        TwoPhaseOutcome::Done => (true, "done".to_owned()),
        TwoPhaseOutcome::Canceled { reason } => (false, format!("canceled: {reason}")),
        TwoPhaseOutcome::TakenOver { by } => {
            (false, format!("{} works on it", by.as_deref().unwrap_or("another application")))
        }
        TwoPhaseOutcome::Missing => (false, "is not there".to_owned()),
    }
}

fn what(record: &Record) -> String {
    match &record.plan {
        Ok(Plan::Transfer(transfer)) => {
            format!("{} from {} to {}", transfer.value, id(&transfer.source), id(&transfer.destination))
        }
        Ok(Plan::General(participants)) => counted(participants.len() as u64, "participants"),
        Err(what) => what.clone(),
    }
}

fn line(record: &Record) -> Value {
    let transfer = match &record.plan {
        Ok(Plan::Transfer(transfer)) => json!({
            "source": extended_json(&transfer.source),
            "destination": extended_json(&transfer.destination),
            "value": transfer.value,
        }),
        _ => Value::Null,
    };
    json!({
        "_id": extended_json(&record.id),
        "state": record.state.name(),
        "lastModified": extended_json(&Bson::DateTime(record.last_modified)),
        "application": record.application,
        "reason": record.reason,
        "compensation": record.compensation.as_ref().map(extended_json),
        "compensates": record.compensates.as_ref().map(extended_json),
        "transfer": transfer,
        "what": what(record),
    })
}

fn text(verified: &Verified) -> String {
    let Verified { participants, applied, accounts, findings } = verified;
    let mut lines = vec![format!(
        "checked {} with unfinished transactions, {}, {} with pending credits or debits",
        counted(*participants, "participants"),
        counted(*applied, "applied transactions"),
        counted(*accounts, "accounts")
    )];
    lines.extend(first_findings(findings, findings.count()));
    if findings.iter().any(can_be_repaired) {
        lines.push(
            "next: `twophase recover` undoes updates that arrived late, and releases participants that were not released"
                .to_owned(),
        );
    }
    if findings.iter().any(|finding| !can_be_repaired(finding)) {
        lines.push(
            "no command can repair the others: compare the documents with the data of the application, and change them by hand"
                .to_owned(),
        );
    }
    lines.push(match findings.count() {
        0 => "everything is as it must be".to_owned(),
        count => counted(count, "findings"),
    });
    lines.join("\n")
}

fn can_be_repaired(finding: &Finding) -> bool {
    match finding {
        Finding::Over { remedy: Remedy::TakeBack | Remedy::Release, .. } => true,
        Finding::Over { remedy: Remedy::Unclear, .. }
        | Finding::Unknown { .. }
        | Finding::Lacking { .. }
        | Finding::Pending { .. }
        | Finding::Unreadable { .. }
        | Finding::WrongType { .. }
        | Finding::NoSuchField { .. }
        | Finding::UnknownState { .. } => false,
    }
}

fn findings(verified: &Verified) -> Value {
    let finding = |finding: &Finding| {
        let (kind, namespace, participant, transaction) = match finding {
            Finding::Over { namespace, participant, transaction, .. } => ("over", namespace, participant, transaction),
            Finding::Unknown { namespace, participant, transaction } => {
                ("unknown", namespace, participant, transaction)
            }
            Finding::Lacking { namespace, participant, transaction } => {
                ("lacking", namespace, participant, transaction)
            }
            Finding::Pending { namespace, account, .. } => ("pending", namespace, account, &Bson::Null),
            Finding::Unreadable { namespace, transaction, .. } => ("unreadable", namespace, &Bson::Null, transaction),
            Finding::WrongType { namespace, participant, .. } => ("type", namespace, participant, &Bson::Null),
            Finding::NoSuchField { namespace, .. } => ("field", namespace, &Bson::Null, &Bson::Null),
            Finding::UnknownState { namespace, transaction, .. } => ("state", namespace, &Bson::Null, transaction),
        };
        json!({
            "kind": kind,
            "collection": namespace.to_string(),
            "participant": extended_json(participant),
            "transaction": extended_json(transaction),
            "recover": can_be_repaired(finding),
            "text": finding.to_string(),
        })
    };
    json!({
        "clean": verified.is_clean(),
        "participants": verified.participants,
        "applied": verified.applied,
        "accounts": verified.accounts,
        "findings": verified.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_count": verified.findings.count(),
    })
}
