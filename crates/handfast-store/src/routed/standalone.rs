//! A store that is used on its own, until it becomes part of a routed store.
//!
//! A process that opens one store checks that it is no part of a set ([`ensure_alone`](super::ensure_alone)). Another process may make it
//! part of a set later, while this one continues and would read and write documents where the routes of the others do not look. So
//! the process that forms a set writes the set's name into the oracle's document in the store of the rest, the only store of the set
//! that may have been used on its own before:
//!
//! ```text
//! { _id: "oracle", ts: .., at: .., catalog: .., set: "65f.." }
//! ```
//!
//! Every timestamp is read from that document, so a process that uses the store on its own sees the name with its next timestamp,
//! without a further request, and gets no more timestamps. The name is written before the records are looked for and again after they
//! are written, so that a process that creates the document in between, and then looks for a record, sees one of the two.

use std::sync::Arc;

use async_trait::async_trait;
use handfast_mql::Code;

use super::record::{self, ORACLE, SET};
use crate::decorator::DelegatingStore;
use crate::{DocumentStore, Error, FindAndModify, FindAndModifyOutcome, Modification, Result};

/// A store that is no part of a routed store. It returns no timestamps any more once it becomes one.
pub struct StandaloneStore {
    store: Arc<dyn DocumentStore>,
}

impl StandaloneStore {
    /// Opens a store on its own, unless it is part of a routed store ([`ensure_alone`](super::ensure_alone)).
    pub async fn open(store: Arc<dyn DocumentStore>) -> Result<Self> {
        record::ensure_alone(&*store).await?;
        Ok(StandaloneStore { store })
    }

    /// Checks that the store still stands alone.
    ///
    /// # Errors
    /// Returns `IllegalOperation` (20) if the store has become part of a routed store. The name of a set in the oracle's document is not
    /// enough: it stays when the records are deleted to use the store on its own again.
    async fn check(&self, outcome: &FindAndModifyOutcome, is_first: bool) -> Result<()> {
        let is_named = outcome.value.as_ref().is_some_and(|oracle| oracle.get_str(SET).is_ok());
        if (is_named || is_first) && record::is_taken(&*self.store).await? {
            let text = "this store was taken into several that are used together since this process opened it: stop the \
                        process, and open all of them with their routes";
            return Err(Error::command(Code::IllegalOperation, text));
        }
        Ok(())
    }
}

#[async_trait]
impl DelegatingStore for StandaloneStore {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    async fn find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        let is_oracle =
            request.namespace.database() == record::RECORD_DATABASE && request.namespace.collection() == ORACLE;
        let is_first = matches!(request.modification, Modification::Update { upsert: true, .. });
        let outcome = self.store.find_and_modify(request).await?;
        if is_oracle {
            self.check(&outcome, is_first).await?;
        }
        Ok(outcome)
    }
}
