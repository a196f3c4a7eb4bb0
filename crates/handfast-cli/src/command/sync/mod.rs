//! `handfast sync`: main documents, and the copies of their fields.

pub(super) mod arguments;
mod links;

use anyhow::{Context as _, Result};
use bson::{Bson, Document};
use handfast_patterns::sync_flag::{Audit, Declared, Main, MainState, Stale, StaleCopy, Staleness};
use handfast_patterns::{SyncFlag, SyncFlagOptions};
use serde_json::{Value, json};

use self::arguments::SyncArguments;
use self::links::Links;
use crate::command::pattern::{FINDINGS_SHOWN_MAX, OpenedCollection, rename, report_rounds, rounds, with_collection};
use crate::console::{Console, write_error};
use crate::exit::Exit;
use crate::flags::LimitFlags;
use crate::id::{Id, extended_json, shown as id};
use crate::listing::{Listing, age, counted};

/// Documents that are read at a time.
const PAGE: u32 = 500;

pub(super) fn run(arguments: &SyncArguments) -> Result<Exit> {
    let sync = arguments.sync();
    with_collection(&sync.open, &sync.collection, |collection, console| execute(collection, arguments, console))
}

async fn execute(collection: OpenedCollection, arguments: &SyncArguments, console: Console) -> Result<Exit> {
    let flags = arguments.sync();
    let Links { links, missed, recorded } = links::links(&collection, &flags.links, arguments.changes()).await?;
    let mut options = SyncFlagOptions { abandoned_after: flags.abandoned_after.0, ..SyncFlagOptions::new(links) };
    if let Some(Declared { tokens_max, fields, .. }) = &recorded {
        options.tokens_max = tokens_max.unwrap_or(options.tokens_max);
        options.fields = fields.clone().unwrap_or_default();
    }
    rename(&mut options.fields, &flags.open.fields)?;
    if let Some(recorded) = &recorded {
        recorded.ensure_fields(&options.fields)?;
    }
    let (is_recorded, copies) = (recorded.is_some(), Copies { collection, options, missed });
    links::ensure_seen(&copies.attach()?, is_recorded, arguments.judges_copies(), PAGE).await?;
    match arguments {
        SyncArguments::Status { .. } => copies.status(console).await,
        SyncArguments::List { limit, .. } => copies.list(*limit, console).await,
        SyncArguments::Show { id, .. } => copies.show(id, console).await,
        SyncArguments::Sweep { .. } => copies.sweep(console).await,
        SyncArguments::Verify { limit, .. } => copies.verify(*limit, console).await,
        SyncArguments::Repair { .. } => copies.repair(console).await,
        SyncArguments::Backfill { .. } => copies.backfill(console).await,
    }
}

struct Copies {
    collection: OpenedCollection,
    options: SyncFlagOptions,
    /// Copies of declared links that the command does not check.
    missed: Vec<String>,
}

impl Copies {
    /// Opens the pattern without creating indexes or declaring links.
    fn attach(&self) -> Result<SyncFlag> {
        let OpenedCollection { store, sources, namespace } = &self.collection;
        Ok(SyncFlag::attach(store.clone(), namespace.clone(), sources.clone(), self.options.clone())?)
    }

    async fn status(&self, console: Console) -> Result<Exit> {
        let Staleness { mains, copies, oldest } = self.attach()?.staleness().await?;
        let mut text = vec![
            self.collection.namespace.to_string(),
            format!("  main documents not carried  {mains:>10}"),
            format!("  copies not settled          {copies:>10}"),
        ];
        if let Some(oldest) = oldest {
            text.push(format!("the oldest for {}: some copies may have been out of date for as long", age(oldest)));
            text.push("next: `sync list` shows them, `sync sweep` updates the copies that were left behind".to_owned());
        }
        let json = json!({
            "collection": self.collection.namespace.to_string(),
            "mains": mains,
            "copies": copies,
            "oldest_seconds": oldest.map(|oldest| oldest.as_secs_f64()),
        });
        console.report(|| text.join("\n"), &json)?;
        Ok(Exit::Good)
    }

    async fn list(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        let (mut listing, mut exit) = (Listing::new(&["id", "state", "for", "version"]), Exit::Good);
        for main in self.attach()?.list_each(limit.and_one()).await? {
            let main = match main {
                Ok(main) => main,
                Err(odd) => {
                    write_error(&odd.into());
                    exit = Exit::Failed;
                    continue;
                }
            };
            let since = main.since.map(|since| self.collection.ago(since)).unwrap_or_default();
            listing.push([id(&main.id), main.state.to_string(), since, main.version.to_string()], line(&main));
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(exit)
    }

    async fn show(&self, wanted: &Id, console: Console) -> Result<Exit> {
        let main = self.attach()?.show(wanted.0.clone()).await?.with_context(|| self.collection.missing(&wanted.0))?;
        let since = main.since.map(|since| age(self.collection.since(since))).unwrap_or_default();
        let remark = match main.state {
            MainState::Settled | MainState::Gone => {
                format!("version {}: every copy has it, or is marked as possibly outdated", main.version)
            }
            MainState::Syncing => format!("version {} is being copied, for {since}", main.version),
            MainState::Deleting => format!("it is being deleted, and its copies are being changed, for {since}"),
        };
        self.collection.show(console, &wanted.0, Some(remark)).await?;
        Ok(Exit::Good)
    }

    async fn sweep(&self, console: Console) -> Result<Exit> {
        let flag = self.attach()?;
        let round = rounds(console, "sweep", "documents", |batch| flag.sweep(batch)).await?;
        report_rounds(console, "settled", "documents", round)
    }

    async fn verify(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        let bar = console.spinner("verify");
        let mut stale = Listing::new(&["collection", "id", "main", "why", "is", "should be"]);
        let mut uncompared = 0_u64;
        let keep = limit.limit as usize;
        let tell = |copy: StaleCopy| {
            uncompared += u64::from(copy.why == Stale::MainUnreadable);
            if stale.lines().len() < keep {
                let (is, should_be) = (json_of(&copy.found), json_of(&copy.expected));
                let line = json!({
                    "kind": copy.why.to_string(),
                    "collection": copy.target.to_string(),
                    "_id": extended_json(&copy.id),
                    "main": extended_json(&copy.main),
                    "found": is,
                    "expected": should_be,
                });
                let cells = [copy.target.to_string(), id(&copy.id), id(&copy.main), copy.why.to_string()];
                stale.push(cells.into_iter().chain([is.to_string(), should_be.to_string()]), line);
            }
        };
        let audit = self.attach()?.drift(PAGE, tell).await?;
        bar.finish_and_clear();
        let is_clean = audit.stale == 0 && self.missed.is_empty();
        console.report(
            || text(audit, uncompared, &stale, &self.missed),
            &json!({
                "clean": is_clean,
                "copies": audit.copies,
                "in_flight": audit.in_flight,
                "findings": stale.lines(),
                "findings_count": audit.stale,
                "missed": self.missed,
            }),
        )?;
        Ok(if is_clean { Exit::Good } else { Exit::GuaranteeBroken })
    }

    async fn repair(&self, console: Console) -> Result<Exit> {
        let bar = console.spinner("repair");
        let flag = self.attach()?;
        let round = flag.repair(PAGE).await?;
        bar.finish_and_clear();
        let exit = report_rounds(console, "repaired", "copies", round)?;
        if round.failed == 0 {
            return Ok(exit);
        }
        // The next run repeats what failed by chance; what cannot be judged stays.
        let mut left = Vec::new();
        let tell = |StaleCopy { target, id: copy, main, why, .. }: StaleCopy| {
            if why == Stale::MainUnreadable {
                left.push(format!("{target} {}: its main document {} is {why}", id(&copy), id(&main)));
            }
        };
        let _ = flag.drift(PAGE, tell).await?;
        if left.is_empty() {
            return Ok(exit);
        }
        console.remark("these copies stay as they are, because their main documents cannot be read:");
        left.iter().take(FINDINGS_SHOWN_MAX).for_each(|line| console.remark(&format!("  {line}")));
        if left.len() > FINDINGS_SHOWN_MAX {
            console.remark("  and more: `sync verify` names them");
        }
        Ok(Exit::GuaranteeBroken)
    }

    async fn backfill(&self, console: Console) -> Result<Exit> {
        let bar = console.spinner("backfill");
        let round = self.attach()?.backfill(PAGE).await?;
        bar.finish_and_clear();
        report_rounds(console, "carried", "main documents", round)
    }
}

fn json_of(document: &Document) -> Value {
    extended_json(&Bson::Document(document.clone()))
}

fn line(main: &Main) -> Value {
    json!({
        "_id": extended_json(&main.id),
        "state": main.state.name(),
        "since": main.since.map(|since| extended_json(&Bson::DateTime(since))),
        "version": main.version,
    })
}

fn text(audit: Audit, uncompared: u64, stale: &Listing, missed: &[String]) -> String {
    let mut lines =
        vec![format!("compared {}, of which {} are being changed", counted(audit.copies, "copies"), audit.in_flight)];
    if !missed.is_empty() {
        lines.push(format!("not compared: {}", missed.join("; ")));
        lines.push(
            "next: give all links with --link, with an aggregation expression for each computed field (\"computed\")"
                .to_owned(),
        );
    }
    if audit.stale > 0 {
        lines.push(stale.table());
        let differ = audit.stale - uncompared;
        if uncompared > 0 {
            lines.push(format!(
                "{} cannot be compared: `sync show MAIN` shows what is wrong with the main document, which must be changed by hand",
                counted(uncompared, "copies")
            ));
        }
        if differ > 0 {
            let verb = if differ == 1 { "differs" } else { "differ" };
            let differ = counted(differ, "copies");
            lines.push(format!("{differ} {verb} and no flag says so; next: `sync repair` repairs the difference"));
        }
    } else if missed.is_empty() {
        lines.push("everything is as it must be".to_owned());
    }
    lines.join("\n")
}
