//! `handfast versions`: a tree of documents that changes as a whole, and its history.

pub(super) mod arguments;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Bson, doc};
use handfast_patterns::versioned_tree::{
    Difference, Keep, Node, Orphan, OrphanOf, PrunePlan, TreeStatus, Verified, Version, VersionState,
    VersionedTreeOptions,
};
use handfast_patterns::{Round, VersionedTree};
use handfast_store::Namespace;
use serde_json::{Value, json};

use self::arguments::{VersionsArguments, VersionsFlags};
use crate::command::pattern::{OpenedCollection, rename, report_rounds, rounds, with_collection};
use crate::console::{Console, write_out};
use crate::exit::{Exit, Usage};
use crate::flags::LimitFlags;
use crate::id::{extended_json, shown as id};
use crate::listing::{Listing, age, counted, listed};
use crate::store::ensure_there;

/// Roots that an error names.
const ROOTS_SHOWN_MAX: u32 = 10;

pub(super) fn run(arguments: &VersionsArguments) -> Result<Exit> {
    let tree = arguments.tree();
    with_collection(&tree.open, &tree.collection, |collection, console| execute(collection, arguments, console))
}

async fn execute(collection: OpenedCollection, arguments: &VersionsArguments, console: Console) -> Result<Exit> {
    let flags = arguments.tree();
    let mut options = options(&collection, flags).await?;
    // Where the application has recorded no field, the flag is for this command alone.
    if let (VersionsArguments::Verify { children: Some(children), .. }, Some(recorded)) =
        (arguments, &mut options.children)
    {
        recorded.clone_from(children);
    }
    let tree = Tree { collection, options };
    // A flag that contradicts the record is refused before it is used.
    tree.attach().await?;
    let fields = &tree.options.fields;
    let node = doc! { &fields.item: { "$exists": true }, &fields.version: { "$exists": true } };
    tree.collection.ensure_holds("nodes of trees", node).await?;
    tree.ensure_there().await?;
    match arguments {
        VersionsArguments::Status { .. } => tree.status(console).await,
        VersionsArguments::List { writing: false, limit, .. } => tree.list(*limit, console).await,
        VersionsArguments::List { writing: true, limit, .. } => tree.list_writing(*limit, console).await,
        VersionsArguments::Show { version, .. } => tree.show(*version, console).await,
        VersionsArguments::Diff { before, after, limit, .. } => tree.diff(*before, *after, *limit, console).await,
        VersionsArguments::Sweep { dry_run: true, limit, .. } => tree.orphans(*limit, console).await,
        VersionsArguments::Sweep { dry_run: false, .. } => tree.sweep(flags, console).await,
        VersionsArguments::Prune { keep_last, keep_newer, dry_run, .. } => {
            let keep = Keep { last: *keep_last, newer_than: keep_newer.map(|newer| newer.0) };
            if *dry_run { tree.plan(keep, console).await } else { tree.prune(keep, flags, console).await }
        }
        VersionsArguments::Tidy { .. } => tree.tidy(console).await,
        VersionsArguments::Forget { older, .. } => tree.forget(older.0, console).await,
        VersionsArguments::Name { name, version, .. } => tree.name(name, *version, console).await,
        VersionsArguments::Verify { children, .. } => tree.verify(children.as_deref(), console).await,
        VersionsArguments::Export { version, .. } => tree.export(*version, console).await,
    }
}

/// Returns the recorded settings with those of flags. The tree refuses a flag that contradicts the record.
async fn options(collection: &OpenedCollection, flags: &VersionsFlags) -> Result<VersionedTreeOptions> {
    let VersionsFlags { open, root, writes, pins, lease, pin_lease, .. } = flags;
    let place = &collection.namespace;
    let recorded = VersionedTreeOptions::recorded(collection.store.clone(), place, root.0.clone()).await?;
    let mut options = recorded.unwrap_or_else(|| VersionedTreeOptions::new(root.0.clone()));
    // The application has created both collections: without them the command would see no writer and no held version.
    let companion = async |name: &Option<String>, recorded: &Option<Namespace>, suffix: &str, flag: &str| {
        let there = match (name, recorded) {
            (Some(name), _) => collection.sibling(name, flag).await?,
            (None, Some(recorded)) => {
                ensure_there(&*collection.store, recorded, flag).await?;
                recorded.clone()
            }
            (None, None) => collection.sibling(&format!("{}.{suffix}", place.collection()), flag).await?,
        };
        Ok::<_, anyhow::Error>(Some(there))
    };
    options.writes = companion(writes, &options.writes, "writes", "--writes").await?;
    options.pins = companion(pins, &options.pins, "pins", "--pins").await?;
    options.lease = lease.map_or(options.lease, |lease| lease.0);
    options.pin_lease = pin_lease.map_or(options.pin_lease, |lease| lease.0);
    rename(&mut options.fields, &open.fields)?;
    Ok(options)
}

/// Fails if a lease is missing: a default that is shorter than the application's would remove versions that are in use.
fn ensure_said(said: bool, flag: &str) -> Result<()> {
    let why = "a lease shorter than that of the application removes what is in use";
    ensure!(said, Usage(format!("{flag} is missing: it must have the value of the application, because {why}")));
    Ok(())
}

struct Tree {
    collection: OpenedCollection,
    options: VersionedTreeOptions,
}

impl Tree {
    /// Fails if the tree has no versions: with a mistyped root, every check would succeed.
    async fn ensure_there(&self) -> Result<()> {
        let tree = self.attach().await?;
        if tree.is_there().await? {
            return Ok(());
        }
        let roots: Vec<_> = tree.roots(ROOTS_SHOWN_MAX).await?.iter().map(id).collect();
        let (there, root) = (listed(&roots), id(&self.options.root));
        bail!("--root: there is no tree {root} in {}; {there}", self.collection.namespace)
    }

    /// Opens the tree without creating indexes or recording settings.
    async fn attach(&self) -> Result<VersionedTree> {
        self.attach_with(self.options.clone()).await
    }

    /// Opens with all indexes.
    async fn open(&self) -> Result<VersionedTree> {
        self.open_with(self.options.clone()).await
    }

    /// Opens the tree and creates its indexes; only the application records settings.
    async fn open_with(&self, options: VersionedTreeOptions) -> Result<VersionedTree> {
        let tree = self.attach_with(options).await?;
        tree.create_indexes().await?;
        Ok(tree)
    }

    async fn attach_with(&self, options: VersionedTreeOptions) -> Result<VersionedTree> {
        let OpenedCollection { store, sources, namespace } = &self.collection;
        Ok(VersionedTree::attach(store.clone(), namespace.clone(), sources.clone(), options).await?)
    }

    async fn status(&self, console: Console) -> Result<Exit> {
        let TreeStatus { newest, versions, writing, silent, abandoned, pins } = self.attach().await?.status().await?;
        let root = id(&self.options.root);
        let mut text = vec![
            format!("{} of {}", root, self.collection.namespace),
            format!("  newest     {:>10}", newest.map_or("none".to_owned(), |newest| newest.to_string())),
            format!("  versions   {versions:>10}"),
            format!("  writing    {writing:>10}"),
            format!("  abandoned  {abandoned:>10}  numbers that were given up and are remembered"),
            format!("  pins       {pins:>10}  versions that readers hold, and names"),
        ];
        if silent > 0 {
            let lease = age(self.options.lease);
            text.push(format!("silent for longer than {lease}: {}", counted(silent, "writers")));
            text.push("next: `versions sweep --dry-run` shows what they left, `versions sweep` removes it".to_owned());
        }
        let json = json!({
            "collection": self.collection.namespace.to_string(),
            "root": extended_json(&self.options.root),
            "newest": newest,
            "versions": versions,
            "writing": writing,
            "silent": silent,
            "abandoned": abandoned,
            "pins": pins,
        });
        console.report(|| text.join("\n"), &json)?;
        Ok(Exit::Good)
    }

    async fn list(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        let tree = self.attach().await?;
        let names = tree.names().await?;
        let mut listing = Listing::new(&["version", "state", "base", "age", "names"]);
        for version in tree.versions(limit.and_one()).await? {
            let Version { version: number, state, base, ts, .. } = version;
            let names: Vec<_> =
                names.iter().filter(|(_, named)| *named == number).map(|(name, _)| name.as_str()).collect();
            let cells = [
                number.to_string(),
                state.name().to_owned(),
                base.to_string(),
                age(self.collection.since(ts)),
                names.join(", "),
            ];
            let date = extended_json(&Bson::DateTime(ts));
            let line = json!({ "version": number, "state": state.name(), "base": base, "ts": date, "names": names });
            listing.push(cells, line);
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    async fn list_writing(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        let mut listing = Listing::new(&["version", "base", "silent for"]);
        for write in self.attach().await?.writing(limit.and_one()).await? {
            let cells = [write.version.to_string(), write.base.to_string(), age(self.collection.since(write.ts))];
            let date = extended_json(&Bson::DateTime(write.ts));
            listing.push(cells, json!({ "version": write.version, "base": write.base, "ts": date }));
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    async fn show(&self, number: i64, console: Console) -> Result<Exit> {
        let tree = self.attach().await?;
        let Some(version) = tree.show(number).await? else {
            let writing = tree.writing(u32::MAX).await?.iter().any(|write| write.version == number);
            ensure!(!writing, "version {number} is being written: its root is not there yet");
            bail!("there is no version {number} of {}", id(&self.options.root));
        };
        let root = extended_json(&Bson::Document(version.root.clone()));
        let json = json!({
            "version": number,
            "state": version.state.name(),
            "base": version.base,
            "ts": extended_json(&Bson::DateTime(version.ts)),
            "root": root,
        });
        let (base, since) = (version.base, age(self.collection.since(version.ts)));
        let text = || {
            let root = serde_json::to_string_pretty(&root).unwrap_or_else(|_| root.to_string());
            format!("{root}\nversion {number}, made from {base}, {since} ago: {}", meaning(version.state))
        };
        console.report(text, &json)?;
        Ok(Exit::Good)
    }

    async fn diff(&self, before: i64, after: i64, limit: LimitFlags, console: Console) -> Result<Exit> {
        let mut listing = Listing::new(&["item", "what", "before", "after"]);
        let differences = self.attach().await?.diff(before, after).await?;
        for difference in differences.iter().take(limit.and_one() as usize) {
            let Difference { item, before, after } = difference;
            let (before, after) = (before.as_ref().map(content), after.as_ref().map(content));
            let what = match (&before, &after) {
                (None, _) => "added",
                (_, None) => "removed",
                _ => "changed",
            };
            let cell = |content: &Option<Value>| content.as_ref().map(ToString::to_string).unwrap_or_default();
            let cells = [id(item), what.to_owned(), cell(&before), cell(&after)];
            listing.push(cells, json!({ "item": extended_json(item), "what": what, "before": before, "after": after }));
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    async fn orphans(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        let mut listing = Listing::new(&["item", "version", "of"]);
        for Orphan { item, version, of } in self.attach().await?.orphans(limit.and_one()).await? {
            let of = match of {
                OrphanOf::SilentWrite => "a silent writer",
                OrphanOf::AbandonedVersion => "an abandoned version",
                OrphanOf::NoWriter => "no writer",
            };
            let line = json!({ "item": extended_json(&item), "version": version, "of": of });
            listing.push([id(&item), version.to_string(), of.to_owned()], line);
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    async fn sweep(&self, flags: &VersionsFlags, console: Console) -> Result<Exit> {
        ensure_said(flags.lease.is_some(), "--lease")?;
        ensure_said(flags.pin_lease.is_some(), "--pin-lease")?;
        let tree = self.open().await?;
        let round = rounds(console, "sweep", "items", |batch| tree.sweep(batch)).await?;
        report_rounds(console, "removed", "leftovers", round)
    }

    async fn plan(&self, keep: Keep, console: Console) -> Result<Exit> {
        let PrunePlan { versions, kept, nodes } = self.attach().await?.plan_prune(keep).await?;
        let text = || {
            let count = |versions: &[i64]| counted(versions.len() as u64, "versions");
            let (go, stay, nodes) = (count(&versions), count(&kept), counted(nodes, "nodes"));
            format!("would remove {go} and {nodes} that no other version uses, and keep {stay}")
        };
        console.report(text, &json!({ "versions": versions, "kept": kept, "nodes": nodes }))?;
        Ok(Exit::Good)
    }

    async fn prune(&self, keep: Keep, flags: &VersionsFlags, console: Console) -> Result<Exit> {
        ensure_said(flags.pin_lease.is_some(), "--pin-lease")?;
        let tree = self.open().await?;
        let round = rounds(console, "prune", "versions", |batch| tree.prune(keep, batch)).await?;
        report_rounds(console, "removed", "items", round)
    }

    async fn verify(&self, children: Option<&str>, console: Console) -> Result<Exit> {
        let children = self.options.children.as_deref().or(children);
        let bar = console.progress("verify", "versions", 0);
        let tell = |so_far: &Verified| bar.set_position(so_far.versions);
        let verified = self.attach().await?.verify(children, tell).await?;
        bar.finish_and_clear();
        let Verified { versions, nodes, findings, .. } = &verified;
        ensure!(
            *versions > 0 || !verified.is_clean(),
            "{} has no version that can be read: nothing was verified",
            id(&self.options.root)
        );
        let text = || {
            let mut lines = vec![match children {
                Some(_) => format!("checked {} with {}", counted(*versions, "versions"), counted(*nodes, "nodes")),
                None => format!(
                    "checked {}, but not their nodes: --children FIELD checks these",
                    counted(*versions, "versions")
                ),
            }];
            lines.extend(findings.iter().map(ToString::to_string));
            if findings.count() > findings.len() as u64 {
                lines.push(format!("{} in all", counted(findings.count(), "findings")));
            }
            if verified.is_clean() {
                lines.push(match children {
                    Some(_) => "everything is as it must be".to_owned(),
                    None => "the versions are as they must be".to_owned(),
                });
            }
            lines.join("\n")
        };
        let found: Vec<_> = findings.iter().map(ToString::to_string).collect();
        let json = json!({ "versions": versions, "nodes": nodes, "findings": found, "count": findings.count() });
        console.report(text, &json)?;
        Ok(if verified.is_clean() { Exit::Good } else { Exit::GuaranteeBroken })
    }

    async fn tidy(&self, console: Console) -> Result<Exit> {
        let bar = console.spinner("tidy");
        let done = self.open().await?.tidy().await?;
        bar.finish_and_clear();
        report_rounds(console, "removed", "nodes", Round { done, ..Round::default() })
    }

    async fn forget(&self, older: Duration, console: Console) -> Result<Exit> {
        let tree = self.open_with(VersionedTreeOptions { forget_after: older, ..self.options.clone() }).await?;
        let round = rounds(console, "forget", "documents", async |batch| {
            let done = tree.forget(batch).await?;
            Ok(Round { done, failed: 0, more: done > 0 })
        });
        report_rounds(console, "forgot", "documents", round.await?)
    }

    /// Names a version, or removes the name.
    async fn name(&self, name: &str, version: Option<i64>, console: Console) -> Result<Exit> {
        let tree = self.open().await?;
        let root = id(&self.options.root);
        match version {
            Some(version) => {
                let named = tree.name(version, name).await?;
                ensure!(named, "there is no version {version} of {root} that could be kept");
                let json = json!({ "name": name, "version": version });
                console.report(|| format!("version {version} of {root} is {name}, and is kept"), &json)?;
            }
            None => {
                ensure!(tree.unname(name).await?, "no version of {root} is named {name}");
                let json = json!({ "name": name, "version": Value::Null });
                console.report(|| format!("no version of {root} is named {name} any more"), &json)?;
            }
        }
        Ok(Exit::Good)
    }

    async fn export(&self, version: Option<i64>, console: Console) -> Result<Exit> {
        let (tree, root) = (self.attach().await?, id(&self.options.root));
        let snapshot = match version {
            Some(version) => {
                tree.at(version).await?.with_context(|| format!("there is no version {version} of {root}"))?
            }
            None => tree.newest().await?.with_context(|| format!("{root} has no version"))?,
        };
        let bar = console.spinner("export");
        let mut nodes = snapshot.all().await?;
        bar.finish_and_clear();
        nodes.sort_by_cached_key(|node| id(&node.item));
        let root =
            Node { item: self.options.root.clone(), version: snapshot.version(), content: snapshot.root().clone() };
        for node in std::iter::once(&root).chain(&nodes) {
            let line = json!({ "item": extended_json(&node.item), "version": node.version, "content": content(node) });
            write_out(format!("{line}\n").as_bytes())?;
        }
        Ok(Exit::Good)
    }
}

fn content(node: &Node) -> Value {
    extended_json(&Bson::Document(node.content.clone()))
}

fn meaning(state: VersionState) -> &'static str {
    match state {
        VersionState::Writing => "it is being written",
        VersionState::Committed => "it can be read",
        VersionState::Pruning => "it is to be pruned, unless a reader uses it",
        VersionState::Pruned => "it cannot be read any more, and its nodes are being removed",
        VersionState::Cleared => "it was pruned",
        VersionState::Abandoned => "it was given up, and never was a part of the tree",
    }
}
