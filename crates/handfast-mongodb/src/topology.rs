//! What the driver knows of each server, told as it changes.
//!
//! Source: MongoDB's specification "Server Discovery and Monitoring"; spec: resilience; seed 4.

use std::fmt;
use std::sync::Arc;

use mongodb::ServerType;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;

use crate::contact::Contact;

/// What a server is in its deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerRole {
    /// Of a replica set: it takes the writes.
    Primary,
    /// Of a replica set: it follows the primary.
    Secondary,
    /// Of a replica set: it votes, and has no documents.
    Arbiter,
    /// Of a replica set, but neither of these: hidden, starting, recovering, or removed.
    Other,
    /// A server by itself.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// What stands before routers and shares them out.
    LoadBalancer,
    /// It does not answer, or has not answered yet.
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
            // A kind that the driver may come to know is one of which nothing is known here.
            _ => ServerRole::Unknown,
        }
    }

    /// Whether writes can go there.
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

/// What is known of a server now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDescription {
    /// Where it is: `127.0.0.1:27017`.
    pub address: String,
    /// What it is.
    pub role: ServerRole,
    /// Why nothing is known of it, if that is so.
    pub error: Option<String>,
}

/// Is called with each description that is another than the server's last one, on a thread of the runtime: it must not wait.
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

/// What the driver calls: each change goes to the log, and to the observer.
pub(crate) fn handler(observer: Option<TopologyObserver>, contact: Arc<Contact>) -> EventHandler<SdamEvent> {
    EventHandler::callback(move |event| {
        let event = match event {
            SdamEvent::ServerDescriptionChanged(event) => event,
            SdamEvent::ServerOpening(event) => return contact.sought(&event.address.to_string()),
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
