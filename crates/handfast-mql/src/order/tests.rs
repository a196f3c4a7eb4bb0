use super::*;
use bson::{
    Binary, Bson, DateTime, Decimal128, JavaScriptCodeWithScope, RawBson, RawDocumentBuf, Regex, Timestamp, doc,
    oid::ObjectId, raw::CString, spec::BinarySubtype,
};

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(Regex {
        pattern: CString::try_from(pattern).unwrap(),
        options: CString::try_from(options).unwrap(),
    })
}

fn binary(subtype: BinarySubtype, bytes: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype, bytes: bytes.to_vec() })
}

/// Returns groups of equal values, in the order of MongoDB's manual.
fn ladder() -> Vec<Vec<Bson>> {
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
    vec![
        vec![Bson::MinKey],
        vec![Bson::Null, Bson::Undefined],
        vec![Bson::Double(f64::NAN), decimal("NaN")],
        vec![Bson::Double(f64::NEG_INFINITY), decimal("-Infinity")],
        vec![Bson::Int64(i64::MIN), Bson::Double(-9_223_372_036_854_775_808.0)],
        vec![Bson::Int32(-1), Bson::Int64(-1), Bson::Double(-1.0), decimal("-1.0")],
        vec![Bson::Int32(0), Bson::Double(-0.0), decimal("-0E+5")],
        vec![Bson::Int32(1), Bson::Double(1.0), decimal("1.00")],
        vec![Bson::Int64(9_007_199_254_740_992), Bson::Double(9_007_199_254_740_992.0)],
        vec![Bson::Int64(9_007_199_254_740_993), decimal("9007199254740993")],
        vec![Bson::Double(f64::INFINITY)],
        vec![Bson::String(String::new()), Bson::Symbol(String::new())],
        vec![Bson::String("A".into())],
        vec![Bson::String("a".into()), Bson::Symbol("a".into())],
        vec![Bson::String("a\0".into())],
        vec![Bson::String("aa".into())],
        vec![Bson::String("é".into())],
        vec![Bson::Document(doc! {})],
        vec![Bson::Document(doc! { "b": 1 })],
        vec![Bson::Document(doc! { "b": 1, "a": 1 }), Bson::Document(doc! { "b": 1.0, "a": 1_i64 })],
        vec![Bson::Document(doc! { "b": 2 })],
        vec![Bson::Document(doc! { "c": 0 })],
        // The type comes before the name, the name before the value.
        vec![Bson::Document(doc! { "a": "x" })],
        vec![Bson::Array(vec![])],
        vec![Bson::Array(vec![Bson::Null])],
        vec![Bson::Array(vec![Bson::Int32(1)])],
        vec![Bson::Array(vec![Bson::Int32(1), Bson::Int32(0)])],
        vec![Bson::Array(vec![Bson::Int32(2)])],
        vec![binary(BinarySubtype::Generic, b"")],
        vec![binary(BinarySubtype::Generic, b"z")],
        vec![binary(BinarySubtype::Uuid, b"a")],
        vec![binary(BinarySubtype::Generic, b"aa")],
        vec![Bson::ObjectId(ObjectId::from_bytes([0; 12]))],
        vec![Bson::ObjectId(ObjectId::from_bytes([255; 12]))],
        vec![Bson::Boolean(false)],
        vec![Bson::Boolean(true)],
        vec![Bson::DateTime(DateTime::from_millis(-1))],
        vec![Bson::DateTime(DateTime::from_millis(0))],
        vec![Bson::Timestamp(Timestamp { time: 0, increment: 5 })],
        vec![Bson::Timestamp(Timestamp { time: 1, increment: 0 })],
        vec![Bson::Timestamp(Timestamp { time: u32::MAX, increment: 0 })],
        vec![regex("a", "i")],
        vec![regex("a", "m")],
        vec![regex("b", "")],
        vec![Bson::JavaScriptCode("f".into())],
        vec![Bson::JavaScriptCode("g".into())],
        vec![Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "a": 1 } })],
        vec![Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "a": 2 } })],
        vec![Bson::MaxKey],
    ]
}

#[test]
fn all_types_are_ordered_as_documented() {
    let ladder: Vec<Vec<RawBson>> = ladder()
        .into_iter()
        .map(|group| group.into_iter().map(|value| RawBson::try_from(value).unwrap()).collect())
        .collect();
    for (i, left) in ladder.iter().enumerate() {
        for (j, right) in ladder.iter().enumerate() {
            for a in left {
                for b in right {
                    let order = compare(a.as_raw_bson_ref(), b.as_raw_bson_ref());
                    assert_eq!(order, i.cmp(&j), "{a:?} {b:?}");
                }
            }
        }
    }
}

#[test]
fn pointers_compare_by_namespace_and_id() {
    // The bytes of {p: DBPointer("db.c", id)}, as `bson` cannot build the type.
    let holder = |namespace: &str, id: u8| {
        let mut bytes = vec![0, 0, 0, 0, 0x0c, b'p', 0];
        bytes.extend((namespace.len() as i32 + 1).to_le_bytes());
        bytes.extend(namespace.as_bytes());
        bytes.push(0);
        bytes.extend([id; 12]);
        bytes.push(0);
        let length = bytes.len() as i32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        RawDocumentBuf::from_bytes(bytes).unwrap()
    };
    let value = |document: &RawDocumentBuf| db_pointer_parts(document.get("p").unwrap().unwrap());
    assert_eq!(value(&holder("db.c", 7)), (b"db.c".to_vec(), [7; 12]));
    let order = |a: RawDocumentBuf, b: RawDocumentBuf| compare_documents(&a, &b);
    assert!(order(holder("db.a", 9), holder("db.c", 7)).is_lt());
    assert!(order(holder("db.c", 9), holder("db.c", 7)).is_gt());
    assert!(order(holder("db.c", 7), holder("db.c", 7)).is_eq());
}
