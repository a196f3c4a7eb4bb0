//! An `Arc` of a store is a store, so that decorators can wrap an `Arc<dyn DocumentStore>`.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use super::operations::operations;
use super::{AtomicStore, Cursor, DocumentStore, Snapshot};
use crate::*;

macro_rules! forward_to_shared_store {
    ($($variant:ident $method:ident($($argument:ident: $type:ty),*) -> $result:ty, $effect:ident;)*) => {
        #[async_trait]
        impl<S: DocumentStore + ?Sized> DocumentStore for Arc<S> {
            fn name(&self) -> &'static str {
                (**self).name()
            }
            $(
                async fn $method(&self, $($argument: $type),*) -> Result<$result> {
                    (**self).$method($($argument),*).await
                }
            )*
        }
    };
}

operations!(forward_to_shared_store);

#[async_trait]
impl<S: AtomicStore + ?Sized> AtomicStore for Arc<S> {
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        (**self).snapshot().await
    }

    async fn commit(&self, batch: AtomicBatch) -> Result<CommitTimestamp> {
        (**self).commit(batch).await
    }
}
