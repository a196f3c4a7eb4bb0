//! The verification: each version must be based on the one before it, and have all the nodes that it refers to.

use std::collections::HashSet;
use std::fmt;

use bson::{Bson, doc};

use super::{Node, Version, VersionState, VersionedTree};
use crate::value::{at_path, integer, key_of};
use crate::{Error, Findings, Result};

/// The number of versions of a page.
const PAGE: u32 = 1_000;

/// An inconsistency of a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A version is not based on the one before it, so that a change is lost.
    Lost {
        /// The version.
        version: i64,
        /// The version that it is based on.
        base: i64,
        /// The version in between, whose change is lost.
        between: i64,
    },
    /// A version names as its base one that was given up, or itself or a later one.
    Base {
        /// The version.
        version: i64,
        /// The version that it names as its base.
        base: i64,
    },
    /// A version says that no number below it was given up, although one was: its readers may see nodes that were
    /// never a part of the tree.
    Gaps {
        /// The version.
        version: i64,
        /// The number that was given up.
        abandoned: i64,
    },
    /// Two nodes have the same item and the same version, because the unique index was missing.
    Twice {
        /// The item.
        item: Bson,
        /// The version.
        version: i64,
    },
    /// A node refers to an item that its version does not have.
    Missing {
        /// The version.
        version: i64,
        /// The item that refers to it.
        parent: Bson,
        /// The item that does not exist.
        item: Bson,
    },
    /// The root or the mark of a version cannot be read, because another program has changed it.
    Unreadable {
        /// The version.
        version: Bson,
        /// Describes the error, for people.
        what: String,
    },
    /// A node or a root has a version that is not an integer, so that it is in no version.
    Number {
        /// The item.
        item: Bson,
        /// Its version; `None` if the field is missing.
        found: Option<Bson>,
    },
    /// A root, or a node of an item of this tree, names another tree, which has no version, or none. So it is in no
    /// version.
    Tree {
        /// The item.
        item: Bson,
        /// The version that it was written in; 0 if that is not an integer.
        version: i64,
        /// The tree that it names; `None` if the field is missing.
        found: Option<Bson>,
    },
    /// A version is being written on top of one that does not exist, because its root was removed.
    BaseGone {
        /// The version.
        version: i64,
        /// The version that it is based on.
        base: i64,
    },
    /// No unique index keeps two nodes of an item from having the same version, so that writers may overwrite each
    /// other's changes.
    NoUniqueIndex,
    /// No node has the field for the item ids of children, so that no reference was checked.
    Unseen {
        /// The field.
        children: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Lost { version, base, between } => {
                write!(f, "version {version} was made from {base}, and knows nothing of {between}")
            }
            Finding::Base { version, base } => write!(f, "version {version} says that it was made from {base}"),
            Finding::Gaps { version, abandoned } => {
                write!(f, "version {version} does not know that {abandoned} was given up")
            }
            Finding::Twice { item, version } => write!(f, "item {item} is there twice in version {version}"),
            Finding::Missing { version, parent, item } => {
                write!(f, "version {version} has no item {item}, to which {parent} refers")
            }
            Finding::Unreadable { version, what } => write!(f, "version {version} cannot be read: {what}"),
            Finding::Number { item, found: Some(found) } => {
                write!(f, "item {item} has a node whose version is {found}, which is no number of a version")
            }
            Finding::Number { item, found: None } => write!(f, "item {item} has a node whose version is missing"),
            Finding::Tree { item, version, found } => {
                let found = found.as_ref().map_or_else(|| "no tree".to_owned(), |found| format!("tree {found}"));
                write!(f, "item {item} of version {version} is of {found}, and not of this tree")
            }
            Finding::BaseGone { version, base } => {
                write!(f, "version {version} is being written on top of version {base}, whose root is not there")
            }
            Finding::NoUniqueIndex => f.write_str(
                "no unique index keeps versions of an item apart: let the application open the tree, which creates it",
            ),
            Finding::Unseen { children } => {
                write!(f, "no root and no node has {children}: whether children are missing could not be looked at")
            }
        }
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Versions that can be read.
    pub versions: u64,
    /// The nodes of those versions that were checked.
    pub nodes: u64,
    /// The roots and nodes among them that have the field of the children.
    pub parents: u64,
    /// The inconsistencies.
    pub findings: Findings<Finding>,
}

impl Verified {
    /// Returns whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }

    pub(super) fn found(&mut self, finding: Finding) {
        self.findings.keep(finding);
    }
}

/// A walk through the roots and marks, by number.
#[derive(Default)]
struct Walk {
    /// The last version that was committed, even if it was pruned since.
    committed: Option<i64>,
    /// The numbers that were given up and are remembered.
    abandoned: Vec<i64>,
}

impl Walk {
    fn next(&mut self, there: &Version, verified: &mut Verified) {
        let Version { version, base, .. } = *there;
        if there.state == VersionState::Abandoned {
            self.abandoned.push(version);
            return;
        }
        if there.state == VersionState::Cleared {
            // Its base was removed with the content of its root.
            self.committed = Some(version);
            return;
        }
        if base >= version || self.abandoned.binary_search(&base).is_ok() {
            verified.found(Finding::Base { version, base });
        } else if let Some(between) = self.committed.filter(|before| *before > base) {
            verified.found(Finding::Lost { version, base, between });
        }
        if let Some(abandoned) = self.abandoned.first().filter(|_| there.state.is_readable() && !there.gaps) {
            verified.found(Finding::Gaps { version, abandoned: *abandoned });
        }
        self.committed = Some(version);
    }
}

impl VersionedTree {
    /// Verifies all versions, and calls `tell` with the result so far after each page or version. If the field in
    /// which the root and the nodes have the item ids of their children (one, or an array; a path with dots) is given
    /// here or in the options ([`children`](super::VersionedTreeOptions::children)), it also checks the nodes of every
    /// readable version, which it holds in memory one version at a time. If no root and no node has the field, that is
    /// a finding, and so is every document that cannot be read. Nothing is changed. It may run at any time.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another field of the children than that of the options.
    pub async fn verify(&self, children: Option<&str>, tell: impl Fn(&Verified)) -> Result<Verified> {
        let children = match (self.options.children.as_deref(), children) {
            (Some(recorded), Some(other)) if recorded != other => {
                return Err(Error::invalid(format!(
                    "the trees of {} have their children in {recorded}, not in {other}",
                    self.nodes.namespace()
                )));
            }
            (recorded, given) => recorded.or(given),
        };
        let (mut verified, mut walk, mut last) = (Verified::default(), Walk::default(), Bson::Int64(0));
        let fields = self.fields();
        loop {
            let after = doc! { &fields.item: self.root().clone(), &fields.version: { "$gt": &last } };
            let page = self.nodes.find(&after, &doc! { &fields.version: 1 }, PAGE).await?;
            for document in &page {
                last = document.get(&fields.version).cloned().unwrap_or(Bson::Null);
                let there = match Version::read(&self.nodes, document.clone(), fields) {
                    Ok(there) => there,
                    Err(error) => {
                        verified.found(Finding::Unreadable { version: last.clone(), what: error.to_string() });
                        continue;
                    }
                };
                verified.versions += u64::from(there.state.is_readable());
                walk.next(&there, &mut verified);
                if let Some(children) = children.filter(|_| there.state.is_readable()) {
                    self.look_into(there, children, &mut verified).await?;
                    tell(&verified);
                }
            }
            tell(&verified);
            if page.len() < PAGE as usize {
                break;
            }
        }
        self.look_for_twins(&mut verified).await?;
        self.look_for_altered(PAGE, &mut verified).await?;
        if let Some(children) = children.filter(|_| verified.versions > 0 && verified.parents == 0) {
            verified.found(Finding::Unseen { children: children.to_owned() });
        }
        Ok(verified)
    }

    /// Checks the nodes of a version. If it is pruned meanwhile it cannot be read, and need not be checked.
    async fn look_into(&self, version: Version, children: &str, verified: &mut Verified) -> Result<()> {
        let number = version.version;
        let snapshot = match self.snapshot(version).await {
            Err(error @ Error::Damaged { .. }) => {
                verified.found(Finding::Unreadable { version: number.into(), what: error.to_string() });
                return Ok(());
            }
            snapshot => snapshot?,
        };
        // A node whose version is not a number is a separate finding.
        let nodes = match snapshot.all_but(|_| Ok(())).await {
            Err(Error::Gone { .. }) => return Ok(()),
            nodes => nodes?,
        };
        verified.nodes += nodes.len() as u64;
        let root = snapshot.root_node();
        let all = || nodes.iter().chain([&root]);
        let there = all().map(|node| key_of(&node.item)).collect::<Result<HashSet<_>>>()?;
        for node in all() {
            let Some(items) = node.referred(children) else { continue };
            verified.parents += 1;
            for item in items {
                if !there.contains(&key_of(item)?) {
                    let (parent, item) = (node.item.clone(), item.clone());
                    verified.found(Finding::Missing { version: snapshot.version(), parent, item });
                }
            }
        }
        Ok(())
    }

    async fn look_for_twins(&self, verified: &mut Verified) -> Result<()> {
        let fields = self.fields();
        let both = doc! { "item": format!("${}", fields.item), "version": format!("${}", fields.version) };
        let pipeline = [
            doc! { "$match": { &fields.tree: self.root().clone() } },
            doc! { "$group": { "_id": both, "count": { "$sum": 1 } } },
            doc! { "$match": { "count": { "$gt": 1 } } },
        ];
        let mut pages = self.nodes.aggregate_pages(&pipeline, PAGE).await?;
        while let Some(page) = pages.next().await? {
            for group in page.iter().filter_map(|group| group.get_document("_id").ok()) {
                // A version that is not a number is a separate finding.
                if let Ok(version) = integer(group, "version") {
                    verified.found(Finding::Twice { item: group.get("item").cloned().unwrap_or(Bson::Null), version });
                }
            }
        }
        Ok(())
    }
}

impl Node {
    /// Returns the item ids that a field of the node has: one, or an array of them; `None` if the field is missing. A
    /// path may have dots.
    fn referred(&self, path: &str) -> Option<&[Bson]> {
        Some(match at_path(&self.content, path)? {
            Bson::Array(items) => items,
            Bson::Null => &[],
            item => std::slice::from_ref(item),
        })
    }
}
