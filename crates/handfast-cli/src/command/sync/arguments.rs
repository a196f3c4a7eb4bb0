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
    /// Count what is not in sync at the moment, and say for how long
    #[command(after_help = "Example:\n  \
        handfast sync status --data /srv/handfast --database site --collection users")]
    Status {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// List main documents whose changes are not carried yet, the oldest first
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
        /// Its _id: a text, a number, an ObjectId, or Extended JSON
        id: Id,
    },
    /// Carry changes to their copies that were left behind
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
        after_help = "Exit code 3 if a copy differs and no flag says so. Copies that the application computes can be \
        compared if an aggregation expression says how: \"computed\" of a link.\n\n\
        Example:\n  handfast sync verify --data /srv/handfast --database site --collection users"
    )]
    Verify {
        #[command(flatten)]
        sync: Box<SyncFlags>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Put right what verify finds
    #[command(after_help = "Example:\n  handfast sync repair --data /srv/handfast --database site --collection users")]
    Repair {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// Give every main document a version and every copy its values: the first run over documents that are there
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

/// Which main documents, and where their copies are.
#[derive(Args, Debug)]
pub(crate) struct SyncFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// The collection of the main documents
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: String,
    /// Where copies are, if the application has not declared it, or to look at some of them:
    /// COLLECTION:KEY:FIELD=COPY,.. with the field KEY that holds the _id of the main document. Or as JSON:
    /// {"collection": .., "key": .., "fields": {"name": "userName"}, "computed": {"userInitial": EXPRESSION}, "onDelete": RULE,
    /// "version": .., "syncing": ..} with the RULE "unset", "remove", "keep", or {"set": {"userName": VALUE}}. A command that changes
    /// copies needs all links of the application, each with this flag and as declared
    #[arg(long = "link", value_name = "LINK")]
    pub(crate) links: Vec<LinkText>,
    /// How old a flag must be to be taken for left behind
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub(crate) abandoned_after: Span,
}

/// A link, as somebody writes it.
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
    /// None: as declared.
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
    /// What it is about.
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

    /// Whether it compares all copies with their main documents, or gives them all their values.
    pub(crate) fn judges_copies(&self) -> bool {
        match self {
            SyncArguments::Verify { .. } | SyncArguments::Repair { .. } | SyncArguments::Backfill { .. } => true,
            SyncArguments::Sweep { .. }
            | SyncArguments::Status { .. }
            | SyncArguments::List { .. }
            | SyncArguments::Show { .. } => false,
        }
    }

    /// Whether it writes to copies.
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
