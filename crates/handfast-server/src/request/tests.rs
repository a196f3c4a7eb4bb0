use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::Durability;

use super::numbering::Numbering;
use super::{Request, SessionId};

fn with(fields: RawDocumentBuf) -> RawDocumentBuf {
    let mut body = rawdoc! { "ping": 1, "$db": "admin" };
    for element in &fields {
        let (name, value) = element.unwrap();
        body.append(name, value);
    }
    body
}

fn check<T: PartialEq + std::fmt::Debug>(
    fields: RawDocumentBuf,
    read: impl Fn(&Request<'_>) -> T,
    expected: Result<T, i32>,
) {
    let body = with(fields);
    let actual = Request::new(&body, &[], None, false).map(|request| read(&request)).map_err(|error| error.code.0);
    assert_eq!(actual, expected, "{body:?}");
}

#[test]
fn session_ids_are_read() {
    let id = |subtype, bytes: &[u8]| bson::Binary { subtype, bytes: bytes.to_vec() };
    let good = id(BinarySubtype::Uuid, &[7; 16]);
    check(rawdoc! { "lsid": { "id": good } }, |r| r.session, Ok(Some(SessionId::of([7; 16]))));
    check(rawdoc! { "lsid": { "id": id(BinarySubtype::Uuid, &[7; 15]) } }, |r| r.session, Err(16));
    check(rawdoc! { "lsid": { "id": id(BinarySubtype::Generic, &[7; 16]) } }, |r| r.session, Err(14));
    check(rawdoc! { "lsid": {} }, |r| r.session, Err(40_414));
    check(rawdoc! { "lsid": 1 }, |r| r.session, Err(14));
    assert_eq!(SessionId::of([0xab; 16]).to_string(), "abababab-abab-abab-abab-abababababab");
}

#[test]
fn transaction_numbers_are_read() {
    let of = |fields: RawDocumentBuf| {
        let id = bson::Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        let mut all = rawdoc! { "lsid": { "id": id } };
        for element in &fields {
            let (name, value) = element.unwrap();
            all.append(name, value);
        }
        all
    };
    let read = |r: &Request<'_>| r.numbering;
    check(rawdoc! {}, read, Ok(Numbering::None));
    check(of(rawdoc! { "txnNumber": 1_i64 }), read, Ok(Numbering::RetryableWrite(1)));
    let first = rawdoc! { "txnNumber": 1_i64, "autocommit": false, "startTransaction": true };
    check(of(first), read, Ok(Numbering::Transaction { number: 1, starts: true }));
    let further = rawdoc! { "txnNumber": 1_i64, "autocommit": false };
    check(of(further), read, Ok(Numbering::Transaction { number: 1, starts: false }));
    for (fields, code) in [
        (rawdoc! { "txnNumber": 1 }, 14),
        (rawdoc! { "txnNumber": -1_i64 }, 72),
        (rawdoc! { "autocommit": false }, 72),
        (rawdoc! { "autocommit": 0, "txnNumber": 1_i64 }, 14),
        (rawdoc! { "startTransaction": true }, 72),
        (rawdoc! { "startTransaction": true, "txnNumber": 1_i64 }, 72),
        (rawdoc! { "autocommit": true, "txnNumber": 1_i64 }, 72),
        (rawdoc! { "autocommit": false, "startTransaction": false, "txnNumber": 1_i64 }, 72),
    ] {
        check(of(fields), read, Err(code));
    }
    check(rawdoc! { "txnNumber": 1_i64 }, read, Err(72));
}

#[test]
fn time_limits_are_read() {
    check(rawdoc! { "maxTimeMS": 0 }, |r| r.max_time, Ok(None));
    check(rawdoc! { "maxTimeMS": 5_i64 }, |r| r.max_time, Ok(Some(Duration::from_millis(5))));
    check(rawdoc! { "maxTimeMS": 5.0 }, |r| r.max_time, Ok(Some(Duration::from_millis(5))));
    for wrong in [-1.0, 0.5, 5.5, -0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2_147_483_648.0] {
        check(rawdoc! { "maxTimeMS": wrong }, |r| r.max_time, Err(2));
    }
    for wrong in ["0.5", "NaN", "Infinity", "-1", "1E+20"] {
        let wrong: bson::Decimal128 = wrong.parse().unwrap();
        check(rawdoc! { "maxTimeMS": wrong }, |r| r.max_time, Err(2));
    }
    check(rawdoc! { "maxTimeMS": -1 }, |r| r.max_time, Err(2));
    check(rawdoc! { "maxTimeMS": 2_147_483_648_i64 }, |r| r.max_time, Err(2));
    check(rawdoc! { "maxTimeMS": "1" }, |r| r.max_time, Err(14));
}

#[test]
fn write_concerns_are_read() {
    let of = |concern: RawDocumentBuf| rawdoc! { "writeConcern": concern };
    let read = |r: &Request<'_>| (r.write_concern.acknowledged, r.write_concern.synced);
    check(of(rawdoc! {}), read, Ok((true, false)));
    check(of(rawdoc! { "w": 1 }), read, Ok((true, false)));
    check(of(rawdoc! { "w": 0 }), read, Ok((false, false)));
    check(of(rawdoc! { "w": "majority", "wtimeout": 100 }), read, Ok((true, true)));
    check(of(rawdoc! { "w": 1, "j": true }), read, Ok((true, true)));
    check(of(rawdoc! { "w": 0, "j": true }), read, Ok((true, true)));
    check(of(rawdoc! { "w": 51 }), read, Err(9));
    check(of(rawdoc! { "w": -1 }), read, Err(9));
    check(of(rawdoc! { "x": 1 }), read, Err(40_415));
    let read = |r: &Request<'_>| r.write_concern.unsatisfied.map(|code| code.0);
    check(of(rawdoc! { "w": 1 }), read, Ok(None));
    check(of(rawdoc! { "w": 2 }), read, Ok(Some(100)));
    check(of(rawdoc! { "w": "nowhere" }), read, Ok(Some(79)));
}

#[test]
fn durability_is_never_less_than_the_default() {
    let of = |fields: RawDocumentBuf, default| {
        let body = with(fields);
        Request::new(&body, &[], None, false).unwrap().durability(default)
    };
    use Durability::{Journaled, Memory};
    assert_eq!(of(rawdoc! { "writeConcern": { "w": 1, "j": false } }, Journaled), Journaled);
    assert_eq!(of(rawdoc! { "writeConcern": { "w": 1, "j": false } }, Memory), Memory);
    assert_eq!(of(rawdoc! {}, Memory), Memory);
    assert_eq!(of(rawdoc! { "writeConcern": { "j": true } }, Memory), Journaled);
    assert_eq!(of(rawdoc! { "writeConcern": { "w": "majority" } }, Memory), Journaled);
}

#[test]
fn read_concerns_and_api_versions_are_read() {
    check(rawdoc! { "readConcern": { "level": "majority" } }, |_| (), Ok(()));
    check(rawdoc! { "readConcern": {} }, |_| (), Ok(()));
    check(rawdoc! { "readConcern": { "level": "weird" } }, |_| (), Err(2));
    check(rawdoc! { "readConcern": { "afterClusterTime": 1 } }, |_| (), Err(14));
    let after = bson::Timestamp { time: 1, increment: 1 };
    check(rawdoc! { "readConcern": { "afterClusterTime": after } }, |_| (), Ok(()));
    let at = |r: &Request<'_>| r.read_concern.and_then(|concern| concern.at);
    check(rawdoc! { "readConcern": { "level": "snapshot", "atClusterTime": after } }, at, Ok(Some(after)));
    check(rawdoc! { "readConcern": { "level": "local", "atClusterTime": after } }, |_| (), Err(72));
    let both = rawdoc! { "level": "snapshot", "atClusterTime": after, "afterClusterTime": after };
    check(rawdoc! { "readConcern": both }, |_| (), Err(72));
    check(rawdoc! { "apiVersion": "1", "apiStrict": true }, |r| r.api_strict, Ok(true));
    check(rawdoc! { "apiVersion": "2" }, |_| (), Err(322));
    check(rawdoc! { "apiStrict": true }, |_| (), Err(72));
}

#[test]
fn missing_and_invalid_names_are_refused() {
    let check = |body: RawDocumentBuf, expected: i32| {
        assert_eq!(Request::new(&body, &[], None, false).err().map(|error| error.code.0), Some(expected), "{body:?}");
    };
    check(rawdoc! {}, 59);
    check(rawdoc! { "ping": 1 }, 40_571);
    check(rawdoc! { "ping": 1, "$db": 1 }, 14);
    check(rawdoc! { "ping": 1, "$db": "a.b" }, 73);
    check(rawdoc! { "ping": 1, "$db": "" }, 73);
    let body = rawdoc! { "find": 1, "$db": "d" };
    let error = Request::new(&body, &[], None, false).unwrap().namespace().unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::InvalidNamespace, "collection name has invalid type int"));
}
