//! Aggregation pipelines, with those stages that reach into other collections.

use bson::{RawDocumentBuf, rawdoc};

use super::subject::{Failure, Subject, c, drain, id, ids, named, numbered};
use super::{ensure, ensure_eq, list_cases};
use crate::{Aggregate, AggregateSource, BatchLimit, CollectionOptions, CreateIndexes, Find, IndexSpec};

list_cases! { Nothing:
    aggregate_without_stages_is_find_all,
    aggregate_in_a_missing_collection_is_empty,
    aggregate_matches_groups_and_sorts,
    aggregate_matches_after_a_group,
    aggregate_unwinds_and_projects,
    aggregate_limits_and_skips_in_order,
    aggregate_with_variables,
    aggregate_of_documents_without_a_collection,
    aggregate_counts,
    aggregate_counts_nothing_as_no_document,
    aggregate_facets,
    aggregate_samples_without_repeats,
    aggregate_pages_hold_as_many_as_allowed,
    aggregate_looks_up_by_field,
    aggregate_looks_up_arrays_and_missing_values,
    aggregate_looks_up_by_pipeline,
    aggregate_looks_up_equal_values_of_variables,
    aggregate_looks_up_in_a_missing_collection,
    aggregate_unites_collections,
    aggregate_looks_up_a_graph,
    aggregate_out_replaces_a_collection,
    aggregate_out_to_its_own_source,
    aggregate_out_keeps_the_targets_indexes,
    aggregate_out_that_fails_leaves_the_target,
    aggregate_merge_updates_and_inserts,
    aggregate_merge_when_matched_fails,
    aggregate_merge_when_matched_keeps_existing,
    aggregate_merge_when_matched_runs_a_pipeline,
    aggregate_merge_when_not_matched_discards,
    aggregate_merge_on_a_field_needs_a_unique_index,
    aggregate_refuses_an_unknown_stage,
    aggregate_refuses_out_before_the_end,
    aggregate_reports_an_error_of_an_expression,
}

async fn aggregate_without_stages_is_find_all(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(10)).await?;
    let mut found = ids(&s.aggregate(vec![]).await?)?;
    found.sort_unstable();
    ensure_eq!(found, (0..10).collect::<Vec<_>>());
    Ok(())
}

async fn aggregate_in_a_missing_collection_is_empty(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(s.aggregate(vec![rawdoc! { "$match": { "a": 1 } }]).await?.len(), 0);
    ensure_eq!(s.store.list_collections("conformance").await?.len(), 0);
    Ok(())
}

async fn aggregate_matches_groups_and_sorts(s: &Subject) -> Result<(), Failure> {
    s.fill((0..10).map(|n| rawdoc! { "_id": n, "k": n % 3, "n": n })).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$match": { "n": { "$gte": 1 } } },
            rawdoc! { "$group": { "_id": "$k", "sum": { "$sum": "$n" }, "most": { "$max": "$n" } } },
            rawdoc! { "$sort": { "_id": -1 } },
        ])
        .await?;
    let expected = [
        rawdoc! { "_id": 2, "sum": 15, "most": 8 },
        rawdoc! { "_id": 1, "sum": 12, "most": 7 },
        rawdoc! { "_id": 0, "sum": 18, "most": 9 },
    ];
    ensure_eq!(found, expected);
    Ok(())
}

async fn aggregate_matches_after_a_group(s: &Subject) -> Result<(), Failure> {
    s.fill((0..10).map(|n| rawdoc! { "_id": n, "k": n % 4 })).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$group": { "_id": "$k", "n": { "$sum": 1 } } },
            rawdoc! { "$match": { "n": { "$gt": 2 } } },
            rawdoc! { "$sort": { "_id": 1 } },
        ])
        .await?;
    ensure_eq!(found, [rawdoc! { "_id": 0, "n": 3 }, rawdoc! { "_id": 1, "n": 3 }]);
    Ok(())
}

async fn aggregate_unwinds_and_projects(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": [1, 2] }, rawdoc! { "_id": 2, "a": [] }, rawdoc! { "_id": 3, "a": 3 }]).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$sort": { "_id": 1 } },
            rawdoc! { "$unwind": "$a" },
            rawdoc! { "$project": { "_id": 0, "twice": { "$multiply": ["$a", 2] } } },
        ])
        .await?;
    ensure_eq!(found, [rawdoc! { "twice": 2 }, rawdoc! { "twice": 4 }, rawdoc! { "twice": 6 }]);
    Ok(())
}

async fn aggregate_limits_and_skips_in_order(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let sort = rawdoc! { "$sort": { "n": -1 } };
    let found = s.aggregate(vec![sort.clone(), rawdoc! { "$limit": 5 }, rawdoc! { "$skip": 3 }]).await?;
    ensure_eq!(ids(&found)?, [16, 15]);
    let found = s.aggregate(vec![sort.clone(), rawdoc! { "$skip": 3 }, rawdoc! { "$limit": 2 }]).await?;
    ensure_eq!(ids(&found)?, [16, 15]);
    let found = s.aggregate(vec![rawdoc! { "$limit": 20 }, sort, rawdoc! { "$limit": 1 }]).await?;
    ensure_eq!(ids(&found)?, [19]);
    Ok(())
}

async fn aggregate_with_variables(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let pipeline = vec![rawdoc! { "$match": { "$expr": { "$eq": ["$n", "$$wanted"] } } }];
    let request = Aggregate { variables: rawdoc! { "wanted": 3 }, ..Aggregate::new(c(), pipeline) };
    ensure_eq!(ids(&drain(s.store.aggregate(request).await?).await?)?, [3]);
    Ok(())
}

async fn aggregate_of_documents_without_a_collection(s: &Subject) -> Result<(), Failure> {
    let pipeline = vec![rawdoc! { "$documents": [{ "a": 1 }, { "a": 2 }] }, rawdoc! { "$match": { "a": 2 } }];
    let source = AggregateSource::Database("conformance".to_owned());
    let request = Aggregate { source, ..Aggregate::new(c(), pipeline) };
    ensure_eq!(drain(s.store.aggregate(request).await?).await?, [rawdoc! { "a": 2 }]);
    Ok(())
}

async fn aggregate_counts(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let found = s.aggregate(vec![rawdoc! { "$match": { "n": { "$lt": 7 } } }, rawdoc! { "$count": "few" }]).await?;
    ensure_eq!(found, [rawdoc! { "few": 7 }]);
    Ok(())
}

async fn aggregate_counts_nothing_as_no_document(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(s.aggregate(vec![rawdoc! { "$count": "none" }]).await?.len(), 0);
    Ok(())
}

async fn aggregate_facets(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(6)).await?;
    let facet = rawdoc! { "$facet": {
        "low": [{ "$match": { "n": { "$lt": 2 } } }, { "$sort": { "n": 1 } }, { "$project": { "_id": 0 } }],
        "total": [{ "$count": "n" }],
    } };
    ensure_eq!(s.aggregate(vec![facet]).await?, [rawdoc! { "low": [{ "n": 0 }, { "n": 1 }], "total": [{ "n": 6 }] }]);
    Ok(())
}

async fn aggregate_samples_without_repeats(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(50)).await?;
    let mut found = ids(&s.aggregate(vec![rawdoc! { "$sample": { "size": 20 } }]).await?)?;
    found.sort_unstable();
    found.dedup();
    ensure_eq!(found.len(), 20);
    ensure_eq!(s.aggregate(vec![rawdoc! { "$sample": { "size": 100 } }]).await?.len(), 50);
    Ok(())
}

async fn aggregate_pages_hold_as_many_as_allowed(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let request = Aggregate::new(c(), vec![rawdoc! { "$sort": { "n": 1 } }, rawdoc! { "$set": { "a": 1 } }]);
    let mut cursor = s.store.aggregate(request).await?;
    let mut found = Vec::new();
    for _ in 0..5 {
        let page = cursor.next_page(BatchLimit { documents: 6, bytes: usize::MAX }).await?;
        ensure!(page.documents.len() <= 6, "a page of {}", page.documents.len());
        found.extend(ids(&page.documents)?);
        if page.exhausted {
            break;
        }
    }
    ensure_eq!(found, (0..20).collect::<Vec<_>>());
    Ok(())
}

async fn aggregate_looks_up_by_field(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "who": 10 }, rawdoc! { "_id": 2, "who": 11 }, rawdoc! { "_id": 3, "who": 10 }]).await?;
    s.fill_in(&named("people"), [rawdoc! { "_id": 10, "name": "A" }, rawdoc! { "_id": 12, "name": "B" }]).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$sort": { "_id": 1 } },
            rawdoc! { "$lookup": { "from": "people", "localField": "who", "foreignField": "_id", "as": "p" } },
        ])
        .await?;
    let expected = [
        rawdoc! { "_id": 1, "who": 10, "p": [{ "_id": 10, "name": "A" }] },
        rawdoc! { "_id": 2, "who": 11, "p": [] },
        rawdoc! { "_id": 3, "who": 10, "p": [{ "_id": 10, "name": "A" }] },
    ];
    ensure_eq!(found, expected);
    Ok(())
}

/// A `$lookup` finds the documents for each element of an array; for a missing field, those with null or without the field.
async fn aggregate_looks_up_arrays_and_missing_values(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "k": [1, 2] }, rawdoc! { "_id": 2 }]).await?;
    let other = named("other");
    s.fill_in(&other, [rawdoc! { "_id": 1, "k": 1 }, rawdoc! { "_id": 2, "k": [2, 9] }]).await?;
    s.fill_in(&other, [rawdoc! { "_id": 3, "k": null }, rawdoc! { "_id": 4 }]).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$lookup": { "from": "other", "localField": "k", "foreignField": "k", "as": "o" } },
            rawdoc! { "$unwind": { "path": "$o", "preserveNullAndEmptyArrays": true } },
            rawdoc! { "$sort": { "_id": 1, "o._id": 1 } },
            rawdoc! { "$project": { "pair": ["$_id", "$o._id"], "_id": 0 } },
        ])
        .await?;
    let pairs = [[1, 1], [1, 2], [2, 3], [2, 4]].map(|pair| rawdoc! { "pair": [pair[0], pair[1]] });
    ensure_eq!(found, pairs);
    Ok(())
}

async fn aggregate_looks_up_by_pipeline(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "most": 2 }, rawdoc! { "_id": 2, "most": 0 }]).await?;
    s.fill_in(&named("other"), numbered(5)).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$sort": { "_id": 1 } },
            rawdoc! { "$lookup": {
                "from": "other",
                "let": { "most": "$most" },
                "pipeline": [
                    { "$match": { "$expr": { "$lte": ["$n", "$$most"] } } },
                    { "$sort": { "n": -1 } },
                    { "$project": { "_id": 0 } },
                ],
                "as": "o",
            } },
        ])
        .await?;
    let expected = [
        rawdoc! { "_id": 1, "most": 2, "o": [{ "n": 2 }, { "n": 1 }, { "n": 0 }] },
        rawdoc! { "_id": 2, "most": 0, "o": [{ "n": 0 }] },
    ];
    ensure_eq!(found, expected);
    Ok(())
}

/// `$expr` compares whole values, so an array is not its elements; a variable of a missing field equals a missing field alone. An
/// index may serve it.
async fn aggregate_looks_up_equal_values_of_variables(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "k": 7 }, rawdoc! { "_id": 2, "k": [7] }, rawdoc! { "_id": 3, "k": null }, id(4)])
        .await?;
    let indexes = vec![IndexSpec::new(rawdoc! { "v": 1 })];
    s.store.create_indexes(CreateIndexes { namespace: named("other"), indexes }).await?;
    let others = [rawdoc! { "_id": 1, "v": 7 }, rawdoc! { "_id": 2, "v": [7] }, rawdoc! { "_id": 3, "v": null }, id(4)];
    s.fill_in(&named("other"), others).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$sort": { "_id": 1 } },
            rawdoc! { "$lookup": {
                "from": "other",
                "let": { "k": "$k" },
                "pipeline": [{ "$match": { "$expr": { "$eq": ["$v", "$$k"] } } }, { "$project": { "_id": 1 } }],
                "as": "o",
            } },
            rawdoc! { "$project": { "o": 1 } },
        ])
        .await?;
    let expected: Vec<_> = (1..5).map(|n| rawdoc! { "_id": n, "o": [{ "_id": n }] }).collect();
    ensure_eq!(found, expected);
    Ok(())
}

async fn aggregate_looks_up_in_a_missing_collection(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let lookup = rawdoc! { "$lookup": { "from": "none", "localField": "a", "foreignField": "b", "as": "o" } };
    ensure_eq!(s.aggregate(vec![lookup]).await?, [rawdoc! { "_id": 1, "o": [] }]);
    Ok(())
}

async fn aggregate_unites_collections(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    s.fill_in(&named("other"), (3..6).map(|n| rawdoc! { "_id": n })).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$match": { "n": { "$gt": 0 } } },
            rawdoc! { "$unionWith": { "coll": "other", "pipeline": [{ "$match": { "_id": { "$gt": 3 } } }] } },
            rawdoc! { "$unionWith": "none" },
            rawdoc! { "$sort": { "_id": 1 } },
        ])
        .await?;
    ensure_eq!(ids(&found)?, [1, 2, 4, 5]);
    Ok(())
}

async fn aggregate_looks_up_a_graph(s: &Subject) -> Result<(), Failure> {
    // 0 -> 1 -> 2 -> 0, and 3 -> 1.
    let boss = |n, of| rawdoc! { "_id": n, "boss": of };
    s.fill([boss(0, 1), boss(1, 2), boss(2, 0), boss(3, 1)]).await?;
    let found = s
        .aggregate(vec![
            rawdoc! { "$match": { "_id": 3 } },
            rawdoc! { "$graphLookup": {
                "from": "c", "startWith": "$boss", "connectFromField": "boss", "connectToField": "_id", "as": "up",
                "maxDepth": 1, "depthField": "d",
            } },
            rawdoc! { "$unwind": "$up" },
            rawdoc! { "$replaceRoot": { "newRoot": "$up" } },
            rawdoc! { "$sort": { "_id": 1 } },
        ])
        .await?;
    ensure_eq!(found, [rawdoc! { "_id": 1, "boss": 2, "d": 0_i64 }, rawdoc! { "_id": 2, "boss": 0, "d": 1_i64 }]);
    Ok(())
}

async fn in_order(s: &Subject, collection: &str) -> Result<Vec<RawDocumentBuf>, Failure> {
    s.find(Find { sort: rawdoc! { "_id": 1 }, ..Find::new(named(collection), rawdoc! {}) }).await
}

async fn aggregate_out_replaces_a_collection(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    s.fill_in(&named("target"), [id("old")]).await?;
    let pipeline = vec![rawdoc! { "$match": { "n": { "$gt": 0 } } }, rawdoc! { "$out": "target" }];
    ensure_eq!(s.aggregate(pipeline).await?.len(), 0);
    ensure_eq!(ids(&in_order(s, "target").await?)?, [1, 2]);
    // No temporary collection is left behind.
    let names: Vec<_> = s.store.list_collections("conformance").await?.into_iter().map(|info| info.name).collect();
    ensure_eq!(names, ["c", "target"]);
    Ok(())
}

async fn aggregate_out_to_its_own_source(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(100)).await?;
    s.aggregate(vec![rawdoc! { "$set": { "n": { "$add": ["$n", 1] } } }, rawdoc! { "$out": "c" }]).await?;
    ensure_eq!(super::subject::ints(&s.all().await?, "n")?, (1..101).collect::<Vec<_>>());
    Ok(())
}

async fn aggregate_out_keeps_the_targets_indexes(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) };
    s.store.create_indexes(CreateIndexes { namespace: named("target"), indexes: vec![unique] }).await?;
    s.aggregate(vec![rawdoc! { "$out": "target" }]).await?;
    ensure_eq!(s.store.list_indexes(&named("target")).await?.len(), 2);
    ensure_eq!(in_order(s, "target").await?.len(), 3);
    Ok(())
}

async fn aggregate_out_that_fails_leaves_the_target(s: &Subject) -> Result<(), Failure> {
    s.fill((0..5).map(|n| rawdoc! { "_id": n, "same": 1 })).await?;
    s.fill_in(&named("target"), [rawdoc! { "_id": 9, "same": 1 }]).await?;
    let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "same": 1 }) };
    s.store.create_indexes(CreateIndexes { namespace: named("target"), indexes: vec![unique] }).await?;
    let failed = s.aggregate(vec![rawdoc! { "$out": "target" }]).await;
    ensure!(failed.is_err(), "five documents with the same unique key went in");
    ensure_eq!(ids(&in_order(s, "target").await?)?, [9]);
    let names: Vec<_> = s.store.list_collections("conformance").await?.into_iter().map(|info| info.name).collect();
    ensure_eq!(names, ["c", "target"]);
    Ok(())
}

async fn aggregate_merge_updates_and_inserts(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    s.fill_in(&named("target"), [rawdoc! { "_id": 1, "kept": true, "n": 9 }]).await?;
    ensure_eq!(s.aggregate(vec![rawdoc! { "$merge": "target" }]).await?.len(), 0);
    let expected =
        [rawdoc! { "_id": 0, "n": 0 }, rawdoc! { "_id": 1, "kept": true, "n": 1 }, rawdoc! { "_id": 2, "n": 2 }];
    ensure_eq!(in_order(s, "target").await?, expected);
    Ok(())
}

async fn merge(s: &Subject, options: RawDocumentBuf) -> Result<Vec<RawDocumentBuf>, Failure> {
    let mut merge = rawdoc! { "into": "target" };
    for element in &options {
        let (name, value) = element?;
        merge.append(name, value);
    }
    s.aggregate(vec![rawdoc! { "$merge": merge }]).await
}

async fn aggregate_merge_when_matched_fails(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    s.fill_in(&named("target"), [rawdoc! { "_id": 1, "old": true }]).await?;
    let failed = merge(s, rawdoc! { "whenMatched": "fail" }).await;
    ensure!(failed.is_err(), "a match was accepted");
    ensure_eq!(in_order(s, "target").await?, [rawdoc! { "_id": 1, "old": true }]);
    Ok(())
}

async fn aggregate_merge_when_matched_keeps_existing(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 1 }, rawdoc! { "_id": 2, "n": 2 }]).await?;
    s.fill_in(&named("target"), [rawdoc! { "_id": 1, "old": true }]).await?;
    merge(s, rawdoc! { "whenMatched": "keepExisting" }).await?;
    ensure_eq!(in_order(s, "target").await?, [rawdoc! { "_id": 1, "old": true }, rawdoc! { "_id": 2, "n": 2 }]);
    merge(s, rawdoc! { "whenMatched": "replace" }).await?;
    ensure_eq!(in_order(s, "target").await?, [rawdoc! { "_id": 1, "n": 1 }, rawdoc! { "_id": 2, "n": 2 }]);
    Ok(())
}

async fn aggregate_merge_when_matched_runs_a_pipeline(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "n": 5 }, rawdoc! { "_id": 2, "n": 6 }]).await?;
    s.fill_in(&named("target"), [rawdoc! { "_id": 1, "n": 10 }]).await?;
    merge(s, rawdoc! { "whenMatched": [{ "$set": { "n": { "$add": ["$n", "$$new.n"] } } }] }).await?;
    ensure_eq!(in_order(s, "target").await?, [rawdoc! { "_id": 1, "n": 15 }, rawdoc! { "_id": 2, "n": 6 }]);
    Ok(())
}

async fn aggregate_merge_when_not_matched_discards(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(3)).await?;
    s.fill_in(&named("target"), [rawdoc! { "_id": 1 }]).await?;
    merge(s, rawdoc! { "whenNotMatched": "discard" }).await?;
    ensure_eq!(in_order(s, "target").await?, [rawdoc! { "_id": 1, "n": 1 }]);
    let failed = merge(s, rawdoc! { "whenNotMatched": "fail" }).await;
    ensure!(failed.is_err(), "a document without a match was accepted");
    Ok(())
}

async fn aggregate_merge_on_a_field_needs_a_unique_index(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "k": 7, "n": 1 }]).await?;
    s.fill_in(&named("target"), [rawdoc! { "_id": 100, "k": 7 }]).await?;
    let strip = rawdoc! { "$project": { "_id": 0 } };
    let pipeline = vec![strip, rawdoc! { "$merge": { "into": "target", "on": "k" } }];
    ensure!(s.aggregate(pipeline.clone()).await.is_err(), "$merge on a field without a unique index was accepted");
    let unique = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "k": 1 }) };
    s.store.create_indexes(CreateIndexes { namespace: named("target"), indexes: vec![unique] }).await?;
    s.aggregate(pipeline).await?;
    ensure_eq!(in_order(s, "target").await?, [rawdoc! { "_id": 100, "k": 7, "n": 1 }]);
    Ok(())
}

async fn aggregate_refuses_an_unknown_stage(s: &Subject) -> Result<(), Failure> {
    s.store.create_collection(&c(), CollectionOptions::default()).await?;
    let request = Aggregate::new(c(), vec![rawdoc! { "$frobnicate": {} }]);
    super::subject::refused(s.store.aggregate(request).await, handfast_mql::Code(40324))?;
    Ok(())
}

async fn aggregate_refuses_out_before_the_end(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    let pipeline = vec![rawdoc! { "$out": "target" }, rawdoc! { "$match": {} }];
    ensure!(s.aggregate(pipeline).await.is_err(), "$out was accepted before another stage");
    ensure_eq!(in_order(s, "target").await?.len(), 0);
    Ok(())
}

async fn aggregate_reports_an_error_of_an_expression(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "a": "x" }]).await?;
    let failed = s.aggregate(vec![rawdoc! { "$set": { "b": { "$add": ["$a", 1] } } }]).await;
    ensure!(failed.is_err(), "a string was added to a number");
    Ok(())
}
