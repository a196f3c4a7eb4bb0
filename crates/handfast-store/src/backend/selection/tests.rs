use std::cell::Cell;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::{BackendGuarantees, Candidate, Selection, check_bounds, id_alone, named_id};
use crate::{Error, Find, Hint, Namespace, Result, Sources};

fn find(filter: RawDocumentBuf) -> Find {
    Find::new(Namespace::valid("d", "c"), filter)
}

fn select(find: &Find, given: BackendGuarantees, documents: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
    let candidates = documents.into_iter().map(|document| Ok(Candidate::from(document)));
    Selection::compile(find, &Sources::seeded(1))?.documents(candidates, given).collect()
}

fn numbered(numbers: &[i32]) -> Vec<RawDocumentBuf> {
    numbers.iter().map(|n| rawdoc! { "_id": *n, "n": *n }).collect()
}

#[test]
fn candidates_are_filtered_sorted_skipped_limited_and_projected() {
    let whole = Find {
        sort: rawdoc! { "n": -1 },
        skip: 1,
        limit: Some(2),
        projection: rawdoc! { "n": 1, "_id": 0 },
        ..find(rawdoc! { "n": { "$lt": 9 } })
    };
    let selected = select(&whole, BackendGuarantees::default(), numbered(&[3, 9, 1, 4, 2])).expect("selected");
    assert_eq!(selected, [rawdoc! { "n": 3 }, rawdoc! { "n": 2 }]);
}

#[test]
fn what_the_backend_guarantees_is_not_done_again() {
    let sorted = Find { sort: rawdoc! { "n": 1 }, ..find(rawdoc! { "n": 1 }) };
    let given = BackendGuarantees { sorted: true, filtered: true };
    assert_eq!(select(&sorted, given, numbered(&[3, 1])).expect("selected"), numbered(&[3, 1]));
    assert_eq!(select(&sorted, BackendGuarantees::default(), numbered(&[3, 1])).expect("selected"), numbered(&[1]));
}

#[test]
fn no_candidate_is_read_beyond_the_limit() {
    let candidates_read = Cell::new(0);
    let candidates = (0..100).map(|n| {
        candidates_read.set(candidates_read.get() + 1);
        Ok(Candidate::from(rawdoc! { "_id": n }))
    });
    let limited = Find { skip: 2, limit: Some(3), ..find(rawdoc! {}) };
    let selection = Selection::compile(&limited, &Sources::seeded(1)).expect("valid");
    assert_eq!(selection.documents(candidates, BackendGuarantees::default()).count(), 3);
    assert_eq!(candidates_read.get(), 5);
}

#[test]
fn an_error_of_a_candidate_ends_the_documents() {
    for sort in [rawdoc! {}, rawdoc! { "_id": 1 }] {
        let broken = Err(Error::command(Code::DataCorruptionDetected, "damaged"));
        let candidates = vec![Ok(Candidate::from(rawdoc! { "_id": 1 })), broken, Ok(rawdoc! { "_id": 2 }.into())];
        let selection = Selection::compile(&Find { sort, ..find(rawdoc! {}) }, &Sources::seeded(1)).expect("valid");
        let results: Vec<_> = selection.documents(candidates.into_iter(), BackendGuarantees::default()).collect();
        assert!(results.iter().rev().skip(1).all(Result::is_ok), "{results:?}");
        assert!(results.last().is_some_and(Result::is_err), "{results:?}");
    }
}

#[test]
fn keys_and_record_ids_are_returned_on_request() {
    let candidate =
        Candidate { document: rawdoc! { "_id": 1, "a": 2 }, key: Some(rawdoc! { "a": 2 }), record: Some(7) };
    let show = |find: Find| {
        let selection = Selection::compile(&find, &Sources::seeded(1)).expect("valid");
        let mut documents = selection.documents(std::iter::once(Ok(candidate.clone())), BackendGuarantees::default());
        documents.next().expect("one").expect("no error")
    };
    let keyed = Find { return_key: true, ..find(rawdoc! {}) };
    assert_eq!(show(keyed), rawdoc! { "a": 2 }, "the key alone");
    assert_eq!(show(find(rawdoc! {})), rawdoc! { "_id": 1, "a": 2, "$recordId": 7_i64 });
}

#[test]
fn bounds_need_a_hint() {
    let bounded = Find { min: Some(rawdoc! { "a": 1 }), ..find(rawdoc! {}) };
    assert_eq!(check_bounds(&bounded).map_err(|error| error.code().0), Err(51173));
    check_bounds(&Find { hint: Some(Hint::Name("a_1".into())), ..bounded }).expect("hinted");
}

#[test]
fn an_id_is_recognised_where_nothing_but_equality_decides() {
    let one = [
        rawdoc! { "_id": 1 },
        rawdoc! { "_id": "a" },
        rawdoc! { "_id": { "kind": "ads", "id": 1 } },
        rawdoc! { "_id": { "a": { "$gt": 1 } } },
        rawdoc! { "_id": {} },
    ];
    for filter in one {
        assert!(
            id_alone(&filter, &rawdoc! {}).is_some_and(|id| Some(id) == named_id(&filter, &rawdoc! {})),
            "{filter:?}"
        );
    }
    // Under a collation, a string may equal other strings.
    let english = handfast_mql::collation::with_variable(rawdoc! {}, Some(&rawdoc! { "locale": "en", "strength": 1 }));
    assert!(id_alone(&rawdoc! { "_id": 1 }, &english).is_some() && named_id(&rawdoc! { "_id": 1 }, &english).is_some());
    for id in [rawdoc! { "_id": "a" }, rawdoc! { "_id": { "kind": "ads" } }] {
        assert!(id_alone(&id, &english).is_none() && named_id(&id, &english).is_none(), "{id:?}");
    }
    let with_more = rawdoc! { "n": 1, "_id": { "a": 1 } };
    assert!(id_alone(&with_more, &rawdoc! {}).is_none() && named_id(&with_more, &rawdoc! {}).is_some());
    let others = [
        rawdoc! {},
        rawdoc! { "n": 1 },
        rawdoc! { "_id": { "$gt": 1 } },
        rawdoc! { "_id": { "$ref": "c", "$id": 1 } },
        rawdoc! { "_id": null },
        rawdoc! { "_id": [1] },
        rawdoc! { "_id": bson::Regex { pattern: bson::raw::cstr!("a").into(), options: bson::raw::cstr!("").into() } },
        rawdoc! { "_id.a": 1 },
    ];
    for filter in others {
        assert!(id_alone(&filter, &rawdoc! {}).is_none() && named_id(&filter, &rawdoc! {}).is_none(), "{filter:?}");
    }
}
