use bson::{Bson, bson, doc};

use crate::expression::testing::{check, check_error, check_missing, fails, gives};

#[test]
fn items_are_found_by_position() {
    gives(doc! { "$arrayElemAt": [[1, 2, 3], 0] }, 1);
    gives(doc! { "$arrayElemAt": [[1, 2, 3], -2] }, 2);
    check_missing(doc! { "$arrayElemAt": [[1, 2, 3], 15] }, doc! {});
    check_missing(doc! { "$arrayElemAt": [[1, 2, 3], -4] }, doc! {});
    check(doc! { "$arrayElemAt": ["$a", 1.0] }, doc! { "a": ["x", { "b": 1 }] }, doc! { "b": 1 });
    check(doc! { "$arrayElemAt": ["$x", 0] }, doc! {}, Bson::Null);
    gives(doc! { "$first": [[1, 2]] }, 1);
    check(doc! { "$last": "$a" }, doc! { "a": [1, 2] }, 2);
    check_missing(doc! { "$first": "$a" }, doc! { "a": [] });
    check(doc! { "$first": "$a" }, doc! {}, Bson::Null);
    check_error(doc! { "$first": "$a" }, doc! { "a": 1 }, 28689);
    check_error(doc! { "$arrayElemAt": ["x", 0] }, doc! {}, 28689);
    check_error(doc! { "$arrayElemAt": [[1], "x"] }, doc! {}, 28690);
    check_error(doc! { "$arrayElemAt": [[1], 1.5] }, doc! {}, 28691);
}

#[test]
fn sizes_and_membership_of_arrays() {
    check(doc! { "$size": "$a" }, doc! { "a": [1, 2, 3] }, 3);
    fails(doc! { "$size": "$a" }, 17124, "The argument to $size must be an array, but was of type: missing");
    gives(doc! { "$isArray": [bson!([1])] }, true);
    gives(doc! { "$isArray": ["x"] }, false);
    gives(doc! { "$in": [2, [1, 2, 3]] }, true);
    gives(doc! { "$in": [2.0, [1, 2, 3]] }, true);
    gives(doc! { "$in": ["abc", ["xyz"]] }, false);
    check(doc! { "$in": ["$x", [null]] }, doc! {}, false);
    fails(doc! { "$in": [1, "$x"] }, 40081, "$in requires an array as a second argument, found: missing");
    gives(doc! { "$indexOfArray": [["a", "abc"], "abc"] }, 1);
    gives(doc! { "$indexOfArray": [["a", "b", "a"], "a", 1] }, 2);
    gives(doc! { "$indexOfArray": [["a", "b", "a"], "a", 1, 2] }, -1);
    gives(doc! { "$indexOfArray": [null, "a"] }, Bson::Null);
    check_error(doc! { "$indexOfArray": ["x", "a"] }, doc! {}, 40090);
    check_error(doc! { "$indexOfArray": [["x"], "a", "b"] }, doc! {}, 9711600);
    check_error(doc! { "$indexOfArray": [["x"], "a", -1] }, doc! {}, 9711601);
    gives(doc! { "$indexOfArray": [["a", "b"], "b", 1_i64, 2.0] }, 1);
    gives(doc! { "$indexOfArray": [["a", "b"], "a", 20] }, -1);
    gives(doc! { "$indexOfArray": [["a", "b"], "a", 1, 0] }, -1);
    for bound in
        [bson!(1.5), bson!(i64::MAX), bson!(f64::NAN), bson!(f64::INFINITY), bson!("0"), bson!(true), bson!("$x")]
    {
        check_error(doc! { "$indexOfArray": [["x"], "a", bound.clone()] }, doc! {}, 9711600);
        check_error(doc! { "$indexOfArray": [["x"], "a", 0, bound] }, doc! {}, 9711600);
    }
    check_error(doc! { "$indexOfArray": [["x"], "a", 0, -1_i64] }, doc! {}, 9711601);
}

#[test]
fn slices_count_from_both_ends() {
    gives(doc! { "$slice": [[1, 2, 3], 2] }, bson!([1, 2]));
    gives(doc! { "$slice": [[1, 2, 3], -2] }, bson!([2, 3]));
    gives(doc! { "$slice": [[1, 2, 3], 1, 1] }, bson!([2]));
    gives(doc! { "$slice": [[1, 2, 3], -2, 1] }, bson!([2]));
    gives(doc! { "$slice": [[1, 2, 3], -9, 2] }, bson!([1, 2]));
    gives(doc! { "$slice": [[1, 2, 3], 15, 2] }, bson!([]));
    gives(doc! { "$slice": [[1, 2, 3], 0] }, bson!([]));
    gives(doc! { "$slice": [null, 1] }, Bson::Null);
    check_error(doc! { "$slice": [1, 1] }, doc! {}, 28724);
    check_error(doc! { "$slice": [[1], "x"] }, doc! {}, 28725);
    check_error(doc! { "$slice": [[1], 1.5] }, doc! {}, 28726);
    check_error(doc! { "$slice": [[1], 1, "x"] }, doc! {}, 28727);
    check_error(doc! { "$slice": [[1], 1, 1.5] }, doc! {}, 28728);
    check_error(doc! { "$slice": [[1], 1, 0] }, doc! {}, 28729);
}

#[test]
fn arrays_are_created_from_ranges_and_lists() {
    gives(doc! { "$concatArrays": [["a"], [], ["b", ["c"]]] }, bson!(["a", "b", ["c"]]));
    gives(doc! { "$concatArrays": [["a"], null] }, Bson::Null);
    check_error(doc! { "$concatArrays": [["a"], 1] }, doc! {}, 28664);
    gives(doc! { "$reverseArray": [[1, 2, [3]]] }, bson!([[3], 2, 1]));
    gives(doc! { "$reverseArray": null }, Bson::Null);
    check_error(doc! { "$reverseArray": 1 }, doc! {}, 34435);
    gives(doc! { "$range": [0, 10, 3] }, bson!([0, 3, 6, 9]));
    gives(doc! { "$range": [10, 0, -5] }, bson!([10, 5]));
    gives(doc! { "$range": [0, 3] }, bson!([0, 1, 2]));
    gives(doc! { "$range": [3, 0] }, bson!([]));
    gives(doc! { "$range": [i32::MAX - 1, i32::MAX] }, bson!([i32::MAX - 1]));
    check_error(doc! { "$range": ["a", 1] }, doc! {}, 34443);
    check_error(doc! { "$range": [1.5, 1] }, doc! {}, 34444);
    check_error(doc! { "$range": [1, "a"] }, doc! {}, 34445);
    check_error(doc! { "$range": [1, 1.5] }, doc! {}, 34446);
    check_error(doc! { "$range": [1, 1, "x"] }, doc! {}, 34447);
    check_error(doc! { "$range": [1, 1, 1.5] }, doc! {}, 34448);
    check_error(doc! { "$range": [1, 1, 0] }, doc! {}, 34449);
    check_error(doc! { "$range": [0, i32::MAX] }, doc! {}, 146);
}

#[test]
fn several_items_are_selected_by_n() {
    gives(doc! { "$firstN": { "input": [1, 2, 3], "n": 2 } }, bson!([1, 2]));
    gives(doc! { "$lastN": { "input": [1, 2, 3], "n": 2 } }, bson!([2, 3]));
    gives(doc! { "$minN": { "input": [3, null, 1, 2], "n": 2 } }, bson!([1, 2]));
    gives(doc! { "$maxN": { "input": [3, null, 1, 2], "n": 9 } }, bson!([3, 2, 1]));
    check_error(doc! { "$firstN": { "input": [1], "n": 0 } }, doc! {}, 5787908);
    check_error(doc! { "$firstN": { "input": [1], "n": 1.5 } }, doc! {}, 5787902);
    check_error(doc! { "$firstN": { "input": 1, "n": 1 } }, doc! {}, 5788200);
    check_error(doc! { "$firstN": { "input": [1] } }, doc! {}, 5787906);
    check_error(doc! { "$firstN": { "n": 1 } }, doc! {}, 5787907);
}

#[test]
fn zip_combines_arrays_by_position() {
    gives(doc! { "$zip": { "inputs": [["a"], ["b"], ["c"]] } }, bson!([["a", "b", "c"]]));
    gives(doc! { "$zip": { "inputs": [[1, 2, 3], ["a"]] } }, bson!([[1, "a"]]));
    gives(doc! { "$zip": { "inputs": [[1], [2, 3]], "useLongestLength": true } }, bson!([[1, 2], [null, 3]]));
    gives(
        doc! { "$zip": { "inputs": [[1], [2, 3]], "useLongestLength": true, "defaults": ["x", "y"] } },
        bson!([[1, 2], ["x", 3]]),
    );
    gives(doc! { "$zip": { "inputs": [[1], null] } }, Bson::Null);
    check_error(doc! { "$zip": 1 }, doc! {}, 34460);
    check_error(doc! { "$zip": { "inputs": 1 } }, doc! {}, 34461);
    check_error(doc! { "$zip": { "inputs": [[1]], "defaults": 1 } }, doc! {}, 34462);
    check_error(doc! { "$zip": { "inputs": [[1]], "useLongestLength": 1 } }, doc! {}, 34463);
    check_error(doc! { "$zip": { "inputs": [[1]], "x": 1 } }, doc! {}, 34464);
    check_error(doc! { "$zip": { "inputs": [] } }, doc! {}, 34465);
    check_error(doc! { "$zip": { "inputs": [[1]], "defaults": [1] } }, doc! {}, 34466);
    check_error(doc! { "$zip": { "inputs": [[1]], "defaults": [1, 2], "useLongestLength": true } }, doc! {}, 34467);
    check_error(doc! { "$zip": { "inputs": [1] } }, doc! {}, 34468);
}

#[test]
fn sort_array_orders_values_and_documents() {
    gives(doc! { "$sortArray": { "input": [3, 1, "a", 2], "sortBy": 1 } }, bson!([1, 2, 3, "a"]));
    gives(doc! { "$sortArray": { "input": [3, 1, 2], "sortBy": -1 } }, bson!([3, 2, 1]));
    check(
        doc! { "$sortArray": { "input": "$a", "sortBy": { "x": -1, "y": 1 } } },
        doc! { "a": [{ "x": 1 }, { "x": 2, "y": 2 }, { "x": 2, "y": 1 }, { "y": 5 }] },
        bson!([{ "x": 2, "y": 1 }, { "x": 2, "y": 2 }, { "x": 1 }, { "y": 5 }]),
    );
    gives(doc! { "$sortArray": { "input": null, "sortBy": 1 } }, Bson::Null);
    check_error(doc! { "$sortArray": { "input": 1, "sortBy": 1 } }, doc! {}, 2942504);
    check_error(doc! { "$sortArray": { "input": [1] } }, doc! {}, 2942503);
    check_error(doc! { "$sortArray": { "sortBy": 1 } }, doc! {}, 2942502);
    for (by, code) in [
        (bson!(2), 2942506),
        (bson!(0), 2942506),
        (bson!(-2_i64), 2942506),
        (bson!(1.5), 2942506),
        (bson!("a"), 2942507),
        (bson!(null), 2942507),
        (bson!(true), 2942507),
        (bson!([1]), 2942507),
        (bson!({}), 2942505),
        (bson!({ "a": 0 }), 2942505),
        (bson!({ "a": 2 }), 2942505),
        (bson!({ "a": "asc" }), 2942505),
    ] {
        check_error(doc! { "$sortArray": { "input": [1], "sortBy": by } }, doc! {}, code);
    }
    check_error(doc! { "$sortArray": { "input": [1], "sortBy": 1, "x": 1 } }, doc! {}, 2942501);
    check_error(doc! { "$sortArray": [[1], 1] }, doc! {}, 2942500);
}

#[test]
fn objects_are_converted_to_arrays_and_back() {
    gives(doc! { "$objectToArray": { "a": 1, "b": [2] } }, bson!([{ "k": "a", "v": 1 }, { "k": "b", "v": [2] }]));
    gives(doc! { "$objectToArray": null }, Bson::Null);
    check_error(doc! { "$objectToArray": 1 }, doc! {}, 40390);
    gives(doc! { "$arrayToObject": [[["a", 1], ["b", 2], ["a", 3]]] }, doc! { "a": 3, "b": 2 });
    gives(doc! { "$arrayToObject": [[{ "k": "a", "v": 1 }, { "v": 2, "k": "b" }]] }, doc! { "a": 1, "b": 2 });
    gives(doc! { "$arrayToObject": null }, Bson::Null);
    gives(doc! { "$arrayToObject": [[]] }, doc! {});
    check_error(doc! { "$arrayToObject": 1 }, doc! {}, 40386);
    check_error(doc! { "$arrayToObject": [[1]] }, doc! {}, 40398);
    check_error(doc! { "$arrayToObject": [[["a"]]] }, doc! {}, 40397);
    check_error(doc! { "$arrayToObject": [[[1, 1]]] }, doc! {}, 40395);
    check_error(doc! { "$arrayToObject": [[["a", 1], { "k": "b", "v": 1 }]] }, doc! {}, 40391);
    check_error(doc! { "$arrayToObject": [[{ "k": "b", "v": 1 }, ["a", 1]]] }, doc! {}, 40396);
    check_error(doc! { "$arrayToObject": [[{ "k": "b" }]] }, doc! {}, 40392);
    check_error(doc! { "$arrayToObject": [[{ "k": "b", "x": 1 }]] }, doc! {}, 40393);
    check_error(doc! { "$arrayToObject": [[{ "k": 1, "v": 1 }]] }, doc! {}, 40394);
    check_error(doc! { "$arrayToObject": [[["a\0b", 1]]] }, doc! {}, 4940400);
}

#[test]
fn map_filter_and_reduce_bind_their_variables() {
    check(
        doc! { "$map": { "input": "$a", "as": "x", "in": { "$add": ["$$x", "$b"] } } },
        doc! { "a": [1, 2], "b": 10 },
        bson!([11, 12]),
    );
    check(doc! { "$map": { "input": "$a", "in": "$$this.v" } }, doc! { "a": [{ "v": 1 }, {}] }, bson!([1, null]));
    gives(doc! { "$map": { "input": null, "in": 1 } }, Bson::Null);
    // The inner variable hides the outer one, which is visible again after it.
    gives(
        doc! { "$map": { "input": [1, 2], "in": [{ "$map": { "input": [5], "in": "$$this" } }, "$$this"] } },
        bson!([[[5], 1], [[5], 2]]),
    );
    check(
        doc! { "$filter": { "input": "$a", "as": "n", "cond": { "$gte": ["$$n", 2] }, "limit": 1 } },
        doc! { "a": [1, 2, 3] },
        bson!([2]),
    );
    gives(doc! { "$filter": { "input": [1, null, 0, "x"], "cond": "$$this" } }, bson!([1, "x"]));
    gives(doc! { "$filter": { "input": null, "cond": 1 } }, Bson::Null);
    gives(
        doc! { "$reduce": { "input": ["a", "b", "c"], "initialValue": "", "in": { "$concat": ["$$value", "$$this"] } } },
        "abc",
    );
    gives(
        doc! { "$reduce": { "input": [1, 2, 3], "initialValue": { "sum": 0, "product": 1 }, "in": {
            "sum": { "$add": ["$$value.sum", "$$this"] }, "product": { "$multiply": ["$$value.product", "$$this"] },
        } } },
        doc! { "sum": 6, "product": 6 },
    );
    gives(doc! { "$reduce": { "input": null, "initialValue": 0, "in": 1 } }, Bson::Null);
    gives(doc! { "$reduce": { "input": [], "initialValue": 7, "in": 1 } }, 7);
    check_error(doc! { "$map": 1 }, doc! {}, 16878);
    check_error(doc! { "$map": { "input": [], "in": 1, "x": 1 } }, doc! {}, 16879);
    check_error(doc! { "$map": { "in": 1 } }, doc! {}, 16880);
    check_error(doc! { "$map": { "input": [] } }, doc! {}, 16882);
    check_error(doc! { "$map": { "input": 1, "in": 1 } }, doc! {}, 16883);
    check_error(doc! { "$map": { "input": [], "as": "X", "in": 1 } }, doc! {}, 9);
    check_error(doc! { "$filter": 1 }, doc! {}, 28646);
    check_error(doc! { "$filter": { "input": [], "cond": 1, "x": 1 } }, doc! {}, 28647);
    check_error(doc! { "$filter": { "cond": 1 } }, doc! {}, 28648);
    check_error(doc! { "$filter": { "input": [] } }, doc! {}, 28650);
    check_error(doc! { "$filter": { "input": 1, "cond": 1 } }, doc! {}, 28651);
    check_error(doc! { "$filter": { "input": [], "cond": 1, "limit": "x" } }, doc! {}, 327391);
    check_error(doc! { "$filter": { "input": [], "cond": 1, "limit": 0 } }, doc! {}, 327392);
    check_error(doc! { "$reduce": 1 }, doc! {}, 40075);
    check_error(doc! { "$reduce": { "x": 1 } }, doc! {}, 40076);
    check_error(doc! { "$reduce": { "initialValue": 0, "in": 1 } }, doc! {}, 40077);
    check_error(doc! { "$reduce": { "input": [], "in": 1 } }, doc! {}, 40078);
    check_error(doc! { "$reduce": { "input": [], "initialValue": 0 } }, doc! {}, 40079);
    check_error(doc! { "$reduce": { "input": 1, "initialValue": 0, "in": 1 } }, doc! {}, 40080);
}
