//! Filters and arrays: elements, paths through them, and the position that was found.

use super::*;

#[test]
fn array_operators_match_whole_arrays_and_elements() {
    check(
        rawdoc! { "a": { "$size": 2 } },
        [rawdoc! { "a": [1, [2]] }],
        [rawdoc! { "a": [1] }, rawdoc! { "a": "xy" }, rawdoc! { "a": [[1, 2]] }],
    );
    check(rawdoc! { "a": { "$size": 0 } }, [rawdoc! { "a": [] }], [rawdoc! {}, rawdoc! { "a": NULL }]);
    check(
        rawdoc! { "a.b": { "$size": 1 } },
        [rawdoc! { "a": [{ "b": [] }, { "b": [7] }] }],
        [rawdoc! { "a": [{ "b": 7 }] }],
    );

    check(
        rawdoc! { "a": { "$all": [1, 2] } },
        [rawdoc! { "a": [2, 3, 1] }],
        [rawdoc! { "a": [1] }, rawdoc! { "a": 1 }, rawdoc! {}],
    );
    check(rawdoc! { "a": { "$all": [1] } }, [rawdoc! { "a": 1 }, rawdoc! { "a": [1] }], []);
    check(
        rawdoc! { "a": { "$all": [[1, 2]] } },
        [rawdoc! { "a": [1, 2] }, rawdoc! { "a": [[1, 2]] }],
        [rawdoc! { "a": [1] }],
    );
    check(rawdoc! { "a": { "$all": [] } }, [], [rawdoc! { "a": [] }, rawdoc! {}]);
    check(rawdoc! { "a": { "$all": [NULL] } }, [rawdoc! {}, rawdoc! { "a": [NULL] }], [rawdoc! { "a": 1 }]);
    check(
        rawdoc! { "a": { "$all": [regex("^x", ""), "y"] } },
        [rawdoc! { "a": ["xz", "y"] }],
        [rawdoc! { "a": ["y"] }],
    );
    check(
        rawdoc! { "a": { "$all": [{ "$elemMatch": { "x": 1, "y": 1 } }, { "$elemMatch": { "x": 2 } }] } },
        [rawdoc! { "a": [{ "x": 1, "y": 1 }, { "x": 2 }] }],
        [rawdoc! { "a": [{ "x": 1 }, { "y": 1 }, { "x": 2 }] }],
    );

    check(
        rawdoc! { "a": { "$elemMatch": { "$gt": 1, "$lt": 3 } } },
        [rawdoc! { "a": [0, 2, 5] }],
        [rawdoc! { "a": [0, 5] }, rawdoc! { "a": 2 }, rawdoc! { "a": [[2]] }, rawdoc! { "a": [] }],
    );
    check(
        rawdoc! { "a": { "$elemMatch": { "x": 1, "y": { "$gt": 5 } } } },
        [rawdoc! { "a": [{ "x": 1, "y": 9 }] }],
        [rawdoc! { "a": [{ "x": 1 }, { "y": 9 }] }, rawdoc! { "a": { "x": 1, "y": 9 } }],
    );
    check(
        rawdoc! { "a": { "$elemMatch": {} } },
        [rawdoc! { "a": [{}] }, rawdoc! { "a": [[]] }],
        [rawdoc! { "a": [1] }, rawdoc! { "a": [] }],
    );
    check(rawdoc! { "a": { "$elemMatch": { "0": 5 } } }, [rawdoc! { "a": [[5]] }], [rawdoc! { "a": [5] }]);
    check(
        rawdoc! { "a": { "$elemMatch": { "$elemMatch": { "$gt": 3 } } } },
        [rawdoc! { "a": [[1], [2, 4]] }],
        [rawdoc! { "a": [4] }],
    );
    check(
        rawdoc! { "a": { "$elemMatch": { "$in": ["x", NULL] } } },
        [rawdoc! { "a": [1, "x"] }, rawdoc! { "a": [NULL] }],
        [rawdoc! {}],
    );
    check(
        rawdoc! { "a": { "$elemMatch": { "$not": { "$gt": 3 } } } },
        [rawdoc! { "a": [9, 1] }],
        [rawdoc! { "a": [9] }, rawdoc! { "a": [] }],
    );
    check(rawdoc! { "a": { "$elemMatch": { "$ne": 1 } } }, [rawdoc! { "a": [1, 2] }], [rawdoc! { "a": [1, 1] }]);
    check(rawdoc! { "a": { "$elemMatch": { "$all": [1, 1] } } }, [rawdoc! { "a": [1] }], [rawdoc! { "a": [[1]] }]);
    check(
        rawdoc! { "a": { "$elemMatch": { "$or": [{ "x": 1 }, { "y": 1 }] } } },
        [rawdoc! { "a": [{ "y": 1 }] }],
        [rawdoc! { "a": [{ "z": 1 }] }],
    );
    check(
        rawdoc! { "a": { "$not": { "$elemMatch": { "x": 1 } } } },
        [rawdoc! { "a": [{ "x": 2 }] }, rawdoc! {}],
        [rawdoc! { "a": [{ "x": 1 }] }],
    );
    check(
        rawdoc! { "a.b": { "$elemMatch": { "$eq": 1 } } },
        [rawdoc! { "a": [{ "b": [0] }, { "b": [1] }] }],
        [rawdoc! { "a": [{ "b": 1 }] }],
    );
}

#[test]
fn paths_enter_arrays_by_element_and_by_position() {
    check(
        rawdoc! { "a.b": 1 },
        [rawdoc! { "a": { "b": 1 } }, rawdoc! { "a": [{ "b": 2 }, { "b": [1] }] }],
        [rawdoc! { "a": [[{ "b": 1 }]] }, rawdoc! { "a.b": 1 }],
    );
    check(
        rawdoc! { "a.0": 1 },
        [rawdoc! { "a": [1, 2] }, rawdoc! { "a": { "0": 1 } }, rawdoc! { "a": [{ "0": 1 }] }],
        [rawdoc! { "a": [2, 1] }],
    );
    check(
        rawdoc! { "a.0.b": 1 },
        [rawdoc! { "a": [{ "b": 1 }] }, rawdoc! { "a": [[{ "b": 1 }]] }],
        [rawdoc! { "a": [{ "b": 2 }, { "b": 1 }] }],
    );
    check(
        rawdoc! { "a.b.c": 1 },
        [rawdoc! { "a": [{ "b": [{ "c": 0 }, { "c": 1 }] }] }],
        [rawdoc! { "a": [{ "b": [[{ "c": 1 }]] }] }],
    );
}

#[test]
fn the_position_of_the_matching_element_is_returned() {
    let position = |filter: RawDocumentBuf, document: RawDocumentBuf| {
        compile(&filter).unwrap().matches_position(&document, &context()).unwrap().map(|position| position.array_index)
    };
    assert_eq!(position(rawdoc! { "a": 1 }, rawdoc! { "a": 1 }), Some(None));
    assert_eq!(position(rawdoc! { "a": 1 }, rawdoc! { "a": 2 }), None);
    assert_eq!(position(rawdoc! { "a": 1 }, rawdoc! { "a": [2, 1] }), Some(Some(1)));
    assert_eq!(position(rawdoc! { "a.b": 1 }, rawdoc! { "a": [{ "b": 2 }, { "b": [0, 1] }] }), Some(Some(1)));
    assert_eq!(position(rawdoc! { "a": { "$gte": 3 } }, rawdoc! { "a": [1, 5, 3] }), Some(Some(1)));
    assert_eq!(
        position(
            rawdoc! { "a": { "$elemMatch": { "x": 1, "y": 2 } } },
            rawdoc! { "a": [{ "x": 1 }, { "x": 1, "y": 2 }] }
        ),
        Some(Some(1))
    );
    assert_eq!(
        position(rawdoc! { "a": { "$elemMatch": { "b": 1 } } }, rawdoc! { "a": [{ "b": [0, 0, 1] }] }),
        Some(Some(0))
    );
    // The position is that in the outermost array.
    assert_eq!(
        position(rawdoc! { "a.b": { "$elemMatch": { "$eq": 1 } } }, rawdoc! { "a": [{}, { "b": [0, 1, 2] }, {}] }),
        Some(Some(1))
    );
    assert_eq!(position(rawdoc! { "a.1": 5 }, rawdoc! { "a": [4, 5] }), Some(Some(1)));
    // Other conditions do not change the position; that of the last condition through an array is returned.
    assert_eq!(position(rawdoc! { "a": 1, "b": 2 }, rawdoc! { "a": [0, 1], "b": 2 }), Some(Some(1)));
    assert_eq!(position(rawdoc! { "a": 1, "b": 2 }, rawdoc! { "a": [0, 1], "b": [2] }), Some(Some(0)));
    assert_eq!(
        position(rawdoc! { "$or": [{ "a": 9 }, { "b": 2 }] }, rawdoc! { "a": [0, 1], "b": [1, 2] }),
        Some(Some(1))
    );
    assert_eq!(
        position(rawdoc! { "$or": [{ "a": 1, "b": 9 }, { "c": 1 }] }, rawdoc! { "a": [0, 1], "b": [1, 2], "c": 1 }),
        Some(None)
    );
    // The whole array matches without an index, and negations leave none.
    assert_eq!(position(rawdoc! { "a": [1, 2] }, rawdoc! { "a": [1, 2] }), Some(None));
    assert_eq!(position(rawdoc! { "a": { "$ne": 5 } }, rawdoc! { "a": [1, 2] }), Some(None));
    assert_eq!(position(rawdoc! { "a": 2, "b": { "$nin": [5] } }, rawdoc! { "a": [1, 2], "b": [5, 6] }), None);
}
