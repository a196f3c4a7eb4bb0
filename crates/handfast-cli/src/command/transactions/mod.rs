//! `handfast txns`: shows and resolves transactions that hold locks on a server's documents; in a data directory there are no locks.

pub(super) mod arguments;

use std::time::Duration;

use anyhow::{Context as _, Result};
use handfast_store::Sources;
use handfast_txn::percolator::row::{Key, Timestamp};
use handfast_txn::percolator::{Cleaned, Decided, HeldLock, OpenTransaction, StoredCollection};
use handfast_txn::{Percolator, PercolatorOptions};
use serde_json::{Value, json};

use self::arguments::TransactionsArguments;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::flags::LimitFlags;
use crate::id::{extended_json, shown};
use crate::listing::{Listing, age, counted};
use crate::setup::{block_on, prepare_server, until_stopped};
use crate::store::{Access, Location, OpenedStore};

/// The oldest locks that are read to find transactions.
const LOCKS_MAX: u64 = 100_000;

/// The remark on a server on which no transaction has ever begun.
const NEVER: &str = "Handfast has never made transactions on this server";

/// The remark on a server that is Handfast.
const OF_HANDFAST: &str = "this server is Handfast: its own transactions hold no locks here; if it was started with `serve --store`, name the \
                           server behind it";

/// The error without --store.
const NO_STORE: &str =
    "--store is missing: name the server (mongodb://..), because transactions in a data directory hold no locks";

pub(crate) fn run(arguments: &TransactionsArguments) -> Result<Exit> {
    let (configuration, console) = prepare_server(arguments.store())?;
    block_on(until_stopped(async {
        let settings = &configuration.settings;
        let stores = settings.store.as_ref().ok_or_else(|| Usage(NO_STORE.to_owned()))?;
        let sources = Sources::system()?;
        let location = Location::of(&configuration)?;
        let opened = OpenedStore::open(&location, Access::Inspection, sources.clone()).await?;
        if opened.is_on_handfast() {
            console.remark(OF_HANDFAST);
        }
        // The servers decide how long outcomes are kept.
        let options = PercolatorOptions {
            cleaning_interval: None,
            outcome_retention: Duration::MAX,
            lease_ttl: settings.snapshot_lease.0,
            ..PercolatorOptions::default()
        };
        let operator =
            Operator { engine: Percolator::new(opened.documents(), sources, options)?, address: stores.to_string() };
        let exit = operator.run(arguments, console).await;
        operator.engine.idle().await;
        exit
    }))
}

struct Operator {
    engine: Percolator,
    address: String,
}

impl Operator {
    async fn run(&self, arguments: &TransactionsArguments, console: Console) -> Result<Exit> {
        match arguments {
            TransactionsArguments::Status { .. } => self.status(console).await,
            TransactionsArguments::List { limit, .. } => self.list(*limit, console).await,
            TransactionsArguments::Show { start, limit, .. } => self.show(Timestamp(*start), *limit, console).await,
            TransactionsArguments::Resolve { starts, .. } => self.resolve(starts, console).await,
            TransactionsArguments::Collections { .. } => self.collections(console).await,
            TransactionsArguments::Gc { .. } => self.collect(console).await,
        }
    }

    async fn status(&self, console: Console) -> Result<Exit> {
        let points = self.engine.safe_points().await?;
        let Some(points) = points else { return self.status_of_nothing(console) };
        let locks = self.engine.count_locks().await?;
        let open = self.engine.transactions(LOCKS_MAX).await?;
        let oldest = open.first().map(|oldest| oldest.age);
        let abandoned = open.iter().filter(|open| open.decided == Decided::Abandoned).count();
        let decided = open.iter().filter(|open| open.decided != Decided::Open).count() - abandoned;
        let text = || {
            let mut lines = vec![
                self.address.clone(),
                format!("  locks         {locks}, of {}", counted(open.len() as u64, "transactions")),
                format!("  the oldest    {}", oldest.map_or_else(|| "none".to_owned(), age)),
                format!("  abandoned     {}", counted(abandoned as u64, "transactions")),
                format!("  decided       {}, whose locks are not removed yet", counted(decided as u64, "transactions")),
                format!("  safe point    {}", since(points.now, points.readers)),
            ];
            if points.readers < points.messages {
                let (at, all) = (since(points.now, points.messages), counted(points.leases.len() as u64, "processes"));
                lines.push(format!("old snapshots of {all} hold it back: it would be {at} without them"));
            }
            if abandoned + decided > 0 {
                lines
                    .push("next: the next transaction that needs these documents removes the locks; `txns resolve --all` does so now".to_owned());
            }
            lines.join("\n")
        };
        let json = json!({
            "store": self.address,
            "locks": locks,
            "transactions": open.len(),
            "abandoned": abandoned,
            "decided": decided,
            "oldest_seconds": oldest.map(|oldest| oldest.as_secs_f64()),
            "now": points.now.0,
            "safe_point": known(points.readers),
            "safe_point_without_leases": known(points.messages),
            "leases": points.leases.iter().map(|lease| lease.0).collect::<Vec<_>>(),
        });
        console.report(text, &json)?;
        Ok(Exit::Good)
    }

    /// Reports zeros for a server without transactions.
    fn status_of_nothing(&self, console: Console) -> Result<Exit> {
        let json = json!({
            "store": self.address,
            "locks": 0,
            "transactions": 0,
            "abandoned": 0,
            "decided": 0,
            "oldest_seconds": null,
            "now": null,
            "safe_point": null,
            "safe_point_without_leases": null,
            "leases": [],
        });
        console.report(|| format!("{}\n  {NEVER}", self.address), &json)?;
        Ok(Exit::Good)
    }

    async fn list(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        if self.engine.safe_points().await?.is_none() {
            console.remark(NEVER);
        }
        let mut listing = Listing::new(&["start", "for", "locks", "state", "primary"]);
        for open in self.engine.transactions(LOCKS_MAX).await? {
            let OpenTransaction { start, age: open_for, locks, decided, primary } = &open;
            let (state, ..) = state_of(*decided);
            let cells = [start.to_string(), age(*open_for), locks.to_string(), state.to_owned(), key_text(primary)];
            let line = json!({
                "start": start.0,
                "seconds": open_for.as_secs_f64(),
                "locks": locks,
                "state": state,
                "abandoned": *decided == Decided::Abandoned,
                "primary": key(primary),
            });
            listing.push(cells, line);
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    async fn show(&self, start: Timestamp, limit: LimitFlags, console: Console) -> Result<Exit> {
        let decided = self.engine.decided(start).await?;
        let decided = decided.with_context(|| format!("there is no lock of a transaction with the start {start}"))?;
        let (state, meaning, at) = state_of(decided);
        let mut listing = Listing::new(&["change", "primary", "document"]);
        let mut locks = Vec::new();
        for HeldLock { key: locked, primary, deletes, .. } in
            self.engine.locks(Some(start), u64::from(limit.and_one())).await?
        {
            let (change, is_primary) = (if deletes { "delete" } else { "put" }, locked == primary);
            let line = json!({ "change": change, "primary": is_primary, "document": key(&locked) });
            let mark = if is_primary { "yes" } else { "" };
            listing.push([change.to_owned(), mark.to_owned(), key_text(&locked)], line.clone());
            locks.push(line);
        }
        locks.truncate(limit.limit as usize);
        let text = || format!("{start}: {state}; {meaning}\n{}", listing.bounded(limit.limit).table());
        let json = json!({ "start": start.0, "state": state, "committed_at": at.map(|at| at.0), "locks": locks });
        console.report(text, &json)?;
        Ok(Exit::Good)
    }

    async fn resolve(&self, starts: &[u64], console: Console) -> Result<Exit> {
        let mut all = Cleaned::default();
        let of: Vec<_> =
            if starts.is_empty() { vec![None] } else { starts.iter().map(|at| Some(Timestamp(*at))).collect() };
        for of in of {
            let Cleaned { resolved, alive, failed, .. } = self.engine.resolve(of).await?;
            all.resolved += resolved;
            all.alive += alive;
            all.failed += failed;
        }
        let Cleaned { resolved, alive, failed, .. } = all;
        let text = || {
            let alive = match alive {
                0 => String::new(),
                _ => format!("; {alive} belong to transactions that may still commit, and stay"),
            };
            format!("resolved {}{alive}{}", counted(resolved, "locks"), not_done(failed))
        };
        console.report(text, &json!({ "resolved": resolved, "alive": alive, "failed": failed }))?;
        Ok(exit(failed))
    }

    async fn collections(&self, console: Console) -> Result<Exit> {
        let mut listing = Listing::new(&["name", "in the store"]);
        for StoredCollection { name, stored } in self.engine.stored_collections().await? {
            let line = json!({ "name": name.as_ref().map(ToString::to_string), "stored": stored.to_string() });
            let name = name.map_or_else(|| "(dropped)".to_owned(), |name| name.to_string());
            listing.push([name, stored.to_string()], line);
        }
        console.list(&listing)?;
        Ok(Exit::Good)
    }

    async fn collect(&self, console: Console) -> Result<Exit> {
        let bar = console.spinner("collect");
        let cleaned = self.engine.clean().await?;
        bar.finish_and_clear();
        let Cleaned { resolved, alive, collected, failed, .. } = cleaned;
        let text = || {
            let failed = not_done(failed);
            format!(
                "resolved {}, {alive} are alive; removed old versions of {}{failed}",
                counted(resolved, "locks"),
                counted(collected, "documents")
            )
        };
        let report = json!({ "resolved": resolved, "alive": alive, "collected": collected, "failed": failed });
        console.report(text, &report)?;
        Ok(exit(failed))
    }
}

/// Returns the text about documents that could not be cleaned.
fn not_done(failed: u64) -> String {
    match failed {
        0 => String::new(),
        _ => format!("; {failed} documents or collections could not be cleaned: the log has the error of the first"),
    }
}

fn exit(failed: u64) -> Exit {
    if failed == 0 { Exit::Good } else { Exit::Failed }
}

/// Returns how long ago a safe point is.
fn since(now: Timestamp, before: Timestamp) -> String {
    match known(before) {
        Some(_) => format!("{} ago", age(now.since(before))),
        None => "none yet: old versions stay until servers have run for 10 minutes".to_owned(),
    }
}

/// Returns a safe point, if there is one yet.
fn known(point: Timestamp) -> Option<u64> {
    (point > Timestamp::default()).then_some(point.0)
}

fn key_text(key: &Key) -> String {
    match bson::Bson::try_from(key.id.clone()) {
        Ok(id) => format!("{} {}", key.namespace, shown(&id)),
        Err(_) => key.to_string(),
    }
}

fn key(key: &Key) -> Value {
    let id = bson::Bson::try_from(key.id.clone()).ok().map(|id| extended_json(&id));
    json!({ "collection": key.namespace.to_string(), "id": id })
}

/// Returns the word for the state of a transaction, its meaning for the locks, and the time of the commit.
fn state_of(decided: Decided) -> (&'static str, &'static str, Option<Timestamp>) {
    match decided {
        Decided::Committed(at) => ("committed", "its locks are to be rolled forward: `txns resolve` does it", Some(at)),
        Decided::RolledBack => ("rolled back", "its locks are to be released: `txns resolve` does it", None),
        Decided::Open => ("alive", "it may still commit", None),
        Decided::Abandoned => ("abandoned", "it has given no sign of life: `txns resolve` rolls it back", None),
    }
}
