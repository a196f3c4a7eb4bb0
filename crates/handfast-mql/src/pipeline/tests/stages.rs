//! The other stages, the refused stages, and the prefix of a pipeline that a find can do.

use bson::{Document, bson, doc, rawdoc};

use super::{check, check_error, compile, raw, run};
use crate::{
    expression::testing::context,
    pipeline::{Flow, Operator, Stage, chain},
};

#[test]
fn an_empty_pipeline_gives_its_input() {
    check(bson!([]), bson!([{ "a": 1 }, { "a": 2 }]), bson!([{ "a": 1 }, { "a": 2 }]));
}

#[test]
fn match_skip_limit_and_count_select_documents() {
    let input = bson!([{ "a": 1 }, { "a": 2 }, { "a": 3 }, { "a": 4 }]);
    check(bson!([{ "$match": { "a": { "$gt": 1 } } }]), input.clone(), bson!([{ "a": 2 }, { "a": 3 }, { "a": 4 }]));
    check(bson!([{ "$skip": 1 }, { "$limit": 2 }]), input.clone(), bson!([{ "a": 2 }, { "a": 3 }]));
    check(bson!([{ "$skip": 9 }]), input.clone(), bson!([]));
    check(bson!([{ "$count": "n" }]), input.clone(), bson!([{ "n": 4 }]));
    check(bson!([{ "$match": { "a": 9 } }, { "$count": "n" }]), input, bson!([]));
    check_error(bson!([{ "$limit": 0 }]), 15958);
    check_error(bson!([{ "$limit": -1 }]), 5107201);
    check_error(bson!([{ "$limit": "x" }]), 5107201);
    check_error(bson!([{ "$limit": 1.5 }]), 5107201);
    check_error(bson!([{ "$skip": -1 }]), 5107200);
    check_error(bson!([{ "$match": 1 }]), 15959);
    check_error(bson!([{ "$count": "" }]), 40157);
    check_error(bson!([{ "$count": 1 }]), 40156);
    check_error(bson!([{ "$count": "$a" }]), 40158);
    check_error(bson!([{ "$count": "a.b" }]), 40160);
}

#[test]
fn a_limit_stops_the_source() {
    let pipeline = compile(bson!([{ "$unwind": "$a" }, { "$limit": 2 }])).unwrap();
    let context = context();
    let mut chain = pipeline.chain(&context).unwrap();
    let mut out = Vec::new();
    assert_eq!(chain.push(rawdoc! { "a": [1, 2, 3] }, &mut out).unwrap(), Flow::Done);
    assert_eq!(chain.push(rawdoc! { "a": [4] }, &mut out).unwrap(), Flow::Done);
    assert_eq!(chain.finish(&mut out).unwrap(), Flow::Done);
    assert_eq!(out, [rawdoc! { "a": 1 }, rawdoc! { "a": 2 }]);
}

#[test]
fn a_large_unwind_is_returned_in_portions() {
    let big = "x".repeat(1000);
    let numbers: Vec<i32> = (0..20_000).collect();
    let document = rawdoc! { "big": big, "a": bson::RawArrayBuf::from_iter(numbers) };
    let pipeline = compile(bson!([{ "$unwind": "$a" }])).unwrap();
    let context = context();
    let mut chain = pipeline.chain(&context).unwrap();
    let mut out = Vec::new();
    let (mut count, mut portions) = (0, 0);
    let mut flow = chain.push(document, &mut out).unwrap();
    loop {
        count += out.len();
        portions += 1;
        assert!(out.len() < 10_000, "a portion is bounded");
        out.clear();
        if flow != Flow::More {
            break;
        }
        flow = chain.resume(&mut out).unwrap();
    }
    assert_eq!(count, 20_000);
    assert!(portions > 3);
}

#[test]
fn unwind_returns_a_document_for_each_element() {
    let input = bson!([{ "_id": 1, "a": [10, 20], "z": 0 }, { "_id": 2, "a": 5 }, { "_id": 3, "a": [] }, { "_id": 4, "a": null }, { "_id": 5 }]);
    check(
        bson!([{ "$unwind": "$a" }]),
        input.clone(),
        bson!([{ "_id": 1, "a": 10, "z": 0 }, { "_id": 1, "a": 20, "z": 0 }, { "_id": 2, "a": 5 }]),
    );
    check(
        bson!([{ "$unwind": { "path": "$a", "preserveNullAndEmptyArrays": true } }]),
        input.clone(),
        bson!([{ "_id": 1, "a": 10, "z": 0 }, { "_id": 1, "a": 20, "z": 0 }, { "_id": 2, "a": 5 }, { "_id": 3 }, { "_id": 4, "a": null }, { "_id": 5 }]),
    );
    check(
        bson!([{ "$unwind": { "path": "$a", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true } }, { "$match": { "_id": { "$lt": 4 } } }]),
        input,
        bson!([{ "_id": 1, "a": 10, "z": 0, "i": 0_i64 }, { "_id": 1, "a": 20, "z": 0, "i": 1_i64 }, { "_id": 2, "a": 5, "i": null }, { "_id": 3, "i": null }]),
    );
    check(
        bson!([{ "$unwind": "$a.b" }]),
        bson!({ "a": { "b": [1, 2], "c": 3 } }),
        bson!([{ "a": { "b": 1, "c": 3 } }, { "a": { "b": 2, "c": 3 } }]),
    );
    check(bson!([{ "$unwind": "$a.b" }]), bson!({ "a": [{ "b": [1, 2] }] }), bson!([]));
    check_error(bson!([{ "$unwind": 1 }]), 15981);
    check_error(bson!([{ "$unwind": "a" }]), 28818);
    check_error(bson!([{ "$unwind": {} }]), 28812);
    check_error(bson!([{ "$unwind": { "path": 1 } }]), 28808);
    check_error(bson!([{ "$unwind": { "path": "$a", "preserveNullAndEmptyArrays": 1 } }]), 28809);
    check_error(bson!([{ "$unwind": { "path": "$a", "includeArrayIndex": "" } }]), 28810);
    check_error(bson!([{ "$unwind": { "path": "$a", "includeArrayIndex": "$x" } }]), 28822);
    check_error(bson!([{ "$unwind": { "path": "$a", "x": 1 } }]), 28811);
}

#[test]
fn sort_orders_and_keeps_few() {
    let input = bson!([{ "a": 2, "b": 1 }, { "a": 1, "b": 2 }, { "a": 2, "b": 3 }, { "b": 4 }]);
    check(
        bson!([{ "$sort": { "a": 1 } }]),
        input.clone(),
        bson!([{ "b": 4 }, { "a": 1, "b": 2 }, { "a": 2, "b": 1 }, { "a": 2, "b": 3 }]),
    );
    check(
        bson!([{ "$sort": { "a": -1, "b": -1 } }, { "$limit": 2 }]),
        input,
        bson!([{ "a": 2, "b": 3 }, { "a": 2, "b": 1 }]),
    );
    check_error(bson!([{ "$sort": {} }]), 15976);
    check_error(bson!([{ "$sort": 1 }]), 15973);
    check_error(bson!([{ "$sort": { "a": 2 } }]), 15975);
    let pipeline = compile(bson!([{ "$sort": { "a": 1 } }, { "$limit": 5 }])).unwrap();
    assert!(matches!(&pipeline.stages()[0], Stage::Sort(sort) if sort.limit() == Some(5)));
}

#[test]
fn replace_root_returns_the_new_document() {
    check(bson!([{ "$replaceRoot": { "newRoot": "$a" } }]), bson!({ "a": { "b": 1 } }), bson!({ "b": 1 }));
    check(
        bson!([{ "$replaceWith": { "$mergeObjects": [{ "x": 0 }, "$a"] } }]),
        bson!({ "a": { "b": 1 } }),
        bson!({ "x": 0, "b": 1 }),
    );
    check_error(bson!([{ "$replaceRoot": { "newRoot": "$a" } }]), 40228);
    check_error(bson!([{ "$replaceRoot": 1 }]), 40229);
    check_error(bson!([{ "$replaceRoot": {} }]), 40414);
    check_error(bson!([{ "$replaceRoot": { "x": 1 } }]), 40415);
}

#[test]
fn sample_selects_from_all_documents() {
    let input: Vec<_> = (0..100).map(|n| doc! { "n": n }).collect();
    let run = || run(bson!([{ "$sample": { "size": 10 } }]), bson::Bson::from(input.clone())).unwrap();
    let sample = run();
    assert_eq!(sample.len(), 10);
    assert_eq!(sample, run(), "the seed decides");
    let mut numbers: Vec<_> = sample.iter().map(|document| document.get_i32("n").unwrap()).collect();
    assert!(numbers.iter().any(|n| *n >= 10), "not just the first ten");
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 10, "each once");
    check_error(bson!([{ "$sample": {} }]), 28749);
    check_error(bson!([{ "$sample": { "size": 0 } }]), 28747);
    check_error(bson!([{ "$sample": { "size": "x" } }]), 28746);
    check_error(bson!([{ "$sample": { "x": 1 } }]), 28748);
    check_error(bson!([{ "$sample": 1 }]), 28745);
}

#[test]
fn facet_runs_each_pipeline_on_all_documents() {
    check(
        bson!([{ "$facet": { "first": [{ "$limit": 1 }], "count": [{ "$count": "n" }], "all": [] } }]),
        bson!([{ "a": 1 }, { "a": 2 }]),
        bson!({ "first": [{ "a": 1 }], "count": [{ "n": 2 }], "all": [{ "a": 1 }, { "a": 2 }] }),
    );
    check(bson!([{ "$facet": { "none": [{ "$count": "n" }] } }]), bson!([]), bson!({ "none": [] }));
    check(
        bson!([{ "$facet": { "a": [{ "$limit": 1 }], "b": [{ "$limit": 1 }] } }, { "$project": { "a": 1 } }]),
        bson!([{ "x": 1 }, { "x": 2 }]),
        bson!({ "a": [{ "x": 1 }] }),
    );
    check_error(bson!([{ "$facet": {} }]), 40169);
    check_error(bson!([{ "$facet": { "a": 1 } }]), 40170);
    check_error(bson!([{ "$facet": { "a": [{ "$out": "x" }] } }]), 40600);
    check_error(bson!([{ "$facet": { "a": [{ "$facet": { "b": [] } }] } }]), 40600);
}

#[test]
fn redact_removes_levels() {
    let input = bson!({ "level": 1, "a": { "level": 5, "x": 1 }, "b": { "level": 1, "c": { "level": 9 }, "d": 2 }, "l": [{ "level": 0 }, { "level": 7 }, 3] });
    let expression = bson!({ "$cond": [{ "$lte": ["$level", 3] }, "$$DESCEND", "$$PRUNE"] });
    check(
        bson!([{ "$redact": expression }]),
        input.clone(),
        bson!({ "level": 1, "b": { "level": 1, "d": 2 }, "l": [{ "level": 0 }, 3] }),
    );
    check(bson!([{ "$redact": "$$KEEP" }]), input.clone(), input.clone());
    check(bson!([{ "$redact": "$$PRUNE" }]), input.clone(), bson!([]));
    check(
        bson!([{ "$redact": { "$cond": [{ "$eq": ["$$ROOT.level", 1] }, "$$KEEP", "$$PRUNE"] } }]),
        input.clone(),
        input,
    );
    check_error(bson!([{ "$redact": 1 }]), 17053);
    check_error(bson!([{ "$redact": "KEEP" }]), 17053);
    check_error(bson!([{ "$project": { "a": "$$KEEP" } }]), 17276);
}

#[test]
fn documents_returns_the_given_documents() {
    check(
        bson!([{ "$documents": [{ "a": 1 }, { "a": { "$add": [1, 1] } }] }, { "$match": { "a": 2 } }]),
        bson!([]),
        bson!([{ "a": 2 }]),
    );
    check_error(bson!([{ "$documents": [1] }]), 5858203);
    check_error(bson!([{ "$documents": "x" }]), 5858203);
    check_error(bson!([{ "$limit": 1 }, { "$documents": [] }]), 40602);
}

#[test]
fn invalid_pipelines_are_refused() {
    let unknown = compile(bson!([{ "$foo": 1 }])).unwrap_err();
    assert_eq!((unknown.code().0, unknown.message()), (40324, "Unrecognized pipeline stage name: '$foo'"));
    check_error(bson!([{}]), 40323);
    check_error(bson!([{ "$match": {}, "$limit": 1 }]), 40323);
    check_error(bson!([{ "$out": "x" }, { "$match": {} }]), 40601);
    check_error(bson!([{ "$merge": "x" }, { "$match": {} }]), 40601);
    check_error(bson!([{ "$geoNear": {} }]), 238);
    check_error(bson!([{ "$project": { "a": { "$foo": 1 } } }]), 31325);
    check_error(bson!([{ "$project": { "a": { "$add": [{ "$foo": 1 }] } } }]), 168);
    check_error(bson!([{ "$addFields": { "a": { "$foo": 1 } } }]), 168);
    let many: Vec<Document> = (0..1001).map(|_| doc! { "$match": {} }).collect();
    check_error(bson::Bson::from(many), 7749501);
}

#[test]
fn the_prefix_has_the_stages_that_a_find_can_replace() {
    let pipeline = compile(bson!([
        { "$match": { "a": 1 } }, { "$match": { "b": 1 } }, { "$sort": { "c": 1 } }, { "$skip": 2 }, { "$skip": 3 },
        { "$limit": 10 }, { "$limit": 4 }, { "$match": { "d": 1 } },
    ]))
    .unwrap();
    let prefix = pipeline.prefix();
    assert_eq!(
        (prefix.filters.len(), prefix.sort.is_some(), prefix.skip, prefix.limit, prefix.stages, prefix.filter_stages),
        (2, true, 5, Some(4), 7, 2),
    );
    // A find cannot skip after a limit, sort after a limit or filter after a sort.
    for (stages, taken) in [
        (bson!([{ "$limit": 5 }, { "$skip": 1 }]), 1),
        (bson!([{ "$limit": 5 }, { "$sort": { "a": 1 } }]), 1),
        (bson!([{ "$skip": 5 }, { "$match": { "a": 1 } }]), 1),
        (bson!([{ "$sort": { "a": 1 } }, { "$match": { "a": 1 } }]), 1),
        (bson!([{ "$unwind": "$a" }, { "$match": { "a": 1 } }]), 0),
    ] {
        assert_eq!(compile(stages.clone()).unwrap().prefix().stages, taken, "{stages}");
    }
}

#[test]
fn a_chain_can_begin_at_any_stage() {
    let pipeline = compile(bson!([{ "$match": { "a": 1 } }, { "$project": { "_id": 0, "a": 1 } }])).unwrap();
    let context = context();
    let rest = &pipeline.stages()[pipeline.prefix().stages..];
    let out = chain(rest, &context).unwrap().run(raw([doc! { "_id": 1, "a": 7 }])).unwrap();
    assert_eq!(out, raw([doc! { "a": 7 }]));
}
