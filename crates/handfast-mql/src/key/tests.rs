use std::cmp::Ordering;

use bson::{
    Binary, DateTime, Decimal128, RawArrayBuf, RawBson, RawDocumentBuf, Regex, Timestamp, oid::ObjectId, raw::CString,
    rawbson, spec::BinarySubtype,
};
use proptest::prelude::*;

use super::*;
use crate::order;

fn key_of(value: &RawBson, direction: Direction) -> (Vec<u8>, TypeBits) {
    let (mut key, mut bits) = (Vec::new(), TypeBits::default());
    encode_typed(value.as_raw_bson_ref(), direction, &mut key, &mut bits);
    (key, bits)
}

/// Returns the bytes of a value, because `RawBson` compares a NaN as different from itself.
fn bytes_of(value: &RawBson) -> Vec<u8> {
    let mut holder = RawDocumentBuf::new();
    holder.append(bson::raw::cstr!("v"), value.clone());
    holder.into_bytes()
}

fn decimal(text: &str) -> RawBson {
    RawBson::Decimal128(text.parse().unwrap())
}

/// Returns numbers that are equal or almost equal across types.
fn edge_numbers() -> Vec<RawBson> {
    let mut numbers = vec![
        RawBson::Double(f64::NAN),
        RawBson::Double(f64::NEG_INFINITY),
        RawBson::Double(f64::INFINITY),
        RawBson::Double(-0.0),
        RawBson::Double(f64::MIN_POSITIVE),
        RawBson::Double(5e-324),
        RawBson::Double(f64::MAX),
        RawBson::Double(-f64::MAX),
        RawBson::Double(0.1),
        RawBson::Double(0.5),
    ];
    for text in [
        "NaN",
        "Infinity",
        "-Infinity",
        "0",
        "-0",
        "0E+6000",
        "1E-6176",
        "-1E-6176",
        "4.9E-324",
        "5E-324",
        "1E-325",
        "9.999999999999999999999999999999999E+6144",
        "0.1",
        "0.10",
        "0.5",
        "0.50",
        "0.1000000000000000055511151231257827",
        "0.1000000000000000055511151231257828",
        "9007199254740993",
        "9007199254740993.0",
        "9007199254740992.5",
        "1.797693134862315708145274237317043E+308",
        "1.797693134862315708145274237317044E+308",
        "1E+309",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "9.99999999999999999",
        "10",
        "1E+1",
    ] {
        numbers.push(decimal(text));
    }
    for power in [0, 1, 31, 32, 52, 53, 54, 62, 63] {
        for offset in -2_i128..=2 {
            for sign in [-1, 1] {
                let wanted = sign * (1_i128 << power) + offset;
                if let Ok(int) = i32::try_from(wanted) {
                    numbers.push(RawBson::Int32(int));
                }
                if let Ok(long) = i64::try_from(wanted) {
                    numbers.push(RawBson::Int64(long));
                }
                numbers.push(RawBson::Double(wanted as f64));
                numbers.push(decimal(&wanted.to_string()));
            }
        }
    }
    numbers
}

#[test]
fn every_pair_of_edge_numbers_keeps_its_order() {
    let numbers = edge_numbers();
    for direction in [Direction::Ascending, Direction::Descending] {
        let keys: Vec<_> = numbers.iter().map(|number| key_of(number, direction)).collect();
        for (a, (key_a, bits)) in numbers.iter().zip(&keys) {
            assert_eq!(bytes_of(&decode(key_a, bits, &[direction]).unwrap()[0]), bytes_of(a), "{a:?}");
            for (b, (key_b, _)) in numbers.iter().zip(&keys) {
                let wanted = order::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref());
                let wanted = if direction == Direction::Descending { wanted.reverse() } else { wanted };
                assert_eq!(key_a.cmp(key_b), wanted, "{a:?} {b:?} {direction:?}");
            }
        }
    }
}

fn any_number() -> impl Strategy<Value = RawBson> {
    prop_oneof![
        proptest::sample::select(edge_numbers()),
        any::<i32>().prop_map(RawBson::Int32),
        any::<i64>().prop_map(RawBson::Int64),
        any::<u64>().prop_map(|bits| RawBson::Double(f64::from_bits(bits))),
        any::<[u8; 16]>().prop_map(|bytes| RawBson::Decimal128(Decimal128::from_bytes(bytes))),
        (any::<i64>(), -400..400_i32).prop_map(|(coefficient, exponent)| decimal(&format!("{coefficient}E{exponent}"))),
        any::<f64>().prop_map(|double| RawBson::Decimal128(crate::Decimal::from_f64_all_digits(double).encode())),
    ]
}

fn any_text() -> impl Strategy<Value = String> {
    // The letters are few, so that there are common prefixes and zeros.
    proptest::collection::vec(proptest::sample::select(vec!['\0', '\u{1}', 'a', 'b', '\u{ff}', '\u{10ffff}']), 0..5)
        .prop_map(|letters| letters.into_iter().collect())
}

fn any_name() -> impl Strategy<Value = CString> {
    any_text().prop_map(|text| CString::try_from(text.replace('\0', "")).unwrap())
}

fn any_scalar() -> impl Strategy<Value = RawBson> {
    prop_oneof![
        4 => any_number(),
        2 => any_text().prop_map(RawBson::String),
        1 => any_text().prop_map(RawBson::Symbol),
        1 => proptest::sample::select(vec![
            RawBson::MinKey, RawBson::MaxKey, RawBson::Null, RawBson::Undefined, RawBson::Boolean(false), RawBson::Boolean(true),
        ]),
        1 => any::<[u8; 12]>().prop_map(|bytes| RawBson::ObjectId(ObjectId::from_bytes(bytes))),
        1 => any::<i64>().prop_map(|millis| RawBson::DateTime(DateTime::from_millis(millis))),
        1 => any::<(u32, u32)>().prop_map(|(time, increment)| RawBson::Timestamp(Timestamp { time, increment })),
        1 => (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..4)).prop_map(|(subtype, bytes)| {
            // The old subtype carries a length of its own, which `bson` adds and takes.
            let subtype = BinarySubtype::from(subtype);
            RawBson::Binary(Binary { subtype, bytes })
        }),
        1 => (any_name(), any_name()).prop_map(|(pattern, options)| RawBson::RegularExpression(Regex { pattern, options })),
        1 => any_text().prop_map(RawBson::JavaScriptCode),
    ]
}

fn any_value() -> impl Strategy<Value = RawBson> {
    any_scalar().prop_recursive(3, 12, 4, |inner| {
        let fields = proptest::collection::vec((any_name(), inner.clone()), 0..4);
        let document = fields
            .prop_map(|fields| {
                let mut document = RawDocumentBuf::new();
                for (name, value) in fields {
                    document.append(name, value);
                }
                document
            })
            .boxed();
        prop_oneof![
            document.clone().prop_map(RawBson::Document),
            proptest::collection::vec(inner, 0..4).prop_map(|values| {
                let mut array = RawArrayBuf::new();
                for value in values {
                    array.push(value);
                }
                RawBson::Array(array)
            }),
            (any_text(), document).prop_map(|(code, scope)| {
                RawBson::JavaScriptCodeWithScope(bson::RawJavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

fn any_direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_order_of_keys_is_the_order_of_values(a in any_value(), b in any_value(), direction in any_direction()) {
        let wanted = order::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref());
        let wanted = if direction == Direction::Descending { wanted.reverse() } else { wanted };
        prop_assert_eq!(key_of(&a, direction).0.cmp(&key_of(&b, direction).0), wanted);
    }

    #[test]
    fn numbers_keep_their_order(a in any_number(), b in any_number()) {
        let wanted = order::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref());
        prop_assert_eq!(key_of(&a, Direction::Ascending).0.cmp(&key_of(&b, Direction::Ascending).0), wanted);
    }

    #[test]
    fn decoding_returns_the_encoded_value(a in any_value(), b in any_value(), up in any_direction(), down in any_direction()) {
        let (mut key, mut bits) = key_of(&a, up);
        encode_typed(b.as_raw_bson_ref(), down, &mut key, &mut bits);
        let values = decode(&key, &bits, &[up, down]).unwrap();
        prop_assert_eq!(bytes_of(&values[0]), bytes_of(&a));
        prop_assert_eq!(bytes_of(&values[1]), bytes_of(&b));
    }

    #[test]
    fn compound_keys_compare_component_by_component(
        first in proptest::array::uniform2(any_value()),
        second in proptest::array::uniform2(any_value()),
        directions in proptest::array::uniform2(any_direction()),
    ) {
        let key = |values: &[RawBson; 2]| {
            encode_compound(values.iter().map(RawBson::as_raw_bson_ref).zip(directions))
        };
        let wanted = (0..2).map(|component| {
            let order = order::compare(first[component].as_raw_bson_ref(), second[component].as_raw_bson_ref());
            if directions[component] == Direction::Descending { order.reverse() } else { order }
        }).find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        prop_assert_eq!(key(&first).cmp(&key(&second)), wanted);
    }

    #[test]
    fn no_key_is_a_prefix_of_another(a in any_value(), b in any_value()) {
        let (a, b) = (key_of(&a, Direction::Ascending).0, key_of(&b, Direction::Ascending).0);
        prop_assert!(a == b || !b.starts_with(&a));
    }

    #[test]
    fn a_type_range_holds_its_type_and_no_other(a in any_value(), b in any_value()) {
        let (from, to) = type_range(a.as_raw_bson_ref());
        let key = key_of(&b, Direction::Ascending).0;
        let same = order::type_rank(a.as_raw_bson_ref()) == order::type_rank(b.as_raw_bson_ref());
        prop_assert_eq!(key >= from && key < to, same);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(key in proptest::collection::vec(any::<u8>(), 0..64), bits in proptest::collection::vec(any::<u8>(), 0..16)) {
        let mut decoder = Decoder::new(&key, &bits);
        while decoder.next(Direction::Ascending).is_ok() && !decoder.rest().is_empty() {}
    }
}

#[test]
fn an_empty_array_is_below_null_and_above_the_smallest_key() {
    let mut empty = Vec::new();
    encode_empty_array(Direction::Ascending, &mut empty);
    assert!(empty < key_of(&RawBson::Null, Direction::Ascending).0);
    assert!(empty > key_of(&RawBson::MinKey, Direction::Ascending).0);
}

#[test]
fn a_deep_key_is_refused_without_recursion() {
    let key = vec![tag::ARRAY; 100_000];
    let error = Decoder::new(&key, &[]).next(Direction::Ascending).unwrap_err();
    assert_eq!(error.code(), crate::Code::DataCorruptionDetected);
}

#[test]
fn the_common_keys_are_short() {
    assert_eq!(key_of(&rawbson!(1), Direction::Ascending).0.len(), 10);
    assert_eq!(key_of(&rawbson!("abc"), Direction::Ascending).0.len(), 6);
}
