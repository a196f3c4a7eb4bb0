//! The bounds on the memory and the results of stages.

use bson::{Document, bson, doc, rawdoc};

use super::{check_error, compile, raw, run};
use crate::{
    Code,
    context::{QueryMemory, StageTotal},
    expression::testing::context,
    pipeline::{Flow, Operator, chain},
};

#[test]
fn stages_that_hold_too_much_are_stopped() {
    let context = context();
    let big = rawdoc! { "x": "x".repeat(1 << 20) };
    for stages in [
        bson!([{ "$sort": { "y": 1 } }]),
        bson!([{ "$group": { "_id": null, "all": { "$push": "$x" } } }]),
        bson!([{ "$bucketAuto": { "groupBy": "$x", "buckets": 2 } }]),
        bson!([{ "$facet": { "a": [] } }]),
        bson!([{ "$sample": { "size": 1000 } }]),
    ] {
        let pipeline = compile(stages.clone()).unwrap();
        let error = pipeline.run((0..120).map(|_| big.clone()), &context).unwrap_err();
        assert_eq!(error.code().0, 292, "{stages}");
    }
    // With a limit a sort keeps only that number of documents.
    let pipeline = compile(bson!([{ "$sort": { "y": 1 } }, { "$limit": 3 }])).unwrap();
    assert_eq!(pipeline.run((0..120).map(|_| big.clone()), &context).unwrap().len(), 3);
}

#[test]
fn stages_that_nest_too_deeply_are_refused() {
    let stages: Vec<Document> = (0..900).map(|_| doc! { "$replaceWith": { "a": "$$ROOT" } }).collect();
    check_error(bson::Bson::from(stages), 15);
}

#[test]
fn every_stage_that_holds_its_input_has_a_memory_limit() {
    let documents = || raw((0..100).map(|n| doc! { "_id": n, "text": "x".repeat(100) }));
    let context = |stage_bytes_max| context().with_memory(QueryMemory { stage_bytes_max, ..QueryMemory::default() });
    for stage in [
        doc! { "$sort": { "text": 1 } },
        doc! { "$group": { "_id": "$_id", "text": { "$first": "$text" } } },
        doc! { "$group": { "_id": null, "texts": { "$push": "$text" } } },
        doc! { "$group": { "_id": null, "texts": { "$addToSet": { "$concat": ["$text", { "$toString": "$_id" }] } } } },
        doc! { "$bucketAuto": { "groupBy": "$_id", "buckets": 3 } },
        doc! { "$sample": { "size": 100 } },
        doc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "n": { "$count": {} } } } },
        doc! { "$densify": { "field": "_id", "range": { "step": 1, "bounds": "full" } } },
        doc! { "$facet": { "all": [] } },
    ] {
        let pipeline = compile(stage.clone()).unwrap();
        let error = pipeline.run(documents(), &context(5_000)).unwrap_err();
        assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{stage}: {error}");
        assert!(error.message().contains("5000 bytes"), "{stage}: {error}");
        assert!(pipeline.run(documents(), &context(500_000)).is_ok(), "{stage}");
    }
}

#[test]
fn all_stages_share_one_memory_limit() {
    let documents = || raw((0..100).map(|n| doc! { "_id": n, "text": "x".repeat(100) }));
    let total = StageTotal::new(5_000);
    let context = context().with_memory(QueryMemory { total: total.clone(), ..QueryMemory::default() });
    for stage in [
        doc! { "$sort": { "text": 1 } },
        doc! { "$group": { "_id": "$_id", "text": { "$first": "$text" } } },
        doc! { "$bucketAuto": { "groupBy": "$_id", "buckets": 3 } },
        doc! { "$sample": { "size": 100 } },
        doc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "n": { "$count": {} } } } },
        doc! { "$densify": { "field": "_id", "range": { "step": 1, "bounds": "full" } } },
        doc! { "$facet": { "all": [] } },
    ] {
        let error = compile(stage.clone()).unwrap().run(documents(), &context).unwrap_err();
        assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{stage}: {error}");
        assert!(error.message().contains("stage-bytes-total"), "{stage}: {error}");
        assert_eq!(total.held(), 0, "{stage}: given back");
    }
}

#[test]
fn large_results_are_returned_in_portions_and_count_until_then() {
    let documents = (0..30).map(|n| doc! { "_id": 29 - n, "text": "x".repeat(500_000) });
    let total = StageTotal::new(100_000_000);
    let context = context().with_memory(QueryMemory { total: total.clone(), ..QueryMemory::default() });
    let window = doc! { "sortBy": { "_id": 1 }, "output": { "n": { "$count": {} } } };
    for stage in [
        doc! { "$sort": { "_id": 1 } },
        doc! { "$setWindowFields": window },
        doc! { "$group": { "_id": "$_id", "text": { "$first": "$text" } } },
    ] {
        let pipeline = compile(bson!([stage.clone()])).unwrap();
        let mut chain = chain(pipeline.stages(), &context).unwrap();
        let mut out = Vec::new();
        for document in raw(documents.clone()) {
            assert_eq!(chain.push(document, &mut out).unwrap(), Flow::Continue);
        }
        let before = total.held();
        assert!(before > 15_000_000, "{stage}: {before}");
        assert_eq!(chain.finish(&mut out).unwrap(), Flow::More);
        assert!(out.len() < 15, "{stage}: {}", out.len());
        assert!(total.held() > 7_500_000, "{stage}: {}", total.held());
        while chain.finish(&mut out).unwrap() == Flow::More {}
        assert_eq!((out.len(), total.held()), (30, 0), "{stage}");
    }
}

#[test]
fn fields_computed_in_every_element_are_limited() {
    let input = doc! { "a": vec![doc! { "x": 1 }; 1000], "s": "x".repeat(1_000_000) };
    for stage in [
        doc! { "$addFields": { "a.x": "$s" } },
        doc! { "$addFields": { "a.y.z": "$s" } },
        doc! { "$project": { "a.y": "$s" } },
        doc! { "$project": { "a.y": { "$toUpper": "$s" } } },
        doc! { "$set": (0..200).map(|index| (format!("f{index}"), bson!({ "$toUpper": "$s" }))).collect::<Document>() },
    ] {
        let error = run(bson!([stage.clone()]), input.clone()).expect_err("too large");
        assert_eq!(error.code().0, 146, "{stage}");
    }
}
