//! A server that judges requests as MongoDB does: they are sent as they are.

mod contract;
mod write;

use std::sync::Arc;

use handfast_store::Sources;

pub(crate) use self::write::refuse_ticket;
use crate::remote::Remote;
use crate::server::Server;

/// A store that sends every request. What the server lacks is refused before.
#[derive(Clone)]
pub(crate) struct DirectStore {
    remote: Arc<Remote>,
    server: Arc<Server>,
    sources: Sources,
}

impl DirectStore {
    pub(crate) fn new(remote: Arc<Remote>, server: Arc<Server>, sources: Sources) -> Self {
        DirectStore { remote, server, sources }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}
