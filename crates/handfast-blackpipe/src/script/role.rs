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
        match self {
            Role::Standalone => limits(true),
            Role::Mongos => {
                let mut hello = limits(true);
                append_sessions(&mut hello);
                hello.append(cstr!("msg"), "isdbgrid");
                hello
            }
            Role::Primary(set) => member_hello(set, [address], address, Some(address)),
            Role::Secondary(set) => member_hello(set, [address], address, None),
        }
    }
}

/// Returns the reply of a member of a replica set to a handshake.
pub(super) fn member_hello<'a>(
    set: &str,
    hosts: impl IntoIterator<Item = &'a str>,
    address: &str,
    primary: Option<&str>,
) -> RawDocumentBuf {
    let is_primary = primary == Some(address);
    let mut hello = limits(is_primary);
    append_sessions(&mut hello);
    hello.append(cstr!("setName"), set);
    hello.append(cstr!("setVersion"), 1);
    hello.append(cstr!("secondary"), !is_primary);
    hello.append(cstr!("hosts"), hosts.into_iter().collect::<bson::RawArrayBuf>());
    hello.append(cstr!("me"), address);
    if let Some(primary) = primary {
        hello.append(cstr!("primary"), primary);
    }
    hello
}

/// Returns what all servers tell of themselves.
fn limits(is_writable: bool) -> RawDocumentBuf {
    rawdoc! {
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
    }
}

/// Appends that the server has sessions.
fn append_sessions(hello: &mut RawDocumentBuf) {
    hello.append(cstr!("logicalSessionTimeoutMinutes"), 30);
}
