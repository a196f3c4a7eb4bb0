//! Exactly-once updates of the documents of a collection.

use std::sync::Arc;

use handfast_patterns::ExactlyOnce;
use handfast_patterns::exactly_once::Memory;
use handfast_store::{DocumentStore, Namespace};

use super::{Kept, OpenPatterns, Pattern, store_of};
use crate::error::CommandResult;
use crate::state::Shared;

impl Pattern for ExactlyOnce {
    async fn open(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        Ok(ExactlyOnce::open_with(store_of(shared), namespace, shared.sources.clone(), Memory::default()).await?)
    }

    fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        self.within(store)
    }

    fn kept(patterns: &OpenPatterns) -> &Kept<Self> {
        &patterns.once
    }
}
