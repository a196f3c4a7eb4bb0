//! A store whose cursors do not read one moment: each document is read with its page, as on a server without snapshots. The
//! store records the finds that it gets, and runs a callback before each page.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bson::{RawBson, rawdoc};
use handfast_store::decorator::DelegatingStore;
use handfast_store::*;

/// The most documents of a page: few, so that the callback runs often during a query.
const PAGE_DOCUMENTS_MAX: usize = 7;

type Happening = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

pub(crate) struct Loose {
    store: Arc<dyn DocumentStore>,
    before_page: Happening,
    finds: Mutex<Vec<Find>>,
    /// Selects the indexes that the store refuses to create.
    refused: fn(&IndexSpec) -> bool,
}

impl Loose {
    pub(crate) fn new<R>(store: Arc<dyn DocumentStore>, before_page: impl Fn() -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        Loose {
            store,
            before_page: Arc::new(move || Box::pin(before_page())),
            finds: Mutex::default(),
            refused: |_| false,
        }
    }

    /// Returns a store that refuses to create these indexes.
    pub(crate) fn refusing(store: Arc<dyn DocumentStore>, refused: fn(&IndexSpec) -> bool) -> Self {
        Loose { refused, ..Loose::new(store, || async {}) }
    }

    /// Returns the finds since the last call.
    pub(crate) fn take_finds(&self) -> Vec<Find> {
        std::mem::take(&mut *self.finds.lock().unwrap())
    }
}

struct LooseCursor {
    store: Arc<dyn DocumentStore>,
    before_page: Happening,
    find: Find,
    ids: VecDeque<RawBson>,
}

#[async_trait]
impl Cursor for LooseCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        (self.before_page)().await;
        let mut documents = Vec::new();
        while documents.len() < limit.documents.min(PAGE_DOCUMENTS_MAX)
            && let Some(id) = self.ids.pop_front()
        {
            let filter = rawdoc! { "$and": [{ "_id": { "$eq": id } }, self.find.filter.clone()] };
            documents.extend(self.store.find_all(Find { filter, ..self.find.clone() }).await?);
        }
        Ok(Page { documents, exhausted: self.ids.is_empty() })
    }
}

#[async_trait]
impl DelegatingStore for Loose {
    type Inner = dyn DocumentStore;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    fn name(&self) -> &'static str {
        "loose"
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        self.finds.lock().unwrap().push(request.clone());
        let found = self.store.find_all(request.clone()).await?;
        let ids = found.iter().map(|found| insertion::id(found).map(RawBson::from)).collect::<Result<_>>()?;
        let (store, before_page) = (Arc::clone(&self.store), Arc::clone(&self.before_page));
        Ok(Box::new(LooseCursor { store, before_page, find: request, ids }))
    }

    async fn create_indexes(&self, request: CreateIndexes) -> Result<IndexCounts> {
        if request.indexes.iter().any(self.refused) {
            return Err(Error::command(handfast_mql::Code::CommandNotSupported, "no such indexes"));
        }
        self.store.create_indexes(request).await
    }
}
