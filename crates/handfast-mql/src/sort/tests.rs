use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::{Bson, Document, RawDocumentBuf, doc};
use proptest::prelude::*;

use super::{Sort, Sorter};
use crate::context::{MemoryReservation, QueryMemory, StageTotal};
use crate::spill::testing::{MemorySpace, Space, spilling};
use crate::{Code, Context};

fn context() -> Context {
    Context::new(bson::DateTime::from_millis(0), bson::Timestamp { time: 0, increment: 0 }, 0)
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

/// Checks that the documents are in the order of the sort: those of one group are equal.
#[track_caller]
fn check(sort: Document, groups: Vec<Vec<Document>>) {
    let sort = Sort::compile(&raw(&sort)).unwrap();
    for (rank, group) in groups.iter().enumerate() {
        for (other_rank, other_group) in groups.iter().enumerate() {
            for (a, b) in group.iter().flat_map(|a| other_group.iter().map(move |b| (a, b))) {
                assert_eq!(sort.compare(&raw(a), &raw(b)).unwrap(), rank.cmp(&other_rank), "{a} {b}");
            }
        }
    }
}

#[track_caller]
fn fails(sort: Document, code: i32, message: &str) {
    let error = Sort::compile(&raw(&sort)).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code(code), message), "{sort}");
}

#[test]
fn documents_are_sorted_by_one_field() {
    check(
        doc! { "a": 1 },
        vec![
            vec![doc! { "a": Bson::MinKey }],
            vec![doc! { "a": [] }],
            vec![doc! { "a": Bson::Null }, doc! {}, doc! { "a": Bson::Undefined }],
            vec![doc! { "a": -1 }],
            vec![doc! { "a": 1 }, doc! { "a": 1.0 }, doc! { "a": [5, 1] }, doc! { "a": [1, "x"] }],
            vec![doc! { "a": 2 }],
            vec![doc! { "a": "x" }],
            vec![doc! { "a": { "b": 1 } }],
            vec![doc! { "a": [[1]] }],
            vec![doc! { "a": Bson::MaxKey }],
        ],
    );
}

#[test]
fn documents_are_sorted_in_descending_order() {
    check(
        doc! { "a": -1 },
        vec![
            vec![doc! { "a": "x" }, doc! { "a": [1, "x"] }],
            vec![doc! { "a": 5 }, doc! { "a": [5, 1] }],
            vec![doc! { "a": 1 }],
            vec![doc! {}, doc! { "a": Bson::Null }],
            vec![doc! { "a": [] }],
        ],
    );
}

#[test]
fn documents_are_sorted_by_several_fields() {
    check(
        doc! { "a": 1, "b": -1 },
        vec![
            vec![doc! { "a": 1, "b": "xy" }],
            vec![doc! { "a": 1, "b": "x" }],
            vec![doc! { "a": 1 }],
            vec![doc! { "a": 2, "b": [1, 9] }],
            vec![doc! { "b": 1, "a": [2, 3] }],
        ],
    );
    // Fields through one array are compared element by element: (1, 7) and not (1, 0).
    check(
        doc! { "a.b": 1, "a.c": 1 },
        vec![
            vec![doc! { "a": { "b": 1, "c": 6 } }],
            vec![doc! { "a": [{ "b": 2, "c": 0 }, { "b": 1, "c": 7 }] }],
            vec![doc! { "a": { "b": 1, "c": 8 } }],
        ],
    );
}

#[test]
fn documents_are_sorted_by_dotted_paths() {
    check(
        doc! { "a.b": 1 },
        vec![
            vec![doc! { "a": { "b": [] } }],
            vec![
                doc! {},
                doc! { "a": [] },
                doc! { "a": 5 },
                doc! { "a": [5] },
                doc! { "a": [{ "b": 7 }, {}] },
                doc! { "a": [[{ "b": 1 }]] },
            ],
            vec![doc! { "a": { "b": 3 } }, doc! { "a": [{ "b": 4 }, { "b": [9, 3] }] }],
        ],
    );
    check(doc! { "a.1": 1 }, vec![vec![doc! { "a": [9] }], vec![doc! { "a": [9, 1] }, doc! { "a": { "1": 1 } }]]);
    check(doc! { "a.0.b": 1 }, vec![vec![doc! { "a": [{ "b": 1 }, { "b": 0 }] }], vec![doc! { "a": [{ "b": 2 }] }]]);
}

#[test]
fn invalid_sorts_are_refused() {
    fails(doc! { "a": 2 }, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
    fails(doc! { "a": 1.5 }, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
    fails(doc! { "a": "x" }, 15974, "Illegal key in $sort specification: a: \"x\"");
    fails(doc! { "a": true }, 15974, "Illegal key in $sort specification: a: true");
    fails(doc! { "": 1 }, 40352, "FieldPath cannot be constructed with empty string");
    fails(doc! { "a.": 1 }, 40353, "FieldPath must not end with a '.'.");
    fails(doc! { "a..b": 1 }, 15998, "FieldPath field names may not be empty strings.");
    fails(
        doc! { "$a": 1 },
        16410,
        "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
    );
    fails(doc! { "a": { "$meta": "textScore" } }, 2, "sort by $meta is not supported: there are no text scores");
    let many: Document = (0..33).map(|n| (format!("f{n}"), Bson::Int32(1))).collect();
    fails(many, 13103, "a sort may have at most 32 keys");

    let parallel = Sort::compile(&raw(&doc! { "a": 1, "b": 1 })).unwrap();
    let error = parallel.key(&raw(&doc! { "a": [1, 2], "b": [3] })).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::BadValue, "cannot sort with keys that are parallel arrays"));
    assert!(Sort::compile(&raw(&doc! { "a": 1.0, "b": -1_i64 })).is_ok());
}

fn sorted<T>(sorter: Sorter<T>) -> Vec<T> {
    sorter.into_sorted().unwrap().map(Result::unwrap).collect()
}

/// Returns numbers in no order, with equal ones among them.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % 300)
}

#[test]
fn a_sort_with_a_file_gives_what_one_in_memory_gives() {
    for limit in [None, Some(0), Some(1), Some(10), Some(700), Some(4_000)] {
        let space = Space::default();
        let small = spilling(20_000, usize::MAX, &space);
        let (mut with_file, mut in_memory) = (Sorter::spilling(limit, &small), Sorter::new(limit, &context()));
        for (arrival, number) in scattered(3_000).enumerate() {
            let key = number.to_be_bytes().to_vec();
            // Some values are larger than what is read at once.
            let value = (vec![arrival as u8; if arrival % 997 == 5 { 10_000 } else { 3 }], arrival as u64);
            let bytes = value.0.len();
            with_file.push(key.clone(), value.clone(), bytes).unwrap();
            in_memory.push(key, value, bytes).unwrap();
        }
        let spills = limit.is_none_or(|limit| limit > 100);
        assert_eq!(space.0.written.load(Ordering::Relaxed) > 0, spills, "{limit:?}");
        assert_eq!(space.0.files.load(Ordering::Relaxed), usize::from(spills), "one file for all runs");
        assert_eq!(sorted(with_file), sorted(in_memory), "{limit:?}");
        assert_eq!((space.0.files.load(Ordering::Relaxed), small.memory.total.held()), (0, 0));
    }
}

#[test]
fn a_sort_writes_what_all_queries_together_have_no_memory_for() {
    let space = Space::default();
    let context = spilling(10_000_000, 200_000, &space);
    let mut sorter = Sorter::spilling(None, &context);
    for number in 0..10_000_u64 {
        sorter.push((10_000 - number).to_be_bytes().to_vec(), number, 100).unwrap();
        assert!(context.memory.total.held() <= 200_000);
    }
    assert!(space.0.written.load(Ordering::Relaxed) > 0);
    assert_eq!(sorted(sorter), (0..10_000).rev().collect::<Vec<u64>>());
    // Others leave too little for runs that are worth it.
    let mut others = MemoryReservation::new(&context);
    others.grow(150_000).unwrap();
    let mut sorter = Sorter::spilling(None, &context);
    let error = (0..10_000_u64).find_map(|number| sorter.push(vec![1], number, 100).err()).unwrap();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed);
}

/// Many runs with large rows are merged in several passes: only a few rows are in memory, and equal keys stay in their order.
#[test]
fn runs_are_merged_in_the_memory_of_a_sort() {
    let space = Space::default();
    let context = spilling(60_000, usize::MAX, &space);
    let mut sorter = Sorter::spilling(None, &context);
    let mut expected = Vec::new();
    for (arrival, number) in scattered(600).enumerate() {
        let value = (vec![number as u8; 9_000], arrival as u64);
        expected.push((number, value.clone()));
        sorter.push(number.to_be_bytes().to_vec(), value, 9_000).unwrap();
    }
    expected.sort_by_key(|(number, _)| *number);
    let written = space.0.written.load(Ordering::Relaxed);
    let mut rows = sorter.into_sorted().unwrap();
    assert!(space.0.written.load(Ordering::Relaxed) > 3 * written, "two passes and more");
    for (_, value) in expected {
        assert_eq!(rows.next().unwrap().unwrap(), value);
        assert!(context.memory.total.held() <= 2 * 60_000, "{}", context.memory.total.held());
    }
    assert!(rows.next().is_none());
    drop(rows);
    assert_eq!((space.0.files.load(Ordering::Relaxed), context.memory.total.held()), (0, 0));
}

#[test]
fn an_interrupt_ends_the_writing_and_the_reading_of_runs() {
    let context = spilling(10_000, usize::MAX, &Space::default());
    let fill = |sorter: &mut Sorter<u64>| (0..1_000_u64).try_for_each(|number| sorter.push(vec![1], number, 100));
    let (mut read, mut written) = (Sorter::spilling(None, &context), Sorter::spilling(None, &context));
    fill(&mut read).unwrap();
    let mut read = read.into_sorted().unwrap();
    read.next().unwrap().unwrap();
    context.interrupt.stop(Code::Interrupted);
    assert_eq!(read.next().unwrap().unwrap_err().code(), Code::Interrupted);
    assert_eq!(fill(&mut written).unwrap_err().code(), Code::Interrupted);
}

#[test]
fn an_error_of_the_file_is_that_of_the_sort() {
    let space = Space(Arc::new(MemorySpace { bytes_max: 5_000, ..MemorySpace::default() }));
    let context = spilling(10_000, usize::MAX, &space);
    let mut sorter = Sorter::spilling(None, &context);
    let error = (0..10_000_u64).find_map(|number| sorter.push(vec![1], number, 100).err()).unwrap();
    assert_eq!(error.code(), Code::OutOfDiskSpace);
    drop(sorter);
    assert_eq!((space.0.files.load(Ordering::Relaxed), context.memory.total.held()), (0, 0));
    let mut without = Sorter::spilling(None, &spilling(10_000, usize::MAX, &Space::default()).with_disk_use(false));
    let error = (0..10_000_u64).find_map(|number| without.push(vec![1], number, 100).err()).unwrap();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed);
}

#[test]
fn the_sorter_is_stable_and_keeps_the_first() {
    let mut all = Sorter::new(None, &context());
    let mut first = Sorter::new(Some(3), &context());
    for (arrival, key) in [5_u8, 1, 5, 0, 1, 9].into_iter().enumerate() {
        all.push(vec![key], (key, arrival), 8).unwrap();
        first.push(vec![key], (key, arrival), 8).unwrap();
    }
    let expected = [(0, 3), (1, 1), (1, 4), (5, 0), (5, 2), (9, 5)];
    assert_eq!(sorted(all), expected);
    assert_eq!(sorted(first), &expected[..3]);
}

#[test]
fn all_sorters_share_a_memory_limit_until_their_values_are_returned() {
    let total = StageTotal::new(10_000);
    let context = context().with_memory(QueryMemory { total: total.clone(), ..QueryMemory::default() });
    let filled = || {
        let mut sorter = Sorter::new(None, &context);
        (0..4).try_for_each(|key| sorter.push(vec![key], key, 900)).map(|()| sorter)
    };
    let (first, second) = (filled().unwrap(), filled().unwrap());
    let error = filled().map(drop).unwrap_err();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed);
    assert!(error.message().contains("10000 bytes") && error.message().contains("stage-bytes-total"), "{error}");
    // The sorter that failed has released its memory.
    let both = total.held();
    assert!((7_200..9_000).contains(&both), "{both}");
    let mut shown = first.into_sorted().unwrap().map(Result::unwrap);
    assert_eq!(total.held(), both, "sorted, and not yet shown");
    assert_eq!(shown.by_ref().take(2).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(total.held(), both / 4 * 3);
    drop(shown);
    assert_eq!(total.held(), both / 2);
    let mut few = Sorter::new(Some(1), &context);
    (0..100).for_each(|key| few.push(vec![100 - key], (), 900).unwrap());
    drop((few, second));
    assert_eq!(total.held(), 0);
}

#[test]
fn a_sorter_that_would_hold_too_much_is_refused() {
    let context = context().with_memory(QueryMemory { stage_bytes_max: 10_000, ..QueryMemory::default() });
    let mut sorter = Sorter::new(None, &context);
    let error = (0..1_000).find_map(|_| sorter.push(vec![1], (), 1_000).err()).unwrap();
    assert_eq!(error.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed);
    let advice = "allow it with allowDiskUse and the setting spill-bytes, add a limit or an index in this order, or raise the setting \
                  sort-bytes";
    let what = "Sort exceeded memory limit of 10000 bytes, but did not opt in to external sorting";
    assert_eq!(error.message(), format!("{what}: {advice}"));
    // With a limit the values fit.
    let mut sorter = Sorter::new(Some(3), &context);
    for key in 0..=255 {
        sorter.push(vec![255 - key], key, 1_000).unwrap();
    }
    assert_eq!(sorted(sorter), [255, 254, 253]);
    let mut empty = Sorter::new(Some(0), &context);
    empty.push(vec![1], 1, 1).unwrap();
    assert!(empty.is_empty());
}

fn value() -> impl Strategy<Value = Bson> {
    let scalar = prop_oneof![
        Just(Bson::Null),
        any::<i8>().prop_map(|n| Bson::Int32(n.into())),
        any::<i8>().prop_map(|n| Bson::Double(f64::from(n) / 2.0)),
        "[a-c\0]{0,3}".prop_map(Bson::String),
        any::<bool>().prop_map(Bson::Boolean),
    ];
    scalar.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Bson::Array),
            proptest::collection::vec(("[ab]", inner), 0..3)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

/// Returns the least (or greatest) of the values of an array, by MongoDB's rule.
fn extreme(value: &Bson, descending: bool) -> Bson {
    let Bson::Array(items) = value else { return value.clone() };
    let order = |a: &&Bson, b: &&Bson| {
        let (a, b) = (raw(&doc! { "v": (*a).clone() }), raw(&doc! { "v": (*b).clone() }));
        crate::order::compare(a.get("v").unwrap().unwrap(), b.get("v").unwrap().unwrap())
    };
    if descending { items.iter().max_by(order) } else { items.iter().min_by(order) }.unwrap().clone()
}

proptest! {
    #[test]
    fn keys_are_in_the_order_of_values(a in value(), b in value(), descending in any::<bool>()) {
        let sort = Sort::compile(&raw(&doc! { "v": if descending { -1 } else { 1 } })).unwrap();
        let (x, y) = (raw(&doc! { "v": extreme(&a, descending) }), raw(&doc! { "v": extreme(&b, descending) }));
        let expected = crate::order::compare(x.get("v").unwrap().unwrap(), y.get("v").unwrap().unwrap());
        let expected = if descending { expected.reverse() } else { expected };
        prop_assert_eq!(sort.compare(&raw(&doc! { "v": a }), &raw(&doc! { "v": b })).unwrap(), expected);
    }

    #[test]
    fn later_fields_decide_among_equal_earlier_ones(
        documents in proptest::collection::vec((value(), value()), 2),
        directions in (any::<bool>(), any::<bool>()),
    ) {
        let number = |descending: bool| if descending { -1 } else { 1 };
        let both = Sort::compile(&raw(&doc! { "a": number(directions.0), "b": number(directions.1) })).unwrap();
        let first = Sort::compile(&raw(&doc! { "a": number(directions.0) })).unwrap();
        let second = Sort::compile(&raw(&doc! { "b": number(directions.1) })).unwrap();
        let documents: Vec<RawDocumentBuf> =
            documents.iter().map(|(a, b)| raw(&doc! { "a": a.clone(), "b": b.clone() })).collect();
        let parallel = |document: &RawDocumentBuf| document.get_array("a").is_ok() && document.get_array("b").is_ok();
        let actual = both.compare(&documents[0], &documents[1]);
        if documents.iter().any(parallel) {
            prop_assert!(actual.is_err());
        } else {
            let expected = first
                .compare(&documents[0], &documents[1])
                .unwrap()
                .then(second.compare(&documents[0], &documents[1]).unwrap());
            prop_assert_eq!(actual.unwrap(), expected);
        }
    }

    #[test]
    fn the_sorter_agrees_with_a_stable_sort(keys in proptest::collection::vec(0..6_u8, 0..40), limit in proptest::option::of(0..10_usize)) {
        let mut sorter = Sorter::new(limit, &context());
        for (arrival, key) in keys.iter().enumerate() {
            sorter.push(vec![*key], (*key, arrival), 1).unwrap();
        }
        let mut expected: Vec<(u8, usize)> = keys.into_iter().enumerate().map(|(arrival, key)| (key, arrival)).collect();
        expected.sort();
        expected.truncate(limit.unwrap_or(usize::MAX));
        prop_assert_eq!(sorted(sorter), expected);
    }

        #[test]
    fn no_document_and_no_path_panics(a in value(), b in value(), path in "[ab01](\\.[ab01]){0,3}") {
        let sort = Sort::compile(&raw(&doc! { path: 1, "a": -1 })).unwrap();
        let _ = sort.key(&raw(&doc! { "a": a, "b": b }));
    }
}
