//! The roles that a scripted server can play, as its handshakes tell them.

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};

/// The wire version of MongoDB 7.0, which the drivers of today support.
const WIRE_VERSION: i32 = 21;

/// The kind of server that a scripted server is to drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A server alone. Drivers send it no retryable writes and no transactions.
    Standalone,
    /// The only member of a replica set, with the name of the set.
    Primary(String),
    /// A member of a replica set whose primary is not known, with the name of the set.
    Secondary(String),
    /// A router of a sharded cluster.
    Mongos,
}

impl Role {
    /// Returns the reply to a handshake. It has no `topologyVersion`, so that drivers ask for the state from time to time and do not wait for changes.
    pub(super) fn hello(&self, address: &str) -> RawDocumentBuf {
        let is_writable = !matches!(self, Role::Secondary(_));
        let mut hello = rawdoc! {
            "ok": 1.0,
            "helloOk": true,
            "ismaster": is_writable,
            "isWritablePrimary": is_writable,
            "maxBsonObjectSize": 16 * 1024 * 1024,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "minWireVersion": 0,
            "maxWireVersion": WIRE_VERSION,
            "readOnly": false,
        };
        if *self != Role::Standalone {
            hello.append(cstr!("logicalSessionTimeoutMinutes"), 30);
        }
        match self {
            Role::Standalone => {}
            Role::Mongos => hello.append(cstr!("msg"), "isdbgrid"),
            Role::Primary(set) | Role::Secondary(set) => {
                hello.append(cstr!("setName"), set.as_str());
                hello.append(cstr!("setVersion"), 1);
                hello.append(cstr!("secondary"), !is_writable);
                hello.append(cstr!("hosts"), bson::rawbson!([address]));
                hello.append(cstr!("me"), address);
                if is_writable {
                    hello.append(cstr!("primary"), address);
                }
            }
        }
        hello
    }
}
