use bson::{Bson, DateTime, Document, RawBsonRef, RawDocumentBuf, Timestamp, bson, doc};
use proptest::prelude::*;

use super::{
    Expression,
    testing::{check, check_error, check_missing, context, evaluate, fails, gives},
};
use crate::{Code, CompileOptions, context::Interrupt};

#[test]
fn literals_evaluate_to_themselves() {
    gives(5, 5);
    gives("text", "text");
    gives(bson!([1, "a", null]), bson!([1, "a", null]));
    gives(doc! { "$literal": { "$add": [1, "$a"] } }, doc! { "$add": [1, "$a"] });
    gives(doc! { "$literal": "$a" }, "$a");
    gives(doc! { "$const": "$a" }, "$a");
}

#[test]
fn paths_follow_documents_and_map_over_arrays() {
    check("$a", doc! { "a": 1 }, 1);
    check("$a.b", doc! { "a": { "b": 2 } }, 2);
    check("$a.b", doc! { "a": [{ "b": 1 }, {}, 5, [{ "b": 9 }], { "b": 2 }] }, bson!([1, 2]));
    check("$a.b.c", doc! { "a": [{ "b": [{ "c": 1 }] }, { "b": { "c": 2 } }] }, bson!([[1], 2]));
    check("$a.0", doc! { "a": [1, 2] }, bson!([]));
    check("$a.0", doc! { "a": { "0": 7 } }, 7);
    check_missing("$a", doc! {});
    check_missing("$a.b", doc! { "a": 5 });
    check("$a.b", doc! { "a": [1, 2] }, bson!([]));
}

#[test]
fn system_variables_have_their_values() {
    check("$$ROOT", doc! { "a": 1 }, doc! { "a": 1 });
    check("$$ROOT.a", doc! { "a": 1 }, 1);
    check("$$CURRENT.a", doc! { "a": 1 }, 1);
    gives("$$NOW", DateTime::from_millis(1_800_000));
    gives("$$CLUSTER_TIME", Timestamp { time: 7, increment: 3 });
    check_missing("$$REMOVE", doc! {});
    check(doc! { "a": "$$REMOVE", "b": 1 }, doc! {}, doc! { "b": 1 });
    check(bson!(["$$REMOVE", "$x"]), doc! {}, bson!([null, null]));
}

#[test]
fn objects_leave_missing_fields_out() {
    check(doc! { "a": "$x", "b": "$y" }, doc! { "y": 1 }, doc! { "b": 1 });
    check(doc! { "a": { "b": { "$add": ["$y", 1] } } }, doc! { "y": 1 }, doc! { "a": { "b": 2 } });
    gives(doc! {}, doc! {});
}

#[test]
fn let_binds_variables_and_shadows_outer_ones() {
    check(
        doc! { "$let": { "vars": { "low": 1, "high": "$high" }, "in": { "$gt": ["$$high", "$$low"] } } },
        doc! { "high": 5 },
        true,
    );
    gives(
        doc! { "$let": { "vars": { "a": 1 }, "in": { "$let": { "vars": { "a": 2, "b": "$$a" }, "in": ["$$a", "$$b"] } } } },
        bson!([2, 1]),
    );
    // A new value of CURRENT changes the start of "$x".
    check(doc! { "$let": { "vars": { "CURRENT": "$inner" }, "in": "$x" } }, doc! { "inner": { "x": 3 }, "x": 1 }, 3);
    check_missing(doc! { "$let": { "vars": { "a": "$none" }, "in": "$$a" } }, doc! {});
    check(doc! { "$let": { "vars": { "a": "$d" }, "in": "$$a.b.c" } }, doc! { "d": { "b": { "c": "x" } } }, "x");
}

#[test]
fn unknown_operators_and_variables_are_refused_with_their_codes() {
    fails(doc! { "$foo": 1 }, 168, "Unrecognized expression '$foo'");
    fails("$$nobody", 17276, "Use of undefined variable: nobody");
    fails("$", 16872, "'$' by itself is not a valid FieldPath");
    check_error("$a.", doc! {}, 40353);
    check_error("$a..b", doc! {}, 15998);
    check_error("$a.$b", doc! {}, 16410);
    // The fields of a DBRef.
    let reference = doc! { "a": { "$ref": "c", "$id": 7, "$db": "d" } };
    for (path, value) in [("$a.$ref", Bson::from("c")), ("$a.$id", 7.into()), ("$$ROOT.a.$db", "d".into())] {
        check(path, reference.clone(), value);
    }
    check_error("$$", doc! {}, 9);
    check_error(doc! { "$add": [1], "$subtract": [1, 2] }, doc! {}, 15983);
    check_error(doc! { "a.b": 1 }, doc! {}, 16412);
    check_error(doc! { "$let": { "vars": { "Upper": 1 }, "in": 1 } }, doc! {}, 9);
    check_error(doc! { "$let": { "vars": { "a-b": 1 }, "in": 1 } }, doc! {}, 9);
    check_error(doc! { "$let": { "in": 1 } }, doc! {}, 16876);
    check_error(doc! { "$let": { "vars": {} } }, doc! {}, 16877);
    check_error(doc! { "$let": 1 }, doc! {}, 16874);
    check_error(doc! { "$let": { "vars": {}, "in": 1, "x": 1 } }, doc! {}, 16875);
}

#[test]
fn a_wrong_number_of_arguments_is_refused() {
    fails(doc! { "$divide": [1] }, 16020, "Expression $divide takes exactly 2 arguments. 1 were passed in.");
    fails(
        doc! { "$slice": [1] },
        28667,
        "Expression $slice takes at least 2 arguments, and at most 3, but 1 were passed in.",
    );
    check_error(doc! { "$abs": [1, 2] }, doc! {}, 16020);
    // A single argument needs no array, and an array of one item is the argument.
    gives(doc! { "$abs": -1 }, 1);
    gives(doc! { "$abs": [-1] }, 1);
}

#[test]
fn comparison_is_across_types() {
    gives(doc! { "$cmp": [1, "a"] }, -1);
    gives(doc! { "$cmp": [2, 1.5] }, 1);
    gives(doc! { "$cmp": [1, 1.0] }, 0);
    gives(doc! { "$eq": [1, 1_i64] }, true);
    gives(doc! { "$ne": ["a", "b"] }, true);
    gives(doc! { "$gte": [bson!([1, 2]), bson!([1])] }, true);
    check(doc! { "$eq": ["$x", null] }, doc! {}, false);
    check(doc! { "$lt": ["$x", null] }, doc! {}, true);
    check(doc! { "$eq": ["$x", "$y"] }, doc! {}, true);
    check(doc! { "$gt": ["$x", 5] }, doc! { "x": 6 }, true);
    check(doc! { "$lte": ["$x", 5] }, doc! { "x": 6 }, false);
}

#[test]
fn boolean_operators_stop_early() {
    gives(doc! { "$and": [] }, true);
    gives(doc! { "$or": [] }, false);
    gives(doc! { "$and": [1, "a", {}] }, true);
    gives(doc! { "$and": [1, 0, { "$divide": [1, 0] }] }, false);
    gives(doc! { "$or": [null, 0.0, "x", { "$divide": [1, 0] }] }, true);
    gives(doc! { "$not": [false] }, true);
    gives(doc! { "$not": "x" }, false);
    gives(doc! { "$not": [bson!([])] }, false);
    check(doc! { "$not": "$x" }, doc! {}, true);
}

#[test]
fn conditionals_evaluate_only_the_selected_branch() {
    gives(doc! { "$cond": [true, 1, { "$divide": [1, 0] }] }, 1);
    gives(doc! { "$cond": { "if": 0, "then": 1, "else": 2 } }, 2);
    check(doc! { "$ifNull": ["$x", "$y", "z"] }, doc! {}, "z");
    check(doc! { "$ifNull": ["$x", "$y", "z"] }, doc! { "y": 3 }, 3);
    check(doc! { "$ifNull": ["$x", "d"] }, doc! { "x": null }, "d");
    check_missing(doc! { "$ifNull": ["$x", "$y"] }, doc! {});
    let switch = doc! { "$switch": {
        "branches": [{ "case": { "$eq": ["$a", 1] }, "then": "one" }, { "case": { "$gt": ["$a", 1] }, "then": "many" }],
        "default": "none",
    } };
    check(switch.clone(), doc! { "a": 1 }, "one");
    check(switch.clone(), doc! { "a": 2 }, "many");
    check(switch, doc! { "a": 0 }, "none");
    check_error(doc! { "$cond": { "if": 1, "then": 1 } }, doc! {}, 17082);
    check_error(doc! { "$cond": { "then": 1, "else": 1 } }, doc! {}, 17080);
    check_error(doc! { "$cond": { "if": 1, "else": 1 } }, doc! {}, 17081);
    check_error(doc! { "$cond": { "if": 1, "then": 1, "else": 1, "x": 1 } }, doc! {}, 17083);
    check_error(doc! { "$cond": [1, 2] }, doc! {}, 16020);
    check_error(doc! { "$ifNull": ["$x"] }, doc! {}, 1257300);
    check_error(doc! { "$switch": { "branches": [{ "case": false, "then": 1 }] } }, doc! {}, 40066);
    check_error(doc! { "$switch": { "branches": [] } }, doc! {}, 40068);
    check_error(doc! { "$switch": { "branches": [{ "case": 1 }] } }, doc! {}, 40065);
    check_error(doc! { "$switch": { "branches": 1 } }, doc! {}, 40061);
}

#[test]
fn sets_ignore_order_and_duplicates() {
    gives(doc! { "$setUnion": [["b", "a", "b"], ["c", "a"]] }, bson!(["a", "b", "c"]));
    gives(doc! { "$setUnion": [[1], null] }, Bson::Null);
    gives(doc! { "$setIntersection": [["a", "b", "b"], ["b", "a", "c"]] }, bson!(["a", "b"]));
    gives(doc! { "$setIntersection": [] }, bson!([]));
    gives(doc! { "$setDifference": [["c", "a", "b", "a"], ["b"]] }, bson!(["c", "a"]));
    gives(doc! { "$setEquals": [["a", "b", "a"], ["b", "a"]] }, true);
    gives(doc! { "$setEquals": [[1, 2], [1.0, 2_i64], [2, 1]] }, true);
    gives(doc! { "$setEquals": [[1, 2], [1]] }, false);
    gives(doc! { "$setIsSubset": [["a"], ["b", "a"]] }, true);
    gives(doc! { "$setIsSubset": [[["a"]], ["b", "a"]] }, false);
    gives(doc! { "$anyElementTrue": [[0, false, 1]] }, true);
    gives(doc! { "$anyElementTrue": [[]] }, false);
    gives(doc! { "$allElementsTrue": [[]] }, true);
    gives(doc! { "$allElementsTrue": [[1, 0]] }, false);
    check_error(doc! { "$setUnion": [1, [1]] }, doc! {}, 17043);
    check_error(doc! { "$setIntersection": [1, [1]] }, doc! {}, 17047);
    check_error(doc! { "$setDifference": [1, [1]] }, doc! {}, 17048);
    check_error(doc! { "$setDifference": [[1], 1] }, doc! {}, 17049);
    check_error(doc! { "$setEquals": [[1], 1] }, doc! {}, 17044);
    check_error(doc! { "$setEquals": ["$a"] }, doc! {}, 17045);
    check_error(doc! { "$setIsSubset": [1, [1]] }, doc! {}, 17046);
    check_error(doc! { "$setIsSubset": [[1], 1] }, doc! {}, 17042);
    check_error(doc! { "$anyElementTrue": [null] }, doc! {}, 17041);
    check_error(doc! { "$allElementsTrue": [null] }, doc! {}, 17040);
}

#[test]
fn types_and_sizes_of_values_are_returned() {
    gives(doc! { "$type": 1 }, "int");
    gives(doc! { "$type": 1_i64 }, "long");
    gives(doc! { "$type": [bson!([1])] }, "array");
    check(doc! { "$type": "$x" }, doc! {}, "missing");
    gives(doc! { "$isNumber": 1.5 }, true);
    gives(doc! { "$isNumber": "1" }, false);
    gives(doc! { "$binarySize": "héllo" }, 6);
    check(doc! { "$bsonSize": "$$ROOT" }, doc! { "a": 1 }, 12);
    gives(doc! { "$bsonSize": null }, Bson::Null);
    gives(doc! { "$tsSecond": Timestamp { time: 5, increment: 6 } }, 5_i64);
    gives(doc! { "$tsIncrement": Timestamp { time: 5, increment: 6 } }, 6_i64);
    check_error(doc! { "$bsonSize": 1 }, doc! {}, 31393);
    check_error(doc! { "$binarySize": 1 }, doc! {}, 51276);
    check_error(doc! { "$tsSecond": 1 }, doc! {}, 5687301);
}

#[test]
fn random_values_depend_on_the_seed() {
    let first = evaluate(doc! { "$rand": {} }, doc! {}).unwrap().unwrap();
    assert_eq!(Some(first.clone()), evaluate(doc! { "$rand": {} }, doc! {}).unwrap());
    assert!((0.0..1.0).contains(&first.as_f64().unwrap()));
    check_error(doc! { "$rand": { "a": 1 } }, doc! {}, 3040501);
    check_error(doc! { "$rand": 1 }, doc! {}, 10065);
}

#[test]
fn accumulators_work_as_expressions() {
    check(doc! { "$sum": "$a" }, doc! { "a": [1, 2.5, "x", null] }, 3.5);
    gives(doc! { "$sum": [1, 2, [3]] }, 3);
    gives(doc! { "$sum": "x" }, 0);
    gives(doc! { "$sum": [i32::MAX, 1] }, 2_147_483_648_i64);
    gives(doc! { "$avg": [1, 2] }, 1.5);
    gives(doc! { "$avg": ["x"] }, Bson::Null);
    check(doc! { "$avg": "$a" }, doc! { "a": [1, 2, 3] }, 2.0);
    check(doc! { "$min": "$a" }, doc! { "a": [3, null, 1, "x"] }, 1);
    check(doc! { "$max": "$a" }, doc! { "a": [3, null, 1, "x"] }, "x");
    gives(doc! { "$min": [5, 4] }, 4);
    gives(doc! { "$max": [null] }, Bson::Null);
    check(doc! { "$stdDevPop": "$a" }, doc! { "a": [1, 2, 3, 4] }, 1.25_f64.sqrt());
    check(doc! { "$stdDevSamp": "$a" }, doc! { "a": [5] }, Bson::Null);
    check(doc! { "$stdDevSamp": "$a" }, doc! { "a": [1, 3] }, 2.0_f64.sqrt());
    check(doc! { "$median": { "input": "$a", "method": "approximate" } }, doc! { "a": [5, 1, 3] }, 3.0);
    check(
        doc! { "$percentile": { "input": "$a", "p": [0.0, 0.5, 0.95, 1.0], "method": "approximate" } },
        doc! { "a": [10, 20, 30, 40] },
        bson!([10.0, 20.0, 40.0, 40.0]),
    );
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    type Wrap = fn(Bson) -> bson::Document;
    let wraps: [(Wrap, usize); 5] = [
        (|inner| doc! { "$abs": inner }, 95),
        (|inner| doc! { "$cond": [true, inner, 0] }, 95),
        (|inner| doc! { "$let": { "vars": { "x": 1 }, "in": inner } }, 95),
        (|inner| doc! { "$arrayElemAt": [{ "$map": { "input": [1], "in": inner } }, 0] }, 30),
        (|inner| doc! { "$reduce": { "input": [1], "initialValue": 0, "in": inner } }, 95),
    ];
    // This is half the stack of a server's thread, in a build without optimisation.
    const STACK_BYTES: usize = 1024 * 1024;
    for (wrap, depth) in wraps {
        let mut expression = Bson::from(7);
        for _ in 0..depth {
            expression = Bson::from(wrap(expression));
        }
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let value = thread.spawn(move || evaluate(expression, doc! {})).unwrap().join().unwrap();
        assert_eq!(value, Ok(Some(Bson::from(7))));
    }
}

#[test]
fn a_long_evaluation_can_be_interrupted() {
    use std::{sync::mpsc, time::Duration};
    let loops = doc! { "$map": { "input": { "$range": [0, 1_000_000] }, "in": { "$size": { "$filter": { "input": { "$range": [0, 1_000_000] }, "cond": false } } } } };
    let loops = RawDocumentBuf::try_from(loops).unwrap();
    let interrupt = Interrupt::default();
    let context = context().with_interrupt(interrupt.clone());
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let expression = Expression::compile(RawBsonRef::Document(&loops), &CompileOptions::default()).unwrap();
        let code = expression.evaluate(&RawDocumentBuf::new(), &context).map(drop).unwrap_err().code();
        done.send(code).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
    interrupt.stop(Code::MaxTimeMSExpired);
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(Code::MaxTimeMSExpired));
}

#[test]
fn may_vary_finds_nested_time_and_chance() {
    for (written, expected) in [
        (doc! { "a": { "$gt": 1 }, "$or": [{ "b": "$rand" }, { "$expr": "$$ROOT" }] }, false),
        (doc! { "$expr": { "$gt": ["$until", "$$NOW"] } }, true),
        (doc! { "$and": [{ "$expr": { "$gt": ["$until", { "$toDate": "$$CLUSTER_TIME" }] } }] }, true),
        (doc! { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } }, true),
        (doc! { "$or": [[{ "$sampleRate": 0.5 }]] }, true),
    ] {
        let raw = RawDocumentBuf::try_from(written.clone()).unwrap();
        assert_eq!(super::may_vary(&raw), expected, "{written}");
    }
}

#[test]
fn may_take_long_finds_nested_loops_and_long_expressions() {
    for (written, expected) in [
        (doc! {}, false),
        (doc! { "a": { "$gt": 1 }, "$or": [{ "b": "$map" }] }, false),
        (doc! { "$setWindowFields": { "output": { "all": { "$push": "$v" } } } }, true),
        (doc! { "$facet": { "a": [{ "$densify": {} }] } }, true),
        (doc! { "$fill": { "output": {} } }, true),
        (doc! { "$expr": { "$gt": [{ "$size": { "$filter": { "input": "$a", "cond": true } } }, 1] } }, true),
        (doc! { "$project": { "a": { "b": [{ "$map": {} }] } } }, true),
        (doc! { "a": [[{ "$reduce": {} }]] }, true),
        (doc! { "a": { "$in": (0..50).collect::<Vec<_>>() } }, false),
        (doc! { "a": { "$in": (0..500).collect::<Vec<_>>() } }, true),
    ] {
        let raw = RawDocumentBuf::try_from(written.clone()).unwrap();
        assert_eq!(super::may_take_long(&raw), expected, "{written}");
    }
}

#[test]
fn evaluations_end_at_the_limit_of_steps() {
    let items = |count: i32| {
        let written = doc! { "$map": { "input": { "$range": [0, count] }, "in": 1 } };
        let written = RawDocumentBuf::try_from(written).unwrap();
        Expression::compile(RawBsonRef::Document(&written), &CompileOptions::default()).unwrap()
    };
    let (context, nothing) = (context(), RawDocumentBuf::new());
    context.bound_steps(10);
    assert!(items(6).evaluate(&nothing, &context).is_ok());
    let error = items(6).evaluate(&nothing, &context).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::OperationFailed, "the bound is that of both together");
    context.bound_steps(u64::MAX);
    assert!(items(6).evaluate(&nothing, &context).is_ok());
}

#[test]
fn dropping_the_guard_interrupts_the_evaluation() {
    let context = context();
    let stop = context.interrupt.stop_on_drop();
    assert!(context.interrupt.check().is_ok());
    drop(stop);
    assert_eq!(context.interrupt.check().map_err(|error| error.code()), Err(Code::Interrupted));
}

#[test]
fn too_many_large_values_are_refused() {
    let large = doc! { "$reduce": { "input": { "$range": [0, 22] }, "initialValue": "0123456789", "in": { "$concat": ["$$value", "$$value"] } } };
    let lengths = |count: i32| doc! { "$size": { "$map": { "input": { "$range": [0, count] }, "in": { "$strLenBytes": large.clone() } } } };
    gives(lengths(3), 3);
    check_error(lengths(30), doc! {}, 146);
}

#[test]
fn values_that_nest_too_deeply_are_refused() {
    let mut expression = Bson::from(1);
    for _ in 0..300 {
        expression = Bson::from(doc! { "$abs": expression });
    }
    check_error(expression, doc! {}, 15);
    // Each iteration of $reduce nests the value once more.
    check_error(
        doc! { "$reduce": { "input": { "$range": [0, 1000] }, "initialValue": [], "in": ["$$value"] } },
        doc! {},
        15,
    );
    // Each iteration doubles the value.
    check_error(
        doc! { "$reduce": { "input": { "$range": [0, 60] }, "initialValue": "0123456789", "in": { "$concat": ["$$value", "$$value"] } } },
        doc! {},
        146,
    );
}

/// Generates expressions with any operator and any arguments.
fn any_expression() -> impl Strategy<Value = Bson> {
    const OPERATORS: &[&str] = &[
        "$abs",
        "$add",
        "$allElementsTrue",
        "$and",
        "$anyElementTrue",
        "$arrayElemAt",
        "$arrayToObject",
        "$asin",
        "$atan2",
        "$avg",
        "$binarySize",
        "$bitAnd",
        "$bitNot",
        "$bsonSize",
        "$ceil",
        "$cmp",
        "$concat",
        "$concatArrays",
        "$cond",
        "$convert",
        "$dateAdd",
        "$dateDiff",
        "$dateFromParts",
        "$dateFromString",
        "$dateToParts",
        "$dateToString",
        "$dateTrunc",
        "$divide",
        "$eq",
        "$exp",
        "$filter",
        "$first",
        "$firstN",
        "$floor",
        "$getField",
        "$ifNull",
        "$in",
        "$indexOfArray",
        "$indexOfBytes",
        "$indexOfCP",
        "$isoWeek",
        "$last",
        "$let",
        "$ln",
        "$log",
        "$log10",
        "$map",
        "$max",
        "$mergeObjects",
        "$mod",
        "$month",
        "$multiply",
        "$not",
        "$objectToArray",
        "$or",
        "$pow",
        "$range",
        "$reduce",
        "$regexFind",
        "$regexFindAll",
        "$replaceAll",
        "$reverseArray",
        "$round",
        "$rtrim",
        "$setDifference",
        "$setEquals",
        "$setField",
        "$setUnion",
        "$size",
        "$slice",
        "$sortArray",
        "$split",
        "$sqrt",
        "$stdDevPop",
        "$strLenCP",
        "$strcasecmp",
        "$substrBytes",
        "$substrCP",
        "$subtract",
        "$sum",
        "$switch",
        "$toBool",
        "$toDate",
        "$toDecimal",
        "$toInt",
        "$toLong",
        "$toObjectId",
        "$toString",
        "$toUpper",
        "$trim",
        "$trunc",
        "$type",
        "$week",
        "$year",
        "$zip",
    ];
    const NAMES: &[&str] = &[
        "input",
        "n",
        "date",
        "startDate",
        "endDate",
        "unit",
        "amount",
        "timezone",
        "format",
        "dateString",
        "year",
        "month",
        "isoWeekYear",
        "to",
        "regex",
        "find",
        "replacement",
        "chars",
        "field",
        "value",
        "in",
        "cond",
        "vars",
        "initialValue",
        "inputs",
        "sortBy",
        "binSize",
        "if",
        "then",
        "else",
        "branches",
        "as",
    ];
    let leaf = prop_oneof![
        Just(Bson::Null),
        any::<bool>().prop_map(Bson::from),
        any::<i32>().prop_map(Bson::from),
        (-3..40_i32).prop_map(Bson::from),
        any::<i64>().prop_map(Bson::from),
        any::<f64>().prop_map(Bson::from),
        any::<i64>().prop_map(|millis| Bson::from(DateTime::from_millis(millis))),
        prop::sample::select(vec![
            "$a",
            "$b.c",
            "$$ROOT",
            "$$this",
            "$$value",
            "day",
            "year",
            "Europe/Berlin",
            "+05:30",
            "héllo wörld",
            "2017-02-08T12:10:40Z",
            "%Y-%m-%d",
            "int",
            "(a|é)+?",
            "1e400",
            "",
            "\u{0}"
        ])
        .prop_map(Bson::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            (prop::sample::select(OPERATORS), prop::collection::vec(inner.clone(), 0..4))
                .prop_map(|(name, arguments)| Bson::from(doc! { name: arguments })),
            (prop::sample::select(OPERATORS), inner.clone())
                .prop_map(|(name, argument)| Bson::from(doc! { name: argument })),
            (
                prop::sample::select(OPERATORS),
                prop::collection::vec((prop::sample::select(NAMES), inner.clone()), 1..4)
            )
                .prop_map(|(name, fields)| {
                    let fields: bson::Document =
                        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                    Bson::from(doc! { name: fields })
                }),
            prop::collection::vec(inner, 0..3).prop_map(Bson::from),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_expressions_do_not_panic(expression in any_expression()) {
        let document = doc! { "a": [1, 2.5, "x", { "c": null }], "b": { "c": "2020-02-30" }, "d": DateTime::from_millis(1) };
        let _ = evaluate(expression, document);
    }
}

#[test]
fn the_values_held_by_an_expression_are_limited_together() {
    // There are 500 values of 900 kB, each of which is too small to count as a large one.
    let document = doc! { "s": "x".repeat(900_000), "big": vec!["x".repeat(900_000); 10] };
    let made = |count: usize| vec![bson!({ "$toLower": "$s" }); count];
    for expression in [
        doc! { "$setEquals": [made(500), []] },
        doc! { "$concatArrays": [made(500), []] },
        doc! { "$concat": made(500) },
        doc! { "$mergeObjects": made(500).into_iter().map(|text| bson!({ "a": text })).collect::<Vec<_>>() },
        doc! { "$let": {
            "vars": (0..500).map(|index| (format!("v{index}"), bson!({ "$toLower": "$s" }))).collect::<Document>(),
            "in": 1,
        } },
        doc! { "$zip": { "inputs": made(500).into_iter().map(|text| bson!([text])).collect::<Vec<_>>() } },
        doc! { "$map": { "input": { "$range": [0, 500] }, "in": { "$toLower": "$s" } } },
        doc! { "$replaceAll": { "input": "$s", "find": "x", "replacement": "$s" } },
    ] {
        check_error(expression, document.clone(), 146);
    }
    // The memory of waiting values is released when they are used.
    let lengths = vec![bson!({ "$strLenBytes": { "$toLower": "$s" } }); 500];
    check(doc! { "$add": lengths }, document, 450_000_000);
}
