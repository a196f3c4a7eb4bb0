//! The arguments of `handfast versions`.

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags};
use crate::id::Id;
use clap::{Args, Subcommand};

/// The commands on a tree of documents that changes as a whole.
#[derive(Debug, Subcommand)]
pub(crate) enum VersionsArguments {
    /// Count versions, writers and what was left behind
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
        /// Those that are being written instead, the longest silent first
        #[arg(long)]
        writing: bool,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Show what stands in the place of a version's root
    #[command(after_help = "Example:\n  \
        handfast versions show 12 --data /srv/handfast --database shop --collection items --root catalogue")]
    Show {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Its number
        version: i64,
    },
    /// Show what is different between two versions
    #[command(after_help = "Example:\n  \
        handfast versions diff 11 12 --data /srv/handfast --database shop \\\n    --collection items --root catalogue")]
    Diff {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// The number of the first one
        before: i64,
        /// The number of the second one
        after: i64,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Give up versions whose writers are silent, and remove nodes that are in no version
    #[command(
        visible_alias = "recover",
        after_help = "Examples:\n  \
        handfast versions sweep --dry-run --data /srv/handfast --database shop \\\n    --collection items --root catalogue\n  \
        handfast versions sweep --lease 60s --pin-lease 10m --data /srv/handfast --database shop \\\n    --collection items --root catalogue"
    )]
    Sweep {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Show what would be removed, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Remove old versions, without what a kept one, a name or a reader still uses
    #[command(after_help = "Example:\n  handfast versions prune --keep-last 10 --keep-newer 30d --dry-run \\\n    \
        --data /srv/handfast --database shop --collection items --root catalogue")]
    Prune {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// Keep so many of the newest ones
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        keep_last: u32,
        /// Keep those that are newer than this, too
        #[arg(long, value_name = "AGE")]
        keep_newer: Option<Span>,
        /// Show what would be removed, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove nodes that no version uses any more: those of inserts that arrived after their version was pruned
    #[command(after_help = "Example:\n  \
        handfast versions tidy --data /srv/handfast --database shop --collection items --root catalogue")]
    Tidy {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
    },
    /// Forget numbers of versions that were given up or pruned, and items that were deleted
    #[command(
        after_help = "What is forgotten keeps requests from doing harm that arrive late: nothing of that age may be under way.\n\n\
        Example:\n  handfast versions forget --older 7d --data /srv/handfast --database shop \\\n    --collection items \
        --root catalogue"
    )]
    Forget {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// What is older than this
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
        /// The name; one that another version has moves
        name: String,
        /// The number of the version
        #[arg(required_unless_present = "remove", conflicts_with = "remove")]
        version: Option<i64>,
        /// Take the name away
        #[arg(long)]
        remove: bool,
    },
    /// Look at all versions: that each was made from the one before it, and is whole; exit code 3 if not
    #[command(after_help = "Examples:\n  \
        handfast versions verify --data /srv/handfast --database shop --collection items --root catalogue\n  \
        handfast versions verify --children children --data /srv/handfast --database shop \\\n    --collection items \
        --root catalogue")]
    Verify {
        #[command(flatten)]
        tree: Box<VersionsFlags>,
        /// The field in which nodes have the item ids of their children: each must be in the same version [default: as recorded]
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
        /// Its number [default: the newest]
        version: Option<i64>,
    },
}

/// Which tree.
#[derive(Args, Debug)]
pub(crate) struct VersionsFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// The collection of the nodes
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: String,
    /// The item id of the root
    #[arg(long, value_name = "ID")]
    pub(crate) root: Id,
    /// The collection in which writers announce themselves [default: as recorded, else that of the nodes with .writes]
    #[arg(long, value_name = "NAME")]
    pub(crate) writes: Option<String>,
    /// The collection of names, and of versions that readers hold [default: as recorded, else that of the nodes with .pins]
    #[arg(long, value_name = "NAME")]
    pub(crate) pins: Option<String>,
    /// How long the application lets a writer be silent; a sweep must be told, elsewhere it is 60s unless said
    #[arg(long, value_name = "TIME")]
    pub(crate) lease: Option<Span>,
    /// How long the application lets a reader that holds a version be silent; a sweep and a prune must be told
    #[arg(long, value_name = "TIME")]
    pub(crate) pin_lease: Option<Span>,
}

impl VersionsArguments {
    /// Which tree it is about.
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
