//! Windows that move agree with groups of the documents in each of them, and cost as many steps as they should.

use bson::{Bson, Document, bson, doc};
use proptest::prelude::*;

use super::super::{compile, raw, run};
use crate::{
    Code,
    context::{Interrupt, QueryMemory},
    expression::testing::context,
};

fn accumulators() -> Vec<Document> {
    vec![
        doc! { "$sum": "$v" },
        doc! { "$avg": "$v" },
        doc! { "$min": "$v" },
        doc! { "$max": "$v" },
        doc! { "$count": {} },
        doc! { "$first": "$v" },
        doc! { "$last": "$v" },
        doc! { "$push": "$v" },
        doc! { "$firstN": { "input": "$v", "n": 2 } },
        doc! { "$lastN": { "input": "$v", "n": 2 } },
        doc! { "$minN": { "input": "$v", "n": 2 } },
        doc! { "$maxN": { "input": "$v", "n": 2 } },
        doc! { "$top": { "sortBy": { "v": 1 }, "output": "$x" } },
        doc! { "$bottom": { "sortBy": { "v": 1 }, "output": "$x" } },
        doc! { "$topN": { "sortBy": { "v": -1 }, "output": "$x", "n": 2 } },
        doc! { "$bottomN": { "sortBy": { "v": -1 }, "output": "$x", "n": 3 } },
        doc! { "$mergeObjects": { "a": "$v", "b": "$x" } },
        doc! { "$median": { "input": "$v", "method": "approximate" } },
        doc! { "$percentile": { "input": "$v", "p": [0.1, 0.9], "method": "approximate" } },
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    prop_oneof![
        (-3..4_i32).prop_map(Bson::from),
        (-3..4_i64).prop_map(Bson::from),
        (-6..7_i32).prop_map(|n| Bson::from(f64::from(n) / 2.0)),
        Just(Bson::Null),
        Just(Bson::from("x")),
    ]
}

fn bound() -> impl Strategy<Value = Bson> {
    prop_oneof![3 => (-4..5_i32).prop_map(Bson::from), 1 => Just(Bson::from("unbounded")), 1 => Just(Bson::from("current"))]
}

fn offset(bound: &Bson) -> Option<i64> {
    match bound {
        Bson::String(name) if name == "unbounded" => None,
        Bson::Int32(offset) => Some(i64::from(*offset)),
        _ => Some(0),
    }
}

/// Returns the result of an accumulator for some documents, as a group of them.
fn grouped(accumulator: &Document, documents: Vec<Document>) -> Option<Bson> {
    let groups = run(bson!([{ "$group": { "_id": null, "r": accumulator.clone() } }]), Bson::from(documents)).unwrap();
    groups.first().map(|group| group.get("r").unwrap().clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn windows_agree_with_groups(values in prop::collection::vec((value(), 0..3_i32), 1..14), low in bound(), high in bound(), by_value in any::<bool>()) {
        prop_assume!(offset(&low).zip(offset(&high)).is_none_or(|(low, high)| low <= high));
        let mut x = 0;
        let documents: Vec<Document> = values.into_iter().map(|(value, step)| { x += step; doc! { "x": x, "v": value } }).collect();
        let kind = if by_value { "range" } else { "documents" };
        for accumulator in accumulators() {
            let mut function = accumulator.clone();
            function.insert("window", doc! { kind: [low.clone(), high.clone()] });
            let stage = bson!([{ "$setWindowFields": { "sortBy": { "x": 1 }, "output": { "r": function } } }]);
            let results = run(stage.clone(), Bson::from(documents.clone())).unwrap();
            for (index, result) in results.iter().enumerate() {
                let inside = |place: usize, document: &Document| {
                    let distance = if by_value {
                        i64::from(document.get_i32("x").unwrap() - result.get_i32("x").unwrap())
                    } else {
                        place as i64 - index as i64
                    };
                    offset(&low).is_none_or(|low| distance >= low) && offset(&high).is_none_or(|high| distance <= high)
                };
                let window: Vec<Document> = documents.iter().enumerate().filter(|(place, document)| inside(*place, document)).map(|(_, document)| document.clone()).collect();
                if let Some(expected) = grouped(&accumulator, window) {
                    prop_assert_eq!(result.get("r"), Some(&expected), "{} at {}", stage, index);
                }
            }
        }
    }
}

/// Returns the steps that a function takes over `count` documents.
fn steps(function: &Document, count: i32) -> u64 {
    let stage = doc! { "$setWindowFields": { "sortBy": { "x": 1 }, "output": { "r": function.clone() } } };
    let (pipeline, context) = (compile(stage).unwrap(), context());
    context.bound_steps(u64::MAX - 1);
    let documents = raw((0..count).map(|x| doc! { "x": x, "v": x % 100, "a": [x % 7] }));
    assert_eq!(pipeline.run(documents, &context).unwrap().len(), count as usize);
    u64::MAX - 1 - context.bound_steps(u64::MAX)
}

#[test]
fn windows_of_any_width_take_steps_in_proportion_to_the_documents() {
    const COUNT: i32 = 1_000;
    const STEPS_A_DOCUMENT_MAX: u64 = 20;
    let mut functions: Vec<Document> = accumulators()
        .into_iter()
        .filter(|function| !function.contains_key("$push") && !function.contains_key("$mergeObjects"))
        .collect();
    functions.extend([
        doc! { "$stdDevPop": "$v" },
        doc! { "$covariancePop": ["$x", "$v"] },
        doc! { "$derivative": { "input": "$v" } },
        doc! { "$integral": { "input": "$v" } },
        doc! { "$setUnion": "$a" },
    ]);
    for function in functions {
        for window in [
            doc! { "documents": ["unbounded", "current"] },
            doc! { "documents": ["current", "unbounded"] },
            doc! { "documents": [-300, 300] },
            doc! { "range": [-300, 300] },
        ] {
            let mut function = function.clone();
            function.insert("window", window);
            let taken = steps(&function, COUNT);
            assert!(taken <= STEPS_A_DOCUMENT_MAX * COUNT as u64, "{function}: {taken}");
        }
    }
    for function in [doc! { "$rank": {} }, doc! { "$shift": { "output": "$v", "by": 300 } }, doc! { "$locf": "$w" }] {
        let taken = steps(&function, COUNT);
        assert!(taken <= STEPS_A_DOCUMENT_MAX * COUNT as u64, "{function}: {taken}");
    }
    // The documents without a value are passed once, not for each of them.
    let fill = doc! { "$linearFill": { "$cond": [{ "$in": ["$x", [0, COUNT - 1]] }, "$v", null] } };
    let taken = steps(&fill, COUNT);
    assert!(taken <= STEPS_A_DOCUMENT_MAX * COUNT as u64, "{taken}");
}

#[test]
fn a_wide_window_ends_when_it_is_interrupted() {
    let interrupt = Interrupt::default();
    let context = context().with_interrupt(interrupt.clone());
    let window = doc! { "documents": ["unbounded", "unbounded"] };
    let stage =
        doc! { "$setWindowFields": { "sortBy": { "x": 1 }, "output": { "r": { "$push": "$v", "window": window } } } };
    let pipeline = compile(stage).unwrap();
    let mut operator = pipeline.stages()[0].operator(&context).unwrap();
    let mut out = Vec::new();
    for document in raw((0..100).map(|x| doc! { "x": x, "v": "x".repeat(100_000) })) {
        assert!(operator.push(document, &mut out).is_ok());
    }
    assert_eq!(operator.finish(&mut out), Ok(crate::pipeline::Flow::More));
    interrupt.stop(Code::MaxTimeMSExpired);
    assert_eq!(operator.finish(&mut out).unwrap_err().code(), Code::MaxTimeMSExpired);
}

#[test]
fn the_values_in_a_window_count_as_held() {
    let context = |stage_bytes_max| context().with_memory(QueryMemory { stage_bytes_max, ..QueryMemory::default() });
    let documents = || raw((0..100).map(|x| doc! { "x": x, "v": "x".repeat(10) }));
    for function in [
        doc! { "$push": { "$concat": [{ "$literal": "x".repeat(1000) }, { "$toString": "$x" }] } },
        doc! { "$addToSet": { "$concat": [{ "$literal": "x".repeat(1000) }, { "$toString": "$x" }] } },
        doc! { "$maxN": { "n": 50, "input": { "$concat": [{ "$literal": "x".repeat(1000) }, { "$toString": "$x" }] } } },
    ] {
        let window = doc! { "documents": ["unbounded", "current"] };
        let mut function = function;
        function.insert("window", window);
        let pipeline =
            compile(doc! { "$setWindowFields": { "sortBy": { "x": 1 }, "output": { "r": function.clone() } } })
                .unwrap();
        let error = pipeline.run(documents(), &context(50_000)).unwrap_err();
        assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{function}: {error}");
        assert!(pipeline.run(documents(), &context(1_000_000)).is_ok(), "{function}");
    }
}

#[test]
fn the_documents_of_a_wide_window_count_as_they_enter() {
    let text = doc! { "$concat": [{ "$literal": "x".repeat(1000) }, { "$toString": "$x" }] };
    let fails_late = doc! { "$cond": [{ "$lt": ["$x", 99] }, text, { "$divide": [1, 0] }] };
    let stage = doc! { "$setWindowFields": { "sortBy": { "x": 1 }, "output": { "r": { "$push": fails_late } } } };
    let context = context().with_memory(QueryMemory { stage_bytes_max: 50_000, ..QueryMemory::default() });
    let error = compile(stage).unwrap().run(raw((0..100).map(|x| doc! { "x": x })), &context).unwrap_err();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed, "{error}");
}
