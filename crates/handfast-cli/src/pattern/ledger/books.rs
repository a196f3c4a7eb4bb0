//! The books: verified and rebuilt.

use anyhow::{Result, ensure};
use handfast_patterns::ledger::{Finding, Rebuilt, Totals, Verified};
use serde_json::{Value, json};

use super::{Books, bsons};
use crate::console::Console;
use crate::exit::Exit;
use crate::id::{Id, extended, shown};
use crate::pattern::first_findings;

impl Books {
    pub(super) async fn verify(&self, accounts: &[Id], console: Console) -> Result<Exit> {
        let bar = console.progress("verify", "entries and accounts", 0);
        let (ledger, mut verified, mut totals) = (self.look()?, Verified::default(), Vec::new());
        if accounts.is_empty() {
            verified = ledger.verify_all_telling(|so_far| bar.set_position(so_far.entries + so_far.accounts)).await?;
            totals = ledger.totals().await?;
        }
        for account in bsons(accounts) {
            let one = ledger.verify(account.clone()).await?;
            ensure!(one.accounts > 0, "there is no account {}", shown(&account));
            verified.add(one);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let balanced = self.options.single_entry || totals.iter().all(Totals::is_balanced);
        let clean = verified.is_clean() && balanced;
        console.report(|| text(&verified, &totals, balanced), &json(&verified, &totals, clean))?;
        Ok(if clean { Exit::Good } else { Exit::GuaranteeBroken })
    }

    pub(super) async fn rebuild(&self, accounts: &[Id], console: Console) -> Result<Exit> {
        let bar = console.progress("rebuild", "accounts", 0);
        let (ledger, mut rebuilt) = (self.open().await?, Rebuilt::default());
        if accounts.is_empty() {
            rebuilt = ledger.rebuild_all_telling(|so_far| bar.set_position(so_far.accounts)).await?;
        }
        for account in bsons(accounts) {
            let one = ledger.rebuild(account.clone()).await?;
            ensure!(one.accounts > 0, "there is no account {}", shown(&account));
            rebuilt.accounts += one.accounts;
            rebuilt.places += one.places;
            rebuilt.balances += one.balances;
            rebuilt.caches += one.caches;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let Rebuilt { accounts, places, balances, caches } = rebuilt;
        let text = || {
            format!(
                "counted {accounts} accounts with {places} places anew: wrote {balances} balances of entries and {caches} of accounts"
            )
        };
        let json = json!({ "accounts": accounts, "places": places, "balances": balances, "caches": caches });
        console.report(text, &json)?;
        Ok(Exit::Good)
    }
}

fn text(verified: &Verified, totals: &[Totals], balanced: bool) -> String {
    let Verified { accounts, places, entries, in_flight, findings } = verified;
    let mut lines = vec![format!("counted {accounts} accounts with {places} places")];
    // Those of single accounts are not looked at by themselves.
    if let (Some(line), true) = (lines.first_mut(), *entries > 0) {
        line.push_str(&format!(", {entries} entries"));
    }
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
    if findings.iter().any(can_be_rebuilt) {
        lines.push("next: `ledger rebuild` counts balances anew from the entries".to_owned());
    }
    lines.push(match (findings.count(), balanced) {
        (0, true) => "everything is as it must be".to_owned(),
        (0, false) => "the books do not balance".to_owned(),
        (count, _) => format!("{count} findings"),
    });
    lines.join("\n")
}

/// Whether it is a number that follows from the entries.
fn can_be_rebuilt(finding: &Finding) -> bool {
    matches!(finding, Finding::Balance { .. } | Finding::Cache { .. })
}

fn json(verified: &Verified, totals: &[Totals], clean: bool) -> Value {
    let total = |total: &Totals| {
        let Totals { asset, debits, credits, held } = total;
        json!({ "asset": asset, "debits": debits, "credits": credits, "held": held, "balanced": total.is_balanced() })
    };
    json!({
        "clean": clean,
        "accounts": verified.accounts,
        "places": verified.places,
        "entries": verified.entries,
        "in_flight": verified.in_flight,
        "totals": totals.iter().map(total).collect::<Vec<_>>(),
        "findings": verified.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_count": verified.findings.count(),
    })
}

fn finding(finding: &Finding) -> Value {
    let (kind, account) = match finding {
        Finding::Gap { account, .. } => ("gap", Some(account)),
        Finding::Order { account, .. } => ("order", Some(account)),
        Finding::Balance { account, .. } => ("balance", Some(account)),
        Finding::Cache { account, .. } => ("cache", Some(account)),
        Finding::Asset { account, .. } => ("asset", Some(account)),
        Finding::Unbalanced { .. } => ("unbalanced", None),
        Finding::Unreadable { .. } => ("unreadable", None),
    };
    json!({ "kind": kind, "account": account.map(extended), "text": finding.to_string() })
}
