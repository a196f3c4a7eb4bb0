//! Finding documents, and the pages of cursors.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, drain, id, ids, ints, named, numbered, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::{BatchLimit, Find, Hint, IndexSpec};

list_cases! { Nothing:
    find_in_a_missing_collection_is_empty,
    find_all_returns_each_document_once,
    find_by_equality,
    find_by_id,
    find_by_a_document_as_id,
    find_by_ids_in_a_list,
    find_by_ids_in_a_list_with_patterns,
    find_by_range,
    find_by_dotted_path,
    find_by_element_of_an_array,
    find_null_matches_missing,
    find_with_or,
    find_with_expression_and_variables,
    find_sorts_up_and_down,
    find_sorts_by_two_fields,
    find_sorts_values_of_all_types,
    find_sorts_arrays_by_their_least_and_greatest,
    find_skips_and_limits_after_sorting,
    find_skip_past_the_end_is_empty,
    find_projects_fields,
    find_projects_fields_out,
    find_projects_without_id,
    find_sorts_by_a_field_that_is_projected_out,
    find_positional_projection,
    find_refuses_an_unknown_operator,
    find_refuses_a_bad_sort,
    find_refuses_a_mixed_projection,
    find_refuses_a_hint_to_no_index,
    find_with_hint_by_name_and_by_key,
    find_with_natural_hint_backwards,
    find_with_bounds_on_the_hinted_index,
    find_returns_index_keys,
    find_shows_record_ids_that_differ,
    cursor_pages_hold_as_many_as_allowed,
    cursor_pages_hold_as_many_bytes_as_allowed,
    cursor_page_holds_one_document_whatever_its_size,
    cursor_stays_at_its_end,
    cursor_of_nothing_is_exhausted_at_once,
    cursor_limit_ends_it,
    cursor_over_many_pages_returns_each_once,
    cursor_over_a_sorted_find_stays_sorted,
}

list_cases! { SnapshotCursors as SNAPSHOT_CASES:
    cursor_does_not_see_later_writes,
    cursor_outlives_its_collection,
}

async fn find_in_a_missing_collection_is_empty(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(s.find(Find::new(named("missing"), rawdoc! {})).await?.len(), 0);
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 0);
    Ok(())
}

async fn find_all_returns_each_document_once(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(500)).await?;
    let mut found = ids(&s.find(Find::new(c(), rawdoc! {})).await?)?;
    found.sort_unstable();
    ensure_eq!(found, (0..500).collect::<Vec<_>>());
    Ok(())
}

async fn find_by_equality(s: &Subject) -> Result<(), Failure> {
    s.fill((0..30).map(|n| rawdoc! { "_id": n, "m": n % 10 })).await?;
    ensure_eq!(s.ids(rawdoc! { "m": 7 }).await?, [7, 17, 27]);
    ensure_eq!(s.ids(rawdoc! { "m": 7.0 }).await?, [7, 17, 27]);
    ensure_eq!(s.ids(rawdoc! { "m": "7" }).await?, []);
    Ok(())
}

async fn find_by_id(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(50)).await?;
    ensure_eq!(s.ids(id(7)).await?, [7]);
    ensure_eq!(s.ids(id(7.0)).await?, [7]);
    ensure_eq!(s.ids(rawdoc! { "_id": 7, "n": 8 }).await?, []);
    ensure_eq!(s.ids(id(50)).await?, []);
    Ok(())
}

/// A document as `_id` is compared whole, with its fields in their order; a document of operators is not.
async fn find_by_a_document_as_id(s: &Subject) -> Result<(), Failure> {
    let ids = [rawdoc! { "a": 1 }, rawdoc! { "a": 1, "b": 2 }, rawdoc! { "b": 2, "a": 1 }];
    s.fill(ids.iter().cloned().map(id)).await?;
    for of in &ids {
        ensure_eq!(s.matching(id(of.clone())).await?, [id(of.clone())]);
    }
    ensure_eq!(s.matching(id(rawdoc! { "a": 1.0, "b": 2_i64 })).await?, [id(ids[1].clone())]);
    ensure_eq!(s.matching(id(rawdoc! { "b": 2 })).await?, []);
    ensure_eq!(s.matching(id(rawdoc! { "$gt": ids[0].clone(), "$lt": ids[2].clone() })).await?, [id(ids[1].clone())]);
    Ok(())
}

async fn find_by_ids_in_a_list(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(50)).await?;
    ensure_eq!(s.ids(rawdoc! { "_id": { "$in": [9, 3, 3, 99, "x"] } }).await?, [3, 9]);
    ensure_eq!(s.ids(rawdoc! { "_id": { "$in": [] } }).await?, []);
    Ok(())
}

async fn find_by_ids_in_a_list_with_patterns(s: &Subject) -> Result<(), Failure> {
    let pattern = bson::Regex { pattern: bson::raw::cstr!("^a").into(), options: bson::raw::cstr!("").into() };
    s.fill(["ab", "b", "ac", "c"].map(id)).await?;
    let choices = bson::RawArrayBuf::from_iter([RawBson::RegularExpression(pattern), "c".into()]);
    ensure_eq!(s.matching(rawdoc! { "_id": { "$in": choices } }).await?, ["ab", "ac", "c"].map(id));
    Ok(())
}

async fn find_by_range(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(50)).await?;
    ensure_eq!(s.ids(rawdoc! { "n": { "$gt": 10, "$lte": 13 } }).await?, [11, 12, 13]);
    ensure_eq!(s.ids(rawdoc! { "_id": { "$gte": 10, "$lt": 13 } }).await?, [10, 11, 12]);
    ensure_eq!(s.ids(rawdoc! { "_id": { "$gt": "a" } }).await?, []);
    Ok(())
}

async fn find_by_dotted_path(s: &Subject) -> Result<(), Failure> {
    s.fill([
        rawdoc! { "_id": 1, "a": { "b": 1 } },
        rawdoc! { "_id": 2, "a": [{ "b": 2 }, { "b": 1 }] },
        rawdoc! { "_id": 3, "a.b": 1 },
        rawdoc! { "_id": 4, "a": 1 },
    ])
    .await?;
    ensure_eq!(s.ids(rawdoc! { "a.b": 1 }).await?, [1, 2]);
    Ok(())
}

async fn find_by_element_of_an_array(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [1, 2] }, rawdoc! { "_id": 2, "a": 2 }, rawdoc! { "_id": 3, "a": [[2]] }]).await?;
    ensure_eq!(s.ids(rawdoc! { "a": 2 }).await?, [1, 2]);
    ensure_eq!(s.ids(rawdoc! { "a": [1, 2] }).await?, [1]);
    ensure_eq!(s.ids(rawdoc! { "a": [2] }).await?, [3]);
    Ok(())
}

async fn find_null_matches_missing(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": null }, rawdoc! { "_id": 2 }, rawdoc! { "_id": 3, "a": 1 }]).await?;
    ensure_eq!(s.ids(rawdoc! { "a": null }).await?, [1, 2]);
    ensure_eq!(s.ids(rawdoc! { "a": { "$exists": false } }).await?, [2]);
    Ok(())
}

async fn find_with_or(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    ensure_eq!(s.ids(rawdoc! { "$or": [{ "n": 3 }, { "_id": { "$gte": 18 } }, { "n": 19 }] }).await?, [3, 18, 19]);
    Ok(())
}

async fn find_with_expression_and_variables(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 2 }, rawdoc! { "_id": 2, "a": 2, "b": 1 }]).await?;
    ensure_eq!(s.ids(rawdoc! { "$expr": { "$gt": ["$a", "$b"] } }).await?, [2]);
    let filter = rawdoc! { "$expr": { "$eq": ["$a", "$$wanted"] } };
    let find = Find { variables: rawdoc! { "wanted": 1 }, ..Find::new(c(), filter) };
    ensure_eq!(ids(&s.find(find).await?)?, [1]);
    Ok(())
}

fn sorted(sort: RawDocumentBuf) -> Find {
    Find { sort, ..Find::new(c(), rawdoc! {}) }
}

async fn find_sorts_up_and_down(s: &Subject) -> Result<(), Failure> {
    s.fill([5, 3, 9, 1].map(|n| rawdoc! { "_id": n, "n": 10 - n })).await?;
    ensure_eq!(ids(&s.find(sorted(rawdoc! { "n": 1 })).await?)?, [9, 5, 3, 1]);
    ensure_eq!(ids(&s.find(sorted(rawdoc! { "n": -1 })).await?)?, [1, 3, 5, 9]);
    ensure_eq!(ids(&s.find(sorted(rawdoc! { "_id": -1 })).await?)?, [9, 5, 3, 1]);
    Ok(())
}

async fn find_sorts_by_two_fields(s: &Subject) -> Result<(), Failure> {
    s.fill((0..6).map(|n| rawdoc! { "_id": n, "a": n % 2, "b": n })).await?;
    ensure_eq!(ids(&s.find(sorted(rawdoc! { "a": 1, "b": -1 })).await?)?, [4, 2, 0, 5, 3, 1]);
    Ok(())
}

/// MongoDB's order of types, one value each.
async fn find_sorts_values_of_all_types(s: &Subject) -> Result<(), Failure> {
    let values: Vec<RawBson> = vec![
        RawBson::MinKey,
        RawBson::Null,
        (-1).into(),
        0.5.into(),
        1_i64.into(),
        "a".into(),
        rawdoc! { "a": 1 }.into(),
        bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1] }.into(),
        bson::oid::ObjectId::from_bytes([1; 12]).into(),
        false.into(),
        true.into(),
        bson::DateTime::from_millis(0).into(),
        bson::Timestamp { time: 0, increment: 1 }.into(),
        RawBson::MaxKey,
    ];
    let count = i32::try_from(values.len()).unwrap_or(0);
    s.fill(values.into_iter().zip(0..count).rev().map(|(value, n)| rawdoc! { "_id": n, "v": value })).await?;
    ensure_eq!(ids(&s.find(sorted(rawdoc! { "v": 1 })).await?)?, (0..count).collect::<Vec<_>>());
    Ok(())
}

async fn find_sorts_arrays_by_their_least_and_greatest(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [1, 9] }, rawdoc! { "_id": 2, "a": 5 }, rawdoc! { "_id": 3, "a": [4, 6] }])
        .await?;
    ensure_eq!(ids(&s.find(sorted(rawdoc! { "a": 1 })).await?)?, [1, 3, 2]);
    ensure_eq!(ids(&s.find(sorted(rawdoc! { "a": -1 })).await?)?, [1, 3, 2]);
    Ok(())
}

async fn find_skips_and_limits_after_sorting(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(50)).await?;
    let find = Find { skip: 10, limit: Some(3), ..sorted(rawdoc! { "n": -1 }) };
    ensure_eq!(ids(&s.find(find).await?)?, [39, 38, 37]);
    Ok(())
}

async fn find_skip_past_the_end_is_empty(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    ensure_eq!(s.find(Find { skip: 5, ..Find::new(c(), rawdoc! {}) }).await?.len(), 0);
    ensure_eq!(s.find(Find { skip: u64::MAX, limit: Some(u64::MAX), ..sorted(rawdoc! { "n": 1 }) }).await?.len(), 0);
    Ok(())
}

async fn projected(s: &Subject, projection: RawDocumentBuf) -> Result<Vec<RawDocumentBuf>, Failure> {
    s.find(Find { projection, ..sorted(rawdoc! { "_id": 1 }) }).await
}

async fn find_projects_fields(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": { "x": 1, "y": 2 }, "b": 3 }]).await?;
    ensure_eq!(projected(s, rawdoc! { "b": 1 }).await?, [rawdoc! { "_id": 1, "b": 3 }]);
    ensure_eq!(projected(s, rawdoc! { "a.x": 1 }).await?, [rawdoc! { "_id": 1, "a": { "x": 1 } }]);
    ensure_eq!(projected(s, rawdoc! { "missing": 1 }).await?, [id(1)]);
    Ok(())
}

async fn find_projects_fields_out(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": { "x": 1, "y": 2 }, "b": 3 }]).await?;
    ensure_eq!(projected(s, rawdoc! { "a.x": 0 }).await?, [rawdoc! { "_id": 1, "a": { "y": 2 }, "b": 3 }]);
    Ok(())
}

async fn find_projects_without_id(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": 1, "b": 3 }]).await?;
    ensure_eq!(projected(s, rawdoc! { "a": 1, "_id": 0 }).await?, [rawdoc! { "a": 1 }]);
    ensure_eq!(projected(s, rawdoc! { "_id": 0 }).await?, [rawdoc! { "a": 1, "b": 3 }]);
    Ok(())
}

async fn find_sorts_by_a_field_that_is_projected_out(s: &Subject) -> Result<(), Failure> {
    s.fill([5, 3, 9].map(|n| rawdoc! { "_id": n, "n": -n })).await?;
    let find = Find { projection: rawdoc! { "n": 0 }, ..sorted(rawdoc! { "n": 1 }) };
    ensure_eq!(s.find(find).await?, [id(9), id(5), id(3)]);
    Ok(())
}

async fn find_positional_projection(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [1, 5, 9] }]).await?;
    let find = Find { projection: rawdoc! { "a.$": 1 }, ..Find::new(c(), rawdoc! { "a": { "$gt": 3 } }) };
    ensure_eq!(s.find(find).await?, [rawdoc! { "_id": 1, "a": [5] }]);
    Ok(())
}

async fn refused_find(s: &Subject, find: Find, code: Code) -> Result<(), Failure> {
    let opened = match s.store.find(find).await {
        Ok(cursor) => drain(cursor).await.map(|_| ()).map_err(|failure| failure.about("while reading")),
        Err(error) => return refused::<()>(Err(error), code).map(|_| ()),
    };
    opened.and(Err(Failure::new(line!(), format!("the find was accepted; {code:?} expected"))))
}

async fn find_refuses_an_unknown_operator(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    refused_find(s, Find::new(c(), rawdoc! { "a": { "$frobnicate": 1 } }), Code::BadValue).await?;
    refused_find(s, Find::new(c(), rawdoc! { "$frobnicate": 1 }), Code::BadValue).await?;
    refused_find(s, Find::new(named("missing"), rawdoc! { "a": { "$in": 1 } }), Code::BadValue).await
}

async fn find_refuses_a_bad_sort(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let error = s.store.find(sorted(rawdoc! { "a": 7 })).await.err();
    ensure!(error.is_some(), "{{a: 7}} was accepted as a sort");
    Ok(())
}

async fn find_refuses_a_mixed_projection(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let find = Find { projection: rawdoc! { "a": 1, "b": 0 }, ..Find::new(c(), rawdoc! {}) };
    ensure!(s.store.find(find).await.is_err(), "a projection that includes and excludes was accepted");
    Ok(())
}

async fn find_refuses_a_hint_to_no_index(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    for hint in [Hint::Name("x_1".to_owned()), Hint::Key(rawdoc! { "x": 1 })] {
        refused_find(s, Find { hint: Some(hint), ..Find::new(c(), rawdoc! {}) }, Code::BadValue).await?;
    }
    Ok(())
}

async fn find_with_hint_by_name_and_by_key(s: &Subject) -> Result<(), Failure> {
    s.fill((0..20).map(|n| rawdoc! { "_id": n, "m": n % 5 })).await?;
    s.index(IndexSpec::new(rawdoc! { "m": 1 })).await?;
    for hint in [Hint::Name("m_1".to_owned()), Hint::Key(rawdoc! { "m": 1 }), Hint::Name("_id_".to_owned())] {
        let find = Find { hint: Some(hint), sort: rawdoc! { "_id": 1 }, ..Find::new(c(), rawdoc! { "m": 3 }) };
        ensure_eq!(ids(&s.find(find).await?)?, [3, 8, 13, 18]);
    }
    Ok(())
}

async fn find_with_natural_hint_backwards(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let natural = async |direction: i32| {
        let hint = Some(Hint::Key(rawdoc! { "$natural": direction }));
        ids(&s.find(Find { hint, ..Find::new(c(), rawdoc! {}) }).await?)
    };
    let (forwards, mut backwards) = (natural(1).await?, natural(-1).await?);
    backwards.reverse();
    ensure_eq!(forwards, backwards);
    ensure_eq!(forwards.len(), 20);
    Ok(())
}

async fn find_with_bounds_on_the_hinted_index(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    let find = Find {
        hint: Some(Hint::Key(rawdoc! { "n": 1 })),
        min: Some(rawdoc! { "n": 5 }),
        max: Some(rawdoc! { "n": 8 }),
        ..Find::new(c(), rawdoc! {})
    };
    ensure_eq!(ids(&s.find(find).await?)?, [5, 6, 7]);
    Ok(())
}

async fn find_returns_index_keys(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    let find = Find {
        hint: Some(Hint::Key(rawdoc! { "n": 1 })),
        sort: rawdoc! { "n": 1 },
        return_key: true,
        ..Find::new(c(), rawdoc! { "n": { "$gte": 1 } })
    };
    ensure_eq!(s.find(find).await?, [rawdoc! { "n": 1 }, rawdoc! { "n": 2 }]);
    Ok(())
}

async fn find_shows_record_ids_that_differ(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(10)).await?;
    let found = s.find(Find { show_record_id: true, ..Find::new(c(), rawdoc! {}) }).await?;
    let mut seen = Vec::new();
    for document in &found {
        let record = document.get("$recordId")?.map(bson::RawBson::from);
        ensure!(record.is_some(), "{document:?} has no $recordId");
        ensure!(!seen.contains(&record), "{record:?} came twice");
        seen.push(record);
    }
    ensure_eq!(found.len(), 10);
    Ok(())
}

const FEW: BatchLimit = BatchLimit { documents: 7, bytes: usize::MAX };

async fn cursor_pages_hold_as_many_as_allowed(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let mut cursor = s.store.find(sorted(rawdoc! { "_id": 1 })).await?;
    let first = cursor.next_page(FEW).await?;
    ensure_eq!(ids(&first.documents)?, (0..7).collect::<Vec<_>>());
    ensure!(!first.exhausted, "exhausted after 7 of 20");
    let second = cursor.next_page(BatchLimit { documents: 1, ..FEW }).await?;
    ensure_eq!(ids(&second.documents)?, [7]);
    let third = cursor.next_page(BatchLimit { documents: 12, ..FEW }).await?;
    ensure_eq!(ids(&third.documents)?, (8..20).collect::<Vec<_>>());
    Ok(())
}

async fn cursor_pages_hold_as_many_bytes_as_allowed(s: &Subject) -> Result<(), Failure> {
    s.fill((0..20).map(|n| rawdoc! { "_id": n, "pad": "x".repeat(1000) })).await?;
    let bytes = 3500;
    let mut cursor = s.store.find(Find::new(c(), rawdoc! {})).await?;
    let mut found = 0;
    loop {
        let page = cursor.next_page(BatchLimit { documents: usize::MAX, bytes }).await?;
        let held: usize = page.documents.iter().map(|document| document.as_bytes().len()).sum();
        ensure!(held <= bytes, "a page of {held} bytes, {bytes} allowed");
        found += page.documents.len();
        if page.exhausted {
            break;
        }
        ensure_eq!(page.documents.len(), 3);
    }
    ensure_eq!(found, 20);
    Ok(())
}

async fn cursor_page_holds_one_document_whatever_its_size(s: &Subject) -> Result<(), Failure> {
    s.fill((0..3).map(|n| rawdoc! { "_id": n, "pad": "x".repeat(1000) })).await?;
    let mut cursor = s.store.find(Find::new(c(), rawdoc! {})).await?;
    for _ in 0..3 {
        let page = cursor.next_page(BatchLimit { documents: 10, bytes: 1 }).await?;
        ensure_eq!(page.documents.len(), 1);
    }
    Ok(())
}

async fn cursor_stays_at_its_end(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let mut cursor = s.store.find(Find::new(c(), rawdoc! {})).await?;
    let mut pages = 0;
    while !cursor.next_page(BatchLimit::REPLY).await?.exhausted {
        pages += 1;
        ensure!(pages < 3, "the cursor does not end");
    }
    s.fill([id(9)]).await?;
    for _ in 0..3 {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        ensure!(page.exhausted && page.documents.is_empty(), "a page after the last: {page:?}");
    }
    Ok(())
}

async fn cursor_of_nothing_is_exhausted_at_once(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let page = s.store.find(Find::new(c(), rawdoc! { "n": 99 })).await?.next_page(BatchLimit::REPLY).await?;
    ensure!(page.exhausted && page.documents.is_empty(), "{page:?}");
    Ok(())
}

async fn cursor_limit_ends_it(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    for limit in [1, 6, 7, 8, 14, 20, 21] {
        let mut cursor = s.store.find(Find { limit: Some(limit), ..Find::new(c(), rawdoc! {}) }).await?;
        let mut found = 0;
        for _ in 0..5 {
            found += cursor.next_page(FEW).await?.documents.len() as u64;
        }
        ensure_eq!(found, limit.min(20));
    }
    Ok(())
}

async fn cursor_over_many_pages_returns_each_once(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(1000)).await?;
    let mut cursor = s.store.find(Find::new(c(), rawdoc! { "n": { "$gte": 10 } })).await?;
    let mut found = Vec::new();
    loop {
        let page = cursor.next_page(FEW).await?;
        found.extend(ids(&page.documents)?);
        if page.exhausted {
            break;
        }
    }
    found.sort_unstable();
    ensure_eq!(found, (10..1000).collect::<Vec<_>>());
    Ok(())
}

async fn cursor_over_a_sorted_find_stays_sorted(s: &Subject) -> Result<(), Failure> {
    s.fill((0..300).map(|n| rawdoc! { "_id": n, "k": (n * 7919) % 300 })).await?;
    let mut cursor = s.store.find(sorted(rawdoc! { "k": -1 })).await?;
    let mut found = Vec::new();
    loop {
        let page = cursor.next_page(FEW).await?;
        found.extend(ints(&page.documents, "k")?);
        if page.exhausted {
            break;
        }
    }
    ensure_eq!(found, (0..300).rev().collect::<Vec<_>>());
    Ok(())
}

async fn cursor_does_not_see_later_writes(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(100)).await?;
    let mut cursor = s.store.find(Find::new(c(), rawdoc! {})).await?;
    let mut found = cursor.next_page(FEW).await?.documents;
    s.fill((100..200).map(|n| rawdoc! { "_id": n, "n": n })).await?;
    s.fill([rawdoc! { "_id": -1, "n": -1 }]).await?;
    s.delete(rawdoc! { "_id": { "$gte": 50 } }, true).await?;
    s.update_one(id(40), rawdoc! { "$set": { "n": -40 } }).await?;
    found.extend(drain(cursor).await?);
    found.sort_by_key(|document| document.get_i32("_id").unwrap_or(i32::MAX));
    ensure_eq!(found, numbered(100).collect::<Vec<_>>());
    Ok(())
}

async fn cursor_outlives_its_collection(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(100)).await?;
    let mut cursor = s.store.find(Find::new(c(), rawdoc! {})).await?;
    let first = cursor.next_page(FEW).await?.documents.len();
    s.store.drop_collection(&c()).await?;
    s.fill([rawdoc! { "_id": 1000, "n": 0 }]).await?;
    ensure_eq!(first + drain(cursor).await?.len(), 100);
    Ok(())
}
