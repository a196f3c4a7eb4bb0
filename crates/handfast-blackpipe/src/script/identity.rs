//! A scripted server presents itself to drivers as a server of a role, or as a member of a scripted replica set.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocumentBuf};
use tokio::sync::watch;

use super::replica_set::SetState;
use super::{ReceivedRequest, Role, routing};

/// The shortest wait between the replies of a stream: a fifth of the shortest heartbeat that drivers may have.
const AWAIT_MIN: Duration = Duration::from_millis(100);

/// The way in which a scripted server presents itself to drivers.
pub(super) enum Identity {
    /// A server alone, with its address.
    Single { role: Role, address: String },
    /// A member of a replica set.
    Member { index: usize, set: Arc<watch::Sender<SetState>> },
}

/// The state of a member that a client knows.
pub(super) struct KnownVersion {
    process: ObjectId,
    counter: i64,
}

impl Identity {
    /// Returns the reply to a handshake.
    pub(super) fn hello(&self) -> RawDocumentBuf {
        match self {
            Identity::Single { role, address } => role.hello(address),
            Identity::Member { index, set } => set.borrow().hello(*index),
        }
    }

    /// Returns how long a client waits for a change, and the state that it knows, if its handshake monitors a member.
    pub(super) fn awaited(&self, request: &ReceivedRequest) -> Option<(Duration, KnownVersion)> {
        let Identity::Member { .. } = self else { return None };
        let wait = match request.get("maxAwaitTimeMS")? {
            RawBsonRef::Int32(millis) => u64::try_from(millis).ok()?,
            RawBsonRef::Int64(millis) => u64::try_from(millis).ok()?,
            _ => return None,
        };
        let process = request.get("topologyVersion.processId")?.as_object_id()?;
        let counter = request.get("topologyVersion.counter")?.as_i64()?;
        Some((Duration::from_millis(wait).max(AWAIT_MIN), KnownVersion { process, counter }))
    }

    /// Returns the reply to a handshake that waits: as soon as the client does not know the state, or after the time. The client knows the state then.
    pub(super) async fn changed_hello(&self, known: &mut KnownVersion, wait: Duration) -> RawDocumentBuf {
        let Identity::Member { index, set } = self else { return self.hello() };
        let mut changes = set.subscribe();
        let changed = changes.wait_for(|state| !state.is_known(*index, known.process, known.counter));
        // The sender is there as long as the server: it ends with the time or with a change.
        let _changed_or_not = tokio::time::timeout(wait, changed).await.map(drop);
        let state = set.borrow();
        let version = state.topology_version(*index);
        if let (Ok(process), Ok(counter)) = (version.get_object_id("processId"), version.get_i64("counter")) {
            *known = KnownVersion { process, counter };
        }
        state.hello(*index)
    }

    /// Returns a request with the member that has received it.
    pub(super) fn received(&self, request: ReceivedRequest) -> ReceivedRequest {
        match self {
            Identity::Single { .. } => request,
            Identity::Member { index, set } => {
                let is_executed = set.borrow().primary() == Some(*index) || !routing::needs_primary(&request);
                request.at(*index, is_executed)
            }
        }
    }

    /// Makes another member the primary, or none. A server alone stays what it is.
    pub(super) fn set_primary(&self, primary: Option<usize>) {
        if let Identity::Member { set, .. } = self {
            set.send_modify(|state| state.set_primary(primary));
        }
    }

    /// Returns the `topologyVersion` of a member.
    pub(super) fn topology_version(&self) -> Option<RawDocumentBuf> {
        match self {
            Identity::Single { .. } => None,
            Identity::Member { index, set } => Some(set.borrow().topology_version(*index)),
        }
    }
}
