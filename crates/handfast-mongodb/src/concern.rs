//! Read and write concerns: when a write is acknowledged, and which documents a read may see.
//!
//! | | standalone | replica set | sharded |
//! | --- | --- | --- | --- |
//! | [`Durability::Journaled`] | `j: true` | `w: "majority", j: true` | `w: "majority", j: true` |
//! | [`Durability::Memory`] | `w: 1` | `w: 1` | as journaled |
//! | a read | | `majority` | `majority` |
//!
//! A failover can roll back a write that less than a majority has: such a write is not durable, and a read must not show it.
//! A sharded cluster cannot be asked later whether all its shards have caught up, so it treats `Memory` as `Journaled`.

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::Durability;

#[cfg(test)]
mod tests;

/// The kind of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// A single server.
    Standalone,
    /// Servers that replicate the same documents.
    ReplicaSet,
    /// A router in front of shards.
    Sharded,
}

impl Deployment {
    /// Reads the kind from an answer to `hello`.
    pub(crate) fn of_hello(hello: &RawDocument) -> Self {
        if hello.get_str("msg").is_ok_and(|kind| kind == "isdbgrid") {
            Deployment::Sharded
        } else if hello.get_str("setName").is_ok() {
            Deployment::ReplicaSet
        } else {
            Deployment::Standalone
        }
    }
}

/// The read and write concerns of all requests.
#[derive(Clone, Debug)]
pub(crate) struct Concerns {
    deployment: Deployment,
    /// The time limit of a majority in milliseconds: `wtimeoutMS` of the connection string.
    majority_timeout_ms: Option<i64>,
}

impl Concerns {
    pub(crate) fn new(deployment: Deployment, majority_timeout_ms: Option<i64>) -> Self {
        Concerns { deployment, majority_timeout_ms }
    }

    /// Returns whether a flush has to wait for a write of this durability.
    pub(crate) fn leaves_undone(&self, durability: Durability) -> bool {
        durability == Durability::Memory && self.deployment != Deployment::Sharded
    }

    /// Returns the `writeConcern` of a write.
    pub(crate) fn write(&self, durability: Durability) -> RawDocumentBuf {
        let weak = self.leaves_undone(durability);
        let mut concern = match self.deployment {
            _ if weak => return rawdoc! { "w": 1 },
            Deployment::Standalone => return rawdoc! { "w": 1, "j": true },
            Deployment::ReplicaSet | Deployment::Sharded => rawdoc! { "w": "majority", "j": true },
        };
        if let Some(timeout) = self.majority_timeout_ms {
            concern.append(cstr!("wtimeout"), timeout);
        }
        concern
    }

    /// Returns the `readConcern` of a read.
    pub(crate) fn read(&self) -> Option<RawDocumentBuf> {
        match self.deployment {
            Deployment::Standalone => None,
            Deployment::ReplicaSet | Deployment::Sharded => Some(rawdoc! { "level": "majority" }),
        }
    }
}
