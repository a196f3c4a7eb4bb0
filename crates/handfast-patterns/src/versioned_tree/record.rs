//! The documents: a version (its root or its mark), a node, a write.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};

use super::{TreeFields, VersionState};
use crate::Result;
use crate::steps::Steps;
use crate::value::{date, integer, object_id, parsed};

/// A version as its root or its mark describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// Its number.
    pub version: i64,
    /// Its state.
    pub state: VersionState,
    /// The version that it was made from; 0 for the first one.
    pub base: i64,
    /// The time when it was written, by the writer's clock.
    pub ts: DateTime,
    /// The content of its root, without the fields of the pattern.
    pub root: Document,
    /// Whether numbers below it were abandoned.
    pub(super) gaps: bool,
    pub(super) mark: Option<ObjectId>,
}

impl Version {
    pub(super) fn read(steps: &Steps, mut document: Document, fields: &TreeFields) -> Result<Self> {
        let read = |document: &Document| -> Result<Self, Box<dyn std::error::Error>> {
            Ok(Version {
                version: integer(document, &fields.version)?,
                state: parsed(document, &fields.state)?,
                base: integer(document, &fields.base)?,
                ts: date(document, &fields.ts)?,
                root: Document::new(),
                gaps: document.get_bool(&fields.gaps).unwrap_or(false),
                mark: document.get_object_id(&fields.mark).ok(),
            })
        };
        let version = read(&document).map_err(|error| {
            let version = document.get(&fields.version).unwrap_or(&Bson::Null);
            steps.damaged(&document, format!("version {version}: {error}"))
        })?;
        for field in fields.of_roots() {
            document.remove(field);
        }
        Ok(Version { root: document, ..version })
    }
}

/// A node as a version of the tree has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its item id.
    pub item: Bson,
    /// The version that it was written in.
    pub version: i64,
    /// Its content, without the fields of the pattern.
    pub content: Document,
}

/// A node as it is stored, which may mark its item as deleted.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) node: Node,
    pub(super) deleted: bool,
}

impl Stored {
    pub(super) fn read(steps: &Steps, mut document: Document, fields: &TreeFields) -> Result<Self> {
        let version = integer(&document, &fields.version).map_err(|error| steps.damaged(&document, error))?;
        let item = document.get(&fields.item).cloned().unwrap_or(Bson::Null);
        let deleted = document.contains_key(&fields.deleted);
        for field in fields.of_nodes() {
            document.remove(field);
        }
        Ok(Stored { node: Node { item, version, content: document }, deleted })
    }
}

/// A write as its document describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteIntent {
    /// The number of the version.
    pub version: i64,
    /// The version that it is made from; 0 for the first one.
    pub base: i64,
    /// The time of its writer's last renewal, by the store's clock.
    pub ts: DateTime,
    pub(super) write: ObjectId,
}

impl WriteIntent {
    pub(super) fn read(steps: &Steps, document: &Document, fields: &TreeFields) -> Result<Self> {
        let read = || -> Result<Self, Box<dyn std::error::Error>> {
            Ok(WriteIntent {
                version: integer(document, &fields.version)?,
                base: integer(document, &fields.base)?,
                ts: date(document, &fields.ts)?,
                write: object_id(document, &fields.write)?,
            })
        };
        read().map_err(|error| steps.damaged(document, error))
    }
}
