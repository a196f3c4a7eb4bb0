use bson::{RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::{Addition, INDEX_FIELDS_MAX, INDEXES_MAX, Index, addition, dropped, selected, values};
use crate::{IndexSelector, IndexSpec, Namespace, notation};

fn spec(key: RawDocumentBuf) -> IndexSpec {
    IndexSpec::new(key)
}

fn refused(spec: &IndexSpec, code: i32) {
    match spec.validate() {
        Err(error) => assert_eq!(error.code(), Code(code), "{spec:?}: {error}"),
        Ok(()) => panic!("{spec:?} was accepted"),
    }
}

#[test]
fn valid_key_patterns_are_accepted() {
    for key in [
        rawdoc! { "a": 1 },
        rawdoc! { "a": -1, "b.c": 1 },
        rawdoc! { "a": 1.0, "b": -1_i64 },
        rawdoc! { "a.$id": 1 },
        rawdoc! { "a.0": 1 },
        rawdoc! { "_id": 1 },
        rawdoc! { "_id": 1, "a": 1 },
        rawdoc! { "a": "hashed" },
        rawdoc! { "_id": "hashed" },
        rawdoc! { "b": 1, "a": "hashed", "c": -1 },
    ] {
        let spec = if key == rawdoc! { "_id": 1 } { IndexSpec::id() } else { spec(key) };
        spec.validate().expect("accepted");
    }
}

#[test]
fn a_hashed_field_is_one_holds_no_arrays_and_is_not_unique() {
    refused(&spec(rawdoc! { "a": "hashed", "b": "hashed" }), 31_303);
    refused(&IndexSpec { unique: true, ..spec(rawdoc! { "a": "hashed" }) }, 16_764);
    let index = Index::compile(spec(rawdoc! { "b": 1, "a.x": "hashed" })).unwrap();
    assert_eq!(index.keys(&rawdoc! { "a": { "x": "s" }, "b": [1, 2] }).unwrap().keys.len(), 2);
    for document in [rawdoc! { "a": { "x": [1] } }, rawdoc! { "a": [{ "x": 1 }] }, rawdoc! { "a": { "x": [] } }] {
        assert_eq!(index.keys(&document).unwrap_err().code(), Code(16_766), "{document:?}");
    }
    let ascending = spec(rawdoc! { "a": 1 });
    assert!(matches!(addition(&[ascending], &spec(rawdoc! { "a": "hashed" })), Ok(Addition::New)));
    let hashed = spec(rawdoc! { "a": "hashed" });
    assert!(matches!(addition(std::slice::from_ref(&hashed), &hashed), Ok(Addition::Exists)));
}

#[test]
fn invalid_key_patterns_are_refused() {
    for key in [
        rawdoc! {},
        rawdoc! { "a": 0 },
        rawdoc! { "a": f64::NAN },
        rawdoc! { "a": "text" },
        rawdoc! { "a": "2dsphere" },
        rawdoc! { "a": "x" },
        rawdoc! { "a": true },
        rawdoc! { "a": null },
        rawdoc! { "": 1 },
        rawdoc! { "a.": 1 },
        rawdoc! { "a..b": 1 },
        rawdoc! { "$a": 1 },
        rawdoc! { "$id": 1 },
        rawdoc! { "$**": 1 },
        rawdoc! { "a.$**": 1 },
    ] {
        refused(&spec(key), 67);
    }
    refused(&spec(rawdoc! { "a": 1, "a": 1 }), 2);
    let mut wide = rawdoc! {};
    for field in 0..=INDEX_FIELDS_MAX {
        wide.append(bson::raw::CString::try_from(format!("f{field}")).expect("no null"), 1);
    }
    refused(&spec(wide), 67);
}

#[test]
fn contradicting_options_are_refused() {
    let a = || spec(rawdoc! { "a": 1 });
    let partial = Some(rawdoc! { "b": { "$gt": 1 } });
    a().validate().expect("plain");
    IndexSpec { partial_filter: partial.clone(), unique: true, ..a() }.validate().expect("partial and unique");
    IndexSpec { expire_after_seconds: Some(0), ..a() }.validate().expect("TTL of 0");
    refused(&IndexSpec { partial_filter: partial, sparse: true, ..a() }, 67);
    refused(&IndexSpec { expire_after_seconds: Some(-1), ..a() }, 67);
    refused(&IndexSpec { expire_after_seconds: Some(1 << 31), ..a() }, 67);
    refused(&IndexSpec { expire_after_seconds: Some(1), ..spec(rawdoc! { "a": 1, "b": 1 }) }, 67);
    refused(&IndexSpec { name: String::new(), ..a() }, 67);
    refused(&IndexSpec { name: "*".into(), ..a() }, 2);
    refused(&IndexSpec { name: "_id_".into(), ..a() }, 2);
    refused(&IndexSpec { sparse: true, ..IndexSpec::id() }, 197);
    refused(&IndexSpec { expire_after_seconds: Some(1), ..IndexSpec::id() }, 197);
    refused(&spec(rawdoc! { "_id": -1 }), 2);
}

#[test]
fn partial_filters_have_few_operators() {
    let with = |filter| IndexSpec { partial_filter: Some(filter), ..spec(rawdoc! { "a": 1 }) };
    for filter in [
        rawdoc! { "a": 1 },
        rawdoc! { "a": { "b": 1 } },
        rawdoc! { "$and": [{ "a": { "$exists": true } }, { "b": { "$gte": 1, "$lt": 5 } }] },
        rawdoc! { "$or": [{ "a": { "$in": [1, 2] } }, { "b": { "$type": "string" } }] },
    ] {
        with(filter).validate().expect("accepted");
    }
    for filter in [
        rawdoc! { "a": { "$ne": 1 } },
        rawdoc! { "a": { "$exists": false } },
        rawdoc! { "$nor": [{ "a": 1 }] },
        rawdoc! { "$and": [{ "a": { "$not": { "$eq": 1 } } }] },
        rawdoc! { "a": { "$regex": "x" } },
        rawdoc! { "$expr": { "$eq": ["$a", 1] } },
    ] {
        refused(&with(filter), 67);
    }
}

#[test]
fn a_definition_is_read_back_as_it_was_written() {
    let whole = IndexSpec {
        name: "n".into(),
        unique: true,
        sparse: true,
        hidden: true,
        background: Some(false),
        partial_filter: Some(rawdoc! { "a": 1 }),
        collation: IndexSpec::from_document(
            &rawdoc! { "key": { "a": 1 }, "name": "a", "collation": { "locale": "de" } },
        )
        .expect("accepted")
        .collation,
        expire_after_seconds: Some(1 << 40),
        ..spec(rawdoc! { "a": 1, "b": -1.0 })
    };
    for spec in [IndexSpec::id(), spec(rawdoc! { "a": "text" }), whole] {
        assert_eq!(IndexSpec::from_document(&spec.to_document()).expect("readable"), spec);
    }
}

#[test]
fn invalid_definitions_are_refused() {
    let base = |option: RawDocumentBuf| {
        let mut document = rawdoc! { "key": { "a": 1 }, "name": "a_1" };
        for element in &option {
            let (name, value) = element.expect("BSON");
            document.append(name, value);
        }
        IndexSpec::from_document(&document).map_err(|error| error.code().0)
    };
    base(rawdoc! { "background": true, "ns": "a.b", "v": 2.0, "unique": 1, "collation": { "locale": "simple" } })
        .expect("accepted");
    assert_eq!(base(rawdoc! { "expireAfterSeconds": 3600.5 }).expect("ok").expire_after_seconds, Some(3600));
    assert_eq!(base(rawdoc! { "colour": 1 }), Err(197));
    assert_eq!(base(rawdoc! { "unique": "yes" }), Err(14));
    assert_eq!(base(rawdoc! { "partialFilterExpression": 1 }), Err(14));
    assert_eq!(base(rawdoc! { "expireAfterSeconds": "1" }), Err(67));
    assert_eq!(base(rawdoc! { "v": 7 }), Err(67));
    assert_eq!(base(rawdoc! { "collation": { "locale": "simple" } }).expect("ok").collation, None);
    let full = base(rawdoc! { "collation": { "locale": "de", "strength": 1 } }).expect("ok").collation.expect("kept");
    assert_eq!((full.iter().count(), full.get_i32("strength").unwrap()), (10, 1), "all fields");
    assert_eq!(base(rawdoc! { "collation": { "locale": "xx" } }), Err(2));
    assert_eq!(base(rawdoc! { "collation": 1 }), Err(14));
    let code = |document: RawDocumentBuf| IndexSpec::from_document(&document).map_err(|error| error.code().0);
    assert_eq!(code(rawdoc! { "name": "x" }), Err(9));
    assert_eq!(code(rawdoc! { "key": { "a": 1 } }), Err(9));
    assert_eq!(code(rawdoc! { "key": 1, "name": "x" }), Err(14));
}

#[test]
fn a_new_definition_is_compared_with_existing_indexes() {
    let existing = [
        IndexSpec::id(),
        spec(rawdoc! { "a": 1 }),
        IndexSpec { name: "u".into(), unique: true, ..spec(rawdoc! { "b": 1 }) },
    ];
    let check = |new: IndexSpec, expected: Result<Addition, i32>| {
        assert_eq!(addition(&existing, &new).map_err(|error| error.code().0), expected, "{new:?}");
    };
    check(spec(rawdoc! { "c": 1 }), Ok(Addition::New));
    check(spec(rawdoc! { "a": -1 }), Ok(Addition::New));
    check(spec(rawdoc! { "a": 1.0 }), Ok(Addition::Exists));
    check(IndexSpec { name: "other".into(), ..IndexSpec::id() }, Ok(Addition::Exists));
    // The name exists for another key, or for an index with another identity.
    check(IndexSpec { name: "a_1".into(), ..spec(rawdoc! { "x": 1 }) }, Err(86));
    check(IndexSpec { unique: true, ..spec(rawdoc! { "a": 1 }) }, Err(86));
    check(IndexSpec { expire_after_seconds: Some(1), ..spec(rawdoc! { "a": 1 }) }, Err(85));
    check(IndexSpec { name: "z".into(), ..spec(rawdoc! { "a": 1 }) }, Err(85));
    check(IndexSpec { name: "z".into(), hidden: true, ..spec(rawdoc! { "a": 1 }) }, Err(85));
    // An index with another identity and another name.
    check(IndexSpec { name: "z".into(), sparse: true, ..spec(rawdoc! { "a": 1 }) }, Ok(Addition::New));
    let full: Vec<_> =
        (0..INDEXES_MAX).map(|n| IndexSpec { name: n.to_string(), ..spec(rawdoc! { "a": 1 }) }).collect();
    assert_eq!(addition(&full, &spec(rawdoc! { "q": 1 })).map_err(|error| error.code().0), Err(67));
}

#[test]
fn selectors_name_indexes() {
    let namespace = Namespace::new("d", "c").expect("valid");
    let existing = [
        IndexSpec::id(),
        spec(rawdoc! { "a": 1 }),
        IndexSpec { name: "s".into(), sparse: true, ..spec(rawdoc! { "a": 1 }) },
        spec(rawdoc! { "b": 1 }),
    ];
    let drop = |selector| dropped(&namespace, &existing, &selector).map_err(|error| error.code().0);
    let names = |names: &[&str]| IndexSelector::Names(names.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(drop(IndexSelector::All), Ok(vec![1, 2, 3]));
    assert_eq!(drop(names(&["s", "a_1"])), Ok(vec![1, 2]));
    assert_eq!(drop(names(&["a_1", "x"])), Err(27));
    assert_eq!(drop(names(&["_id_"])), Err(72));
    assert_eq!(drop(IndexSelector::Key(rawdoc! { "b": 1.0 })), Ok(vec![3]));
    assert_eq!(drop(IndexSelector::Key(rawdoc! { "a": 1 })), Err(181));
    assert_eq!(drop(IndexSelector::Key(rawdoc! { "x": 1 })), Err(27));
    assert_eq!(drop(IndexSelector::Key(rawdoc! { "_id": 1 })), Err(72));
    assert!(selected(&namespace, &existing, &IndexSelector::All).is_err());
}

/// Returns the tuples as text, with `-` for a missing value.
fn tuples_of(paths: &[&str], document: &RawDocumentBuf) -> Result<Vec<String>, i32> {
    let paths: Vec<values::Path> = paths.iter().map(|path| path.split('.').map(Box::from).collect()).collect();
    let found = values::tuples(&paths, document).map_err(|error| error.code().0)?;
    let show = |value: &Option<RawBsonRef<'_>>| value.map_or_else(|| "-".to_owned(), notation::value);
    Ok(found.tuples.iter().map(|tuple| tuple.iter().map(show).collect::<Vec<_>>().join(",")).collect())
}

#[test]
fn an_index_has_a_tuple_for_each_array_element() {
    let check = |paths: &[&str], document: RawDocumentBuf, expected: &[&str]| {
        assert_eq!(tuples_of(paths, &document).as_deref(), Ok(expected.map_strings().as_slice()), "{paths:?}");
    };
    check(&["a"], rawdoc! { "a": 1 }, &["1"]);
    check(&["a"], rawdoc! { "b": 1 }, &["-"]);
    check(&["a"], rawdoc! { "a": null }, &["null"]);
    check(&["a.b"], rawdoc! { "a": 1 }, &["-"]);
    check(&["a.b"], rawdoc! { "a": { "b": { "c": 1 } } }, &["{ c: 1 }"]);
    check(&["a"], rawdoc! { "a": [] }, &["undefined"]);
    check(&["a"], rawdoc! { "a": [5, [6], 5] }, &["5", "[ 6 ]", "5"]);
    check(&["a.b"], rawdoc! { "a": [] }, &["-"]);
    check(&["a.b"], rawdoc! { "a": [{ "b": 1 }, { "b": [2, 3] }, 4, [{ "b": 5 }]] }, &["1", "2", "3", "-", "-"]);
    check(&["a", "b"], rawdoc! { "a": [1, 2], "b": 3 }, &["1,3", "2,3"]);
    check(&["a.b", "a.c"], rawdoc! { "a": [{ "b": 1, "c": 2 }, { "b": 3 }] }, &["1,2", "3,-"]);
    check(&["a", "a.b"], rawdoc! { "a": [{ "b": 1 }, 7] }, &["{ b: 1 },1", "7,-"]);
    check(&["a.b", "c"], rawdoc! { "a": [{ "b": [1, 2] }, { "b": 3 }], "c": 0 }, &["1,0", "2,0", "3,0"]);
    check(&["a.0"], rawdoc! { "a": [5, 6] }, &["5"]);
    check(&["a.1.b"], rawdoc! { "a": [1, { "b": 2 }] }, &["2"]);
    check(&["a.0"], rawdoc! { "a": { "0": 1 } }, &["1"]);
    check(&["a.7"], rawdoc! { "a": [{ "7": 1 }] }, &["1"]);
    check(&["a.1"], rawdoc! { "a": [[7, 8]] }, &["8"]);
    check(&["a.0"], rawdoc! { "a": [[1, 2]] }, &["1", "2"]);
}

#[test]
fn parallel_arrays_are_refused() {
    assert_eq!(tuples_of(&["a", "b"], &rawdoc! { "a": [1], "b": [2] }), Err(171));
    assert_eq!(tuples_of(&["a", "b"], &rawdoc! { "a": [], "b": [] }), Err(171));
    assert_eq!(tuples_of(&["a.b", "a.c"], &rawdoc! { "a": { "b": [1], "c": [1] } }), Err(171));
    assert_eq!(tuples_of(&["a.b", "a.c"], &rawdoc! { "a": [{ "b": [1], "c": [1] }] }), Err(171));
    assert_eq!(tuples_of(&["a.0"], &rawdoc! { "a": [{ "0": 1 }] }), Err(16746));
    let paths: Vec<values::Path> = ["x", "y"].iter().map(|path| path.split('.').map(Box::from).collect()).collect();
    let document = rawdoc! { "x": [1], "y": [2] };
    let error = values::tuples(&paths, &document).expect_err("parallel");
    assert_eq!(error.message(), "cannot index parallel arrays [y] [x]");
}

#[test]
fn multikey_marks_the_fields_with_values_from_an_array() {
    let paths: Vec<values::Path> = ["a", "b.c"].iter().map(|path| path.split('.').map(Box::from).collect()).collect();
    let multikey = |document: RawDocumentBuf| values::tuples(&paths, &document).expect("ok").multikey;
    assert_eq!(multikey(rawdoc! { "a": 1, "b": { "c": 1 } }), 0b00);
    assert_eq!(multikey(rawdoc! { "a": [], "b": { "c": 1 } }), 0b01);
    assert_eq!(multikey(rawdoc! { "a": 1, "b": [{ "c": 1 }] }), 0b10);
}

trait MapStrings {
    fn map_strings(&self) -> Vec<String>;
}

impl MapStrings for &[&str] {
    fn map_strings(&self) -> Vec<String> {
        self.iter().map(|&text| text.to_owned()).collect()
    }
}

/// Returns the keys of a document in the index, in order.
fn keys_of(spec: IndexSpec, document: RawDocumentBuf) -> Vec<Vec<u8>> {
    Index::compile(spec).expect("valid").keys(&document).expect("keys").keys.into_iter().collect()
}

#[test]
fn keys_compare_as_the_values_do_in_the_indexs_directions() {
    let key = || spec(rawdoc! { "a": 1, "b": -1 });
    let ascending = [
        rawdoc! {},
        rawdoc! { "a": 1, "b": 2 },
        rawdoc! { "a": 1.0, "b": 1 },
        rawdoc! { "a": 1.5, "b": "x" },
        rawdoc! { "a": "a" },
        rawdoc! { "a": "ab", "b": 9 },
        rawdoc! { "a": { "x": 1 } },
    ];
    let keys: Vec<_> = ascending.into_iter().map(|document| keys_of(key(), document)).collect();
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
    assert_eq!(keys_of(key(), rawdoc! { "a": 1, "b": 2 }), keys_of(key(), rawdoc! { "b": 2.0, "a": 1_i64 }));
}

#[test]
fn a_document_has_each_key_once() {
    let single = || spec(rawdoc! { "a": 1 });
    assert_eq!(keys_of(single(), rawdoc! { "a": [1, 1.0, 2, 1] }).len(), 2);
    assert_eq!(keys_of(single(), rawdoc! {}), keys_of(single(), rawdoc! { "a": null }));
    assert_ne!(keys_of(single(), rawdoc! { "a": [] }), keys_of(single(), rawdoc! { "a": null }));
}

#[test]
fn sparse_and_partial_indexes_leave_documents_out() {
    let sparse = || IndexSpec { sparse: true, ..spec(rawdoc! { "a": 1, "b": 1 }) };
    assert_eq!(keys_of(sparse(), rawdoc! { "c": 1 }).len(), 0);
    assert_eq!(keys_of(sparse(), rawdoc! { "b": null }).len(), 1);
    assert_eq!(
        keys_of(IndexSpec { sparse: true, ..spec(rawdoc! { "a.b": 1 }) }, rawdoc! { "a": [{ "c": 1 }] }).len(),
        0
    );
    let partial = || IndexSpec { partial_filter: Some(rawdoc! { "b": { "$gt": 5 } }), ..spec(rawdoc! { "a": 1 }) };
    assert_eq!(keys_of(partial(), rawdoc! { "a": 1, "b": 5 }).len(), 0);
    assert_eq!(keys_of(partial(), rawdoc! { "a": 1, "b": 6 }).len(), 1);
}

#[test]
fn a_partial_filter_that_does_not_compile_is_refused() {
    let broken = IndexSpec { partial_filter: Some(rawdoc! { "a": { "$in": 1 } }), ..spec(rawdoc! { "a": 1 }) };
    assert_eq!(Index::compile(broken).map(|_| ()).map_err(|error| error.code().0), Err(67));
}

#[test]
fn the_error_of_a_duplicate_shows_the_existing_key() {
    let index = Index::compile(spec(rawdoc! { "a": 1 })).expect("valid");
    let document = rawdoc! { "_id": 1, "a": [1, "x"] };
    let mut taken = Vec::new();
    handfast_mql::key::encode(RawBsonRef::String("x"), &mut taken);
    let error = index.duplicate(&Namespace::new("d", "c").expect("valid"), &document, &taken);
    assert_eq!(error.message(), "E11000 duplicate key error collection: d.c index: a_1 dup key: { a: \"x\" }");
    assert_eq!(index.shown(&document, &taken).expect("ok"), Some(rawdoc! { "a": "x" }));
}

#[test]
fn bounds_have_the_fields_of_the_index() {
    let index = Index::compile(spec(rawdoc! { "a": 1, "b": -1 })).expect("valid");
    let keys = keys_of(spec(rawdoc! { "a": 1, "b": -1 }), rawdoc! { "a": 1, "b": 2 });
    assert_eq!(index.bound(&rawdoc! { "a": 1, "b": 2 }).expect("ok"), keys[0]);
    for wrong in [rawdoc! { "a": 1 }, rawdoc! { "b": 1, "a": 1 }, rawdoc! { "a": 1, "b": 1, "c": 1 }] {
        assert_eq!(index.bound(&wrong).map_err(|error| error.code().0), Err(51174), "{wrong:?}");
    }
}

#[test]
fn a_document_expires_by_its_earliest_date() {
    let index = Index::compile(IndexSpec { expire_after_seconds: Some(2), ..spec(rawdoc! { "t": 1 }) }).expect("valid");
    let date = |millis| bson::DateTime::from_millis(millis);
    let expires = |document: RawDocumentBuf| index.expires_at(&document).map(bson::DateTime::timestamp_millis);
    assert_eq!(expires(rawdoc! { "t": date(5) }), Some(2005));
    assert_eq!(expires(rawdoc! { "t": [date(9), "x", date(7)] }), Some(2007));
    assert_eq!(expires(rawdoc! { "t": "yesterday" }), None);
    assert_eq!(expires(rawdoc! {}), None);
    let never = Index::compile(spec(rawdoc! { "t": 1 })).expect("valid");
    assert_eq!(never.expires_at(&rawdoc! { "t": date(5) }), None);
}
