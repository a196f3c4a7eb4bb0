//! The arguments of `handfast versions`.

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags};
use crate::id::Id;
use clap::{Args, Subcommand};

/// The commands on a tree of documents that changes as a whole.
#[derive(Debug, Subcommand)]
pub(crate) enum VersionsArguments {
    /// Count the versions, the writers, and the leftovers of silent writers
    #[command(after_help = "Example:\n  \
        handfast versions status --data /srv/handfast --database shop --collection items --root catalogue")]
    Status {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
    },
    /// List the versions, the newest first
    #[command(after_help = "Examples:\n  \
        handfast versions list --data /srv/handfast --database shop --collection items --root catalogue\n  \
        handfast versions list --writing --data /srv/handfast --database shop \\\n    --collection items --root catalogue")]
    List {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// List the versions that are being written instead, those of the longest silent writers first
        #[arg(long)]
        writing: bool,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Show the root document of a version
    #[command(after_help = "Example:\n  \
        handfast versions show 12 --data /srv/handfast --database shop --collection items --root catalogue")]
    Show {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Number of the version
        version: i64,
    },
    /// Show the differences between two versions
    #[command(after_help = "Example:\n  \
        handfast versions diff 11 12 --data /srv/handfast --database shop \\\n    --collection items --root catalogue")]
    Diff {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Number of the first version
        before: i64,
        /// Number of the second version
        after: i64,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Give up versions whose writers are silent, and remove nodes that belong to no version
    #[command(
        visible_alias = "recover",
        after_help = "Examples:\n  \
        handfast versions sweep --dry-run --data /srv/handfast --database shop \\\n    --collection items --root catalogue\n  \
        handfast versions sweep --lease 60s --pin-lease 10m --data /srv/handfast --database shop \\\n    --collection items --root catalogue"
    )]
    Sweep {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Show what the command would remove, without a change
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Remove old versions, except nodes that a kept version, a name or a reader still uses
    #[command(after_help = "Example:\n  handfast versions prune --keep-last 10 --keep-newer 30d --dry-run \\\n    \
        --data /srv/handfast --database shop --collection items --root catalogue")]
    Prune {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Number of the newest versions to keep
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        keep_last: u32,
        /// Keep versions that are newer than this, too
        #[arg(long, value_name = "AGE")]
        keep_newer: Option<Span>,
        /// Show what the command would remove, without a change
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove nodes that no version uses, because their insert arrived after the version was pruned
    #[command(after_help = "Example:\n  \
        handfast versions tidy --data /srv/handfast --database shop --collection items --root catalogue")]
    Tidy {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
    },
    /// Remove the records of versions that were given up or pruned, and of deleted items
    #[command(
        after_help = "These records protect against requests that arrive late: no request may be delayed for longer than AGE.\n\n\
        Example:\n  handfast versions forget --older 7d --data /srv/handfast --database shop \\\n    --collection items \
        --root catalogue"
    )]
    Forget {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Remove records that are older than this
        #[arg(long, value_name = "AGE")]
        older: Span,
    },
    /// Give a version a name, which keeps it from being pruned
    #[command(after_help = "Examples:\n  \
        handfast versions name spring 12 --data /srv/handfast --database shop \\\n    --collection items --root catalogue\n  \
        handfast versions name spring --remove --data /srv/handfast --database shop \\\n    --collection items --root catalogue")]
    Name {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Name; a name of another version moves to this one
        name: String,
        /// Number of the version
        #[arg(required_unless_present = "remove", conflicts_with = "remove")]
        version: Option<i64>,
        /// Remove the name
        #[arg(long)]
        remove: bool,
    },
    /// Check that each version was made from the previous one and is complete; exit code 3 if not
    #[command(after_help = "Examples:\n  \
        handfast versions verify --data /srv/handfast --database shop --collection items --root catalogue\n  \
        handfast versions verify --children children --data /srv/handfast --database shop \\\n    --collection items \
        --root catalogue")]
    Verify {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Field of a node with the item ids of its children, which must be in the same version [default: as recorded]
        #[arg(long, value_name = "FIELD")]
        children: Option<String>,
    },
    /// Write all nodes of a version as JSON Lines, the root first
    #[command(
        after_help = "Example:\n  handfast versions export 12 --data /srv/handfast --database shop \\\n    --collection items \
        --root catalogue > 12.jsonl"
    )]
    Export {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Number of the version [default: the newest]
        version: Option<i64>,
    },
}

/// The tree of a command.
#[derive(Args, Debug)]
pub(crate) struct VersionsFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// Collection of the nodes
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: String,
    /// Item id of the root
    #[arg(long, value_name = "ID")]
    pub(crate) root: Id,
    /// Collection in which writers announce themselves [default: as recorded, otherwise COLLECTION.writes]
    #[arg(long, value_name = "NAME")]
    pub(crate) writes: Option<String>,
    /// Collection of names, and of versions that readers hold [default: as recorded, otherwise COLLECTION.pins]
    #[arg(long, value_name = "NAME")]
    pub(crate) pins: Option<String>,
    /// Time that the application lets a writer be silent; `sweep` requires it [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) lease: Option<Span>,
    /// Time that the application lets a reader that holds a version be silent; `sweep` and `prune` require it
    #[arg(long, value_name = "TIME")]
    pub(crate) pin_lease: Option<Span>,
}

impl VersionsArguments {
    /// Returns the tree of a command.
    pub(crate) fn tree(&self) -> &VersionsFlags {
        match self {
            VersionsArguments::Status { tree }
            | VersionsArguments::List { tree, .. }
            | VersionsArguments::Show { tree, .. }
            | VersionsArguments::Diff { tree, .. }
            | VersionsArguments::Sweep { tree, .. }
            | VersionsArguments::Prune { tree, .. }
            | VersionsArguments::Tidy { tree }
            | VersionsArguments::Forget { tree, .. }
            | VersionsArguments::Name { tree, .. }
            | VersionsArguments::Verify { tree, .. }
            | VersionsArguments::Export { tree, .. } => tree,
        }
    }
}
