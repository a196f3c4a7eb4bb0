//! The books: verified and rebuilt.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use handfast_patterns::ledger::{Finding, Gap, Rebuilt, Totals, Verified};
use serde_json::{Value, json};

use super::{Books, bsons};
use crate::console::{Console, write_error};
use crate::exit::Exit;
use crate::id::{Id, extended, shown};
use crate::pattern::first_findings;

impl Books {
    pub(super) async fn verify(&self, accounts: &[Id], console: Console) -> Result<Exit> {
        let bar = console.progress("verify", "entries and accounts", 0);
        let (ledger, mut verified, mut totals) = (self.look().await?, Verified::default(), Vec::new());
        if accounts.is_empty() {
            verified = ledger.verify_all_telling(|so_far| bar.set_position(so_far.entries + so_far.accounts)).await?;
            totals = ledger.totals().await?;
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
        let balanced = self.options.single_entry || totals.iter().all(Totals::is_balanced);
        let clean = verified.is_clean() && balanced;
        console.report(|| text(&verified, &totals, balanced), &json(&verified, &totals, clean))?;
        Ok(if clean { missing } else { Exit::GuaranteeBroken })
    }

    pub(super) async fn rebuild(&self, accounts: &[Id], console: Console) -> Result<Exit> {
        let bar = console.progress("rebuild", "accounts", 0);
        let (ledger, mut rebuilt, mut missing) = (self.open().await?, Rebuilt::default(), Exit::Good);
        if accounts.is_empty() {
            rebuilt = ledger.rebuild_all_telling(|so_far| bar.set_position(so_far.accounts)).await?;
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
                "counted {accounts} accounts with {places} places anew: wrote {balances} balances of entries and {caches} of accounts"
            )];
            if !rebuilt.is_whole() {
                lines.push("it stopped here, and changed nothing behind:".to_owned());
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

/// Says that nobody knows an account; the others are reported all the same.
pub(super) fn no_account(account: &bson::Bson) -> Exit {
    write_error(&anyhow!("there is no account {}", shown(account)));
    Exit::Failed
}

fn text(verified: &Verified, totals: &[Totals], balanced: bool) -> String {
    let Verified { accounts, places, entries, in_flight, gaps, findings } = verified;
    let mut lines = Vec::new();
    if gaps.count() > 0 {
        lines.push("entries are lost; the balances behind them were final before that, and are kept:".to_owned());
        lines.extend(first_findings(gaps, gaps.count()));
    }
    let mut counted = format!("counted {accounts} accounts with {places} places");
    // Those of single accounts are not looked at by themselves.
    if *entries > 0 {
        counted.push_str(&format!(", {entries} entries"));
    }
    lines.push(counted);
    if *in_flight > 0 {
        lines.push(format!("{in_flight} places are drawn, and their entries may still come"));
    }
    for Totals { asset, debits, credits, held } in totals {
        lines.push(format!("  {asset:<8} taken {debits}, given {credits}, held {held}"));
    }
    lines.extend(first_findings(findings, findings.count()));
    if !balanced {
        lines.push("what was taken is not what was given: --single-entry, if the ledger was opened so".to_owned());
    }
    lines.extend(next_steps(gaps, findings));
    lines.push(match (gaps.count() + findings.count(), balanced) {
        (0, true) => "everything is as it must be".to_owned(),
        (0, false) => "the books do not balance".to_owned(),
        (1, _) => "1 finding".to_owned(),
        (count, _) => format!("{count} findings"),
    });
    lines.join("\n")
}

/// What puts the findings right, and which of them nothing does.
fn next_steps(gaps: &[Gap], findings: &[Finding]) -> Vec<String> {
    let mut steps = Vec::new();
    if let Some(Gap { account, first, last, .. }) = gaps.first() {
        let account = shown(account);
        steps.push("next: `ledger restore FILE` puts lost entries back from a file of `ledger export`".to_owned());
        steps.push(format!(
            "  or, if there is no copy: `ledger abandon {account} {first} {last} --reason TEXT`, for each gap, says that they count for nothing; then `ledger rebuild`"
        ));
    }
    if findings.iter().any(Finding::can_be_rebuilt) {
        let gaps = if gaps.is_empty() { "" } else { ", in accounts without a gap," };
        steps.push(format!("next: `ledger rebuild` counts balances anew{gaps} from the entries"));
    }
    let kinds: BTreeSet<_> = findings.iter().filter(|finding| !finding.can_be_rebuilt()).map(kind).collect();
    if !kinds.is_empty() {
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        steps.push(format!(
            "no command puts these right ({kinds}): somebody has changed documents; compare them with an export or a backup"
        ));
    }
    steps
}

fn json(verified: &Verified, totals: &[Totals], clean: bool) -> Value {
    let total = |total: &Totals| {
        let Totals { asset, debits, credits, held } = total;
        json!({ "asset": asset, "debits": debits, "credits": credits, "held": held, "balanced": total.is_balanced() })
    };
    let Verified { accounts, places, entries, in_flight, gaps, findings } = verified;
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
        "account": extended(account),
        "first": first,
        "last": last,
        "balance_change": change.map(|(balance, _)| balance),
        "held_change": change.map(|(_, held)| held),
        "text": gap.to_string(),
    })
}

fn kind(finding: &Finding) -> &'static str {
    match finding {
        Finding::Order { .. } => "order",
        Finding::Balance { .. } => "balance",
        Finding::Cache { .. } => "cache",
        Finding::Asset { .. } => "asset",
        Finding::Unbalanced { .. } => "unbalanced",
        Finding::Unreadable { .. } => "unreadable",
    }
}

fn finding(finding: &Finding) -> Value {
    let account = match finding {
        Finding::Order { account, .. }
        | Finding::Balance { account, .. }
        | Finding::Cache { account, .. }
        | Finding::Asset { account, .. } => Some(account),
        Finding::Unbalanced { .. } | Finding::Unreadable { .. } => None,
    };
    json!({ "kind": kind(finding), "account": account.map(extended), "text": finding.to_string() })
}
