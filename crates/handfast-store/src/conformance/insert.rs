//! Inserting documents.

use std::str::FromStr;

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Decimal128, RawBson, RawDocumentBuf, Regex, Timestamp, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, named, numbered, refusal};
use super::{ensure, ensure_eq, list_cases};
use crate::{Applied, Durability, ErrorClass, Find, Insert};

list_cases! { Nothing:
    inserted_document_is_found,
    insert_of_many_keeps_all,
    insert_of_nothing_inserts_nothing,
    insert_makes_an_object_id_and_puts_it_first,
    insert_makes_different_ids,
    insert_moves_the_id_to_the_front,
    insert_keeps_the_order_of_fields,
    insert_keeps_every_type,
    insert_keeps_every_type_as_id,
    insert_takes_equal_numbers_for_the_same_id,
    insert_takes_ids_of_different_types_for_different,
    insert_takes_the_order_of_an_ids_fields_as_part_of_it,
    insert_of_a_second_null_id_is_a_duplicate,
    insert_of_a_duplicate_names_collection_index_and_key,
    insert_of_a_duplicate_changes_nothing,
    insert_ordered_stops_at_the_first_error,
    insert_unordered_goes_on_after_errors,
    insert_finds_duplicates_within_a_request,
    insert_refuses_an_array_as_id,
    insert_refuses_a_regular_expression_as_id,
    insert_refuses_undefined_as_id,
    insert_refuses_operators_in_an_id,
    insert_refuses_two_ids,
    insert_refuses_documents_over_16_mebibytes,
    insert_accepts_a_document_of_almost_16_mebibytes,
    insert_refuses_documents_of_great_depth,
    insert_in_memory_durability_is_visible,
    insert_creates_the_collection,
    insert_keeps_collections_apart,
}

async fn inserted_document_is_found(s: &Subject) -> Result<(), Failure> {
    let document = rawdoc! { "_id": 1, "a": { "b": [1, 2.5, "x"] } };
    s.fill([document.clone()]).await?;
    ensure_eq!(s.matching(id(1)).await?, [document]);
    Ok(())
}

async fn insert_of_many_keeps_all(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(1000)).await?;
    ensure_eq!(s.ids(rawdoc! {}).await?, (0..1000).collect::<Vec<_>>());
    Ok(())
}

async fn insert_of_nothing_inserts_nothing(s: &Subject) -> Result<(), Failure> {
    let outcome = s.store.insert(Insert::new(c(), vec![])).await?;
    ensure_eq!((outcome.inserted, outcome.errors.len()), (0, 0));
    Ok(())
}

async fn insert_makes_an_object_id_and_puts_it_first(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "a": 1 }]).await?;
    let all = s.all().await?;
    ensure_eq!(all.len(), 1);
    all[0].get_object_id("_id")?;
    let names: Vec<_> = all[0].iter().flatten().map(|(name, _)| name.as_str().to_owned()).collect();
    ensure_eq!(names, ["_id", "a"]);
    Ok(())
}

async fn insert_makes_different_ids(s: &Subject) -> Result<(), Failure> {
    s.fill((0..100).map(|n| rawdoc! { "n": n })).await?;
    let mut ids = Vec::new();
    for document in s.all().await? {
        ids.push(document.get_object_id("_id")?);
    }
    ids.dedup();
    ensure_eq!(ids.len(), 100);
    Ok(())
}

async fn insert_moves_the_id_to_the_front(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "a": 1, "_id": 1, "b": 2 }]).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 1, "b": 2 }]);
    Ok(())
}

async fn insert_keeps_the_order_of_fields(s: &Subject) -> Result<(), Failure> {
    let document = rawdoc! { "_id": 1, "z": 1, "a": { "y": 1, "b": 2 }, "m": 3 };
    s.fill([document.clone()]).await?;
    ensure_eq!(s.all().await?, [document]);
    Ok(())
}

/// Returns a value of every type that a document may have.
fn every_type() -> Vec<RawBson> {
    let mut values: Vec<RawBson> = vec![
        RawBson::MinKey,
        RawBson::Null,
        1_i32.into(),
        2_i64.into(),
        2.5_f64.into(),
        "text".into(),
        String::new().into(),
        rawdoc! { "a": 1 }.into(),
        rawdoc! {}.into(),
        Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] }.into(),
        Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] }.into(),
        ObjectId::from_bytes([9; 12]).into(),
        false.into(),
        true.into(),
        DateTime::from_millis(-1).into(),
        Timestamp { time: 1, increment: 2 }.into(),
        RawBson::JavaScriptCode("x".to_owned()),
        RawBson::MaxKey,
    ];
    if let Ok(decimal) = Decimal128::from_str("12345678901234567890.5") {
        values.push(decimal.into());
    }
    values
}

fn regex() -> RawBson {
    RawBson::RegularExpression(Regex { pattern: cstr!("^a").into(), options: cstr!("i").into() })
}

async fn insert_keeps_every_type(s: &Subject) -> Result<(), Failure> {
    let mut document = rawdoc! { "_id": 1 };
    let mut array = bson::RawArrayBuf::new();
    for value in every_type().into_iter().chain([regex(), RawBson::Undefined]) {
        array.push(value);
    }
    document.append(cstr!("values"), array);
    s.fill([document.clone()]).await?;
    ensure_eq!(s.all().await?, [document]);
    Ok(())
}

async fn insert_keeps_every_type_as_id(s: &Subject) -> Result<(), Failure> {
    for value in every_type() {
        let document = id(value.clone());
        let refused = s.insert_one(document.clone()).await?;
        ensure!(refused.is_none(), "{value:?} was refused: {refused:?}");
        let found = s.matching(rawdoc! { "_id": { "$eq": value.clone() } }).await?;
        ensure!(found == [document], "{value:?} was not found: {found:?}");
    }
    ensure_eq!(s.all().await?.len(), every_type().len());
    Ok(())
}

async fn insert_takes_equal_numbers_for_the_same_id(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    for same in [RawBson::from(1_i64), 1.0.into()] {
        let error = s.insert_one(id(same.clone())).await?;
        ensure!(error.is_some_and(|error| error.code() == Code::DuplicateKey), "{same:?} was accepted beside 1");
    }
    ensure_eq!(s.all().await?, [id(1)]);
    Ok(())
}

async fn insert_takes_ids_of_different_types_for_different(s: &Subject) -> Result<(), Failure> {
    let ids: [RawBson; 5] = [1.into(), "1".into(), true.into(), RawBson::Null, rawdoc! { "a": 1 }.into()];
    s.fill(ids.iter().cloned().map(id)).await?;
    ensure_eq!(s.all().await?.len(), ids.len());
    Ok(())
}

async fn insert_takes_the_order_of_an_ids_fields_as_part_of_it(s: &Subject) -> Result<(), Failure> {
    s.fill([id(rawdoc! { "a": 1, "b": 2 }), id(rawdoc! { "b": 2, "a": 1 })]).await?;
    ensure_eq!(s.all().await?.len(), 2);
    ensure_eq!(s.matching(id(rawdoc! { "b": 2, "a": 1 })).await?, [id(rawdoc! { "b": 2, "a": 1 })]);
    Ok(())
}

async fn insert_of_a_second_null_id_is_a_duplicate(s: &Subject) -> Result<(), Failure> {
    s.fill([id(RawBson::Null)]).await?;
    expect_refused(s, id(RawBson::Null), Code::DuplicateKey).await
}

async fn insert_of_a_duplicate_names_collection_index_and_key(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let Some(error) = s.insert_one(rawdoc! { "_id": 1, "b": 2 }).await? else {
        return Err(Failure::new(line!(), "a duplicate was accepted".to_owned()));
    };
    let error = refusal(error, Code::DuplicateKey)?;
    let text = "E11000 duplicate key error collection: conformance.c index: _id_ dup key: { _id: 1 }";
    ensure_eq!(error.message(), text);
    let details = rawdoc! { "keyPattern": { "_id": 1 }, "keyValue": { "_id": 1 } };
    ensure_eq!(error.details(), Some(&details));
    Ok(())
}

async fn insert_of_a_duplicate_changes_nothing(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": "first" }]).await?;
    expect_refused(s, rawdoc! { "_id": 1, "a": "second" }, Code::DuplicateKey).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": "first" }]);
    Ok(())
}

async fn insert_ordered_stops_at_the_first_error(s: &Subject) -> Result<(), Failure> {
    s.fill([id(2)]).await?;
    let outcome = s.store.insert(Insert::new(c(), vec![id(1), id(2), id(3)])).await?;
    ensure_eq!(outcome.inserted, 1);
    ensure_eq!(outcome.errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
    ensure_eq!(s.ids(rawdoc! {}).await?, [1, 2]);
    Ok(())
}

async fn insert_unordered_goes_on_after_errors(s: &Subject) -> Result<(), Failure> {
    s.fill([id(2), id(4)]).await?;
    let documents = vec![id(1), id(2), id(3), id(4), id(5)];
    let outcome = s.store.insert(Insert { ordered: false, ..Insert::new(c(), documents) }).await?;
    ensure_eq!(outcome.inserted, 3);
    let indexes: Vec<_> = outcome.errors.iter().map(|error| (error.index, error.error.code())).collect();
    ensure_eq!(indexes, [(1, Code::DuplicateKey), (3, Code::DuplicateKey)]);
    ensure_eq!(s.ids(rawdoc! {}).await?, [1, 2, 3, 4, 5]);
    Ok(())
}

async fn insert_finds_duplicates_within_a_request(s: &Subject) -> Result<(), Failure> {
    let documents = vec![rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 1, "a": 2 }];
    let outcome = s.store.insert(Insert::new(c(), documents)).await?;
    ensure_eq!(outcome.inserted, 1);
    ensure_eq!(outcome.errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": 1 }]);
    Ok(())
}

async fn expect_refused(s: &Subject, document: RawDocumentBuf, code: Code) -> Result<(), Failure> {
    match s.insert_one(document).await? {
        Some(error) => refusal(error, code).map(|_| ()),
        None => Err(Failure::new(line!(), format!("the document was accepted; {code:?} expected"))),
    }
}

async fn insert_refuses_an_array_as_id(s: &Subject) -> Result<(), Failure> {
    expect_refused(s, rawdoc! { "_id": [1] }, Code::InvalidIdField).await?;
    ensure_eq!(s.all().await?.len(), 0);
    Ok(())
}

async fn insert_refuses_a_regular_expression_as_id(s: &Subject) -> Result<(), Failure> {
    expect_refused(s, id(regex()), Code::InvalidIdField).await
}

async fn insert_refuses_undefined_as_id(s: &Subject) -> Result<(), Failure> {
    expect_refused(s, id(RawBson::Undefined), Code::InvalidIdField).await
}

async fn insert_refuses_operators_in_an_id(s: &Subject) -> Result<(), Failure> {
    expect_refused(s, rawdoc! { "_id": { "$inc": 1 } }, Code::DollarPrefixedFieldName).await
}

async fn insert_refuses_two_ids(s: &Subject) -> Result<(), Failure> {
    expect_refused(s, rawdoc! { "_id": 1, "a": 1, "_id": 2 }, Code::BadValue).await
}

async fn insert_refuses_documents_over_16_mebibytes(s: &Subject) -> Result<(), Failure> {
    let large = rawdoc! { "_id": 1, "a": "x".repeat(crate::insertion::DOCUMENT_BYTES_MAX) };
    expect_refused(s, large, Code::BSONObjectTooLarge).await?;
    ensure_eq!(s.all().await?.len(), 0);
    Ok(())
}

async fn insert_accepts_a_document_of_almost_16_mebibytes(s: &Subject) -> Result<(), Failure> {
    let large = rawdoc! { "_id": 1, "a": "x".repeat(crate::insertion::DOCUMENT_BYTES_MAX - 1000) };
    s.fill([large.clone()]).await?;
    ensure!(s.all().await? == [large], "the document came back changed");
    Ok(())
}

/// A recursive reader of such a document would overflow its stack.
async fn insert_refuses_documents_of_great_depth(s: &Subject) -> Result<(), Failure> {
    // Built from the inside out by bytes: each level is `{"a": ..}`.
    let mut bytes = vec![5, 0, 0, 0, 0];
    for _ in 0..10_000 {
        let mut outer = u32::to_le_bytes(u32::try_from(bytes.len() + 8).unwrap_or(u32::MAX)).to_vec();
        outer.extend([3, b'a', 0]);
        outer.extend(&bytes);
        outer.push(0);
        bytes = outer;
    }
    let deep = RawDocumentBuf::from_bytes(bytes)?;
    let Some(error) = s.insert_one(deep).await? else {
        return Err(Failure::new(line!(), "a document of 10,000 levels was accepted".to_owned()));
    };
    ensure_eq!((error.class(), error.applied()), (ErrorClass::Command, Applied::No));
    ensure_eq!(s.all().await?.len(), 0);
    Ok(())
}

async fn insert_in_memory_durability_is_visible(s: &Subject) -> Result<(), Failure> {
    let insert = Insert { durability: Durability::Memory, ..Insert::new(c(), vec![id(1)]) };
    ensure_eq!(s.store.insert(insert).await?.inserted, 1);
    ensure_eq!(s.all().await?, [id(1)]);
    Ok(())
}

async fn insert_creates_the_collection(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let names: Vec<_> = s.store.list_collections("conformance").await?.into_iter().map(|info| info.name).collect();
    ensure_eq!(names, ["c"]);
    Ok(())
}

async fn insert_keeps_collections_apart(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "in": "c" }]).await?;
    s.fill_in(&named("d"), [rawdoc! { "_id": 1, "in": "d" }]).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "in": "c" }]);
    ensure_eq!(s.find(Find::new(named("d"), rawdoc! {})).await?, [rawdoc! { "_id": 1, "in": "d" }]);
    Ok(())
}
