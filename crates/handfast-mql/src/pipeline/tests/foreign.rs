use bson::{Bson, Document, RawDocumentBuf, bson, doc, raw::cstr, rawdoc};

use super::{check_error, compile, raw};
use crate::{
    Code, CompileOptions, Context, Filter,
    expression::testing::context,
    pipeline::{
        GraphLookup, Lookup, Merge, Pipeline, Stage, UnionWith,
        foreign::{MergeOutcome, WhenNotMatched},
    },
};

fn matching(collection: &[RawDocumentBuf], filter: &RawDocumentBuf, context: &Context) -> Vec<RawDocumentBuf> {
    let filter = Filter::compile(filter, &CompileOptions::default()).unwrap();
    collection.iter().filter(|document| filter.matches(document, context).unwrap()).cloned().collect()
}

fn with_lookup<T>(stage: Document, use_it: impl FnOnce(&Lookup) -> T) -> T {
    let pipeline = compile(bson!([{ "$lookup": stage }])).unwrap();
    match &pipeline.stages()[0] {
        Stage::Lookup(lookup) => use_it(lookup),
        other => panic!("{other:?}"),
    }
}

/// Runs a lookup over collections in memory.
fn look_up(stage: Document, document: Document, collection: &[Document]) -> Document {
    let context = context();
    let document = RawDocumentBuf::try_from(document).unwrap();
    let collection = raw(collection.iter().cloned());
    with_lookup(stage, |lookup| {
        let mut found = matching(&collection, &lookup.filter(&document).unwrap(), &context);
        if let Some(pipeline) = &lookup.pipeline {
            found = pipeline.run(found, &lookup.context(&document, &context).unwrap()).unwrap();
        }
        Document::try_from(lookup.attach(&document, found, &context).unwrap()).unwrap()
    })
}

#[test]
fn lookup_joins_by_equal_values() {
    let stage = doc! { "from": "c", "localField": "a", "foreignField": "b.x", "as": "r" };
    let foreign = [
        doc! { "_id": 1, "b": { "x": 1 } },
        doc! { "_id": 2, "b": { "x": [1, 2] } },
        doc! { "_id": 3 },
        doc! { "_id": 4, "b": { "x": null } },
    ];
    let ids = |document: Document| {
        let result = look_up(stage.clone(), document, &foreign);
        result
            .get_array("r")
            .unwrap()
            .iter()
            .map(|item| item.as_document().unwrap().get_i32("_id").unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(doc! { "a": 1 }), [1, 2]);
    assert_eq!(ids(doc! { "a": 1.0 }), [1, 2]);
    assert_eq!(ids(doc! { "a": [2, 9] }), [2]);
    assert_eq!(ids(doc! { "a": null }), [3, 4]);
    assert_eq!(ids(doc! {}), [3, 4]);
    assert_eq!(ids(doc! { "a": [] }), [3, 4]);
    assert_eq!(ids(doc! { "a": [[2], 9] }), [0_i32; 0]);
    assert_eq!(ids(doc! { "a": [null, 2] }), [2, 3, 4]);
    assert_eq!(ids(doc! { "a": { "$gt": 0 } }), [0_i32; 0]);
}

#[test]
fn lookup_reads_local_values_through_arrays() {
    let stage = doc! { "from": "c", "localField": "a.b", "foreignField": "_id", "as": "r" };
    let foreign = [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }, doc! { "_id": null }];
    let ids = |document: Document| {
        let result = look_up(stage.clone(), document, &foreign);
        result
            .get_array("r")
            .unwrap()
            .iter()
            .map(|item| item.as_document().unwrap().get_i32("_id").ok())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(doc! { "a": [{ "b": [1, 2] }, { "b": 3 }] }), [Some(1), Some(2), Some(3)]);
    assert_eq!(ids(doc! { "a": [{ "b": 2 }, 5] }), [Some(2)]);
    assert_eq!(ids(doc! { "a": [5] }), [None]);
    assert_eq!(ids(doc! { "a": 5 }), [None]);
}

#[test]
fn lookup_keeps_the_document_and_sets_a_nested_field() {
    let stage = doc! { "from": "c", "localField": "a", "foreignField": "_id", "as": "r.s" };
    assert_eq!(
        look_up(stage, doc! { "a": 1, "r": { "t": 5, "s": 0 }, "z": 1 }, &[doc! { "_id": 1 }]),
        doc! { "a": 1, "r": { "t": 5, "s": [{ "_id": 1 }] }, "z": 1 },
    );
}

#[test]
fn lookup_runs_a_pipeline_with_variables() {
    let stage = doc! {
        "from": "c",
        "let": { "limit": "$max" },
        "pipeline": [{ "$match": { "$expr": { "$lte": ["$v", "$$limit"] } } }, { "$project": { "_id": 0, "v": 1, "limit": "$$limit" } }],
        "as": "r",
    };
    let foreign = [doc! { "_id": 1, "v": 5 }, doc! { "_id": 2, "v": 15 }];
    assert_eq!(
        look_up(stage.clone(), doc! { "max": 10 }, &foreign),
        doc! { "max": 10, "r": [{ "v": 5, "limit": 10 }] },
    );
    assert_eq!(look_up(stage, doc! { "max": 20 }, &foreign).get_array("r").unwrap().len(), 2);
    // The stage has fields and a pipeline.
    let stage = doc! { "from": "c", "localField": "k", "foreignField": "k", "pipeline": [{ "$limit": 1 }], "as": "r" };
    assert_eq!(
        look_up(stage, doc! { "k": 1 }, &[doc! { "k": 2 }, doc! { "k": 1, "n": 1 }, doc! { "k": 1, "n": 2 }]),
        doc! { "k": 1, "r": [{ "k": 1, "n": 1 }] },
    );
}

#[test]
fn a_field_that_is_written_twice_is_refused() {
    let twice = |fields: RawDocumentBuf, field: &str| {
        let mut twice = fields.clone();
        let value = fields.get(field).unwrap().unwrap();
        twice.append(bson::raw::CString::try_from(field.to_owned()).unwrap(), value);
        twice
    };
    let refused = |stage: RawDocumentBuf, code: i32| {
        let error = Pipeline::compile(&[&stage], &CompileOptions::default()).unwrap_err();
        assert_eq!(error.code().0, code, "{stage:?}: {error}");
    };
    let out = rawdoc! { "db": "d", "coll": "c" };
    for field in ["db", "coll"] {
        refused(rawdoc! { "$out": twice(out.clone(), field) }, 40413);
        refused(rawdoc! { "$merge": { "into": twice(out.clone(), field) } }, 40413);
    }
    refused(rawdoc! { "$merge": twice(rawdoc! { "into": "c" }, "into") }, 40413);
    let lookup = rawdoc! { "from": "c", "localField": "a", "foreignField": "b", "let": {}, "pipeline": [], "as": "r" };
    for field in ["from", "localField", "foreignField", "let", "pipeline", "as"] {
        refused(rawdoc! { "$lookup": twice(lookup.clone(), field) }, 40413);
    }
    refused(rawdoc! { "$unionWith": twice(rawdoc! { "coll": "c" }, "coll") }, 40413);
    refused(rawdoc! { "$sort": twice(rawdoc! { "a": 1, "b": 1 }, "a") }, 7_472_500);
}

#[test]
fn invalid_lookups_are_refused() {
    for stage in [
        bson!({ "from": "c", "localField": "a", "as": "r" }),
        bson!({ "from": "c", "as": "r" }),
        bson!({ "localField": "a", "foreignField": "b", "as": "r" }),
        bson!({ "from": "c", "localField": "a", "foreignField": "b" }),
        bson!({ "from": 1, "localField": "a", "foreignField": "b", "as": "r" }),
        bson!({ "from": "c", "localField": "a", "foreignField": "b", "as": "r", "x": 1 }),
        bson!({ "from": "c", "let": {}, "localField": "a", "foreignField": "b", "as": "r" }),
        bson!(1),
    ] {
        check_error(bson!([{ "$lookup": stage }]), 9);
    }
    check_error(bson!([{ "$lookup": { "from": "c", "pipeline": [{ "$out": "x" }], "as": "r" } }]), 51047);
    check_error(
        bson!([{ "$lookup": { "from": "c", "pipeline": [{ "$match": { "$expr": "$$nobody" } }], "as": "r" } }]),
        17276,
    );
    check_error(bson!([{ "$lookup": { "from": "c", "pipeline": [{ "$foo": 1 }], "as": "r" } }]), 40324);
    // A stage that reads another collection is not pure.
    check_error(bson!([{ "$lookup": { "from": "c", "pipeline": [], "as": "r" } }]), 20);
    let mut nested = bson!([]);
    for _ in 0..22 {
        nested = bson!([{ "$lookup": { "from": "c", "pipeline": nested, "as": "r" } }]);
    }
    check_error(nested, 232);
}

#[test]
fn union_with_names_a_collection_and_a_pipeline() {
    let union = |stage: Bson| match compile(bson!([{ "$unionWith": stage }])).unwrap().stages {
        stages if stages.len() == 1 => match stages.into_iter().next() {
            Some(Stage::UnionWith(union)) => union,
            other => panic!("{other:?}"),
        },
        stages => panic!("{stages:?}"),
    };
    let UnionWith { collection, pipeline } = union(bson!("c"));
    assert_eq!((collection.as_deref(), pipeline.stages().len()), (Some("c"), 0));
    let UnionWith { collection, pipeline } = union(bson!({ "coll": "c", "pipeline": [{ "$limit": 1 }] }));
    assert_eq!((collection.as_deref(), pipeline.stages().len()), (Some("c"), 1));
    let UnionWith { collection, .. } = union(bson!({ "pipeline": [{ "$documents": [{ "a": 1 }] }] }));
    assert_eq!(collection, None);
    check_error(bson!([{ "$unionWith": { "pipeline": [] } }]), 9);
    check_error(bson!([{ "$unionWith": 1 }]), 9);
    check_error(bson!([{ "$unionWith": "" }]), 73);
}

fn graph(stage: Document) -> Box<GraphLookup> {
    match compile(bson!([{ "$graphLookup": stage }])).unwrap().stages.into_iter().next() {
        Some(Stage::GraphLookup(graph)) => graph,
        other => panic!("{other:?}"),
    }
}

fn walk(stage: Document, document: Document, collection: &[Document]) -> Vec<Document> {
    let context = context();
    let graph = graph(stage);
    let document = RawDocumentBuf::try_from(document).unwrap();
    let collection = raw(collection.iter().cloned());
    let mut walk = graph.start(&document, &context).unwrap();
    while let Some(filter) = walk.filter().unwrap() {
        walk.arrive(matching(&collection, &filter, &context)).unwrap();
    }
    let result = Document::try_from(walk.attach(&document).unwrap()).unwrap();
    result.get_array("r").unwrap().iter().map(|item| item.as_document().unwrap().clone()).collect()
}

#[test]
fn graph_lookup_ends_when_no_document_is_new() {
    let people = [
        doc! { "_id": 1, "name": "dev", "boss": "eliot" },
        doc! { "_id": 2, "name": "eliot", "boss": "ron" },
        doc! { "_id": 3, "name": "ron", "boss": ["eliot", "andrew"] },
        doc! { "_id": 4, "name": "andrew" },
    ];
    let stage = doc! { "from": "people", "startWith": "$boss", "connectFromField": "boss", "connectToField": "name", "as": "r", "depthField": "d" };
    let found = walk(stage.clone(), people[0].clone(), &people);
    let summary: Vec<_> =
        found.iter().map(|person| (person.get_str("name").unwrap(), person.get_i64("d").unwrap())).collect();
    assert_eq!(summary, [("eliot", 0), ("ron", 1), ("andrew", 2)]);
    let mut bounded = stage.clone();
    bounded.insert("maxDepth", 0);
    assert_eq!(walk(bounded, people[0].clone(), &people).len(), 1);
    let mut restricted = stage;
    restricted.insert("restrictSearchWithMatch", doc! { "name": { "$ne": "ron" } });
    assert_eq!(walk(restricted, people[0].clone(), &people).len(), 1);
    check_error(bson!([{ "$graphLookup": { "from": "c" } }]), 40105);
    check_error(bson!([{ "$graphLookup": { "maxDepth": -1 } }]), 40101);
    check_error(bson!([{ "$graphLookup": { "maxDepth": "x" } }]), 40100);
    check_error(bson!([{ "$graphLookup": { "maxDepth": 1.5 } }]), 40102);
}

#[test]
fn graph_lookup_refuses_a_field_that_is_written_twice() {
    let mut stage = rawdoc! { "from": "a" };
    stage.append(cstr!("from"), "b");
    let error = Pipeline::compile(&[rawdoc! { "$graphLookup": stage }], &CompileOptions::default()).unwrap_err();
    assert_eq!(error.code(), Code(40413));
}

/// Such documents come from views.
#[test]
fn graph_lookup_refuses_documents_without_an_id() {
    let stage = doc! { "from": "c", "startWith": "$a", "connectFromField": "a", "connectToField": "b", "as": "r" };
    let graph = graph(stage);
    let context = context();
    let mut search = graph.start(&rawdoc! { "a": 1 }, &context).unwrap();
    assert_eq!(search.arrive([rawdoc! { "b": 1 }]).unwrap_err().code(), Code(40271));
}

#[test]
fn out_names_a_collection() {
    for (stage, database, collection) in [(bson!("c"), None, "c"), (bson!({ "db": "d", "coll": "c" }), Some("d"), "c")]
    {
        match &compile(bson!([{ "$out": stage }])).unwrap().stages()[0] {
            Stage::Out(out) => {
                assert_eq!((out.target.database.as_deref(), out.target.collection.as_str()), (database, collection));
            }
            other => panic!("{other:?}"),
        }
    }
    check_error(bson!([{ "$out": 1 }]), 16990);
    for (target, out, merge) in [
        (bson!({ "db": 1, "coll": "c" }), 14, 14),
        (bson!({ "db": "d", "coll": 1 }), 14, 14),
        (bson!({ "db": null, "coll": "c" }), 14, 14),
        (bson!("$c"), 20, 20),
        (bson!({ "db": "d", "coll": "a$b" }), 20, 20),
        (bson!("system.c"), 17385, 31319),
        (bson!({ "db": "d", "coll": "system.views" }), 17385, 31319),
        (bson!({ "db": "admin", "coll": "c" }), 31321, 31320),
        (bson!({ "db": "config", "coll": "c" }), 31321, 31320),
        (bson!({ "db": "local", "coll": "c" }), 31321, 31320),
    ] {
        check_error(bson!([{ "$out": target.clone() }]), out);
        check_error(bson!([{ "$merge": { "into": target } }]), merge);
    }
    check_error(bson!([{ "$out": { "db": "d", "coll": "c", "x": 1 } }]), 40415);
    check_error(bson!([{ "$out": { "db": "d", "Coll": "c" } }]), 40415);
    check_error(bson!([{ "$merge": { "into": { "db": "d", "coll": "c", "x": 1 } } }]), 40415);
    check_error(bson!([{ "$merge": { "into": "c", "x": 1 } }]), 40415);
    for stage in [bson!({ "$out": "x" }), bson!({ "$merge": "x" })] {
        check_error(bson!([{ "$unionWith": { "coll": "c", "pipeline": [stage] } }]), 31441);
    }
}

fn merge(stage: impl Into<Bson>) -> Box<Merge> {
    match compile(bson!([{ "$merge": stage.into() }])).unwrap().stages.into_iter().next() {
        Some(Stage::Merge(merge)) => merge,
        other => panic!("{other:?}"),
    }
}

#[test]
fn merge_returns_the_write_for_a_result() {
    let context = context();
    let existing = rawdoc! { "_id": 1, "a": 1, "b": 2 };
    let result = rawdoc! { "_id": 1, "b": 3, "c": 4 };
    let outcome = |stage: Bson, existing: Option<&RawDocumentBuf>| {
        merge(stage).outcome(&result, existing.map(AsRef::as_ref), &context)
    };
    assert_eq!(
        outcome(bson!("c"), Some(&existing)),
        Ok(MergeOutcome::Replace(rawdoc! { "_id": 1, "a": 1, "b": 3, "c": 4 })),
    );
    assert_eq!(outcome(bson!("c"), None), Ok(MergeOutcome::Insert(result.clone())));
    assert_eq!(
        outcome(bson!({ "into": "c", "whenMatched": "replace" }), Some(&existing)),
        Ok(MergeOutcome::Replace(result.clone()))
    );
    assert_eq!(
        outcome(bson!({ "into": "c", "whenMatched": "keepExisting" }), Some(&existing)),
        Ok(MergeOutcome::Nothing)
    );
    assert_eq!(outcome(bson!({ "into": "c", "whenMatched": "fail" }), Some(&existing)).unwrap_err().code().0, 11000);
    assert_eq!(outcome(bson!({ "into": "c", "whenNotMatched": "discard" }), None), Ok(MergeOutcome::Nothing));
    assert_eq!(outcome(bson!({ "into": "c", "whenNotMatched": "fail" }), None).unwrap_err().code().0, 13113);
    assert_eq!(
        outcome(
            bson!({ "into": "c", "whenMatched": [{ "$set": { "sum": { "$add": ["$b", "$$new.b"] } } }] }),
            Some(&existing)
        ),
        Ok(MergeOutcome::Replace(rawdoc! { "_id": 1, "a": 1, "b": 2, "sum": 5 })),
    );
    assert_eq!(
        outcome(
            bson!({ "into": "c", "let": { "x": "$c" }, "whenMatched": [{ "$set": { "x": "$$x" } }] }),
            Some(&existing)
        ),
        Ok(MergeOutcome::Replace(rawdoc! { "_id": 1, "a": 1, "b": 2, "x": 4 })),
    );
    let stage = merge(bson!({ "into": { "db": "d", "coll": "c" }, "on": ["a", "b.c"], "whenNotMatched": "discard" }));
    assert_eq!((stage.on.len(), stage.when_not_matched), (2, WhenNotMatched::Discard));
    assert_eq!(
        stage.filter(&rawdoc! { "a": 1, "b": { "c": 2 } }),
        Ok(rawdoc! { "a": { "$eq": 1 }, "b.c": { "$eq": 2 } }),
    );
    assert_eq!(stage.filter(&rawdoc! { "a": 1 }).unwrap_err().code().0, 51132);
    assert_eq!(stage.filter(&rawdoc! { "a": [1], "b": { "c": 1 } }).unwrap_err().code().0, 51185);
}

#[test]
fn invalid_merges_are_refused() {
    check_error(bson!([{ "$merge": 1 }]), 51182);
    check_error(bson!([{ "$merge": {} }]), 40414);
    check_error(bson!([{ "$merge": { "into": 1 } }]), 51178);
    check_error(bson!([{ "$merge": { "into": "c", "whenMatched": "x" } }]), 2);
    check_error(bson!([{ "$merge": { "into": "c", "whenNotMatched": "x" } }]), 2);
    check_error(bson!([{ "$merge": { "into": "c", "whenNotMatched": 1 } }]), 14);
    check_error(bson!([{ "$merge": { "into": "c", "whenMatched": 1 } }]), 51191);
    check_error(bson!([{ "$merge": { "into": "c", "let": 1, "whenMatched": [] } }]), 14);
    check_error(bson!([{ "$merge": { "into": "c", "on": [] } }]), 51187);
    check_error(bson!([{ "$merge": { "into": "c", "on": 1 } }]), 51186);
    check_error(bson!([{ "$merge": { "into": "c", "on": [1] } }]), 51134);
    check_error(bson!([{ "$merge": { "into": "c", "on": ["a", "a"] } }]), 31465);
    check_error(bson!([{ "$merge": { "into": "c", "let": {}, "whenMatched": "merge" } }]), 51199);
    check_error(bson!([{ "$merge": { "into": "c", "whenMatched": [{ "$match": {} }] } }]), 72);
}

#[test]
fn a_lookup_counts_the_results_of_earlier_lookups() {
    let found: Vec<RawDocumentBuf> = (0..60).map(|id| rawdoc! { "_id": id, "s": "x".repeat(1_000_000) }).collect();
    with_lookup(doc! { "from": "c", "pipeline": [], "as": "r" }, |lookup| {
        let once = lookup.attach(&rawdoc! { "_id": 1 }, found.clone(), &context()).unwrap();
        let around = rawdoc! { "_id": 1, "earlier": once };
        assert_eq!(lookup.attach(&around, found, &context()).unwrap_err().code().0, 292);
    });
}
