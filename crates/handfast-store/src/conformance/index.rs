//! Indexes: their definitions, the constraints they enforce, and that they find what a scan finds.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, ids, numbered, refusal, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::source::{Random, SeededRandom};
use crate::{
    CreateIndexes, DropIndexes, Find, Hint, IndexCounts, IndexSelector, IndexSpec, ModifyCollection, ModifyIndex,
};

list_cases! { Nothing:
    index_is_listed_after_the_id_index,
    index_creation_says_how_many_there_were,
    index_creation_creates_the_collection,
    index_created_twice_is_kept,
    index_of_several_in_one_request,
    index_with_a_taken_name_is_refused,
    index_with_another_name_is_refused,
    index_with_other_options_is_refused,
    index_with_a_bad_key_is_refused,
    index_kinds_that_are_not_supported_are_refused,
    index_options_that_contradict_are_refused,
    index_options_on_id_are_refused,
    index_list_of_a_missing_collection_is_refused,
    index_definition_comes_back_as_given,
    index_is_dropped_by_name_and_by_key,
    index_drop_of_all_keeps_id,
    index_drop_of_an_unknown_one_is_refused,
    index_drop_of_id_is_refused,
    index_drop_in_a_missing_collection_is_refused,
    index_lifetime_is_changed,
    index_change_of_an_unknown_one_is_refused,
    unique_index_refuses_a_second_document,
    unique_index_names_its_key_in_the_error,
    unique_index_takes_missing_for_null,
    unique_index_on_existing_duplicates_is_refused,
    unique_index_compares_numbers_by_value,
    unique_index_on_two_fields,
    unique_index_on_an_array_between_documents,
    unique_index_on_an_array_within_a_document,
    unique_index_is_free_after_it_is_dropped,
    unique_index_keeps_its_keys_after_a_refused_write,
    unique_index_lets_a_document_keep_its_key,
    sparse_unique_index_lets_many_miss_the_field,
    sparse_index_leaves_documents_out_under_a_hint,
    partial_unique_index_binds_those_that_match,
    partial_index_follows_documents_in_and_out,
    index_refuses_parallel_arrays,
    index_on_parallel_arrays_that_exist_is_refused,
    index_of_long_values,
    index_finds_what_a_scan_finds,
    index_gives_sorted_results,
    index_on_existing_documents_finds_them,
}

fn spec(key: RawDocumentBuf) -> IndexSpec {
    IndexSpec::new(key)
}

fn unique(key: RawDocumentBuf) -> IndexSpec {
    IndexSpec { unique: true, ..IndexSpec::new(key) }
}

async fn names(s: &Subject) -> Result<Vec<String>, Failure> {
    Ok(s.store.list_indexes(&c()).await?.into_iter().map(|index| index.spec.name).collect())
}

async fn index_is_listed_after_the_id_index(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1, "b": -1 })).await?;
    ensure_eq!(names(s).await?, ["_id_", "a_1_b_-1"]);
    Ok(())
}

async fn index_creation_says_how_many_there_were(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let create = async |key| {
        let request = CreateIndexes { namespace: c(), indexes: vec![spec(key)] };
        Ok::<_, Failure>(s.store.create_indexes(request).await?)
    };
    ensure_eq!(create(rawdoc! { "a": 1 }).await?, IndexCounts { before: 1, after: 2 });
    ensure_eq!(create(rawdoc! { "b": 1 }).await?, IndexCounts { before: 2, after: 3 });
    ensure_eq!(create(rawdoc! { "b": 1 }).await?, IndexCounts { before: 3, after: 3 });
    Ok(())
}

async fn index_creation_creates_the_collection(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1 })).await?;
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 1);
    Ok(())
}

async fn index_created_twice_is_kept(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1 })).await?;
    s.index(spec(rawdoc! { "a": 1 })).await?;
    s.index(IndexSpec { name: "x".to_owned(), ..spec(rawdoc! { "_id": 1 }) }).await?;
    ensure_eq!(names(s).await?, ["_id_", "a_1"]);
    Ok(())
}

async fn index_of_several_in_one_request(s: &Subject) -> Result<(), Failure> {
    let indexes = vec![spec(rawdoc! { "a": 1 }), spec(rawdoc! { "b": 1 })];
    ensure_eq!(s.store.create_indexes(CreateIndexes { namespace: c(), indexes }).await?.after, 3);
    // An impossible index refuses the whole request.
    let indexes = vec![spec(rawdoc! { "x": 1 }), spec(rawdoc! { "y": 0 })];
    refused(s.store.create_indexes(CreateIndexes { namespace: c(), indexes }).await, Code::CannotCreateIndex)?;
    ensure_eq!(names(s).await?, ["_id_", "a_1", "b_1"]);
    Ok(())
}

async fn index_with_a_taken_name_is_refused(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1 })).await?;
    let other = IndexSpec { name: "a_1".to_owned(), ..spec(rawdoc! { "b": 1 }) };
    s.index_refused(other, Code::IndexKeySpecsConflict).await
}

async fn index_with_another_name_is_refused(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1 })).await?;
    let other = IndexSpec { name: "other".to_owned(), ..spec(rawdoc! { "a": 1 }) };
    s.index_refused(other, Code::IndexOptionsConflict).await
}

async fn index_with_other_options_is_refused(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1 })).await?;
    let other = IndexSpec { expire_after_seconds: Some(5), ..spec(rawdoc! { "a": 1 }) };
    s.index_refused(other, Code::IndexOptionsConflict).await?;
    s.index_refused(unique(rawdoc! { "a": 1 }), Code::IndexKeySpecsConflict).await
}

async fn index_with_a_bad_key_is_refused(s: &Subject) -> Result<(), Failure> {
    for key in [rawdoc! {}, rawdoc! { "a": 0 }, rawdoc! { "": 1 }, rawdoc! { "a..b": 1 }, rawdoc! { "$a": 1 }] {
        s.index_refused(spec(key), Code::CannotCreateIndex).await?;
    }
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 0);
    Ok(())
}

async fn index_kinds_that_are_not_supported_are_refused(s: &Subject) -> Result<(), Failure> {
    for kind in ["text", "2d", "2dsphere", "nonsense"] {
        s.index_refused(spec(rawdoc! { "a": kind }), Code::CannotCreateIndex).await?;
    }
    s.index_refused(spec(rawdoc! { "$**": 1 }), Code::CannotCreateIndex).await
}

async fn index_options_that_contradict_are_refused(s: &Subject) -> Result<(), Failure> {
    let a = || spec(rawdoc! { "a": 1 });
    let partial_filter = Some(rawdoc! { "a": { "$gt": 1 } });
    s.index_refused(IndexSpec { sparse: true, partial_filter, ..a() }, Code::CannotCreateIndex).await?;
    s.index_refused(IndexSpec { expire_after_seconds: Some(-1), ..a() }, Code::CannotCreateIndex).await?;
    let partial_filter = Some(rawdoc! { "a": { "$ne": 1 } });
    s.index_refused(IndexSpec { partial_filter, ..a() }, Code::CannotCreateIndex).await?;
    let two = IndexSpec { expire_after_seconds: Some(1), ..spec(rawdoc! { "a": 1, "b": 1 }) };
    s.index_refused(two, Code::CannotCreateIndex).await
}

async fn index_options_on_id_are_refused(s: &Subject) -> Result<(), Failure> {
    let sparse = IndexSpec { sparse: true, ..spec(rawdoc! { "_id": 1 }) };
    s.index_refused(sparse, Code::InvalidIndexSpecificationOption).await
}

async fn index_list_of_a_missing_collection_is_refused(s: &Subject) -> Result<(), Failure> {
    refused(s.store.list_indexes(&c()).await, Code::NamespaceNotFound)?;
    Ok(())
}

async fn index_definition_comes_back_as_given(s: &Subject) -> Result<(), Failure> {
    let given = [
        IndexSpec { sparse: true, unique: true, ..spec(rawdoc! { "a": 1, "b.c": -1 }) },
        IndexSpec { expire_after_seconds: Some(3600), hidden: true, ..spec(rawdoc! { "t": 1 }) },
        IndexSpec { partial_filter: Some(rawdoc! { "x": { "$gt": 5 } }), ..spec(rawdoc! { "p": 1 }) },
    ];
    s.store.create_indexes(CreateIndexes { namespace: c(), indexes: given.to_vec() }).await?;
    let listed: Vec<_> = s.store.list_indexes(&c()).await?.into_iter().skip(1).map(|index| index.spec).collect();
    ensure_eq!(listed, given);
    Ok(())
}

async fn drop_indexes(s: &Subject, selector: IndexSelector) -> crate::Result<u32> {
    s.store.drop_indexes(DropIndexes { namespace: c(), selector }).await
}

fn by_name(name: &str) -> IndexSelector {
    IndexSelector::Names(vec![name.to_owned()])
}

async fn index_is_dropped_by_name_and_by_key(s: &Subject) -> Result<(), Failure> {
    for field in ["a", "b", "d"] {
        let key = bson::doc! { field: 1 };
        s.index(spec(RawDocumentBuf::try_from(&key)?)).await?;
    }
    ensure_eq!(drop_indexes(s, by_name("a_1")).await?, 4);
    ensure_eq!(drop_indexes(s, IndexSelector::Key(rawdoc! { "b": 1 })).await?, 3);
    ensure_eq!(names(s).await?, ["_id_", "d_1"]);
    Ok(())
}

async fn index_drop_of_all_keeps_id(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1 })).await?;
    s.index(spec(rawdoc! { "b": 1 })).await?;
    ensure_eq!(drop_indexes(s, IndexSelector::All).await?, 3);
    ensure_eq!(names(s).await?, ["_id_"]);
    Ok(())
}

async fn index_drop_of_an_unknown_one_is_refused(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1 })).await?;
    refused(drop_indexes(s, by_name("x_1")).await, Code::IndexNotFound)?;
    refused(drop_indexes(s, IndexSelector::Key(rawdoc! { "x": 1 })).await, Code::IndexNotFound)?;
    ensure_eq!(names(s).await?.len(), 2);
    Ok(())
}

async fn index_drop_of_id_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    refused(drop_indexes(s, by_name("_id_")).await, Code::InvalidOptions)?;
    refused(drop_indexes(s, IndexSelector::Key(rawdoc! { "_id": 1 })).await, Code::InvalidOptions)?;
    Ok(())
}

async fn index_drop_in_a_missing_collection_is_refused(s: &Subject) -> Result<(), Failure> {
    refused(drop_indexes(s, IndexSelector::All).await, Code::NamespaceNotFound)?;
    Ok(())
}

fn lifetime(name: &str, seconds: i64) -> ModifyCollection {
    let index = ModifyIndex { selector: by_name(name), expire_after_seconds: Some(seconds), hidden: None };
    ModifyCollection { index: Some(index), ..ModifyCollection::new(c()) }
}

async fn index_lifetime_is_changed(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { expire_after_seconds: Some(60), ..spec(rawdoc! { "t": 1 }) }).await?;
    s.store.modify_collection(lifetime("t_1", 120)).await?;
    ensure_eq!(s.store.list_indexes(&c()).await?[1].spec.expire_after_seconds, Some(120));
    Ok(())
}

async fn index_change_of_an_unknown_one_is_refused(s: &Subject) -> Result<(), Failure> {
    refused(s.store.modify_collection(lifetime("t_1", 120)).await, Code::NamespaceNotFound)?;
    s.fill([id(1)]).await?;
    refused(s.store.modify_collection(lifetime("t_1", 120)).await, Code::IndexNotFound)?;
    Ok(())
}

async fn duplicate(s: &Subject, document: RawDocumentBuf) -> Result<crate::Error, Failure> {
    let shown = format!("{document:?}");
    match s.insert_one(document).await? {
        Some(error) => refusal(error, Code::DuplicateKey),
        None => Err(Failure::new(line!(), format!("{shown} was accepted"))),
    }
}

async fn unique_index_refuses_a_second_document(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 2 }]).await?;
    duplicate(s, rawdoc! { "_id": 3, "a": 1 }).await?;
    ensure_eq!(s.ids(rawdoc! {}).await?, [1, 2]);
    Ok(())
}

async fn unique_index_names_its_key_in_the_error(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1, "b.c": -1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": "x", "b": { "c": 1.5 } }]).await?;
    let error = duplicate(s, rawdoc! { "_id": 2, "a": "x", "b": { "c": 1.5 } }).await?;
    let text = "E11000 duplicate key error collection: conformance.c index: a_1_b.c_-1 \
                dup key: { a: \"x\", b.c: 1.5 }";
    ensure_eq!(error.message(), text);
    let details = rawdoc! { "keyPattern": { "a": 1, "b.c": -1 }, "keyValue": { "a": "x", "b.c": 1.5 } };
    ensure_eq!(error.details(), Some(&details));
    Ok(())
}

async fn unique_index_takes_missing_for_null(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1 })).await?;
    s.fill([id(1)]).await?;
    duplicate(s, id(2)).await?;
    duplicate(s, rawdoc! { "_id": 3, "a": null }).await?;
    Ok(())
}

async fn unique_index_on_existing_duplicates_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 1 }]).await?;
    s.index_refused(unique(rawdoc! { "a": 1 }), Code::DuplicateKey).await?;
    ensure_eq!(names(s).await?, ["_id_"]);
    s.fill([rawdoc! { "_id": 3, "a": 1 }]).await?;
    Ok(())
}

async fn unique_index_compares_numbers_by_value(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    duplicate(s, rawdoc! { "_id": 2, "a": 1.0 }).await?;
    duplicate(s, rawdoc! { "_id": 3, "a": 1_i64 }).await?;
    s.fill([rawdoc! { "_id": 4, "a": 1.5 }, rawdoc! { "_id": 5, "a": "1" }]).await?;
    Ok(())
}

async fn unique_index_on_two_fields(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1, "b": -1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 1 }, rawdoc! { "_id": 2, "a": 1, "b": 2 }]).await?;
    duplicate(s, rawdoc! { "_id": 3, "a": 1, "b": 2 }).await?;
    Ok(())
}

async fn unique_index_on_an_array_between_documents(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a.b": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": [{ "b": 1 }, { "b": 2 }] }]).await?;
    duplicate(s, rawdoc! { "_id": 2, "a": [{ "b": 3 }, { "b": 2 }] }).await?;
    s.fill([rawdoc! { "_id": 3, "a": { "b": 3 } }]).await?;
    Ok(())
}

async fn unique_index_on_an_array_within_a_document(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": [1, 1, 1] }]).await?;
    s.update_one(id(1), rawdoc! { "$push": { "a": 1 } }).await?;
    ensure_eq!(s.all().await?, [rawdoc! { "_id": 1, "a": [1, 1, 1, 1] }]);
    Ok(())
}

async fn unique_index_is_free_after_it_is_dropped(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    drop_indexes(s, by_name("a_1")).await?;
    s.fill([rawdoc! { "_id": 2, "a": 1 }]).await
}

/// A write that one index refuses leaves no entry in the others.
async fn unique_index_keeps_its_keys_after_a_refused_write(s: &Subject) -> Result<(), Failure> {
    for key in [rawdoc! { "a": 1 }, rawdoc! { "b": 1 }, rawdoc! { "d": 1 }] {
        s.index(unique(key)).await?;
    }
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 1, "d": 1 }]).await?;
    duplicate(s, rawdoc! { "_id": 2, "a": 2, "b": 1, "d": 2 }).await?;
    s.fill([rawdoc! { "_id": 3, "a": 2, "b": 2, "d": 2 }]).await?;
    duplicate(s, rawdoc! { "_id": 4, "a": 2, "b": 9, "d": 9 }).await?;
    Ok(())
}

async fn unique_index_lets_a_document_keep_its_key(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1 }]).await?;
    ensure_eq!(s.update_one(id(1), rawdoc! { "a": 1.0, "b": 2 }).await?.modified, 1);
    duplicate(s, rawdoc! { "_id": 2, "a": 1 }).await?;
    Ok(())
}

async fn sparse_unique_index_lets_many_miss_the_field(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { sparse: true, ..unique(rawdoc! { "a": 1 }) }).await?;
    s.fill([id(1), id(2), rawdoc! { "_id": 3, "a": null }]).await?;
    duplicate(s, rawdoc! { "_id": 4, "a": null }).await?;
    Ok(())
}

async fn sparse_index_leaves_documents_out_under_a_hint(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { sparse: true, ..spec(rawdoc! { "a": 1 }) }).await?;
    s.fill([id(1), rawdoc! { "_id": 2, "a": 1 }]).await?;
    let find = |hint| Find { hint, sort: rawdoc! { "a": 1 }, ..Find::new(c(), rawdoc! {}) };
    ensure_eq!(ids(&s.find(find(Some(Hint::Name("a_1".to_owned())))).await?)?, [2]);
    // Without a hint all documents are found, whether or not the planner considers the index.
    ensure_eq!(ids(&s.find(find(None)).await?)?, [1, 2]);
    ensure_eq!(s.ids(rawdoc! { "a": null }).await?, [1]);
    Ok(())
}

async fn partial_unique_index_binds_those_that_match(s: &Subject) -> Result<(), Failure> {
    let partial_filter = Some(rawdoc! { "live": true });
    s.index(IndexSpec { partial_filter, ..unique(rawdoc! { "a": 1 }) }).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 1 }, rawdoc! { "_id": 3, "a": 1, "live": true }])
        .await?;
    duplicate(s, rawdoc! { "_id": 4, "a": 1, "live": true }).await?;
    // The planner must not use the index for documents that are not in it.
    ensure_eq!(s.ids(rawdoc! { "a": 1 }).await?, [1, 2, 3]);
    ensure_eq!(s.ids(rawdoc! { "a": 1, "live": true }).await?, [3]);
    Ok(())
}

async fn partial_index_follows_documents_in_and_out(s: &Subject) -> Result<(), Failure> {
    let partial_filter = Some(rawdoc! { "live": true });
    s.index(IndexSpec { partial_filter, ..unique(rawdoc! { "a": 1 }) }).await?;
    s.fill([rawdoc! { "_id": 1, "a": 1, "live": true }]).await?;
    s.update_one(id(1), rawdoc! { "$set": { "live": false } }).await?;
    s.fill([rawdoc! { "_id": 2, "a": 1, "live": true }]).await?;
    let back = crate::UpdateStatement::one(id(1), crate::UpdateSpec::Document(rawdoc! { "$set": { "live": true } }));
    refusal(s.update_refused(back).await?, Code::DuplicateKey)?;
    Ok(())
}

async fn index_refuses_parallel_arrays(s: &Subject) -> Result<(), Failure> {
    s.index(spec(rawdoc! { "a": 1, "b": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": [1, 2], "b": 3 }, rawdoc! { "_id": 2, "a": 1, "b": [3, 4] }]).await?;
    match s.insert_one(rawdoc! { "_id": 3, "a": [1], "b": [2] }).await? {
        Some(error) => refusal(error, crate::index::CANNOT_INDEX_PARALLEL_ARRAYS)?,
        None => return Err(Failure::new(line!(), "parallel arrays were accepted".to_owned())),
    };
    ensure_eq!(s.ids(rawdoc! {}).await?, [1, 2]);
    Ok(())
}

async fn index_on_parallel_arrays_that_exist_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [1], "b": [2] }]).await?;
    s.index_refused(spec(rawdoc! { "a": 1, "b": 1 }), crate::index::CANNOT_INDEX_PARALLEL_ARRAYS).await?;
    ensure_eq!(names(s).await?, ["_id_"]);
    Ok(())
}

async fn index_of_long_values(s: &Subject) -> Result<(), Failure> {
    s.index(unique(rawdoc! { "a": 1 })).await?;
    let long = |last: &str| "x".repeat(5000) + last;
    s.fill([rawdoc! { "_id": 1, "a": long("1") }, rawdoc! { "_id": 2, "a": long("2") }]).await?;
    duplicate(s, rawdoc! { "_id": 3, "a": long("2") }).await?;
    ensure_eq!(s.ids(rawdoc! { "a": long("1") }).await?, [1]);
    Ok(())
}

/// Returns a random value, or `None` for a missing field; the values show differences between types and arrays.
fn any_value(random: &SeededRandom) -> Option<RawBson> {
    let small = || i32::try_from(random.next_u64() % 5).unwrap_or(0);
    Some(match random.next_u64() % 9 {
        0 => return None,
        1 => RawBson::Null,
        2 | 3 => small().into(),
        4 => (f64::from(small()) / 2.0).into(),
        5 => i64::from(small()).into(),
        6 => ["a", "ab", "b"][random.next_u64() as usize % 3].into(),
        7 => bson::RawArrayBuf::from_iter([RawBson::from(small()), small().into()]).into(),
        _ => rawdoc! { "b": small() }.into(),
    })
}

/// Checks with pseudo-random documents and filters that every index finds the same documents as a scan.
async fn index_finds_what_a_scan_finds(s: &Subject) -> Result<(), Failure> {
    let random = SeededRandom::new(2);
    let documents: Vec<_> = (0..150)
        .map(|n| {
            let mut document = rawdoc! { "_id": n };
            for name in [bson::raw::cstr!("a"), bson::raw::cstr!("c")] {
                // Two arrays in one document cannot be indexed together.
                match any_value(&random) {
                    Some(RawBson::Array(_)) if name.as_str() == "c" => document.append(name, "no array"),
                    Some(value) => document.append(name, value),
                    None => {}
                }
            }
            document
        })
        .collect();
    s.fill(documents).await?;
    let indexes = vec![spec(rawdoc! { "a": 1 }), spec(rawdoc! { "a": -1, "c": 1 }), spec(rawdoc! { "a.b": 1 })];
    let hints: Vec<_> = indexes.iter().map(|index| Some(Hint::Name(index.name.clone()))).collect();
    s.store.create_indexes(CreateIndexes { namespace: c(), indexes }).await?;
    for round in 0..120 {
        let operator = ["$eq", "$gt", "$gte", "$lt", "$lte", "$ne", "$in"][random.next_u64() as usize % 7];
        let value = any_value(&random).unwrap_or(RawBson::Null);
        let value = if operator == "$in" {
            bson::RawArrayBuf::from_iter([value, RawBson::from(1), RawBson::Null]).into()
        } else {
            value
        };
        let mut condition = RawDocumentBuf::new();
        condition.append(bson::raw::CString::try_from(operator.to_owned())?, value);
        let mut filter = RawDocumentBuf::new();
        filter.append(if round % 4 == 0 { bson::raw::cstr!("a.b") } else { bson::raw::cstr!("a") }, condition);
        if round % 3 == 0 {
            filter.append(bson::raw::cstr!("c"), any_value(&random).unwrap_or(RawBson::Null));
        }
        let find = |hint| Find { hint, sort: rawdoc! { "_id": 1 }, ..Find::new(c(), filter.clone()) };
        let scanned = ids(&s.find(find(Some(Hint::Key(rawdoc! { "$natural": 1 })))).await?)?;
        for hint in hints.iter().chain([&None]) {
            let found = ids(&s.find(find(hint.clone())).await?)?;
            ensure!(found == scanned, "{filter:?} with {hint:?} found {found:?}, a scan {scanned:?}");
        }
    }
    Ok(())
}

async fn index_gives_sorted_results(s: &Subject) -> Result<(), Failure> {
    s.fill((0..60).map(|n| rawdoc! { "_id": n, "a": n % 4, "c": (n * 17) % 60 })).await?;
    let sorts =
        [rawdoc! { "a": 1, "c": -1 }, rawdoc! { "a": -1, "c": 1 }, rawdoc! { "a": 1, "c": 1 }, rawdoc! { "c": -1 }];
    let mut before = Vec::new();
    for sort in &sorts {
        before.push(s.find(Find { sort: sort.clone(), ..Find::new(c(), rawdoc! {}) }).await?);
    }
    s.index(spec(rawdoc! { "a": 1, "c": -1 })).await?;
    s.index(spec(rawdoc! { "c": 1 })).await?;
    for (sort, before) in sorts.iter().zip(before) {
        ensure_eq!(s.find(Find { sort: sort.clone(), ..Find::new(c(), rawdoc! {}) }).await?, before);
        let limited = Find { sort: sort.clone(), skip: 3, limit: Some(5), ..Find::new(c(), rawdoc! {}) };
        ensure_eq!(s.find(limited).await?, before[3..8]);
    }
    Ok(())
}

async fn index_on_existing_documents_finds_them(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(500)).await?;
    s.index(spec(rawdoc! { "n": -1 })).await?;
    let find = Find { hint: Some(Hint::Name("n_-1".to_owned())), ..Find::new(c(), rawdoc! { "n": { "$gte": 490 } }) };
    let mut found = ids(&s.find(find).await?)?;
    found.sort_unstable();
    ensure_eq!(found, (490..500).collect::<Vec<_>>());
    Ok(())
}
