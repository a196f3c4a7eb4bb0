//! A store that is used on its own, until it is taken into several.
//!
//! Whoever opens one store looks whether it is one of several ([`ensure_alone`](super::ensure_alone)). Another process may take it into a set later, while
//! this one goes on: then it would look for documents, and write them, where the routes of the others do not look. So whoever takes
//! a store into a set leaves the set's name in the oracle's document of the store of the rest, the only one of the set that may have
//! been used on its own before:
//!
//! ```text
//! { _id: "oracle", ts: .., at: .., catalog: .., set: "65f.." }
//! ```
//!
//! Every timestamp comes with that document, so a process that uses the store on its own learns of it with the next timestamp, without
//! a further request, and gets no timestamp any more. Where the name is left before the records are looked for and again after they are
//! written, a process that makes the document in between, and then looks for a record, misses neither.

use std::sync::Arc;

use async_trait::async_trait;
use handfast_mql::Code;

use super::record::{self, ORACLE, SET};
use crate::decorator::DelegatingStore;
use crate::{DocumentStore, Error, FindAndModify, FindAndModifyOutcome, Modification, Result};

/// A store that is no part of several, and gives no timestamps from when it is.
pub struct Alone {
    store: Arc<dyn DocumentStore>,
}

impl Alone {
    /// Opens a store on its own.
    ///
    /// # Errors
    /// Those of [`ensure_alone`](super::ensure_alone).
    pub async fn open(store: Arc<dyn DocumentStore>) -> Result<Self> {
        record::ensure_alone(&*store).await?;
        Ok(Alone { store })
    }

    /// # Errors
    /// `IllegalOperation` (20) if the store was taken into a set. A name in the oracle's document alone does not say so: it stays when the
    /// records are deleted to use the store on its own again.
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
impl DelegatingStore for Alone {
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
