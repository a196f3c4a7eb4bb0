//! The operations of the contract with injected faults.

use std::borrow::Borrow;
use std::convert::identity;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use super::{BoxFuture, Faulty, Injector};
use crate::contract::operations::operations;
use crate::decorator::Operation;
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
                    let call = move |store: Arc<S>| -> BoxFuture<Result<$result>> {
                        $(let $argument = $argument.clone();)*
                        Box::pin(async move {
                            store.$method($($(Borrow::<$borrowed>::borrow(&$argument))? $(identity::<$owned>($argument))?),*).await
                        })
                    };
                    let result = self.run(Operation::$variant, call).await?;
                    Ok(wrapped!($method self, result))
                }
            )*
        }
    };
}

/// The result of an operation, with faults in the pages of a cursor.
macro_rules! wrapped {
    (find $store:expr, $cursor:expr) => {
        $store.wrap($cursor)
    };
    (aggregate $store:expr, $cursor:expr) => {
        $store.wrap($cursor)
    };
    ($method:ident $store:expr, $result:expr) => {
        $result
    };
}

operations!(faulty_store);

#[async_trait]
impl<S: AtomicStore + ?Sized> AtomicStore for Faulty<S> {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let call = |store: Arc<S>| -> BoxFuture<_> { Box::pin(async move { store.snapshot().await }) };
        let snapshot = self.run(Operation::Snapshot, call).await?;
        Ok(Box::new(FaultySnapshot { snapshot, injector: Arc::clone(&self.injector) }))
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        self.run(Operation::Commit, move |store: Arc<S>| {
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
        self.injector.read(Operation::SnapshotGet, self.snapshot.get(namespace, id)).await
    }

    async fn find(&self, request: Find) -> Result<Box<dyn Cursor>> {
        let cursor = self.injector.read(Operation::SnapshotFind, self.snapshot.find(request)).await?;
        Ok(Box::new(FaultyCursor { cursor, injector: Arc::clone(&self.injector) }))
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        self.snapshot.is_unchanged(namespace, id)
    }
}

pub(super) struct FaultyCursor {
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) injector: Arc<Injector>,
}

#[async_trait]
impl Cursor for FaultyCursor {
    async fn next_page(&mut self, limit: BatchLimit) -> Result<Page> {
        self.injector.read(Operation::NextPage, self.cursor.next_page(limit)).await
    }
}
