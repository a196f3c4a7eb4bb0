//! The description of a server: its product, deployment and capabilities.

use bson::RawDocument;
use bson::raw::cstr;
use handfast_store::Result;

use crate::capability::Capabilities;
use crate::command::Command;
use crate::concern::Deployment;
use crate::remote::{Remote, ReplyWait};
use crate::reply;

#[cfg(test)]
mod tests;

/// The number of statements in one command, if a server does not announce it.
const STATEMENTS_MAX: usize = 100_000;
/// The product name of this project's server.
const HANDFAST: &str = "Handfast";

/// The server or servers of a store.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address without user and password: `mongodb://127.0.0.1:27017`.
    pub address: String,
    /// The product and its version: `MongoDB 8.0.4`, `FerretDB v1.24.2`.
    pub product: String,
    /// The kind of its deployment.
    pub deployment: Deployment,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Whether it is a Handfast in front of another server.
    pub is_front: bool,
}

/// The answer to `hello`.
pub(crate) struct Hello {
    pub(crate) deployment: Deployment,
    pub(crate) statements_max: usize,
}

impl Hello {
    pub(crate) fn of(hello: &RawDocument) -> Self {
        let statements = reply::count(hello, "maxWriteBatchSize").and_then(|count| usize::try_from(count).ok());
        Hello { deployment: Deployment::of_hello(hello), statements_max: statements.unwrap_or(STATEMENTS_MAX) }
    }
}

/// The answer to `buildInfo`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) name: String,
    pub(crate) is_ferretdb_1: bool,
}

impl Server {
    /// Returns whether the server is a Handfast, which has transactions of its own.
    pub fn is_handfast(&self) -> bool {
        Product::is_handfast(&self.product)
    }
}

impl Product {
    pub(crate) fn is_handfast(name: &str) -> bool {
        name.strip_prefix(HANDFAST).is_some_and(|version| version.starts_with(' '))
    }

    /// Asks the server for its product and version.
    ///
    /// # Errors
    /// Returns a network error if the server cannot be reached or does not answer.
    pub(crate) async fn ask(remote: &Remote) -> Result<Self> {
        let reply = remote.read("admin", Command::new(cstr!("buildInfo"), 1), ReplyWait::Limited).await?;
        Ok(Product::of(&reply))
    }

    fn of(build: &RawDocument) -> Self {
        let of = |document: &RawDocument, field: &str| document.get_str(field).map(str::to_owned).ok();
        let inner = |field: &str| build.get_document(field).ok().and_then(|own| of(own, "version"));
        let is_ferretdb_1 = of(build, "ferretdbVersion").is_some();
        let named = [
            ("FerretDB 1, version", of(build, "ferretdbVersion")),
            ("FerretDB", inner("ferretdb")),
            (HANDFAST, inner("handfast")),
            ("MongoDB", of(build, "version")),
        ];
        let found = named.into_iter().find_map(|(name, version)| Some(format!("{name} {}", version?)));
        Product { name: found.unwrap_or_else(|| "a server without a version".to_owned()), is_ferretdb_1 }
    }
}
