//! Stages that write to a file what exceeds their memory give what they give in memory.

use std::sync::atomic::Ordering;

use bson::{Document, RawDocumentBuf, doc};

use super::{compile, raw};
use crate::{
    Code, Context,
    expression::testing::context,
    spill::testing::{Space, spilling},
};

/// Returns documents of 50 groups in no order, with a counter.
fn documents() -> Vec<Document> {
    (0..2_000).map(|n| doc! { "_id": n, "k": n * 7 % 50, "v": n * 13 % 997, "text": "x".repeat(40) }).collect()
}

fn run(stage: &Document, context: &Context) -> crate::Result<Vec<RawDocumentBuf>> {
    compile(stage.clone())?.run(raw(documents()), context)
}

/// Returns the documents in the order of their text, for stages without an order.
fn ordered(mut documents: Vec<RawDocumentBuf>) -> Vec<RawDocumentBuf> {
    documents.sort_by_key(|document| format!("{document:?}"));
    documents
}

#[test]
fn stages_give_the_same_with_a_file_as_in_memory() {
    let window = doc! { "partitionBy": "$k", "sortBy": { "v": 1 }, "output": { "sum": { "$sum": "$v", "window": { "documents": ["unbounded", "current"] } } } };
    let group = doc! {
        "_id": "$k", "count": { "$sum": 1 }, "first": { "$first": "$_id" }, "last": { "$last": "$_id" }, "all": { "$push": "$_id" },
        "most": { "$max": "$v" }, "mean": { "$avg": "$v" }, "best": { "$topN": { "n": 3, "sortBy": { "v": -1 }, "output": "$_id" } },
    };
    for (stage, has_order) in [
        (doc! { "$sort": { "v": 1, "k": -1 } }, true),
        (doc! { "$group": group }, false),
        (doc! { "$group": { "_id": { "a": "$k", "b": { "$mod": ["$v", 40] } }, "n": { "$sum": 1 } } }, false),
        (
            doc! { "$group": { "_id": { "$mod": ["$v", 200] }, "n": { "$sum": "$v" }, "first": { "$first": "$_id" }, "last": { "$last": "$text" } } },
            false,
        ),
        (doc! { "$group": { "_id": "$text", "n": { "$sum": "$v" } } }, false),
        (doc! { "$setWindowFields": window }, true),
        (
            doc! { "$densify": { "field": "v", "partitionByFields": ["k"], "range": { "step": 50, "bounds": [0, 1_000] } } },
            true,
        ),
    ] {
        let space = Space::default();
        let small = spilling(12_000, usize::MAX, &space);
        let (with_file, in_memory) = (run(&stage, &small).unwrap(), run(&stage, &context()).unwrap());
        let is_one_group = stage.get_document("$group").is_ok_and(|group| group.get("_id") == Some(&"$text".into()));
        assert_eq!(space.0.written.load(Ordering::Relaxed) > 0, !is_one_group, "{stage}");
        assert_eq!((space.0.files.load(Ordering::Relaxed), small.memory.total.held()), (0, 0), "{stage}");
        match has_order {
            true => assert_eq!(with_file, in_memory, "{stage}"),
            false => assert_eq!(ordered(with_file), ordered(in_memory), "{stage}"),
        }
    }
}

/// A document is of the group of its time, also if its `_id` depends on chance.
#[test]
fn the_id_of_a_group_is_computed_once_for_each_document() {
    let id = doc! { "$floor": { "$multiply": [{ "$rand": {} }, 100] } };
    let stage = doc! { "$group": { "_id": id, "n": { "$sum": 1 }, "ids": { "$push": "$_id" } } };
    let groups = run(&stage, &spilling(8_000, usize::MAX, &Space::default())).unwrap();
    let mut seen: Vec<_> = groups.iter().map(|group| format!("{:?}", group.get("_id"))).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), groups.len(), "each group is returned once");
    let total: i32 = groups.iter().map(|group| group.get_i32("n").unwrap()).sum();
    assert_eq!(total, 2_000);
}

#[test]
fn one_group_or_partition_that_is_too_large_is_refused() {
    for stage in [
        doc! { "$group": { "_id": null, "all": { "$push": "$text" } } },
        doc! { "$setWindowFields": { "sortBy": { "v": 1 }, "output": { "n": { "$count": {} } } } },
        doc! { "$bucketAuto": { "groupBy": "$v", "buckets": 3 } },
    ] {
        let small = spilling(12_000, usize::MAX, &Space::default());
        let error = run(&stage, &small).unwrap_err();
        assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{stage}: {error}");
        assert_eq!(small.memory.total.held(), 0, "{stage}");
    }
    let stage = doc! { "$group": { "_id": "$_id" } };
    let without = spilling(12_000, usize::MAX, &Space::default()).with_disk_use(false);
    assert_eq!(run(&stage, &without).unwrap_err().code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed);
}
