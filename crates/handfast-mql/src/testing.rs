//! Arbitrary values for property tests: of all types, small enough that equal and neighbouring ones meet.

use bson::{
    Binary, DateTime, Decimal128, RawArrayBuf, RawBson, RawDocumentBuf, RawJavaScriptCodeWithScope, Regex, Timestamp,
    oid::ObjectId, raw::CString, spec::BinarySubtype,
};
use proptest::{collection::vec, prelude::*};

use crate::{decimal::tests::any_decimal, element::db_pointer, number::tests::any_number};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        vec(prop::sample::select(vec!["\0", "\u{1}", "\u{2}", "a", "b", "é", "0"]), 0..4)
            .prop_map(|parts| parts.concat()),
        any::<String>()
    ]
}

fn cstring() -> impl Strategy<Value = CString> {
    text().prop_map(|text| CString::try_from(text.replace('\0', "")).unwrap())
}

/// Generates a field's name.
pub(crate) fn name() -> impl Strategy<Value = CString> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "c", "0", "1", ""]).prop_map(|name| CString::try_from(name).unwrap()),
        1 => cstring(),
    ]
}

fn id() -> impl Strategy<Value = [u8; 12]> {
    prop_oneof![(0..3_u8).prop_map(|byte| [byte; 12]), any::<[u8; 12]>()]
}

fn scalar() -> impl Strategy<Value = RawBson> {
    let binary = (prop_oneof![0..4_u8, any::<u8>()], prop_oneof![vec(0..3_u8, 0..4), vec(any::<u8>(), 250..260)])
        .prop_map(|(subtype, bytes)| RawBson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes }));
    prop_oneof![
        6 => any_number().prop_map(RawBson::from),
        1 => any_decimal().prop_map(|decimal| RawBson::Decimal128(decimal.encode())),
        1 => any::<[u8; 16]>().prop_map(|bytes| RawBson::Decimal128(Decimal128::from_bytes(bytes))),
        1 => any::<u64>().prop_map(|bits| RawBson::Double(f64::from_bits(bits))),
        3 => text().prop_map(RawBson::String),
        1 => text().prop_map(RawBson::Symbol),
        2 => prop::sample::select(vec![RawBson::Null, RawBson::Undefined, RawBson::MinKey, RawBson::MaxKey]),
        1 => any::<bool>().prop_map(RawBson::Boolean),
        1 => binary,
        1 => id().prop_map(|id| RawBson::ObjectId(ObjectId::from_bytes(id))),
        1 => prop_oneof![-2..2_i64, any::<i64>()].prop_map(|millis| RawBson::DateTime(DateTime::from_millis(millis))),
        1 => (0..3_u32, any::<u32>()).prop_map(|(time, increment)| RawBson::Timestamp(Timestamp { time, increment })),
        1 => (cstring(), cstring()).prop_map(|(pattern, options)| RawBson::RegularExpression(Regex { pattern, options })),
        1 => (text(), id()).prop_map(|(namespace, id)| db_pointer(&namespace, id).unwrap()),
        1 => text().prop_map(RawBson::JavaScriptCode),
    ]
}

/// Generates a value of any type.
pub(crate) fn value() -> impl Strategy<Value = RawBson> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        let document = vec((name(), inner.clone()), 0..4).prop_map(from_fields).boxed();
        let array = vec(inner, 0..4).prop_map(|values| {
            let mut array = RawArrayBuf::new();
            for value in values {
                array.push(value);
            }
            array
        });
        prop_oneof![
            3 => document.clone().prop_map(RawBson::Document),
            3 => array.prop_map(RawBson::Array),
            1 => (text(), document).prop_map(|(code, scope)| {
                RawBson::JavaScriptCodeWithScope(RawJavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

/// Generates a document.
pub(crate) fn document() -> impl Strategy<Value = RawDocumentBuf> {
    vec((name(), value()), 0..4).prop_map(from_fields)
}

fn from_fields(fields: Vec<(CString, RawBson)>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    for (name, value) in fields {
        document.append(name, value);
    }
    document
}
