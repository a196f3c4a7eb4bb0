//! What a request asks of the cluster: how far a write must have come before it is acknowledged, and what a read may see.
//!
//! | | standalone | replica set | sharded |
//! | --- | --- | --- | --- |
//! | [`Durability::Journaled`] | `j: true` | `w: "majority", j: true` | `w: "majority", j: true` |
//! | [`Durability::Memory`] | `w: 1` | `w: 1` | as journaled |
//! | a read | | `majority` | `majority` |
//!
//! What less than a majority has can be taken back by a failover: such a write is not durable, and a read that shows it
//! shows what may never have happened. Of the shards of a cluster nobody can ask afterwards whether all of them have
//! caught up, so that `Memory` is not to be had there.

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::Durability;

#[cfg(test)]
mod tests;

/// What kind of deployment answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// One server, on its own.
    Standalone,
    /// Servers that are copies of each other.
    ReplicaSet,
    /// A router in front of shards.
    Sharded,
}

impl Deployment {
    /// As the answer to `hello` tells.
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

/// Read and write concerns of all requests.
#[derive(Clone, Debug)]
pub(crate) struct Concerns {
    deployment: Deployment,
    /// How long a majority may take, in milliseconds: `wtimeoutMS` of the connection string.
    majority_timeout_ms: Option<i64>,
}

impl Concerns {
    pub(crate) fn new(deployment: Deployment, majority_timeout_ms: Option<i64>) -> Self {
        Concerns { deployment, majority_timeout_ms }
    }

    /// Whether a write of this durability has to be waited for by a flush.
    pub(crate) fn leaves_undone(&self, durability: Durability) -> bool {
        durability == Durability::Memory && self.deployment != Deployment::Sharded
    }

    /// The `writeConcern` of a write.
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

    /// The `readConcern` of a read, if it has one.
    pub(crate) fn read(&self) -> Option<RawDocumentBuf> {
        match self.deployment {
            Deployment::Standalone => None,
            Deployment::ReplicaSet | Deployment::Sharded => Some(rawdoc! { "level": "majority" }),
        }
    }
}
