//! Verifies and rebuilds the books.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use handfast_patterns::ledger::{Finding, Gap, NewAccount, Rebuilt, Totals, Verified};
use serde_json::{Value, json};

use super::arguments::AccountSettings;
use super::{Books, bsons};
use crate::command::pattern::first_findings;
use crate::console::{Console, write_error};
use crate::exit::Exit;
use crate::id::{Id, extended_json, shown};
use crate::listing::counted;

impl Books {
    pub(super) async fn verify(&self, accounts: &[Id], console: Console) -> Result<Exit> {
        let bar = console.progress("verify", "entries and accounts", 0);
        let (ledger, mut verified) = (self.attach().await?, Verified::default());
        if accounts.is_empty() {
            verified =
                ledger.verify_all_with_progress(|so_far| bar.set_position(so_far.entries + so_far.accounts)).await?;
        }
        let mut missing = Exit::Good;
        for account in bsons(accounts) {
            let one = ledger.verify(account.clone()).await?;
            if one.accounts == 0 {
                missing = no_account(&account);
            }
            verified.add(one);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let totals = std::mem::take(&mut verified.totals);
        let balanced = self.options.single_entry || totals.iter().all(Totals::is_balanced);
        let clean = verified.is_clean() && balanced;
        console.report(|| text(&verified, &totals, balanced), &json(&verified, &totals, clean))?;
        Ok(if clean { missing } else { Exit::GuaranteeBroken })
    }

    pub(super) async fn rebuild(&self, accounts: &[Id], console: Console) -> Result<Exit> {
        let bar = console.progress("rebuild", "accounts", 0);
        let (ledger, mut rebuilt, mut missing) = (self.attach().await?, Rebuilt::default(), Exit::Good);
        if accounts.is_empty() {
            rebuilt = ledger.rebuild_all_with_progress(|so_far| bar.set_position(so_far.accounts)).await?;
        }
        for account in bsons(accounts) {
            let one = ledger.rebuild(account.clone()).await?;
            if one.accounts == 0 {
                missing = no_account(&account);
            }
            rebuilt.add(one);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let Rebuilt { accounts, places, balances, caches, gaps, stops } = &rebuilt;
        let text = || {
            let mut lines = vec![format!(
                "counted {} with {} again: wrote {} of entries and {caches} of accounts",
                counted(*accounts, "accounts"),
                counted(*places, "places"),
                counted(*balances, "balances")
            )];
            if !rebuilt.is_whole() {
                lines.push("the rebuild stopped at these places, and changed nothing after them:".to_owned());
            }
            lines.extend(first_findings(gaps, gaps.count()));
            lines.extend(first_findings(stops, stops.count()));
            lines.extend(next_steps(gaps, stops));
            lines.join("\n")
        };
        let json = json!({
            "whole": rebuilt.is_whole(),
            "accounts": accounts,
            "places": places,
            "balances": balances,
            "caches": caches,
            "findings": gaps.iter().map(gap).chain(stops.iter().map(finding)).collect::<Vec<_>>(),
            "findings_count": gaps.count() + stops.count(),
        });
        console.report(text, &json)?;
        Ok(if rebuilt.is_whole() { missing } else { Exit::GuaranteeBroken })
    }
}

impl Books {
    pub(super) async fn open_account(
        &self,
        Id(account): &Id,
        settings: &AccountSettings,
        console: Console,
    ) -> Result<Exit> {
        let AccountSettings { asset, minimum, sequence } = settings;
        let new = NewAccount::new(account.clone(), asset);
        let new = minimum.iter().fold(new, |new, minimum| new.with_minimum(*minimum));
        self.open().await?.open_account(if *sequence { new.with_sequence() } else { new }).await?;
        let text = || format!("account {} is open", shown(account));
        console.report(text, &json!({ "account": extended_json(account), "asset": asset, "minimum": minimum }))?;
        Ok(Exit::Good)
    }
}

/// Reports a damaged document, after which the command continues with the others.
///
/// # Errors
/// Returns the error of the store.
pub(super) fn unreadable(error: handfast_patterns::Error) -> Result<Exit> {
    match error {
        handfast_patterns::Error::Damaged { .. } | handfast_patterns::Error::Invalid { .. } => {
            write_error(&anyhow!(error));
            Ok(Exit::Failed)
        }
        other => Err(other.into()),
    }
}

/// Reports an unknown account, after which the command continues with the others.
pub(super) fn no_account(account: &bson::Bson) -> Exit {
    write_error(&anyhow!("there is no account {}", shown(account)));
    Exit::Failed
}

fn text(verified: &Verified, totals: &[Totals], balanced: bool) -> String {
    let Verified { accounts, places, entries, in_flight, gaps, findings, .. } = verified;
    let mut lines = Vec::new();
    if gaps.count() > 0 {
        lines.push("entries are lost; the later balances were final before, and stay as they are:".to_owned());
        lines.extend(first_findings(gaps, gaps.count()));
    }
    let mut line = format!("counted {} with {}", counted(*accounts, "accounts"), counted(*places, "places"));
    // Entries of single accounts are not counted by themselves.
    if *entries > 0 {
        line.push_str(&format!(", {}", counted(*entries, "entries")));
    }
    lines.push(line);
    if *in_flight > 0 {
        lines.push(format!("places that are drawn from sequences, and whose entries may still arrive: {in_flight}"));
    }
    for Totals { asset, debits, credits, held } in totals {
        lines.push(format!("  {asset:<8} taken {debits}, given {credits}, held {held}"));
    }
    lines.extend(first_findings(findings, findings.count()));
    if !balanced {
        lines.push(
            "debits and credits differ: use --single-entry if the ledger was opened without double entry".to_owned(),
        );
    }
    lines.extend(next_steps(gaps, findings));
    lines.push(match (gaps.count() + findings.count(), balanced) {
        (0, true) => "everything is as it must be".to_owned(),
        (0, false) => "the books do not balance".to_owned(),
        (count, _) => counted(count, "findings"),
    });
    lines.join("\n")
}

/// Returns the commands that repair the findings, and the findings that none repairs.
fn next_steps(gaps: &[Gap], findings: &[Finding]) -> Vec<String> {
    let mut steps = Vec::new();
    if let Some(Gap { account, first, last, .. }) = gaps.first() {
        let account = shown(account);
        steps.push("next: `ledger restore FILE` restores lost entries from a file of `ledger export`".to_owned());
        steps.push(format!(
            "  or, if there is no copy: `ledger abandon {account} {first} {last} --reason TEXT`, for each gap, declares that they do not count; then `ledger rebuild`"
        ));
    }
    if let Some(Finding::NoAccount { account }) = findings.iter().find(|found| is_without_document(found)) {
        let account = shown(account);
        steps.push(format!(
            "next: `ledger open {account} --asset TEXT --minimum N` opens the account again (without --minimum if it had none, with --sequence if its places come from a sequence); then `ledger rebuild`"
        ));
    }
    // A rebuild stops at findings beyond which it cannot count.
    let stops: Vec<_> = findings.iter().filter(|found| found.stops_a_rebuild()).filter_map(Finding::account).collect();
    let stops = |account| stops.contains(&account) || gaps.iter().any(|gap| gap.account == *account);
    if findings.iter().any(|found| found.can_be_rebuilt() && !found.account().is_some_and(stops)) {
        let others = if findings.iter().any(Finding::stops_a_rebuild) || !gaps.is_empty() {
            ", in accounts without a lost or altered entry,"
        } else {
            ""
        };
        steps.push(format!("next: `ledger rebuild` computes balances{others} from the entries again"));
    }
    let is_there_twice = findings.iter().any(|found| matches!(found, Finding::SamePlace { .. }));
    if findings.iter().any(|found| matches!(found, Finding::NoIndex { .. })) && !is_there_twice {
        steps.push("next: `ledger reconcile` creates the index again".to_owned());
    }
    if findings.iter().any(|found| matches!(found, Finding::NoSettings { .. })) {
        steps.push("next: the application records the settings again when it opens the ledger".to_owned());
    }
    let has_command = |found: &Finding| {
        found.can_be_rebuilt()
            || is_without_document(found)
            || matches!(found, Finding::NoIndex { .. } | Finding::NoSettings { .. })
    };
    let kinds: BTreeSet<_> = findings.iter().filter(|found| !has_command(found)).map(Finding::kind).collect();
    if !kinds.is_empty() {
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        steps.push(format!(
            "no command can repair these ({kinds}), because documents were changed; compare them with an export or a backup, and see \"When an entry or a balance is altered\" in docs/patterns/ledger.md"
        ));
    }
    steps
}

fn is_without_document(finding: &Finding) -> bool {
    matches!(finding, Finding::NoAccount { .. })
}

fn json(verified: &Verified, totals: &[Totals], clean: bool) -> Value {
    let total = |total: &Totals| {
        let Totals { asset, debits, credits, held } = total;
        json!({ "asset": asset, "debits": debits, "credits": credits, "held": held, "balanced": total.is_balanced() })
    };
    let Verified { accounts, places, entries, in_flight, gaps, findings, .. } = verified;
    json!({
        "clean": clean,
        "accounts": accounts,
        "places": places,
        "entries": entries,
        "in_flight": in_flight,
        "totals": totals.iter().map(total).collect::<Vec<_>>(),
        "findings": gaps.iter().map(gap).chain(findings.iter().map(finding)).collect::<Vec<_>>(),
        "findings_count": gaps.count() + findings.count(),
    })
}

fn gap(gap: &Gap) -> Value {
    let Gap { account, first, last, change } = gap;
    json!({
        "kind": "gap",
        "account": extended_json(account),
        "first": first,
        "last": last,
        "balance_change": change.map(|amount| amount.balance),
        "held_change": change.map(|amount| amount.held),
        "text": gap.to_string(),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({ "kind": finding.kind(), "account": finding.account().map(extended_json), "text": finding.to_string() })
}
