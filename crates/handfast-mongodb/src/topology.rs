//! Reports changes in the driver's view of each server.
//!
//! Source: MongoDB's specification "Server Discovery and Monitoring"; spec: resilience; seed 4.

use std::fmt;
use std::sync::Arc;

use mongodb::ServerType;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;

use crate::contact::Contact;

/// The role of a server in its deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerRole {
    /// The primary of a replica set, which takes the writes.
    Primary,
    /// A secondary of a replica set, which replicates the primary.
    Secondary,
    /// An arbiter of a replica set, which votes and has no documents.
    Arbiter,
    /// Another member of a replica set: hidden, starting, recovering or removed.
    Other,
    /// A server without a replica set.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// A load balancer in front of routers.
    LoadBalancer,
    /// A server that does not answer, or has not answered yet.
    Unknown,
}

impl ServerRole {
    fn of(kind: ServerType) -> Self {
        match kind {
            ServerType::RsPrimary => ServerRole::Primary,
            ServerType::RsSecondary => ServerRole::Secondary,
            ServerType::RsArbiter => ServerRole::Arbiter,
            ServerType::RsOther | ServerType::RsGhost => ServerRole::Other,
            ServerType::Standalone => ServerRole::Standalone,
            ServerType::Mongos => ServerRole::Mongos,
            ServerType::LoadBalancer => ServerRole::LoadBalancer,
            // A later version of the driver may have further kinds.
            _ => ServerRole::Unknown,
        }
    }

    /// Returns whether the server takes writes.
    pub fn takes_writes(self) -> bool {
        use ServerRole as R;
        matches!(self, R::Primary | R::Standalone | R::Mongos | R::LoadBalancer)
    }
}

impl fmt::Display for ServerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerRole::Primary => "primary",
            ServerRole::Secondary => "secondary",
            ServerRole::Arbiter => "arbiter",
            ServerRole::Other => "other",
            ServerRole::Standalone => "standalone",
            ServerRole::Mongos => "mongos",
            ServerRole::LoadBalancer => "load balancer",
            ServerRole::Unknown => "unknown",
        })
    }
}

/// The current state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDescription {
    /// Its address: `127.0.0.1:27017`.
    pub address: String,
    /// Its role.
    pub role: ServerRole,
    /// The error by which nothing is known of the server, if there is one.
    pub error: Option<String>,
}

/// A function that is called with each description of a server that differs from its last one. It runs on a thread of the runtime and
/// must not block.
#[derive(Clone)]
pub struct TopologyObserver(Arc<dyn Fn(&ServerDescription) + Send + Sync>);

impl TopologyObserver {
    /// Calls a function.
    pub fn new(observe: impl Fn(&ServerDescription) + Send + Sync + 'static) -> Self {
        TopologyObserver(Arc::new(observe))
    }
}

impl fmt::Debug for TopologyObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TopologyObserver")
    }
}

/// Returns the handler that the driver calls. It logs each change and passes it to the observer.
pub(crate) fn handler(observer: Option<TopologyObserver>, contact: Arc<Contact>) -> EventHandler<SdamEvent> {
    EventHandler::callback(move |event| {
        let event = match event {
            SdamEvent::ServerDescriptionChanged(event) => event,
            SdamEvent::ServerOpening(event) => return contact.opened(&event.address.to_string()),
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                return contact.answered(&event.server_address.to_string(), &event.reply);
            }
            SdamEvent::ServerClosed(event) => return contact.dropped(&event.address.to_string()),
            _ => return,
        };
        let before = description(&event.previous_description);
        let now = description(&event.new_description);
        if before == now {
            return;
        }
        match (event.new_description.error(), &now.error) {
            (Some(cause), Some(error)) if contact.lost(&now.address, cause) => {
                tracing::debug!(server = now.address, error, "a server cannot be reached");
            }
            (_, Some(error)) => {
                tracing::warn!(server = now.address, role = %now.role, error, "a server is out of reach");
            }
            (_, None) => {
                if now.role != ServerRole::Unknown {
                    contact.found(&now.address);
                }
                tracing::debug!(server = now.address, role = %now.role, "a server has been found");
            }
        }
        if let Some(TopologyObserver(observe)) = &observer {
            observe(&now);
        }
    })
}

fn description(server: &mongodb::ServerInfo<'_>) -> ServerDescription {
    ServerDescription {
        address: server.address().to_string(),
        role: ServerRole::of(server.server_type()),
        error: server.error().map(|error| error.kind.to_string()),
    }
}
