//! `handfast sync`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

/// What to do with main documents whose fields are copied into others.
#[derive(Debug, Subcommand)]
pub(crate) enum SyncArguments {
    /// Count what is not in sync at the moment, and say for how long
    #[command(after_help = "Example:\n  \
        handfast sync status --data /srv/handfast --database site --collection users --link comments:user:name=userName")]
    Status {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// List main documents whose changes are not carried yet, the oldest first
    #[command(after_help = "Example:\n  \
        handfast sync list --data /srv/handfast --database site --collection users --link comments:user:name=userName")]
    List {
        #[command(flatten)]
        sync: Box<SyncFlags>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Show a main document with all its fields
    #[command(after_help = "Example:\n  \
        handfast sync show ann --data /srv/handfast --database site --collection users --link comments:user:name=userName")]
    Show {
        #[command(flatten)]
        sync: Box<SyncFlags>,
        /// Its _id: a text, a number, an ObjectId, or Extended JSON
        id: Id,
    },
    /// Carry changes to their copies that were left behind
    #[command(
        visible_alias = "recover",
        after_help = "Example:\n  handfast sync sweep --abandoned-after 5m --data /srv/handfast --database site \
        --collection users \\\n    --link comments:user:name=userName"
    )]
    Sweep {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// Compare every copy with its main document
    #[command(
        after_help = "Exit code 3 if a copy differs and no flag says so. Copies that the application computes cannot be \
        compared.\n\n\
        Example:\n  handfast sync verify --data /srv/handfast --database site --collection users \\\n    \
        --link comments:user:name=userName"
    )]
    Verify {
        #[command(flatten)]
        sync: Box<SyncFlags>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Put right what verify finds
    #[command(
        after_help = "Example:\n  handfast sync repair --data /srv/handfast --database site --collection users \\\n    \
        --link comments:user:name=userName"
    )]
    Repair {
        #[command(flatten)]
        sync: Box<SyncFlags>,
    },
    /// Give every main document a version and every copy its values: the first run over documents that are there
    #[command(
        visible_alias = "rebuild",
        after_help = "Example:\n  handfast sync backfill --data /srv/handfast --database site --collection users \\\n    \
        --link comments:user:name=userName"
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
    /// Where copies are: COLLECTION:KEY:FIELD=COPY,.. with the field KEY that holds the _id of the main document. Or as JSON:
    /// {"collection": .., "key": .., "fields": {"name": "userName"}, "onDelete": "unset", "version": .., "syncing": ..}.
    /// All links of the application, each with this flag
    #[arg(long = "link", value_name = "LINK", required = true)]
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
    pub(crate) fields: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) on_delete: LinkOnDelete,
    pub(crate) version: Option<String>,
    pub(crate) syncing: Option<String>,
}

/// What becomes of copies when their main document is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LinkOnDelete {
    #[default]
    Unset,
    Remove,
    Keep,
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
        Ok(LinkText { collection, key, fields, on_delete: LinkOnDelete::default(), version: None, syncing: None })
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
}
