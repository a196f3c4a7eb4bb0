use bson::{Bson, bson, doc};
use proptest::prelude::*;

use super::{check, check_error, run};

fn sales() -> Bson {
    bson!([
        { "item": "a", "price": 10, "quantity": 2 },
        { "item": "b", "price": 20, "quantity": 1 },
        { "item": "a", "price": 5.5, "quantity": 10 },
        { "item": "c", "quantity": null },
    ])
}

#[test]
fn documents_are_grouped_by_any_expression() {
    check(bson!([{ "$group": { "_id": "$item" } }]), sales(), bson!([{ "_id": "a" }, { "_id": "b" }, { "_id": "c" }]));
    check(bson!([{ "$group": { "_id": null, "n": { "$sum": 1 } } }]), sales(), bson!([{ "_id": null, "n": 4 }]));
    check(
        bson!([{ "$group": { "_id": { "cheap": { "$lt": ["$price", 15] }, "none": "$none" }, "n": { "$count": {} } } }]),
        sales(),
        bson!([{ "_id": { "cheap": true }, "n": 3 }, { "_id": { "cheap": false }, "n": 1 }]),
    );
    check(bson!([{ "$group": { "_id": null } }]), bson!([]), bson!([]));
    // Numbers that are equal are one group, whatever their type; missing goes with null.
    check(
        bson!([{ "$group": { "_id": "$a", "n": { "$sum": 1 } } }]),
        bson!([{ "a": 1 }, { "a": 1.0 }, { "a": 1_i64 }, { "a": null }, {}, { "a": "1" }]),
        bson!([{ "_id": 1, "n": 3 }, { "_id": null, "n": 2 }, { "_id": "1", "n": 1 }]),
    );
}

#[test]
fn accumulators_are_computed_for_each_group() {
    let group = |accumulator: Bson| bson!([{ "$group": { "_id": "$item", "r": accumulator } }, { "$match": { "_id": "a" } }, { "$replaceWith": { "r": "$r" } }]);
    for (accumulator, expected) in [
        (bson!({ "$sum": { "$multiply": ["$price", "$quantity"] } }), bson!(75.0)),
        (bson!({ "$sum": "$quantity" }), bson!(12)),
        (bson!({ "$avg": "$quantity" }), bson!(6.0)),
        (bson!({ "$min": "$price" }), bson!(5.5)),
        (bson!({ "$max": "$price" }), bson!(10)),
        (bson!({ "$first": "$price" }), bson!(10)),
        (bson!({ "$last": "$price" }), bson!(5.5)),
        (bson!({ "$push": "$quantity" }), bson!([2, 10])),
        (bson!({ "$push": { "q": "$quantity" } }), bson!([{ "q": 2 }, { "q": 10 }])),
        (bson!({ "$addToSet": "$item" }), bson!(["a"])),
        (bson!({ "$stdDevPop": "$quantity" }), bson!(4.0)),
        (bson!({ "$stdDevSamp": "$quantity" }), bson!(32.0_f64.sqrt())),
        (bson!({ "$mergeObjects": { "p": "$price", "i": "$item" } }), bson!({ "p": 5.5, "i": "a" })),
        (bson!({ "$count": {} }), bson!(2)),
        (bson!({ "$firstN": { "input": "$price", "n": 1 } }), bson!([10])),
        (bson!({ "$lastN": { "input": "$price", "n": 5 } }), bson!([10, 5.5])),
        (bson!({ "$minN": { "input": "$price", "n": 1 } }), bson!([5.5])),
        (bson!({ "$maxN": { "input": "$price", "n": 2 } }), bson!([10, 5.5])),
        (bson!({ "$top": { "sortBy": { "price": 1 }, "output": "$quantity" } }), bson!(10)),
        (bson!({ "$bottom": { "sortBy": { "price": 1 }, "output": "$quantity" } }), bson!(2)),
        (
            bson!({ "$topN": { "sortBy": { "price": -1 }, "output": ["$price", "$item"], "n": 5 } }),
            bson!([[10, "a"], [5.5, "a"]]),
        ),
        (bson!({ "$bottomN": { "sortBy": { "price": 1 }, "output": "$price", "n": 1 } }), bson!([10])),
        (bson!({ "$median": { "input": "$quantity", "method": "approximate" } }), bson!(2.0)),
        (bson!({ "$percentile": { "input": "$quantity", "p": [0.9], "method": "approximate" } }), bson!([10.0])),
    ] {
        check(group(accumulator), sales(), bson!({ "r": expected }));
    }
}

#[test]
fn accumulators_have_results_without_values() {
    let input = bson!([{ "item": "c", "quantity": null }]);
    for (accumulator, expected) in [
        (bson!({ "$sum": "$price" }), bson!(0)),
        (bson!({ "$sum": "$quantity" }), bson!(0)),
        (bson!({ "$avg": "$price" }), Bson::Null),
        (bson!({ "$min": "$quantity" }), Bson::Null),
        (bson!({ "$first": "$price" }), Bson::Null),
        (bson!({ "$last": "$price" }), Bson::Null),
        (bson!({ "$push": "$price" }), bson!([])),
        (bson!({ "$push": "$quantity" }), bson!([null])),
        (bson!({ "$addToSet": "$price" }), bson!([])),
        (bson!({ "$stdDevPop": "$price" }), Bson::Null),
        (bson!({ "$mergeObjects": "$price" }), bson!({})),
        (bson!({ "$firstN": { "input": "$price", "n": 2 } }), bson!([null])),
        (bson!({ "$minN": { "input": "$price", "n": 2 } }), bson!([])),
        (bson!({ "$median": { "input": "$price", "method": "approximate" } }), Bson::Null),
    ] {
        check(
            bson!([{ "$group": { "_id": 0, "r": accumulator.clone() } }]),
            input.clone(),
            bson!({ "_id": 0, "r": expected }),
        );
    }
}

#[test]
fn sums_have_the_widest_type() {
    let sum = |values: Bson| {
        let documents: Vec<_> = values.as_array().unwrap().iter().map(|value| doc! { "v": value }).collect();
        let results = run(bson!([{ "$group": { "_id": 0, "s": { "$sum": "$v" } } }]), Bson::from(documents)).unwrap();
        results[0].get("s").unwrap().clone()
    };
    assert_eq!(sum(bson!([1, 2])), bson!(3));
    assert_eq!(sum(bson!([2_147_483_647, 1])), bson!(2_147_483_648_i64));
    assert_eq!(sum(bson!([1_i64, 2])), bson!(3_i64));
    assert_eq!(sum(bson!([i64::MAX, 1])), bson!(9_223_372_036_854_775_808.0));
    assert_eq!(sum(bson!([i64::MAX, 1, -1])), bson!(i64::MAX));
    assert_eq!(sum(bson!([1, 0.5])), bson!(1.5));
    // The result is the exact sum of the four doubles, without the rounding errors of each step.
    assert_eq!(sum(bson!([0.1, 0.2, 0.3, -0.6])), bson!(2.775_557_561_562_891_4e-17));
    let decimal: bson::Decimal128 = "0.1".parse().unwrap();
    let expected: bson::Decimal128 = "3.1".parse().unwrap();
    assert_eq!(sum(Bson::from(vec![Bson::Decimal128(decimal), bson!(3)])), Bson::Decimal128(expected));
}

#[test]
fn n_may_depend_on_the_group() {
    check(
        bson!([{ "$group": { "_id": { "k": "$k" }, "v": { "$firstN": { "input": "$v", "n": { "$cond": [{ "$eq": ["$k", "a"] }, 1, 2] } } } } }]),
        bson!([{ "k": "a", "v": 1 }, { "k": "a", "v": 2 }, { "k": "b", "v": 3 }, { "k": "b", "v": 4 }, { "k": "b", "v": 5 }]),
        bson!([{ "_id": { "k": "a" }, "v": [1] }, { "_id": { "k": "b" }, "v": [3, 4] }]),
    );
    check_error(bson!([{ "$group": { "_id": 0, "v": { "$firstN": { "input": "$v", "n": 0 } } } }]), 5787908);
    check_error(bson!([{ "$group": { "_id": 0, "v": { "$firstN": { "input": "$v", "n": "x" } } } }]), 5787902);
    check_error(bson!([{ "$group": { "_id": 0, "v": { "$firstN": { "input": "$v" } } } }]), 5787906);
    check_error(bson!([{ "$group": { "_id": 0, "v": { "$firstN": { "n": 1 } } } }]), 5787907);
}

#[test]
fn invalid_groups_are_refused() {
    check_error(bson!([{ "$group": 1 }]), 15947);
    check_error(bson!([{ "$group": {} }]), 15955);
    check_error(bson!([{ "$group": { "_id": 0, "a": 1 } }]), 40234);
    check_error(bson!([{ "$group": { "_id": 0, "a": {} } }]), 40234);
    check_error(bson!([{ "$group": { "_id": 0, "a": { "b": 1 } } }]), 40234);
    check_error(bson!([{ "$group": { "_id": 0, "a.b": { "$sum": 1 } } }]), 40235);
    check_error(bson!([{ "$group": { "_id": 0, "$a": { "$sum": 1 } } }]), 40236);
    check_error(bson!([{ "$group": { "_id": 0, "a": { "$sum": [1, 2] } } }]), 40237);
    check_error(bson!([{ "$group": { "_id": 0, "a": { "$sum": 1, "$avg": 1 } } }]), 40238);
    check_error(bson!([{ "$group": { "_id": 0, "a": { "$foo": 1 } } }]), 15952);
    check_error(bson!([{ "$group": { "_id": { "$foo": 1 } } }]), 168);
}

#[test]
fn sort_by_count_orders_by_frequency() {
    check(
        bson!([{ "$sortByCount": "$item" }]),
        sales(),
        bson!([{ "_id": "a", "count": 2 }, { "_id": "b", "count": 1 }, { "_id": "c", "count": 1 }]),
    );
    check_error(bson!([{ "$sortByCount": "item" }]), 40148);
    check_error(bson!([{ "$sortByCount": {} }]), 40147);
    check_error(bson!([{ "$sortByCount": 1 }]), 40149);
}

#[test]
fn bucket_groups_by_ranges() {
    let input = bson!([{ "p": 5 }, { "p": 10 }, { "p": 19.9 }, { "p": 20 }, { "p": 99 }, { "p": "x" }]);
    check(
        bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, 10, 20], "default": "other" } }]),
        input.clone(),
        bson!([{ "_id": 0, "count": 1 }, { "_id": 10, "count": 2 }, { "_id": "other", "count": 3 }]),
    );
    check(
        bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, 1000], "default": -1, "output": { "max": { "$max": "$p" } } } }]),
        input,
        bson!([{ "_id": -1, "max": "x" }, { "_id": 0, "max": 99 }]),
    );
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, 1] } }]), 40066);
    check_error(bson!([{ "$bucket": 1 }]), 40201);
    check_error(bson!([{ "$bucket": { "groupBy": 1, "boundaries": [0, 1] } }]), 40202);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": 1 } }]), 40200);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": ["$a", 1] } }]), 40191);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0] } }]), 40192);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, "a"] } }]), 40193);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [1, 0] } }]), 40194);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, 1], "default": "$a" } }]), 40195);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, 9], "default": 3 } }]), 40199);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, 9], "output": 3 } }]), 40196);
    check_error(bson!([{ "$bucket": { "groupBy": "$p", "boundaries": [0, 9], "x": 3 } }]), 40197);
    check_error(bson!([{ "$bucket": { "boundaries": [0, 9] } }]), 40198);
}

#[test]
fn bucket_auto_finds_ranges() {
    let input = Bson::from((0..10).map(|n| Bson::from(doc! { "v": n })).collect::<Vec<_>>());
    check(
        bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 3 } }]),
        input.clone(),
        bson!([
            { "_id": { "min": 0, "max": 3 }, "count": 3 },
            { "_id": { "min": 3, "max": 6 }, "count": 3 },
            { "_id": { "min": 6, "max": 9 }, "count": 4 },
        ]),
    );
    // Equal values stay together.
    check(
        bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 2, "output": { "all": { "$push": "$v" } } } }]),
        bson!([{ "v": 1 }, { "v": 1 }, { "v": 1 }, { "v": 2 }]),
        bson!([{ "_id": { "min": 1, "max": 2 }, "all": [1, 1, 1] }, { "_id": { "min": 2, "max": 2 }, "all": [2] }]),
    );
    check(bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 3 } }]), bson!([]), bson!([]));
    check_error(bson!([{ "$bucketAuto": 1 }]), 40240);
    check_error(bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": "x" } }]), 40241);
    check_error(bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 1.5 } }]), 40242);
    check_error(bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 0 } }]), 40243);
    check_error(bson!([{ "$bucketAuto": { "groupBy": "$v" } }]), 40246);
    check_error(bson!([{ "$bucketAuto": { "groupBy": 1, "buckets": 1 } }]), 40239);
    check_error(bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 1, "granularity": 5 } }]), 40261);
    check_error(bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 1, "granularity": "R6" } }]), 40257);
    check_error(bson!([{ "$bucketAuto": { "groupBy": "$v", "buckets": 1, "granularity": "R5" } }]), 40258);
    check_error(
        bson!([{ "$bucketAuto": { "groupBy": { "$literal": f64::NAN }, "buckets": 1, "granularity": "R5" } }]),
        40259,
    );
    check_error(
        bson!([{ "$bucketAuto": { "groupBy": { "$literal": -1 }, "buckets": 1, "granularity": "R5" } }]),
        40260,
    );
}

proptest! {
    /// Every document is in exactly one group, and sums of whole numbers do not depend on the order.
    #[test]
    fn every_document_is_in_one_group(values in prop::collection::vec((0..5_i32, any::<i64>()), 0..50)) {
        let documents: Vec<_> = values.iter().map(|(k, v)| doc! { "k": k, "v": v }).collect();
        let mut results = run(bson!([{ "$group": { "_id": "$k", "n": { "$sum": 1 }, "s": { "$sum": "$v" } } }, { "$sort": { "_id": 1 } }]), Bson::from(documents)).unwrap();
        for key in 0..5 {
            let expected: Vec<i128> = values.iter().filter(|(k, _)| *k == key).map(|(_, v)| i128::from(*v)).collect();
            let found = results.iter().position(|document| document.get_i32("_id").is_ok_and(|id| id == key));
            prop_assert_eq!(found.is_some(), !expected.is_empty());
            let Some(found) = found else { continue };
            let found = results.remove(found);
            prop_assert_eq!(found.get_i32("n").unwrap() as usize, expected.len());
            let sum: i128 = expected.iter().sum();
            match found.get("s").unwrap() {
                Bson::Int64(s) => prop_assert_eq!(i128::from(*s), sum),
                Bson::Double(s) => {
                    prop_assert!(i64::try_from(sum).is_err());
                    prop_assert_eq!(*s, sum as f64);
                }
                other => prop_assert!(false, "{}", other),
            }
        }
        prop_assert!(results.is_empty());
    }
}

#[test]
fn arrays_are_joined_to_one_list_or_set() {
    check(
        bson!([{ "$group": { "_id": null, "all": { "$concatArrays": "$a" }, "set": { "$setUnion": "$a" } } }]),
        bson!([{ "a": [1, 2] }, {}, { "a": [] }, { "a": [2.0, [1], 3] }]),
        bson!([{ "_id": null, "all": [1, 2, 2.0, [1], 3], "set": [1, 2, [1], 3] }]),
    );
    for accumulator in ["$concatArrays", "$setUnion"] {
        for wrong in [bson!(null), bson!(1), bson!({ "b": [] })] {
            check_error(bson!([{ "$group": { "_id": null, "a": { accumulator: { "$literal": wrong } } } }]), 14);
        }
    }
}
