//! Typed collections: the stored documents of values.
#![allow(clippy::unwrap_used)]

use handfast::Code;
use handfast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct City {
    #[serde(rename = "_id")]
    name: String,
    people: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mayor: Option<String>,
}

fn city(name: &str, people: i64, mayor: Option<&str>) -> City {
    City { name: name.to_owned(), people, mayor: mayor.map(str::to_owned) }
}

#[tokio::test]
async fn a_replaced_document_is_the_new_one_and_nothing_of_the_old() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path().join("data")).await.unwrap();
    let cities = database.collection::<City>("atlas", "cities").unwrap();
    let (delft, aarhus) = (city("Delft", 106_000, Some("Ida")), city("Aarhus", 290_000, None));
    cities.insert_one(&delft).await.unwrap();
    cities.insert_one(&aarhus).await.unwrap();
    // A field that the new value lacks is removed.
    let later = city("Delft", 107_000, None);
    assert!(cities.replace_one(rawdoc! { "mayor": "Ida" }, &later).await.unwrap());
    assert_eq!(cities.find_one(rawdoc! { "_id": "Delft" }).await.unwrap(), Some(later.clone()));
    let namespace = Namespace::new("atlas", "cities").unwrap();
    let stored = database.find_one(&namespace, rawdoc! { "_id": "Delft" }).await.unwrap();
    assert_eq!(stored, Some(rawdoc! { "_id": "Delft", "people": 107_000_i64 }));
    // No document matches: nothing is written or inserted.
    assert!(!cities.replace_one(rawdoc! { "mayor": "Ida" }, &city("Ribe", 8_000, None)).await.unwrap());
    assert_eq!(cities.count(rawdoc! {}).await.unwrap(), 2);
    // A replacement with an equal value matches.
    assert!(cities.replace_one(rawdoc! { "_id": "Delft" }, &later).await.unwrap());
    // Of several matching documents one is replaced; a document keeps its `_id`.
    let error = cities.replace_one(rawdoc! { "_id": "Delft" }, &city("Ribe", 8_000, None)).await.unwrap_err();
    assert_eq!(error.code(), Code(66), "{error}");
    assert_eq!(cities.find_one(rawdoc! { "_id": "Delft" }).await.unwrap(), Some(later));
    assert_eq!(cities.find_one(rawdoc! { "_id": "Aarhus" }).await.unwrap(), Some(aarhus));
}

#[tokio::test]
async fn a_replacement_in_a_transaction_is_there_when_that_commits() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path().join("data")).await.unwrap();
    let cities = database.collection::<City>("atlas", "cities").unwrap();
    cities.insert_one(&city("Delft", 1, None)).await.unwrap();
    let tx = database.begin().await.unwrap();
    let within = tx.collection::<City>("atlas", "cities").unwrap();
    assert!(within.replace_one(rawdoc! { "people": 1_i64 }, &city("Delft", 2, None)).await.unwrap());
    assert_eq!(cities.find_one(rawdoc! {}).await.unwrap().map(|city| city.people), Some(1));
    tx.commit().await.unwrap();
    assert_eq!(cities.find_one(rawdoc! {}).await.unwrap().map(|city| city.people), Some(2));
}
