//! Chance in the filter of a write decides once for each document, although a write evaluates a document in the search and again before
//! the change.

use bson::rawdoc;
use handfast_store::{Delete, DeleteStatement, DocumentStore, Insert, StoreExt, Update, UpdateSpec, UpdateStatement};

use crate::testing::{checked, namespace, open};

#[tokio::test]
async fn half_of_the_documents_are_half() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let documents = (0..2_000).map(|id| rawdoc! { "_id": id }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    // Twice with chance, they would be 500.
    let half = 850..=1_150;
    for filter in [rawdoc! { "$sampleRate": 0.5 }, rawdoc! { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } }] {
        let set = UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } });
        let many = UpdateStatement { multi: true, ..UpdateStatement::one(filter, set) };
        let updated = checked(&store).update(Update::new(namespace(), vec![many])).await.unwrap();
        assert!(half.contains(&updated.matched), "{}", updated.matched);
    }
    for number in 0..50 {
        let set = UpdateSpec::Document(rawdoc! { "$set": { "number": number } });
        let one = UpdateStatement::one(rawdoc! { "$sampleRate": 0.5 }, set);
        assert_eq!(store.update(Update::new(namespace(), vec![one])).await.unwrap().matched, 1, "of 2,000 documents");
    }
    let many = DeleteStatement { filter: rawdoc! { "$sampleRate": 0.5 }, multi: true, hint: None };
    let deleted = store.delete(Delete::new(namespace(), vec![many])).await.unwrap().deleted;
    assert!(half.contains(&deleted), "{deleted}");
    assert_eq!(store.count_matching(&namespace(), rawdoc! {}).await.unwrap(), 2_000 - deleted);
}
