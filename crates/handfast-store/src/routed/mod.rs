//! One store of several: each collection is kept in one of them, and a rule says in which.
//!
//! ```text
//!                   ┌ * = main              -> main:   shop.items, handfast.oracle, ..
//! shop.orders ──────┤
//!                   └ shop.orders = orders  -> orders: shop.orders
//! ```
//!
//! It keeps the contract: an operation on one document is one operation of the part that the document is in, and its errors
//! are that part's. What it adds is that a transaction over it (`handfast-txn`, engine `Percolator`) has its documents in
//! several stores: a lock names its primary by collection and `_id`, and the rule finds it from there.
//!
//! | request | what becomes of it |
//! | --- | --- |
//! | on one collection | it goes to the collection's part as it is |
//! | an aggregation with stages that read or write other collections | each collection is asked where it is; the stages are carried out here |
//! | lists of collections and databases | those of all parts. What a part has that is another's by the rule is not seen |
//! | a database that is dropped | is dropped in one part after the other: not in one step |
//! | a collection that is renamed | within its part; to another one it is refused by name |
//! | a ticket | is refused: no part knows of a session's requests to the others. Transactions keep tickets themselves |
//!
//! The rule must stay the same for as long as there are documents, and all who use them must use them through it: a part on
//! its own shows locks whose primary it does not have. So the rule is [recorded](Routed::open) in the stores.

mod alone;
mod record;
mod routing;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{DocumentStore, Namespace, Result, Sources};

pub use alone::Alone;
pub use record::{RECORD_COLLECTION, RECORD_DATABASE, ensure_alone};
pub use routing::{KEPT_TOGETHER, Route, Routing, Scope, check_part_name};

/// A store that others are part of.
#[derive(Clone)]
pub struct Part {
    /// What routes call it.
    pub name: String,
    /// The store.
    pub store: Arc<dyn DocumentStore>,
}

impl Part {
    /// A store under a name.
    pub fn new(name: impl Into<String>, store: Arc<dyn DocumentStore>) -> Self {
        Part { name: name.into(), store }
    }
}

/// Several stores as one. Clones are the same store.
#[derive(Clone)]
pub struct Routed {
    shared: Arc<Shared>,
}

struct Shared {
    routing: Routing,
    /// As the routing names them.
    stores: Vec<Arc<dyn DocumentStore>>,
    sources: Sources,
}

impl std::fmt::Debug for Routed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routed").field("routing", &self.shared.routing).finish_non_exhaustive()
    }
}

impl Routed {
    /// Puts stores together, whatever is in them. For stores whose documents outlive the process: [`Routed::open`].
    ///
    /// # Errors
    /// Those of [`Routing::new`].
    pub fn new(parts: Vec<Part>, routes: &[Route], sources: Sources) -> Result<Self> {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let routing = Routing::new(&names, routes)?;
        let stores = parts.into_iter().map(|part| part.store).collect();
        Ok(Routed { shared: Arc::new(Shared { routing, stores, sources }) })
    }

    /// Puts stores together, and sees that they are the same ones, by the same rule, as the last time; the first time, that
    /// each collection that is there already is where the rule has it. What it found is recorded in all parts.
    ///
    /// # Errors
    /// Those of [`Routing::new`]; `IllegalOperation` (20) that says what is otherwise than the rule has it; those of the
    /// stores, all of which must be in reach.
    pub async fn open(parts: Vec<Part>, routes: &[Route], sources: Sources) -> Result<Self> {
        let routed = Routed::new(parts, routes, sources)?;
        record::check(&routed.shared).await?;
        Ok(routed)
    }

    /// The same for whoever only looks: nothing is recorded, and stores that were not put together before are refused.
    ///
    /// # Errors
    /// As [`Routed::open`].
    pub async fn open_recorded(parts: Vec<Part>, routes: &[Route], sources: Sources) -> Result<Self> {
        let routed = Routed::new(parts, routes, sources)?;
        record::check_recorded(&routed.shared).await?;
        Ok(routed)
    }

    /// The rule.
    pub fn routing(&self) -> &Routing {
        &self.shared.routing
    }

    /// The part that a collection is in.
    fn of(&self, namespace: &Namespace) -> &Arc<dyn DocumentStore> {
        self.shared.at(self.shared.routing.part(namespace))
    }
}

impl Shared {
    /// The store of a part. There are as many stores as parts.
    fn at(&self, part: usize) -> &Arc<dyn DocumentStore> {
        &self.stores[part]
    }

    /// Whether the rule has a collection, of this name in a part's list, in this part.
    fn is_here(&self, part: usize, database: &str, collection: &str) -> bool {
        match Namespace::new(database, collection) {
            Ok(namespace) => self.routing.part(&namespace) == part,
            // A server may have names of its own, which nobody can ask for here.
            Err(_) => self.routing.part_of_database(database) == part,
        }
    }
}
