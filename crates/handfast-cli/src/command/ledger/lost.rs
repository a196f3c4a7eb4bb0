//! Lost entries: restores them from an export, or abandons them.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, Result};
use bson::{Bson, Document};
use handfast_patterns::Ledger;
use handfast_patterns::ledger::Restored;
use serde_json::{Value, json};

use super::{Books, bsons};
use crate::console::Console;
use crate::exit::Exit;
use crate::id::{Id, extended_json, shown};
use crate::listing::counted;

/// Entries that were not restored and are listed; more are counted.
const REFUSED_SHOWN_MAX: usize = 1000;

/// The counts of one pass over a file.
#[derive(Debug, Default)]
struct Pass {
    restored: u64,
    there: u64,
    refused: Vec<(Bson, String)>,
    refused_count: u64,
    /// Named entries that are not in the file.
    absent: Vec<Bson>,
}

impl Books {
    pub(super) async fn restore(&self, file: &Path, ids: &[Id], console: Console) -> Result<Exit> {
        let (ledger, wanted) = (self.open().await?, bsons(ids).collect::<Vec<_>>());
        let bar = console.progress("restore", "entries", 0);
        let (mut restored, mut there) = (0, None);
        // An entry may depend on a later one of the file, because the clocks of the posting machines differ.
        let pass = loop {
            let pass = restore_file(&ledger, file, &wanted, || bar.inc(1)).await?;
            restored += pass.restored;
            there.get_or_insert(pass.there);
            if pass.restored == 0 || pass.refused_count == 0 {
                break pass;
            }
        };
        bar.finish_and_clear();
        let there = there.unwrap_or(0);
        let whole = pass.refused_count == 0 && pass.absent.is_empty();
        let text = || {
            let mut lines = vec![format!("restored {}; {there} existed already", counted(restored, "entries"))];
            lines.extend(pass.refused.iter().map(|(id, why)| format!("  not restored: entry {}: {why}", shown(id))));
            let more = pass.refused_count.saturating_sub(pass.refused.len() as u64);
            if more > 0 {
                lines.push(format!("  and {more} more"));
            }
            lines.extend(pass.absent.iter().map(|id| format!("  not in the file: entry {}", shown(id))));
            if restored > 0 {
                lines.push("next: `ledger verify`".to_owned());
            }
            lines.join("\n")
        };
        let refused = |(id, why): &(Bson, String)| json!({ "id": extended_json(id), "why": why });
        let json = json!({
            "restored": restored,
            "there": there,
            "refused": pass.refused.iter().map(refused).collect::<Vec<_>>(),
            "refused_count": pass.refused_count,
            "absent": pass.absent.iter().map(extended_json).collect::<Vec<_>>(),
        });
        console.report(text, &json)?;
        Ok(if whole { Exit::Good } else { Exit::Failed })
    }

    pub(super) async fn abandon(
        &self,
        account: &Id,
        places: RangeInclusive<i64>,
        reason: &str,
        console: Console,
    ) -> Result<Exit> {
        let (first, last) = (*places.start(), *places.end());
        let abandoned = self.open().await?.abandon(account.0.clone(), places, reason).await?;
        let places = if first == last { format!("place {first}") } else { format!("places {first} to {last}") };
        let text = || {
            let account = shown(&account.0);
            let done = if abandoned == 0 { "was abandoned before" } else { "is abandoned, and does not count" };
            format!(
                "{places} of account {account} {done}\nnext: abandon or restore the other gaps that `ledger verify` names, then run `ledger rebuild`"
            )
        };
        let json =
            json!({ "account": extended_json(&account.0), "first": first, "last": last, "abandoned": abandoned });
        console.report(text, &json)?;
        Ok(Exit::Good)
    }
}

/// Restores the entries of a file, or those with the wanted ids alone.
async fn restore_file(ledger: &Ledger, file: &Path, wanted: &[Bson], step: impl Fn()) -> Result<Pass> {
    let shown_file = file.display();
    let open = File::open(file).with_context(|| format!("FILE: cannot read {shown_file}"))?;
    let (mut pass, mut absent) = (Pass::default(), wanted.to_vec());
    for (number, line) in (1_u64..).zip(BufReader::new(open).lines()) {
        let at = || format!("FILE: {shown_file}, line {number}");
        let line = line.with_context(at)?;
        if line.trim().is_empty() {
            continue;
        }
        let exported = read(&line).with_context(at)?;
        let id = exported.get("_id").cloned().unwrap_or(Bson::Null);
        let key = extended_json(&id);
        if !wanted.is_empty() && !wanted.iter().any(|wanted| extended_json(wanted) == key) {
            continue;
        }
        absent.retain(|absent| extended_json(absent) != key);
        match ledger.restore(&exported).await.with_context(at)? {
            Restored::Restored(_) => pass.restored += 1,
            Restored::There(_) => pass.there += 1,
            Restored::Refused(why) => {
                pass.refused_count += 1;
                if pass.refused.len() < REFUSED_SHOWN_MAX {
                    pass.refused.push((id, why));
                }
            }
        }
        step();
    }
    pass.absent = absent;
    Ok(pass)
}

fn read(line: &str) -> Result<Document> {
    let expected = "an entry of `ledger export` as JSON Lines is expected";
    let value: Value = serde_json::from_str(line).context(expected)?;
    match Bson::try_from(value).context(expected)? {
        Bson::Document(exported) => Ok(exported),
        other => Err(anyhow::anyhow!("{expected}, not {other}")),
    }
}
