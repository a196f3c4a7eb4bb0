//! Several stores as one: a rule says which of them keeps each collection.
//!
//! ```text
//!                   ┌ * = main              -> main:   shop.items, handfast.oracle, ..
//! shop.orders ──────┤
//!                   └ shop.orders = orders  -> orders: shop.orders
//! ```
//!
//! It keeps the contract: an operation on one document is one operation of the part that has the document, with its errors.
//! A transaction over it (`handfast-txn`, engine `Percolator`) may have documents in several stores: a lock names its primary by
//! collection and `_id`, and the rule finds the store of both.
//!
//! | request | effect |
//! | --- | --- |
//! | on one collection | is sent to the collection's part unchanged |
//! | aggregation with stages that read or write other collections | the stages run here, and each collection is read from its part |
//! | lists of collections and databases | join the lists of all parts, without collections that the rule has in another part |
//! | drop of a database | drops it in one part after the other, not in one step |
//! | rename of a collection | works within a part, and is refused between two parts |
//! | with a ticket | is refused: no part knows a session's requests to the others. Transactions keep tickets themselves |
//!
//! The rule must not change while there are documents, and every process must use the stores through it: a part on
//! its own shows locks whose primary it does not have. So the rule is [recorded](Routed::open) in the stores.

mod record;
mod routing;
mod standalone;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{DocumentStore, Namespace, Result, Sources};

pub use record::{RECORD_COLLECTION, RECORD_DATABASE, ensure_alone};
pub use routing::{KEPT_TOGETHER, Route, Routing, Scope, check_part_name};
pub use standalone::StandaloneStore;

/// A store among those of a routed store.
#[derive(Clone)]
pub struct Part {
    /// The name in routes.
    pub name: String,
    /// The store.
    pub store: Arc<dyn DocumentStore>,
}

impl Part {
    /// Creates a part.
    pub fn new(name: impl Into<String>, store: Arc<dyn DocumentStore>) -> Self {
        Part { name: name.into(), store }
    }
}

/// Several stores as one. Clones share the same stores.
#[derive(Clone)]
pub struct Routed {
    shared: Arc<Shared>,
}

struct Shared {
    routing: Routing,
    /// The stores, in the order of the routing's names.
    stores: Vec<Arc<dyn DocumentStore>>,
    sources: Sources,
}

impl std::fmt::Debug for Routed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routed").field("routing", &self.shared.routing).finish_non_exhaustive()
    }
}

impl Routed {
    /// Joins stores without looking at their content. Use [`Routed::open`] for stores whose documents outlive the process.
    pub fn new(parts: Vec<Part>, routes: &[Route], sources: Sources) -> Result<Self> {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let routing = Routing::new(&names, routes)?;
        let stores = parts.into_iter().map(|part| part.store).collect();
        Ok(Routed { shared: Arc::new(Shared { routing, stores, sources }) })
    }

    /// Joins stores after checking that they are the same stores with the same rule as the last time, or, the first time, that
    /// every existing collection is where the rule has it. The rule is recorded in all parts.
    ///
    /// # Errors
    /// Returns the errors of [`Routing::new`]; `IllegalOperation` (20), which names the difference; the errors of the stores, all of
    /// which must be reachable.
    pub async fn open(parts: Vec<Part>, routes: &[Route], sources: Sources) -> Result<Self> {
        let routed = Routed::new(parts, routes, sources)?;
        record::check(&routed.shared).await?;
        Ok(routed)
    }

    /// Joins stores as [`Routed::open`] does, but records nothing, and refuses stores that were not joined before.
    pub async fn open_recorded(parts: Vec<Part>, routes: &[Route], sources: Sources) -> Result<Self> {
        let routed = Routed::new(parts, routes, sources)?;
        record::check_recorded(&routed.shared).await?;
        Ok(routed)
    }

    /// Returns the rule.
    pub fn routing(&self) -> &Routing {
        &self.shared.routing
    }

    /// Returns the store of a collection.
    fn of(&self, namespace: &Namespace) -> &Arc<dyn DocumentStore> {
        self.shared.at(self.shared.routing.part(namespace))
    }
}

impl Shared {
    fn at(&self, part: usize) -> &Arc<dyn DocumentStore> {
        &self.stores[part]
    }

    /// Returns whether the rule has a listed collection in this part.
    fn is_here(&self, part: usize, database: &str, collection: &str) -> bool {
        match Namespace::new(database, collection) {
            Ok(namespace) => self.routing.part(&namespace) == part,
            // A server may have collections with names that are not valid here.
            Err(_) => self.routing.part_of_database(database) == part,
        }
    }
}
