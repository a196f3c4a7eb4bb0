use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{Applied, ErrorClass};

use super::{count, find_and_modify, index, insert, stats, update};

#[test]
fn counts_are_numbers_of_any_type() {
    for reply in [rawdoc! { "n": 3 }, rawdoc! { "n": 3_i64 }, rawdoc! { "n": 3.0 }] {
        assert_eq!(count(&reply, "n"), Some(3));
    }
    for reply in [rawdoc! { "n": -1 }, rawdoc! { "n": "3" }, rawdoc! {}] {
        assert_eq!(count(&reply, "n"), None);
    }
}

#[test]
fn an_insert_counts_and_places_its_errors() {
    let outcome = insert(&rawdoc! { "n": 2, "ok": 1 }, 0, 2, true).expect("fine");
    assert_eq!((outcome.inserted, outcome.errors.len()), (2, 0));
    let reply = rawdoc! { "n": 1, "writeErrors": [{
        "index": 1, "code": 11000, "errmsg": "E11000", "keyPattern": { "_id": 1 }, "keyValue": { "_id": 7 },
    }] };
    let outcome = insert(&reply, 100, 3, true).expect("fine");
    assert_eq!(outcome.inserted, 1);
    let refused = &outcome.errors[0];
    assert_eq!((refused.index, refused.error.code(), refused.error.message()), (101, Code::DuplicateKey, "E11000"));
    let details = rawdoc! { "keyPattern": { "_id": 1 }, "keyValue": { "_id": 7 } };
    assert_eq!(refused.error.details(), Some(&details));
    assert_eq!((refused.error.class(), refused.error.applied()), (ErrorClass::Command, Applied::No));
}

/// FerretDB 1 omits the count if there are errors.
#[test]
fn an_insert_without_a_count_is_counted_by_its_errors() {
    let reply = rawdoc! { "writeErrors": [{ "index": 2, "code": 11000, "errmsg": "no" }] };
    assert_eq!(insert(&reply, 10, 5, true).expect("fine").inserted, 2);
    assert_eq!(insert(&reply, 10, 5, false).expect("fine").inserted, 4);
    let error = insert(&rawdoc! { "ok": 1 }, 0, 1, true).expect_err("no count");
    assert_eq!(error.applied(), Applied::Maybe);
}

#[test]
fn an_update_takes_the_upserted_out_of_the_matched() {
    let reply = rawdoc! { "n": 3, "nModified": 1, "upserted": [{ "index": 1, "_id": "x" }] };
    let outcome = update(&reply, 20).expect("fine");
    assert_eq!((outcome.matched, outcome.modified), (2, 1));
    assert_eq!(outcome.upserted, [(21, RawBson::from("x"))]);
    assert!(update(&rawdoc! { "ok": 1 }, 0).is_err());
}

#[test]
fn a_write_concern_that_was_not_met_leaves_the_write_in_doubt() {
    let failed = |code: i32| {
        let reply = rawdoc! { "n": 1, "writeConcernError": { "code": code, "errmsg": "waited", "errInfo": { "wtimeout": true } } };
        insert(&reply, 0, 1, true).expect_err("not acknowledged as asked")
    };
    let error = failed(64);
    assert_eq!((error.class(), error.applied(), error.code()), (ErrorClass::Command, Applied::Maybe, Code(64)));
    assert_eq!(error.message(), "the write concern was not met: waited");
    assert_eq!(error.details(), Some(&rawdoc! { "errInfo": { "wtimeout": true } }));
    // The primary stepped down while the write waited.
    let error = failed(11602);
    assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::Maybe));
}

#[test]
fn a_find_and_modify_says_what_it_did() {
    let check = |reply: RawDocumentBuf, matched: bool, has_value: bool, upserted: Option<RawBson>| {
        let outcome = find_and_modify(&reply).expect("fine");
        assert_eq!((outcome.matched, outcome.value.is_some(), outcome.upserted), (matched, has_value, upserted));
    };
    check(rawdoc! { "value": { "_id": 1 }, "lastErrorObject": { "n": 1, "updatedExisting": true } }, true, true, None);
    check(rawdoc! { "value": null, "lastErrorObject": { "n": 0, "updatedExisting": false } }, false, false, None);
    let upserted = rawdoc! { "value": null, "lastErrorObject": { "n": 1, "updatedExisting": false, "upserted": 7 } };
    check(upserted, false, false, Some(7.into()));
    check(rawdoc! { "value": { "_id": 1 }, "lastErrorObject": { "n": 1 } }, true, true, None);
    check(rawdoc! { "value": null, "lastErrorObject": { "n": 0 } }, false, false, None);
    assert!(find_and_modify(&rawdoc! { "value": null }).is_err());
}

#[test]
fn an_index_of_another_kind_is_listed_too() {
    let shown = rawdoc! { "v": 2, "key": { "_fts": "text" }, "name": "t", "weights": { "a": 1 }, "sparse": true };
    let spec = index(&shown).expect("fine");
    assert_eq!((spec.name.as_str(), spec.sparse, spec.key), ("t", true, rawdoc! { "_fts": "text" }));
}

#[test]
fn statistics_of_what_does_not_exist_are_zero() {
    let nothing = stats(&rawdoc! { "count": 0, "size": 0, "nindexes": 0, "indexSizes": {} });
    assert!(!nothing.exists);
    let some =
        stats(&rawdoc! { "count": 2, "size": 64.0, "storageSize": 4096, "nindexes": 1, "indexSizes": { "_id_": 9 } });
    assert!(some.exists);
    assert_eq!((some.count, some.size_bytes, some.storage_bytes), (2, 64, 4096));
    assert_eq!(some.index_bytes, [("_id_".to_owned(), 9)]);
}
