//! A store that changes some operations of another one, and leaves the others as they are.

use std::future::Future;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use super::Operation;
use crate::contract::operations::operations;
use crate::*;

macro_rules! delegating_store {
    ($($variant:ident $method:ident($($argument:ident: $type:ty),*) -> $result:ty, $effect:ident;)*) => {
        /// A store that delegates each operation that it does not implement itself to an inner store. Every such type is a
        /// [`DocumentStore`], whose methods it has.
        #[async_trait]
        #[allow(missing_docs, reason = "the methods of `DocumentStore`")]
        pub trait DelegatingStore: Send + Sync + 'static {
            /// The type of the inner store.
            type Inner: DocumentStore + ?Sized;

            /// Returns the inner store.
            fn inner(&self) -> &Self::Inner;

            fn name(&self) -> &'static str {
                self.inner().name()
            }

            /// Runs an operation that is delegated; `call` is the operation of the inner store. A decorator that does the
            /// same thing around every operation implements this method.
            fn run<T: Send>(
                &self,
                _operation: Operation,
                call: impl Future<Output = Result<T>> + Send,
            ) -> impl Future<Output = Result<T>> + Send {
                call
            }
            $(
                async fn $method(&self, $($argument: $type),*) -> Result<$result> {
                    self.run(Operation::$variant, self.inner().$method($($argument),*)).await
                }
            )*
        }

        #[async_trait]
        impl<T: DelegatingStore> DocumentStore for T {
            fn name(&self) -> &'static str {
                DelegatingStore::name(self)
            }
            $(
                async fn $method(&self, $($argument: $type),*) -> Result<$result> {
                    DelegatingStore::$method(self, $($argument),*).await
                }
            )*
        }
    };
}

operations!(delegating_store);
