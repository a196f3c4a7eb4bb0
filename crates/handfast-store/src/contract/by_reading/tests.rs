use std::sync::Arc;

use async_trait::async_trait;
use bson::rawdoc;
use handfast_mql::Code;

use super::check_by_reading;
use crate::decorator::{DelegatingStore, Fault, Faulty, Operation, Plan};
use crate::{
    BatchLimit, CollectionCheck, Cursor, DocumentStore, Error, ErrorClass, Find, Insert, MemoryStore, Namespace, Page,
    Result, Sources,
};

fn namespace() -> Namespace {
    Namespace::new("test", "t").unwrap()
}

async fn store_with_a_document() -> MemoryStore {
    let store = MemoryStore::new(Sources::seeded(1));
    store.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 1 }])).await.unwrap();
    store
}

#[tokio::test]
async fn a_lost_answer_is_no_damage() {
    let plan = Plan::always(Fault::LoseReply).only(|operation| operation == Operation::NextPage);
    let store = Faulty::new(Arc::new(store_with_a_document().await), plan);
    let error = check_by_reading(&store, &namespace()).await.expect_err("the page did not arrive");
    assert_eq!(error.class(), ErrorClass::TransientNetwork);
}

/// A store whose pages end with an error.
struct FailingPages {
    store: MemoryStore,
    code: Code,
}

struct FailingCursor(Code);

#[async_trait]
impl Cursor for FailingCursor {
    async fn next_page(&mut self, _: BatchLimit) -> Result<Page> {
        Err(Error::command(self.0, "no page"))
    }
}

#[async_trait]
impl DelegatingStore for FailingPages {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn find(&self, _: Find) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(FailingCursor(self.code)))
    }
}

async fn check(code: Code) -> Result<CollectionCheck> {
    let store = FailingPages { store: store_with_a_document().await, code };
    check_by_reading(&store, &namespace()).await
}

#[tokio::test]
async fn damage_is_reported_and_other_errors_are_returned() {
    for code in [Code::DataCorruptionDetected, Code::InternalError] {
        let check = check(code).await.expect("damage is a result");
        assert_eq!((check.documents_damaged, check.errors), (1, vec!["no page".to_owned()]));
    }
    for code in [Code::MaxTimeMSExpired, Code::Interrupted, Code::Unauthorized] {
        assert_eq!(check(code).await.expect_err("nothing is known of the documents").code(), code);
    }
}
