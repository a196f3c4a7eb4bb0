use bson::{Document, bson, doc, rawdoc};
use proptest::prelude::*;

use super::{check, check_error, compile, raw, run};
use crate::{
    Code,
    expression::testing::context,
    pipeline::{Flow, Operator, Stage, chain},
};

#[test]
fn an_empty_pipeline_hands_on() {
    check(bson!([]), bson!([{ "a": 1 }, { "a": 2 }]), bson!([{ "a": 1 }, { "a": 2 }]));
}

#[test]
fn match_skip_limit_count() {
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
fn a_large_unwind_comes_in_portions() {
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
fn project_includes() {
    let input = bson!({ "_id": 1, "a": { "b": 1, "c": 2 }, "d": [{ "e": 1, "f": 2 }, 5, [{ "e": 3 }]], "g": 4 });
    check(bson!([{ "$project": { "g": 1 } }]), input.clone(), bson!({ "_id": 1, "g": 4 }));
    check(bson!([{ "$project": { "g": true, "_id": 0 } }]), input.clone(), bson!({ "g": 4 }));
    check(bson!([{ "$project": { "a.b": 1 } }]), input.clone(), bson!({ "_id": 1, "a": { "b": 1 } }));
    check(bson!([{ "$project": { "a": { "b": 1 } } }]), input.clone(), bson!({ "_id": 1, "a": { "b": 1 } }));
    check(bson!([{ "$project": { "d.e": 1 } }]), input.clone(), bson!({ "_id": 1, "d": [{ "e": 1 }, [{ "e": 3 }]] }));
    check(bson!([{ "$project": { "g.x": 1 } }]), input.clone(), bson!({ "_id": 1 }));
    check(bson!([{ "$project": { "_id": 1 } }]), input, bson!({ "_id": 1 }));
}

#[test]
fn project_excludes() {
    let input = bson!({ "_id": 1, "a": { "b": 1, "c": 2 }, "d": [{ "e": 1, "f": 2 }, 5] });
    check(bson!([{ "$project": { "a": 0 } }]), input.clone(), bson!({ "_id": 1, "d": [{ "e": 1, "f": 2 }, 5] }));
    check(
        bson!([{ "$project": { "d.e": 0, "a.c": false } }]),
        input.clone(),
        bson!({ "_id": 1, "a": { "b": 1 }, "d": [{ "f": 2 }, 5] }),
    );
    check(bson!([{ "$project": { "_id": 0, "a": 0 } }]), input.clone(), bson!({ "d": [{ "e": 1, "f": 2 }, 5] }));
    check(
        bson!([{ "$project": { "_id": 0 } }, { "$project": { "d": 0 } }]),
        input.clone(),
        bson!({ "a": { "b": 1, "c": 2 } }),
    );
    check(bson!([{ "$unset": "a" }]), input.clone(), bson!({ "_id": 1, "d": [{ "e": 1, "f": 2 }, 5] }));
    check(bson!([{ "$unset": ["a.b", "d"] }]), input, bson!({ "_id": 1, "a": { "c": 2 } }));
}

#[test]
fn project_computes() {
    let input = bson!({ "_id": 1, "x": 5, "y": 2, "a": { "b": 1 }, "l": [{ "p": 1 }, 7] });
    check(bson!([{ "$project": { "sum": { "$add": ["$x", "$y"] } } }]), input.clone(), bson!({ "_id": 1, "sum": 7 }));
    check(bson!([{ "$project": { "_id": 0, "x": "$y", "y": 1 } }]), input.clone(), bson!({ "y": 2, "x": 2 }));
    check(
        bson!([{ "$project": { "_id": 0, "t": "text", "n": { "$literal": 1 } } }]),
        input.clone(),
        bson!({ "t": "text", "n": 1 }),
    );
    check(bson!([{ "$project": { "_id": 0, "new": ["$x", "$none"] } }]), input.clone(), bson!({ "new": [5, null] }));
    check(
        bson!([{ "$project": { "_id": 0, "a": { "b": 1, "c": "$x" } } }]),
        input.clone(),
        bson!({ "a": { "b": 1, "c": 5 } }),
    );
    check(bson!([{ "$project": { "_id": 0, "l.q": "$x" } }]), input.clone(), bson!({ "l": [{ "q": 5 }, { "q": 5 }] }));
    check(bson!([{ "$project": { "_id": "$x" } }]), input.clone(), bson!({ "_id": 5 }));
    check(bson!([{ "$project": { "_id": 0, "gone": "$none", "x": 1 } }]), input.clone(), bson!({ "x": 5 }));
    check(bson!([{ "$project": { "x": { "$cond": [true, "$$REMOVE", 1] } } }]), input, bson!({ "_id": 1 }));
}

#[test]
fn project_refuses() {
    check_error(bson!([{ "$project": {} }]), 51272);
    check_error(bson!([{ "$project": { "a": 1, "b": 0 } }]), 31254);
    check_error(bson!([{ "$project": { "a": 0, "b": 1 } }]), 31253);
    check_error(bson!([{ "$project": { "a": 0, "b": "$x" } }]), 31252);
    check_error(bson!([{ "$project": { "a": 1, "a.b": 1 } }]), 31249);
    check_error(bson!([{ "$project": { "a.b": 1, "a": 1 } }]), 31250);
    check_error(bson!([{ "$project": { "a": {} } }]), 51270);
    check_error(bson!([{ "$project": { "a.": 1 } }]), 40353);
    check_error(bson!([{ "$project": 1 }]), 15969);
    check_error(bson!([{ "$unset": 1 }]), 31002);
    check_error(bson!([{ "$unset": [] }]), 31119);
    check_error(bson!([{ "$unset": [1] }]), 31120);
    check_error(bson!([{ "$addFields": {} }]), 40177);
    check_error(bson!([{ "$set": 5 }]), 40272);
}

#[test]
fn add_fields_sets_in_place_and_appends() {
    let input = bson!({ "_id": 1, "a": 1, "b": { "c": 2 }, "l": [1, { "x": 1 }] });
    check(
        bson!([{ "$addFields": { "a": 9, "z": "$b.c" } }]),
        input.clone(),
        bson!({ "_id": 1, "a": 9, "b": { "c": 2 }, "l": [1, { "x": 1 }], "z": 2 }),
    );
    check(
        bson!([{ "$set": { "b.d": "$a" } }]),
        input.clone(),
        bson!({ "_id": 1, "a": 1, "b": { "c": 2, "d": 1 }, "l": [1, { "x": 1 }] }),
    );
    check(
        bson!([{ "$set": { "b": { "d": 3 } } }]),
        input.clone(),
        bson!({ "_id": 1, "a": 1, "b": { "c": 2, "d": 3 }, "l": [1, { "x": 1 }] }),
    );
    check(
        bson!([{ "$set": { "l.y": 5 } }, { "$project": { "l": 1, "_id": 0 } }]),
        input.clone(),
        bson!({ "l": [{ "y": 5 }, { "x": 1, "y": 5 }] }),
    );
    check(
        bson!([{ "$set": { "a.b": 5 } }, { "$project": { "a": 1, "_id": 0 } }]),
        input.clone(),
        bson!({ "a": { "b": 5 } }),
    );
    check(
        bson!([{ "$set": { "n.m.o": 5 } }, { "$project": { "n": 1, "_id": 0 } }]),
        input.clone(),
        bson!({ "n": { "m": { "o": 5 } } }),
    );
    check(bson!([{ "$set": { "a": "$$REMOVE", "l": "$none", "b": {} } }]), input.clone(), bson!({ "_id": 1, "b": {} }));
    // All expressions see the document as it came in.
    check(
        bson!([{ "$set": { "a": 2, "s": "$a" } }, { "$project": { "_id": 0, "a": 1, "s": 1 } }]),
        input,
        bson!({ "a": 2, "s": 1 }),
    );
}

#[test]
fn unwind_takes_arrays_apart() {
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
fn replace_root() {
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
fn sample_takes_some_of_all() {
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
fn facet_runs_pipelines_side_by_side() {
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
fn redact_prunes_levels() {
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
fn documents_bring_their_own() {
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
fn pipelines_are_refused_by_name_and_place() {
    let unknown = compile(bson!([{ "$foo": 1 }])).unwrap_err();
    assert_eq!((unknown.code().0, unknown.message()), (40324, "Unrecognized pipeline stage name: '$foo'"));
    check_error(bson!([{}]), 40323);
    check_error(bson!([{ "$match": {}, "$limit": 1 }]), 40323);
    check_error(bson!([{ "$out": "x" }, { "$match": {} }]), 40601);
    check_error(bson!([{ "$merge": "x" }, { "$match": {} }]), 40601);
    check_error(bson!([{ "$setWindowFields": {} }]), 238);
    check_error(bson!([{ "$project": { "a": { "$foo": 1 } } }]), 31325);
    check_error(bson!([{ "$project": { "a": { "$add": [{ "$foo": 1 }] } } }]), 168);
    check_error(bson!([{ "$addFields": { "a": { "$foo": 1 } } }]), 168);
    let many: Vec<Document> = (0..1001).map(|_| doc! { "$match": {} }).collect();
    check_error(bson::Bson::from(many), 7749501);
}

#[test]
fn the_prefix_is_what_a_find_can_do() {
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
    // A skip after a limit, a sort after a limit and a filter after a sort mean something else.
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
    // With a limit a sort holds only what it needs.
    let pipeline = compile(bson!([{ "$sort": { "y": 1 } }, { "$limit": 3 }])).unwrap();
    assert_eq!(pipeline.run((0..120).map(|_| big.clone()), &context).unwrap().len(), 3);
}

#[test]
fn nesting_by_stages_has_a_bound() {
    let stages: Vec<Document> = (0..900).map(|_| doc! { "$replaceWith": { "a": "$$ROOT" } }).collect();
    check_error(bson::Bson::from(stages), 15);
}

/// Any stage with any argument: documents or an error, never a panic.
fn any_stage() -> impl Strategy<Value = Document> {
    const STAGES: &[&str] = &[
        "$match",
        "$project",
        "$addFields",
        "$unset",
        "$unwind",
        "$group",
        "$sort",
        "$limit",
        "$skip",
        "$count",
        "$sortByCount",
        "$replaceRoot",
        "$replaceWith",
        "$bucket",
        "$bucketAuto",
        "$sample",
        "$facet",
        "$redact",
        "$documents",
        "$lookup",
        "$unionWith",
        "$graphLookup",
        "$out",
        "$merge",
    ];
    const NAMES: &[&str] = &[
        "_id",
        "a",
        "b.c",
        "$sum",
        "$push",
        "$first",
        "$topN",
        "path",
        "includeArrayIndex",
        "groupBy",
        "boundaries",
        "default",
        "buckets",
        "output",
        "size",
        "newRoot",
        "from",
        "as",
        "localField",
        "foreignField",
        "let",
        "pipeline",
        "into",
        "on",
        "whenMatched",
        "n",
        "input",
        "sortBy",
        "$add",
        "$gt",
        "$expr",
    ];
    let leaf = prop_oneof![
        Just(bson::Bson::Null),
        any::<bool>().prop_map(bson::Bson::from),
        (-2..9_i32).prop_map(bson::Bson::from),
        any::<f64>().prop_map(bson::Bson::from),
        prop::sample::select(vec!["$a", "$b.c", "$$ROOT", "$$KEEP", "$$PRUNE", "a", "b.c", "", "$"])
            .prop_map(bson::Bson::from),
    ];
    let value = leaf.prop_recursive(3, 20, 3, |inner| {
        prop_oneof![
            prop::collection::vec((prop::sample::select(NAMES), inner.clone()), 0..4).prop_map(|fields| {
                bson::Bson::from(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Document>())
            }),
            prop::collection::vec(inner, 0..3).prop_map(bson::Bson::from),
        ]
    });
    (prop::sample::select(STAGES), value).prop_map(|(name, argument)| doc! { name: argument })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_pipelines_do_not_panic(stages in prop::collection::vec(any_stage(), 1..4)) {
        let input = bson!([{ "_id": 1, "a": [1, { "b": 2 }], "b": { "c": [3] } }, { "a": "x" }, {}]);
        let _ = run(bson::Bson::from(stages), input);
    }
}

/// What the stages mean, one document list after the other.
fn model(stage: &Document, input: Vec<Document>) -> Vec<Document> {
    let (name, argument) = stage.iter().next().unwrap();
    let n = argument.as_i32().unwrap_or(0) as usize;
    match name.as_str() {
        "$limit" => input.into_iter().take(n).collect(),
        "$skip" => input.into_iter().skip(n).collect(),
        "$match" => input.into_iter().filter(|document| document.get_i32("a").is_ok_and(|a| a < 5)).collect(),
        "$unwind" => input
            .into_iter()
            .flat_map(|document| match document.get_array("l") {
                Ok(items) => items
                    .iter()
                    .map(|item| {
                        let mut one = document.clone();
                        one.insert("l", item.clone());
                        one
                    })
                    .collect(),
                Err(_) => vec![document],
            })
            .collect(),
        "$sort" => {
            let mut sorted = input;
            sorted.sort_by_key(|document| document.get_i32("a").unwrap());
            sorted
        }
        _ => input,
    }
}

proptest! {
    #[test]
    fn chains_do_what_lists_do(
        stages in prop::collection::vec(prop_oneof![
            (1..6_i32).prop_map(|n| doc! { "$limit": n }),
            (0..4_i32).prop_map(|n| doc! { "$skip": n }),
            Just(doc! { "$match": { "a": { "$lt": 5 } } }),
            Just(doc! { "$unwind": "$l" }),
            Just(doc! { "$sort": { "a": 1 } }),
        ], 0..6),
        input in prop::collection::vec((0..9_i32, prop::collection::vec(0..9_i32, 1..4)), 0..12),
    ) {
        let input: Vec<Document> = input.into_iter().enumerate().map(|(n, (a, l))| doc! { "_id": n as i32, "a": a, "l": l }).collect();
        let expected = stages.iter().fold(input.clone(), |documents, stage| model(stage, documents));
        prop_assert_eq!(run(bson::Bson::from(stages), bson::Bson::from(input)).unwrap(), expected);
    }
}

#[test]
fn stages_can_be_chained_from_the_middle() {
    let pipeline = compile(bson!([{ "$match": { "a": 1 } }, { "$project": { "_id": 0, "a": 1 } }])).unwrap();
    let context = context();
    let rest = &pipeline.stages()[pipeline.prefix().stages..];
    let out = chain(rest, &context).unwrap().run(raw([doc! { "_id": 1, "a": 7 }])).unwrap();
    assert_eq!(out, raw([doc! { "a": 7 }]));
}

#[test]
fn every_stage_that_holds_its_input_has_the_bound_of_the_context() {
    let documents = || raw((0..100).map(|n| doc! { "_id": n, "text": "x".repeat(100) }));
    let context = |bytes_max| context().with_stage_bytes(bytes_max);
    for stage in [
        doc! { "$sort": { "text": 1 } },
        doc! { "$group": { "_id": "$_id", "text": { "$first": "$text" } } },
        doc! { "$group": { "_id": null, "texts": { "$push": "$text" } } },
        doc! { "$group": { "_id": null, "texts": { "$addToSet": { "$concat": ["$text", { "$toString": "$_id" }] } } } },
        doc! { "$bucketAuto": { "groupBy": "$_id", "buckets": 3 } },
        doc! { "$sample": { "size": 100 } },
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
fn all_stages_share_a_bound() {
    let documents = || raw((0..100).map(|n| doc! { "_id": n, "text": "x".repeat(100) }));
    let total = crate::context::StageTotal::new(5_000);
    let context = context().with_stage_total(total.clone());
    for stage in [
        doc! { "$sort": { "text": 1 } },
        doc! { "$group": { "_id": "$_id", "text": { "$first": "$text" } } },
        doc! { "$bucketAuto": { "groupBy": "$_id", "buckets": 3 } },
        doc! { "$sample": { "size": 100 } },
        doc! { "$facet": { "all": [] } },
    ] {
        let error = compile(stage.clone()).unwrap().run(documents(), &context).unwrap_err();
        assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{stage}: {error}");
        assert!(error.message().contains("stage-bytes-total"), "{stage}: {error}");
        assert_eq!(total.held(), 0, "{stage}: given back");
    }
}

#[test]
fn large_results_are_handed_out_in_portions_and_count_until_then() {
    let documents = (0..30).map(|n| doc! { "_id": 29 - n, "text": "x".repeat(500_000) });
    let total = crate::context::StageTotal::new(100_000_000);
    let context = context().with_stage_total(total.clone());
    for stage in [doc! { "$sort": { "_id": 1 } }, doc! { "$group": { "_id": "$_id", "text": { "$first": "$text" } } }] {
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
fn what_is_computed_in_every_element_is_bounded() {
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
