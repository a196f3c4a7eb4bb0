//! The operations of the contract with injected faults.

use std::borrow::Borrow;
use std::convert::identity;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use super::{BoxFuture, Faulty, Injector};
use crate::contract::operations::operations;
use crate::decorator::Operation;
use crate::validation::Validator;
use crate::view::ResolvedView;
use crate::*;

macro_rules! faulty_store {
    ($(
        $variant:ident $method:ident($($argument:ident: $(&$borrowed:ident)? $($owned:ident)?),*) -> $result:ty, $effect:ident;
    )*) => {
        #[async_trait]
        impl<S: DocumentStore + ?Sized> DocumentStore for Faulty<S> {
            fn name(&self) -> &'static str {
                self.store.name()
            }
            $(
                async fn $method(&self, $($argument: $(&$borrowed)? $($owned)?),*) -> Result<$result> {
                    // The request owns its arguments, because it may be sent again, or after this call has returned.
                    $($(let $argument = <$borrowed as ToOwned>::to_owned($argument);)?)*
                    let collection = collection!($method $($argument)*);
                    let call = move |store: Arc<S>| -> BoxFuture<Result<$result>> {
                        $(let $argument = $argument.clone();)*
                        Box::pin(async move {
                            store.$method($($(Borrow::<$borrowed>::borrow(&$argument))? $(identity::<$owned>($argument))?),*).await
                        })
                    };
                    let result = self.run(Operation::$variant, collection.as_ref(), call).await?;
                    Ok(wrapped!($method self, collection, result))
                }
            )*
        }
    };
}

/// The collection of an operation on documents or indexes, by which an address names it. Other operations have none.
macro_rules! collection {
    (insert $request:ident) => {
        Some($request.namespace.clone())
    };
    (find $request:ident) => {
        Some($request.namespace.clone())
    };
    (update $request:ident) => {
        Some($request.namespace.clone())
    };
    (find_and_modify $request:ident) => {
        Some($request.namespace.clone())
    };
    (delete $request:ident) => {
        Some($request.namespace.clone())
    };
    (count $request:ident) => {
        Some($request.namespace.clone())
    };
    (distinct $request:ident) => {
        Some($request.namespace.clone())
    };
    (create_indexes $request:ident) => {
        Some($request.namespace.clone())
    };
    (drop_indexes $request:ident) => {
        Some($request.namespace.clone())
    };
    (list_indexes $namespace:ident) => {
        Some($namespace.clone())
    };
    ($method:ident $($argument:ident)*) => {
        None::<Namespace>
    };
}

/// The result of an operation, with faults in the pages of a cursor.
macro_rules! wrapped {
    (find $store:expr, $collection:expr, $cursor:expr) => {
        $store.wrap($cursor, $collection)
    };
    (aggregate $store:expr, $collection:expr, $cursor:expr) => {
        $store.wrap($cursor, $collection)
    };
    ($method:ident $store:expr, $collection:expr, $result:expr) => {
        $result
    };
}

operations!(faulty_store);

#[async_trait]
impl<S: AtomicStore + ?Sized> AtomicStore for Faulty<S> {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let call = |store: Arc<S>| -> BoxFuture<_> { Box::pin(async move { store.snapshot().await }) };
        let snapshot = self.run(Operation::Snapshot, None, call).await?;
        Ok(Box::new(FaultySnapshot { snapshot, injector: Arc::clone(&self.injector) }))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        self.run(Operation::Commit, None, move |store: Arc<S>| {
            let batch = batch.clone();
            Box::pin(async move { store.commit(batch).await })
        })
        .await
    }
}

struct FaultySnapshot {
    snapshot: Box<dyn Snapshot>,
    injector: Arc<Injector>,
}

#[async_trait]
impl Snapshot for FaultySnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        self.injector.read(Operation::SnapshotGet, Some(namespace), self.snapshot.get(namespace, id)).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let namespace = request.namespace.clone();
        let found = self.snapshot.find(request);
        let cursor = self.injector.read(Operation::SnapshotFind, Some(&namespace), found).await?;
        Ok(Box::new(FaultyCursor { cursor, namespace: Some(namespace), injector: Arc::clone(&self.injector) }))
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.snapshot.is_unchanged(namespace, id)
    }

    fn validator(&self, namespace: &Namespace) -> Option<Arc<Validator>> {
        self.snapshot.validator(namespace)
    }

    fn default_collation(&self, namespace: &Namespace) -> Option<RawDocumentBuf> {
        self.snapshot.default_collation(namespace)
    }

    fn view(&self, namespace: &Namespace) -> Result<Option<ResolvedView>> {
        self.snapshot.view(namespace)
    }
}

pub(super) struct FaultyCursor {
    pub(super) cursor: Box<dyn Cursor>,
    /// The collection that it reads, if an address names its pages by one.
    pub(super) namespace: Option<Namespace>,
    pub(super) injector: Arc<Injector>,
}

#[async_trait]
impl Cursor for FaultyCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.injector.read(Operation::NextPage, self.namespace.as_ref(), self.cursor.next_page(limit)).await
    }

    fn depends_on_catalog(&self) -> bool {
        self.cursor.depends_on_catalog()
    }
}
