//! Typed collections: the stored documents of values.
#![allow(clippy::unwrap_used)]

use futures_util::TryStreamExt as _;
use handfast::prelude::*;
use handfast::{Applied, Code, Hint, InsertManyError};
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

/// A database with four cities.
async fn atlas(directory: &tempfile::TempDir) -> (Database, Collection<City>) {
    let database = Database::open(directory.path().join("data")).await.unwrap();
    let cities = database.collection::<City>("atlas", "cities").unwrap();
    let all = [
        city("Delft", 106_000, Some("Ida")),
        city("Aarhus", 290_000, None),
        city("Ribe", 8_000, None),
        city("ribe", 9, None),
    ];
    cities.insert_many(&all).await.unwrap();
    (database, cities)
}

fn names(cities: &[City]) -> Vec<&str> {
    cities.iter().map(|city| &*city.name).collect()
}

#[derive(Debug, PartialEq, Deserialize)]
struct Name {
    #[serde(rename = "_id")]
    name: String,
}

#[tokio::test]
async fn a_find_takes_its_options_before_it_is_awaited() {
    let directory = tempfile::tempdir().unwrap();
    let (_database, cities) = atlas(&directory).await;
    let find = cities.find(doc! { "people": { "$gt": 10 } }).sort(doc! { "people": -1 }).skip(1).limit(2);
    assert_eq!(names(&find.await.unwrap().all().await.unwrap()), ["Delft", "Ribe"]);
    assert_eq!(cities.find(doc! {}).limit(0).await.unwrap().all().await.unwrap().len(), 4, "no limit, as in MongoDB");
    let german = doc! { "locale": "de", "strength": 2 };
    let same = cities.find(doc! { "_id": "RIBE" }).collation(&german).sort(doc! { "people": 1 });
    assert_eq!(names(&same.await.unwrap().all().await.unwrap()), ["ribe", "Ribe"]);
    assert_eq!(cities.count_documents(doc! { "_id": "RIBE" }).collation(&german).await.unwrap(), 2);
    assert_eq!(cities.count_documents(doc! {}).skip(1).limit(2).await.unwrap(), 2);
    let least = doc! { "$expr": { "$gte": ["$people", "$$least"] } };
    let large = cities.find_one(&least).let_vars(doc! { "least": { "$add": [200_000, 1] } }).await.unwrap();
    assert_eq!(large.map(|city| city.name).as_deref(), Some("Aarhus"));
    let by_people = IndexSpec::new(rawdoc! { "people": 1 });
    cities.create_index(by_people).await.unwrap();
    let hinted = cities.find(doc! {}).hint(Hint::Key(rawdoc! { "people": 1 })).limit(1).await.unwrap();
    assert_eq!(names(&hinted.all().await.unwrap()), ["ribe"]);
    let name = cities.find_one(doc! { "people": 9_i64 }).projection(doc! { "_id": 1 }).with_type::<Name>();
    assert_eq!(name.await.unwrap(), Some(Name { name: "ribe".to_owned() }));
    let largest = cities.find_one(doc! {}).sort(doc! { "people": -1 }).await.unwrap();
    assert_eq!(largest.map(|city| city.name).as_deref(), Some("Aarhus"));
    let letters = cities.distinct("mayor", doc! {}).await.unwrap();
    assert_eq!(letters, [handfast::bson::Bson::from("Ida")]);
}

#[tokio::test]
async fn a_document_that_cannot_be_written_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (_database, cities) = atlas(&directory).await;
    let wrong = || doc! { "a\0b": 1 };
    for error in [
        cities.delete_many(wrong()).await.unwrap_err(),
        cities.update_many(doc! {}, wrong()).await.unwrap_err(),
        cities.find_one(doc! {}).sort(wrong()).await.unwrap_err(),
        cities.aggregate([wrong()]).await.err().unwrap(),
        cities.find_one_and_delete(wrong()).await.unwrap_err(),
        cities.find_one_and_update(doc! {}, wrong()).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::BadValue, "{error}");
    }
    assert_eq!(cities.count_documents(doc! {}).await.unwrap(), 4);
}

#[tokio::test]
async fn an_update_replaces_no_document_and_a_replacement_is_no_update() {
    let directory = tempfile::tempdir().unwrap();
    let (_database, cities) = atlas(&directory).await;
    let delft = || doc! { "_id": "Delft" };
    for change in [doc! { "people": 1_i64 }, doc! {}] {
        let error = cities.update_one(delft(), &change).await.unwrap_err();
        assert!(error.code() == Code::BadValue && error.message().contains("replace_one"), "{error}");
        assert_eq!(cities.find_one_and_update(delft(), &change).await.unwrap_err().code(), Code::BadValue);
    }
    let untyped = cities.with_type::<handfast::bson::Document>();
    let operator = doc! { "$set": { "people": 1_i64 } };
    assert_eq!(untyped.replace_one(delft(), &operator).await.unwrap_err().code(), Code::BadValue);
    assert_eq!(untyped.find_one_and_replace(delft(), &operator).await.unwrap_err().code(), Code::BadValue);
    assert_eq!(cities.find_one(delft()).await.unwrap(), Some(city("Delft", 106_000, Some("Ida"))));
}

#[tokio::test]
async fn an_error_after_a_part_of_the_writes_says_that_they_may_have_been_made() {
    let directory = tempfile::tempdir().unwrap();
    let (_database, cities) = atlas(&directory).await;
    let twice = [city("Oslo", 1, None), city("Oslo", 2, None)];
    let error = handfast::StoreError::from(cities.insert_many(&twice).await.unwrap_err());
    assert_eq!((error.code(), error.applied()), (Code::DuplicateKey, Applied::Maybe));
    let error = handfast::StoreError::from(cities.insert_many(&twice[..1]).await.unwrap_err());
    assert_eq!(error.applied(), Applied::No);
    let untyped = cities.with_type::<handfast::bson::Document>();
    untyped.insert_one(&doc! { "_id": "zz", "people": "none" }).await.unwrap();
    let error = cities.update_many(doc! {}, doc! { "$inc": { "people": 1_i64 } }).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Maybe, "{error}");
}

#[tokio::test]
async fn documents_are_a_stream_that_keeps_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let (_database, cities) = atlas(&directory).await;
    let many: Vec<City> = (0..2_500).map(|number| city(&format!("city{number:04}"), number, None)).collect();
    cities.insert_many(&many).await.unwrap();
    let filter = doc! { "_id": { "$regex": "^city" } };
    let mut documents = cities.find(&filter).sort(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(documents.next().await.unwrap().map(|city| city.people), Some(0));
    // A reader that is dropped while it waits for a page loses nothing.
    let mut found = vec![0];
    loop {
        let next = tokio::select! {
            biased;
            next = documents.next() => next,
            () = std::future::ready(()) => continue,
        };
        let Some(city) = next.unwrap() else { break };
        found.push(city.people);
    }
    assert_eq!(found, (0..2_500).collect::<Vec<i64>>());
    let all: Vec<City> = cities.find(&filter).sort(doc! { "_id": 1 }).await.unwrap().try_collect().await.unwrap();
    assert_eq!(all, many);
    // A document of another type is an error, and the next ones follow.
    let mut mixed = cities.with_type::<Name>().find(&filter).limit(2).await.unwrap();
    assert!(mixed.next().await.is_ok());
    let odd = cities.with_type::<handfast::bson::Document>();
    odd.insert_one(&doc! { "_id": "zero", "people": "none" }).await.unwrap();
    odd.insert_one(&doc! { "_id": "zurich", "people": 400_000_i64 }).await.unwrap();
    let mut mixed = cities.find(doc! { "_id": { "$gte": "z" } }).sort(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(mixed.next().await.unwrap_err().code(), Code::TypeMismatch);
    assert_eq!(mixed.next().await.unwrap().map(|city| city.name).as_deref(), Some("zurich"));
    assert_eq!(mixed.next().await.unwrap(), None);
}

#[tokio::test]
async fn an_aggregation_returns_values_of_a_type() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Total {
        people: i64,
    }
    let directory = tempfile::tempdir().unwrap();
    let (database, cities) = atlas(&directory).await;
    let pipeline = [doc! { "$group": { "_id": null, "people": { "$sum": "$people" } } }];
    let totals = cities.aggregate(&pipeline).with_type::<Total>().await.unwrap().all().await.unwrap();
    assert_eq!(totals, [Total { people: 404_009 }]);
    let tx = database.begin().await.unwrap();
    let within = tx.collection::<City>("atlas", "cities").unwrap();
    within.delete_many(doc! { "people": { "$lt": 10_000 } }).await.unwrap();
    let total = within.aggregate(pipeline).await.unwrap().all().await.unwrap();
    assert_eq!(total, [doc! { "_id": null, "people": 396_000_i64 }]);
    tx.abort();
}

#[tokio::test]
async fn an_update_takes_operators_or_a_pipeline() {
    let directory = tempfile::tempdir().unwrap();
    let (_database, cities) = atlas(&directory).await;
    let people = async |name: &str| cities.find_one(doc! { "_id": name }).await.unwrap().map(|city| city.people);
    let outcome = cities.update_one(doc! { "_id": "Oslo" }, doc! { "$set": { "people": 1_i64 } }).await.unwrap();
    assert_eq!((outcome.matched, people("Oslo").await), (0, None));
    let outcome = cities.update_one(doc! { "_id": "Oslo" }, doc! { "$set": { "people": 1_i64 } }).upsert(true);
    assert_eq!(outcome.await.unwrap().upserted, [(0, "Oslo".to_owned().into())]);
    let doubled = [doc! { "$set": { "people": { "$multiply": ["$people", "$$by"] } } }];
    let outcome = cities.update_many(doc! {}, doubled).let_vars(doc! { "by": 2_i64 }).await.unwrap();
    assert_eq!((outcome.modified, people("Oslo").await, people("ribe").await), (5, Some(2), Some(18)));
    let swedish = doc! { "locale": "sv", "strength": 2 };
    let outcome = cities.update_many(doc! { "_id": "RIBE" }, doc! { "$inc": { "people": 1_i64 } }).collation(&swedish);
    assert_eq!((outcome.await.unwrap().modified, people("ribe").await), (2, Some(19)));
    let boxes = cities.with_type::<handfast::bson::Document>();
    boxes.insert_one(&doc! { "_id": "box", "items": [1, 5, 9] }).await.unwrap();
    let change = doc! { "$set": { "items.$[large]": 4 } };
    let changed = boxes.update_one(doc! { "_id": "box" }, change).array_filters([doc! { "large": { "$gt": 4 } }]);
    assert_eq!(changed.await.unwrap().modified, 1);
    assert_eq!(boxes.find_one(doc! { "_id": "box" }).await.unwrap(), Some(doc! { "_id": "box", "items": [1, 4, 4] }));
    assert_eq!(cities.delete_many(doc! { "_id": "RIBE" }).collation(&swedish).await.unwrap(), 2);
    assert_eq!(cities.delete_one(doc! { "_id": "nowhere" }).await.unwrap(), 0);
}

#[tokio::test]
async fn a_changed_document_is_returned_as_it_was_before_or_after() {
    let directory = tempfile::tempdir().unwrap();
    let (_database, cities) = atlas(&directory).await;
    let more = doc! { "$inc": { "people": 1_i64 } };
    let before = cities.find_one_and_update(doc! {}, &more).sort(doc! { "people": -1 }).await.unwrap().unwrap();
    assert_eq!((&*before.name, before.people), ("Aarhus", 290_000));
    let after = cities.find_one_and_update(doc! { "_id": "Aarhus" }, more).return_document(ReturnDocument::After);
    assert_eq!(after.await.unwrap().map(|city| city.people), Some(290_002));
    let replaced = cities.find_one_and_replace(doc! { "_id": "Oslo" }, &city("Oslo", 7, None)).upsert(true);
    assert_eq!(replaced.await.unwrap(), None, "there was none before");
    let replaced = cities.find_one_and_replace(doc! { "_id": "Oslo" }, &city("Oslo", 8, None));
    assert_eq!(replaced.await.unwrap().map(|city| city.people), Some(7));
    let deleted = cities.find_one_and_delete(doc! { "_id": "Oslo" }).projection(doc! { "_id": 1 }).with_type::<Name>();
    assert_eq!(deleted.await.unwrap(), Some(Name { name: "Oslo".to_owned() }));
    assert_eq!(cities.find_one_and_delete(doc! { "_id": "Oslo" }).await.unwrap(), None);
}

#[tokio::test]
async fn an_insert_of_many_says_which_documents_were_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (database, cities) = atlas(&directory).await;
    let new = [city("Oslo", 1, None), city("Delft", 2, None), city("Bergen", 3, None), city("Ribe", 4, None)];
    let error = cities.insert_many(&new).await.unwrap_err();
    let InsertManyError::Documents { inserted, first, refused } = &error else { panic!("{error}") };
    assert_eq!((*inserted, first.index, first.error.code(), refused.len()), (1, 1, Code::DuplicateKey, 0));
    cities.delete_one(doc! { "_id": "Oslo" }).await.unwrap();
    let error = cities.insert_many(&new).ordered(false).await.unwrap_err();
    let InsertManyError::Documents { inserted, first, refused } = &error else { panic!("{error}") };
    assert_eq!((*inserted, first.index, refused.len(), refused[0].index), (2, 1, 1, 3));
    assert!(
        error.to_string().starts_with("2 documents were inserted, and 2 refused, the first one at index 1: "),
        "{error}"
    );
    // In a transaction none of them is left.
    let refused = database
        .transaction(|tx| async move {
            let cities = tx.collection::<City>("atlas", "cities")?;
            cities.insert_many(&[city("Turku", 1, None), city("Delft", 2, None)]).await?;
            Ok::<_, Error>(())
        })
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::DuplicateKey);
    assert_eq!(cities.count_documents(doc! { "_id": "Turku" }).await.unwrap(), 0);
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
    assert_eq!(cities.replace_one(rawdoc! { "mayor": "Ida" }, &later).await.unwrap().modified, 1);
    assert_eq!(cities.find_one(rawdoc! { "_id": "Delft" }).await.unwrap(), Some(later.clone()));
    let namespace = Namespace::new("atlas", "cities").unwrap();
    let stored = database.find_one(&namespace, rawdoc! { "_id": "Delft" }).await.unwrap();
    assert_eq!(stored, Some(rawdoc! { "_id": "Delft", "people": 107_000_i64 }));
    // No document matches: nothing is written or inserted.
    assert_eq!(cities.replace_one(rawdoc! { "mayor": "Ida" }, &city("Ribe", 8_000, None)).await.unwrap().matched, 0);
    assert_eq!(cities.count_documents(rawdoc! {}).await.unwrap(), 2);
    // A replacement with an equal value matches.
    assert_eq!(cities.replace_one(rawdoc! { "_id": "Delft" }, &later).await.unwrap().matched, 1);
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
    assert_eq!(within.replace_one(rawdoc! { "people": 1_i64 }, &city("Delft", 2, None)).await.unwrap().matched, 1);
    assert_eq!(cities.find_one(rawdoc! {}).await.unwrap().map(|city| city.people), Some(1));
    tx.commit().await.unwrap();
    assert_eq!(cities.find_one(rawdoc! {}).await.unwrap().map(|city| city.people), Some(2));
}
