//! Random pipelines: none panics, and chains agree with a model on lists of documents.

use bson::{Document, bson, doc};
use proptest::prelude::*;

use super::run;

/// Generates any stage with any argument.
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
        "$setWindowFields",
        "$densify",
        "$fill",
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
        "partitionBy",
        "partitionByFields",
        "field",
        "step",
        "bounds",
        "value",
        "method",
        "window",
        "documents",
        "range",
        "$shift",
        "by",
        "$linearFill",
        "$rank",
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

/// Applies a stage to a list of documents, as a model of the operators.
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
    fn chains_agree_with_a_model_of_lists(
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
