//! The arguments of `handfast sync`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags};
use crate::id::Id;
use clap::{Args, Subcommand};
use std::str::FromStr;

/// The commands on main documents whose fields are copied into others.
#[derive(Debug, Subcommand)]
pub(crate) enum SyncArguments {
    /// Count main documents whose copies are not up to date, and report since when
    #[command(after_help = "Example:\n  \
        handfast sync status --data /srv/handfast --database site --collection users")]
    Status {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// List main documents whose copies are not up to date, the oldest first
    #[command(after_help = "Example:\n  \
        handfast sync list --data /srv/handfast --database site --collection users")]
    List {
        #[command(flatten)]
        sync: Box<SyncFlags>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Show a main document with all its fields
    #[command(after_help = "Example:\n  \
        handfast sync show ann --data /srv/handfast --database site --collection users")]
    Show {
        #[command(flatten)]
        sync: Box<SyncFlags>,
        /// _id of the main document: a text, a number, an ObjectId, or Extended JSON
        id: Id,
    },
    /// Update the copies that an interrupted process has left out of date
    #[command(
        visible_alias = "recover",
        after_help = "Example:\n  handfast sync sweep --abandoned-after 5m --data /srv/handfast --database site \\\n    \
        --collection users"
    )]
    Sweep {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// Compare every copy with its main document
    #[command(
        after_help = "Exit code 3 if a copy differs and no flag says so. Computed copies are compared only if \"computed\" of \
        their link has their aggregation expression.\n\n\
        Example:\n  handfast sync verify --data /srv/handfast --database site --collection users"
    )]
    Verify {
        #[command(flatten)]
        sync: Box<SyncFlags>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Repair the copies that `sync verify` reports
    #[command(after_help = "Example:\n  handfast sync repair --data /srv/handfast --database site --collection users")]
    Repair {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// Give every main document a version and every copy its values, once, when existing documents start to use the pattern
    #[command(
        visible_alias = "rebuild",
        after_help = "Example:\n  handfast sync backfill --data /srv/handfast --database site --collection users \\\n    \
        --link '{\"collection\":\"comments\",\"key\":\"user\",\"fields\":{\"name\":\"userName\"},\"onDelete\":\"unset\"}'"
    )]
    Backfill {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
}

/// The main documents and the copies of a command.
#[derive(Args, Debug)]
pub(crate) struct SyncFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// Collection of the main documents
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: String,
    /// Collection of copies, as COLLECTION:KEY:FIELD=COPY,.. (KEY is the field that holds the _id of the main document), or as
    /// JSON (see --help); may be repeated [default: the links that the application has declared]
    ///
    /// The JSON form is {"collection": .., "key": .., "fields": {"name": "userName"}, "computed": {"userInitial": EXPRESSION},
    /// "onDelete": RULE, "version": .., "syncing": ..}. RULE is "unset", "remove", "keep" or {"set": {"userName": VALUE}}. A command
    /// that only reads may get some of the links. A command that changes copies needs all links of the application, as declared.
    #[arg(long = "link", value_name = "LINK")]
    pub(crate) links: Vec<LinkText>,
    /// Age from which a flag counts as left by an interrupted process
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub(crate) abandoned_after: Span,
}

/// The value of `--link`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LinkText {
    pub(crate) collection: String,
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) fields: BTreeMap<String, String>,
    /// Fields of a copy that are computed, with their aggregation expressions.
    #[serde(default)]
    pub(crate) computed: BTreeMap<String, serde_json::Value>,
    /// The declared rule applies without one.
    pub(crate) on_delete: Option<LinkOnDelete>,
    pub(crate) version: Option<String>,
    pub(crate) syncing: Option<String>,
}

/// The effect of the deletion of a main document on its copies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LinkOnDelete {
    Unset,
    Remove,
    Keep,
    /// Values by the fields of a copy, as Extended JSON.
    Set(BTreeMap<String, serde_json::Value>),
}

impl FromStr for LinkText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('{') {
            return serde_json::from_str(text).map_err(|error| error.to_string());
        }
        let wrong = || format!("a link such as comments:user:name=userName is expected, not '{text}'");
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().filter(|part| !part.is_empty()).ok_or_else(wrong);
        let (collection, key, copies) = (part()?.to_owned(), part()?.to_owned(), part()?);
        let copy = |copy: &str| match copy.split_once('=') {
            Some((main, copy)) if !main.is_empty() && !copy.is_empty() => Ok((main.to_owned(), copy.to_owned())),
            _ => Err(wrong()),
        };
        let fields = copies.split(',').map(copy).collect::<Result<_, _>>()?;
        let computed = BTreeMap::new();
        Ok(LinkText { collection, key, fields, computed, on_delete: None, version: None, syncing: None })
    }
}

impl SyncArguments {
    /// Returns the main documents and copies of a command.
    pub(crate) fn sync(&self) -> &SyncFlags {
        match self {
            SyncArguments::Status { sync }
            | SyncArguments::List { sync, .. }
            | SyncArguments::Show { sync, .. }
            | SyncArguments::Sweep { sync }
            | SyncArguments::Verify { sync, .. }
            | SyncArguments::Repair { sync }
            | SyncArguments::Backfill { sync } => sync,
        }
    }

    /// Returns whether a command compares all copies with their main documents, or gives them all their values.
    pub(crate) fn judges_copies(&self) -> bool {
        match self {
            SyncArguments::Verify { .. } | SyncArguments::Repair { .. } | SyncArguments::Backfill { .. } => true,
            SyncArguments::Sweep { .. }
            | SyncArguments::Status { .. }
            | SyncArguments::List { .. }
            | SyncArguments::Show { .. } => false,
        }
    }

    /// Returns whether a command writes to copies.
    pub(crate) fn changes(&self) -> bool {
        match self {
            SyncArguments::Sweep { .. } | SyncArguments::Repair { .. } | SyncArguments::Backfill { .. } => true,
            SyncArguments::Status { .. }
            | SyncArguments::List { .. }
            | SyncArguments::Show { .. }
            | SyncArguments::Verify { .. } => false,
        }
    }
}
