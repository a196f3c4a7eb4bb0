//! The store for servers that evaluate requests as MongoDB does: it sends them unchanged.

mod contract;
mod write;

use std::sync::Arc;

use handfast_store::Sources;

pub(crate) use self::write::refuse_ticket;
use crate::remote::Remote;
use crate::server::Server;

/// A store that sends every request to the server. It refuses requests that need a missing capability.
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
