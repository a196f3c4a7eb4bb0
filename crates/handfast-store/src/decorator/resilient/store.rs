//! The operations of the contract, with the way in which each is repeated.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf};

use super::cursor::{Opening, ResilientCursor};
use super::repeat::{self, Repeat};
use super::{Resilient, is_repeated_by_caller, network_failure};
use crate::contract::operations::operations;
use crate::decorator::Operation;
use crate::*;

impl<S: DocumentStore + ?Sized> Resilient<S> {
    async fn run_insert(&self, request: Insert) -> Result<InsertOutcome> {
        if request.ticket.is_some() || is_repeated_by_caller() {
            return self.always(Operation::Insert, || self.store.insert(request.clone())).await;
        }
        self.insert_twice(request).await
    }

    async fn run_update(&self, request: Update) -> Result<UpdateOutcome> {
        self.run(
            Operation::Update,
            || self.store.update(request.clone()),
            |outcome| network_failure(&outcome.errors),
            || self.repeat_effect(&request.namespace, |is_unique| repeat::of_update(&request, is_unique)),
            |outcome| outcome.matched > 0 || !outcome.upserted.is_empty(),
        )
        .await
    }

    async fn run_find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        self.run(
            Operation::FindAndModify,
            || self.store.find_and_modify(request.clone()),
            |_| None,
            || self.repeat_effect(&request.namespace, |is_unique| repeat::of_find_and_modify(&request, is_unique)),
            |outcome| outcome.matched || outcome.upserted.is_some(),
        )
        .await
    }

    async fn run_delete(&self, request: Delete) -> Result<DeleteOutcome> {
        self.run(
            Operation::Delete,
            || self.store.delete(request.clone()),
            |outcome| network_failure(&outcome.errors),
            || self.repeat_effect(&request.namespace, |is_unique| repeat::of_delete(&request, is_unique)),
            |outcome| outcome.deleted > 0,
        )
        .await
    }

    async fn run_aggregate(&self, request: Aggregate) -> Result<Box<dyn Cursor>> {
        if repeat::of_aggregate(&request) == Repeat::Never {
            return self.unless_applied(Operation::Aggregate, || self.store.aggregate(request.clone())).await;
        }
        self.open(Operation::Aggregate, Opening::Aggregate(request)).await
    }

    async fn open(&self, operation: Operation, opening: Opening) -> Result<Box<dyn Cursor>> {
        let cursor = self.always(operation, || opening.open(&*self.store)).await?;
        Ok(Box::new(ResilientCursor { store: Arc::clone(&self.store), opening, cursor, settled: false }))
    }
}

macro_rules! resilient_store {
    ($($variant:ident $method:ident($($argument:ident: $type:ty),*) -> $result:ty, $effect:ident;)*) => {
        #[async_trait]
        impl<S: DocumentStore + ?Sized> DocumentStore for Resilient<S> {
            fn name(&self) -> &'static str {
                self.store.name()
            }
            $(
                async fn $method(&self, $($argument: $type),*) -> Result<$result> {
                    run!($effect self, Operation::$variant, $method($($argument),*))
                }
            )*
        }
    };
}

/// Runs an operation: some have a method of their own, and the others are repeated by their effect.
macro_rules! run {
    ($effect:ident $store:expr, $operation:expr, insert($request:ident)) => {
        $store.run_insert($request).await
    };
    ($effect:ident $store:expr, $operation:expr, find($request:ident)) => {
        $store.open($operation, Opening::Find($request)).await
    };
    ($effect:ident $store:expr, $operation:expr, update($request:ident)) => {
        $store.run_update($request).await
    };
    ($effect:ident $store:expr, $operation:expr, find_and_modify($request:ident)) => {
        $store.run_find_and_modify($request).await
    };
    ($effect:ident $store:expr, $operation:expr, delete($request:ident)) => {
        $store.run_delete($request).await
    };
    ($effect:ident $store:expr, $operation:expr, aggregate($request:ident)) => {
        $store.run_aggregate($request).await
    };
    // A check sends many requests: each of them is repeated by itself.
    ($effect:ident $store:expr, $operation:expr, check_collection($namespace:ident)) => {
        check_by_reading($store, $namespace).await
    };
    (write $store:expr, $operation:expr, $method:ident($($argument:ident),*)) => {
        $store.unless_applied($operation, || $store.store.$method($(Clone::clone(&$argument)),*)).await
    };
    ($effect:ident $store:expr, $operation:expr, $method:ident($($argument:ident),*)) => {
        $store.always($operation, || $store.store.$method($(Clone::clone(&$argument)),*)).await
    };
}

operations!(resilient_store);
