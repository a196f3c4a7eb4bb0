use bson::{Bson, DateTime, Decimal128, bson, doc};
use proptest::prelude::*;

use crate::expression::testing::{check, check_error, evaluate, fails, gives};

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

#[test]
fn sums_and_differences_have_the_widest_type() {
    gives(doc! { "$add": [1, 2] }, 3);
    gives(doc! { "$add": [] }, 0);
    gives(doc! { "$add": [1, 2_i64] }, 3_i64);
    gives(doc! { "$add": [1, 2.5] }, 3.5);
    gives(doc! { "$add": [0.1, decimal("0.2")] }, decimal("0.300000000000000"));
    gives(doc! { "$add": [i32::MAX, 1] }, 2_147_483_648_i64);
    gives(doc! { "$add": [i64::MAX, 1] }, 9_223_372_036_854_775_808.0);
    gives(doc! { "$add": [1, null, "x"] }, Bson::Null);
    check(doc! { "$add": ["$d", 1000] }, doc! { "d": DateTime::from_millis(5) }, DateTime::from_millis(1005));
    check(doc! { "$add": [0.6, "$d"] }, doc! { "d": DateTime::from_millis(5) }, DateTime::from_millis(6));
    // The numbers are rounded, half away from zero, before the date is added.
    for (number, millis) in [(-0.5, 4), (-0.51, 4), (0.5, 6), (0.49, 5), (-0.49, 5), (2.5, 8), (-0.0, 5)] {
        let date = doc! { "d": DateTime::from_millis(5) };
        check(doc! { "$add": ["$d", number] }, date, DateTime::from_millis(millis));
    }
    let date = || doc! { "d": DateTime::from_millis(-5) };
    check(doc! { "$add": [0.25, "$d", 0.25] }, date(), DateTime::from_millis(-4));
    check(doc! { "$add": ["$d", decimal("1.5")] }, date(), DateTime::from_millis(-3));
    check_error(doc! { "$add": ["$d", f64::NAN] }, date(), 15);
    // The sum of decimals has their exponent, also if it is zero.
    gives(
        doc! { "$add": [decimal("9.999999999999999999999999999999999E+6144"), decimal("-9.999999999999999999999999999999999E+6144")] },
        decimal("0E+6111"),
    );
    gives(doc! { "$add": [decimal("0E+6111")] }, decimal("0E+6111"));
    gives(doc! { "$add": [decimal("1E+3"), 0] }, decimal("1000"));
    gives(doc! { "$add": [decimal("1.10"), 2, 0.5, decimal("1")] }, decimal("4.600000000000000"));
    fails(doc! { "$add": [1, "x"] }, 14, "$add only supports numeric or date types, not string");
    check_error(doc! { "$add": ["$$NOW", "$$NOW"] }, doc! {}, 16612);
    check_error(doc! { "$add": ["$$NOW", i64::MAX] }, doc! {}, 15);
    gives(doc! { "$subtract": [5, 7] }, -2);
    gives(doc! { "$subtract": [i64::MIN, 1] }, -9_223_372_036_854_775_808.0);
    gives(doc! { "$subtract": [5, null] }, Bson::Null);
    check(
        doc! { "$subtract": ["$a", "$b"] },
        doc! { "a": DateTime::from_millis(9), "b": DateTime::from_millis(4) },
        5_i64,
    );
    check(doc! { "$subtract": ["$a", 4] }, doc! { "a": DateTime::from_millis(9) }, DateTime::from_millis(5));
    fails(doc! { "$subtract": [1, "x"] }, 14, "can't $subtract string from int");
    check_error(doc! { "$subtract": [1, "$$NOW"] }, doc! {}, 14);
}

#[test]
fn products_and_quotients_have_the_widest_type() {
    gives(doc! { "$multiply": [2, 3, 4] }, 24);
    gives(doc! { "$multiply": [i32::MAX, 2] }, 4_294_967_294_i64);
    gives(doc! { "$multiply": [2, null] }, Bson::Null);
    fails(doc! { "$multiply": [2, "x"] }, 14, "$multiply only supports numeric types, not string");
    gives(doc! { "$divide": [7, 2] }, 3.5);
    gives(doc! { "$divide": [decimal("1"), 4] }, decimal("0.25"));
    gives(doc! { "$divide": [1, null] }, Bson::Null);
    fails(doc! { "$divide": [1, 0] }, 2, "can't $divide by zero");
    fails(doc! { "$divide": ["x", 0] }, 14, "$divide only supports numeric types, not string and int");
    gives(doc! { "$mod": [7, 3] }, 1);
    gives(doc! { "$mod": [-7, 3] }, -1);
    gives(doc! { "$mod": [7.5, 2] }, 1.5);
    gives(doc! { "$mod": [i64::MIN, -1_i64] }, 0_i64);
    fails(doc! { "$mod": [1, 0] }, 16610, "can't $mod by zero");
    check_error(doc! { "$mod": [1, "x"] }, doc! {}, 16611);
}

#[test]
fn functions_of_one_number_keep_its_type() {
    gives(doc! { "$abs": -5 }, 5);
    gives(doc! { "$abs": i32::MIN }, 2_147_483_648_i64);
    gives(doc! { "$abs": -1.5 }, 1.5);
    gives(doc! { "$abs": decimal("-1.50") }, decimal("1.50"));
    check_error(doc! { "$abs": i64::MIN }, doc! {}, 28680);
    fails(doc! { "$abs": "x" }, 28765, "$abs only supports numeric types, not string");
    gives(doc! { "$abs": null }, Bson::Null);
    gives(doc! { "$sqrt": 16 }, 4.0);
    gives(doc! { "$sqrt": decimal("2") }, decimal("1.414213562373095048801688724209698"));
    gives(doc! { "$sqrt": decimal("1E+4") }, decimal("1E+2"));
    fails(doc! { "$sqrt": -1 }, 28714, "$sqrt's argument must be greater than or equal to 0");
    gives(doc! { "$exp": 0 }, 1.0);
    gives(doc! { "$exp": decimal("1") }, decimal("2.718281828459045235360287471352662"));
    gives(doc! { "$ln": 1 }, 0.0);
    gives(doc! { "$log10": 1000 }, 3.0);
    gives(doc! { "$log": [8, 2] }, 3.0);
    check_error(doc! { "$ln": 0 }, doc! {}, 28766);
    check_error(doc! { "$log10": -1 }, doc! {}, 28761);
    check_error(doc! { "$log": ["x", 2] }, doc! {}, 28756);
    check_error(doc! { "$log": [2, "x"] }, doc! {}, 28757);
    check_error(doc! { "$log": [0, 2] }, doc! {}, 28758);
    check_error(doc! { "$log": [2, 1] }, doc! {}, 28759);
    gives(doc! { "$sin": 0 }, 0.0);
    gives(doc! { "$cos": 0 }, 1.0);
    gives(doc! { "$atan2": [1, 1] }, std::f64::consts::FRAC_PI_4);
    gives(doc! { "$degreesToRadians": 180 }, std::f64::consts::PI);
    gives(doc! { "$acosh": 1 }, 0.0);
    fails(doc! { "$acos": 2 }, 50989, "cannot apply $acos to 2, value must be in [-1,1]");
    check_error(doc! { "$sin": f64::INFINITY }, doc! {}, 50989);
    check_error(doc! { "$atan2": ["x", 1] }, doc! {}, 51044);
}

#[test]
fn powers_and_logarithms_are_computed() {
    gives(doc! { "$pow": [5, 2] }, 25);
    gives(doc! { "$pow": [2, 31] }, 2_147_483_648_i64);
    gives(doc! { "$pow": [2_i64, 2] }, 4_i64);
    gives(doc! { "$pow": [2, 64] }, 18_446_744_073_709_551_616.0);
    gives(doc! { "$pow": [5, -1] }, 0.2);
    gives(doc! { "$pow": [-1, 1_000_000_001_i64] }, -1_i64);
    gives(doc! { "$pow": [4, 0.5] }, 2.0);
    gives(doc! { "$pow": [decimal("1.1"), 2] }, decimal("1.21"));
    gives(doc! { "$pow": [1, null] }, Bson::Null);
    check_error(doc! { "$pow": ["x", 1] }, doc! {}, 28762);
    check_error(doc! { "$pow": [1, "x"] }, doc! {}, 28763);
    check_error(doc! { "$pow": [0, -1] }, doc! {}, 28764);
}

#[test]
fn numbers_are_rounded_and_truncated_to_places() {
    gives(doc! { "$ceil": 1.2 }, 2.0);
    gives(doc! { "$floor": -1.2 }, -2.0);
    gives(doc! { "$ceil": 5 }, 5);
    gives(doc! { "$floor": decimal("-1.5") }, decimal("-2"));
    gives(doc! { "$ceil": decimal("-0.5") }, decimal("-0"));
    gives(doc! { "$ceil": decimal("1.0") }, decimal("1"));
    gives(doc! { "$floor": decimal("1E+3") }, decimal("1000"));
    gives(doc! { "$floor": decimal("0E+6111") }, decimal("0"));
    gives(doc! { "$ceil": decimal("1E-6143") }, decimal("1"));
    gives(doc! { "$floor": decimal("1E+33") }, decimal("1000000000000000000000000000000000"));
    for beyond in ["1E+34", "1E+6144", "-9.999999999999999999999999999999999E+6144", "Infinity", "-Infinity", "NaN"] {
        gives(doc! { "$ceil": decimal(beyond) }, decimal("NaN"));
        gives(doc! { "$floor": decimal(beyond) }, decimal("NaN"));
    }
    gives(doc! { "$round": [10.5] }, 10.0);
    gives(doc! { "$round": [11.5, 0] }, 12.0);
    gives(doc! { "$round": [19.25, 1] }, 19.2);
    gives(doc! { "$round": [28.73, -1] }, 30.0);
    gives(doc! { "$round": [34.32, 1] }, 34.3);
    gives(doc! { "$round": [1234, -2] }, 1200);
    gives(doc! { "$round": [15_i64, -1] }, 20_i64);
    gives(doc! { "$round": [decimal("2.675"), 2] }, decimal("2.68"));
    gives(doc! { "$trunc": [-7.85, 1] }, -7.8);
    gives(doc! { "$trunc": 7.85 }, 7.0);
    gives(doc! { "$trunc": [1299, -2] }, 1200);
    gives(doc! { "$round": [null, 1] }, Bson::Null);
    gives(doc! { "$round": [i32::MAX, -1] }, 2_147_483_650_i64);
    check_error(doc! { "$round": [i64::MAX, -1] }, doc! {}, 51080);
    check_error(doc! { "$round": ["x"] }, doc! {}, 51081);
    check_error(doc! { "$round": [1, 1.5] }, doc! {}, 51082);
    check_error(doc! { "$trunc": [1, 101] }, doc! {}, 51083);
    check_error(doc! { "$trunc": [1, -21] }, doc! {}, 51083);
}

#[test]
fn bit_operators_combine_integers() {
    gives(doc! { "$bitAnd": [12, 10] }, 8);
    gives(doc! { "$bitOr": [12, 10_i64] }, 14_i64);
    gives(doc! { "$bitXor": [12, 10] }, 6);
    gives(doc! { "$bitAnd": [] }, -1);
    gives(doc! { "$bitNot": 5 }, -6);
    gives(doc! { "$bitNot": 5_i64 }, -6_i64);
    gives(doc! { "$bitAnd": [1, null] }, Bson::Null);
    check_error(doc! { "$bitAnd": [1, 1.0] }, doc! {}, 14);
    check_error(doc! { "$bitNot": 1.0 }, doc! {}, 14);
    check_error(doc! { "$bitNot": "1" }, doc! {}, 28765);
}

#[test]
fn values_are_converted_between_types() {
    gives(doc! { "$toInt": "12" }, 12);
    gives(doc! { "$toInt": 1.99 }, 1);
    gives(doc! { "$toInt": true }, 1);
    gives(doc! { "$toLong": DateTime::from_millis(77) }, 77_i64);
    gives(doc! { "$toLong": "-9223372036854775808" }, i64::MIN);
    gives(doc! { "$toDouble": "1.5e3" }, 1500.0);
    gives(doc! { "$toDecimal": "1.50" }, decimal("1.50"));
    gives(doc! { "$toDecimal": 1 }, decimal("1"));
    gives(doc! { "$toBool": "false" }, true);
    gives(doc! { "$toBool": 0 }, false);
    gives(doc! { "$toString": 2.5 }, "2.5");
    gives(doc! { "$toString": 2.0 }, "2");
    gives(doc! { "$toString": 1e30 }, "1e+30");
    gives(doc! { "$toString": true }, "true");
    gives(doc! { "$toString": DateTime::from_millis(0) }, "1970-01-01T00:00:00.000Z");
    gives(doc! { "$toDate": 1000_i64 }, DateTime::from_millis(1000));
    gives(doc! { "$toDate": "2018-03-03" }, DateTime::from_millis(1_520_035_200_000));
    gives(
        doc! { "$toObjectId": "5ab9cbfa31c2ab715d42129e" },
        bson::oid::ObjectId::parse_str("5ab9cbfa31c2ab715d42129e").unwrap(),
    );
    check(doc! { "$toInt": "$x" }, doc! {}, Bson::Null);
    gives(doc! { "$convert": { "input": "x", "to": "int", "onError": "bad" } }, "bad");
    gives(doc! { "$convert": { "input": null, "to": "int", "onNull": "none" } }, "none");
    gives(doc! { "$convert": { "input": "5", "to": 16 } }, 5);
    gives(doc! { "$convert": { "input": "5", "to": null } }, Bson::Null);
    fails(
        doc! { "$toInt": "1x" },
        241,
        "Failed to parse number '1x' in $convert with no onError value: Did not consume whole string.",
    );
    fails(
        doc! { "$toInt": [bson!([1])] },
        241,
        "Unsupported conversion from array to int in $convert with no onError value",
    );
    check_error(doc! { "$toInt": 3e9 }, doc! {}, 241);
    check_error(doc! { "$toInt": f64::NAN }, doc! {}, 241);
    check_error(doc! { "$toLong": 1e19 }, doc! {}, 241);
    check_error(doc! { "$toInt": DateTime::from_millis(1) }, doc! {}, 241);
    check_error(doc! { "$toDate": 5 }, doc! {}, 241);
    check_error(doc! { "$toDate": "yesterday" }, doc! {}, 241);
    check_error(doc! { "$toObjectId": "xyz" }, doc! {}, 241);
    check_error(doc! { "$convert": { "input": 1, "to": "nothing" } }, doc! {}, 2);
    check_error(doc! { "$convert": { "input": 1, "to": "array" } }, doc! {}, 241);
    check_error(doc! { "$convert": { "input": 1 } }, doc! {}, 9);
    check_error(doc! { "$convert": { "input": 1, "to": "int", "x": 1 } }, doc! {}, 9);
}

fn binary(subtype: u8, bytes: &[u8]) -> Bson {
    Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::from(subtype), bytes: bytes.to_vec() })
}

const UUID: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const UUID_TEXT: &str = "01020304-0506-0708-090a-0b0c0d0e0f10";

#[test]
fn binary_values_are_converted_from_and_to_texts() {
    for (format, text, subtype, bytes) in [
        ("base64", "Pj4+Pg==", 0, &b">>>>"[..]),
        ("base64url", "Pj4-Pg", 0, &b">>>>"[..]),
        ("utf8", "hällo", 0, "hällo".as_bytes()),
        ("hex", "68656C6C6F", 5, &b"hello"[..]),
        ("hex", "", 0, &[]),
        ("uuid", UUID_TEXT, 4, &UUID[..]),
    ] {
        let convert = |input: Bson, to: Bson| doc! { "$convert": { "input": input, "to": to, "format": format } };
        gives(convert(binary(subtype, bytes), "string".into()), text);
        let to = bson!({ "type": "binData", "subtype": i32::from(subtype) });
        gives(convert(text.into(), to), binary(subtype, bytes));
    }
    let check_failure = |format: &str, input: Bson, to: Bson| {
        check_error(doc! { "$convert": { "input": input, "to": to, "format": format } }, doc! {}, 241);
    };
    let uuid = || bson!({ "type": "binData", "subtype": 4 });
    for (format, input) in
        [("base64", "Pj4-Pg"), ("base64", "x"), ("base64url", "Pj4+Pg"), ("hex", "123"), ("hex", "xy")]
    {
        check_failure(format, input.into(), "binData".into());
    }
    check_failure("uuid", UUID_TEXT.into(), "binData".into());
    check_failure("base64", "Pj4+Pg==".into(), uuid());
    check_failure("uuid", UUID_TEXT.replace('-', "").into(), uuid());
    check_failure("utf8", binary(0, &[0xff]), "string".into());
    check_failure("uuid", binary(4, b"short"), "string".into());
    check_failure("hex", binary(0, b"x"), bson!({ "type": "binData", "subtype": 5 }));
    gives(doc! { "$toString": binary(4, &UUID) }, UUID_TEXT);
    gives(doc! { "$toString": binary(0, b">>>>") }, "Pj4+Pg==");
    gives(doc! { "$convert": { "input": binary(0, b"x"), "to": "binData" } }, binary(0, b"x"));
    gives(doc! { "$convert": { "input": "!", "to": "binData", "format": "hex", "onError": "bad" } }, "bad");
}

#[test]
fn binary_values_are_converted_from_and_to_numbers() {
    for (number, to, little) in [
        (bson!(42), "int", &[42, 0, 0, 0][..]),
        (bson!(-1), "int", &[0xff; 4][..]),
        (bson!(42_i64), "long", &[42, 0, 0, 0, 0, 0, 0, 0][..]),
        (bson!(-2.5), "double", &[0, 0, 0, 0, 0, 0, 4, 0xc0][..]),
    ] {
        let big: Vec<u8> = little.iter().rev().copied().collect();
        gives(doc! { "$convert": { "input": number.clone(), "to": "binData" } }, binary(0, little));
        gives(
            doc! { "$convert": { "input": number.clone(), "to": { "type": 5, "subtype": 128 }, "byteOrder": "big" } },
            binary(128, &big),
        );
        gives(doc! { "$convert": { "input": binary(0, little), "to": to, "byteOrder": "little" } }, number.clone());
        gives(doc! { "$convert": { "input": binary(0, &big), "to": { "type": to }, "byteOrder": "big" } }, number);
    }
    gives(doc! { "$toInt": binary(0, &[0x18, 0xfc]) }, -1000);
    gives(doc! { "$toLong": binary(0, &[2]) }, 2_i64);
    gives(doc! { "$toDouble": binary(0, &[0, 0, 0xc0, 0x3f]) }, 1.5);
    gives(doc! { "$toBool": binary(0, b"") }, true);
    for (input, to) in [
        (binary(0, &[0; 8]), "int"),
        (binary(0, &[0; 3]), "long"),
        (binary(0, &[0; 2]), "double"),
        (binary(0, &[0; 4]), "decimal"),
        (binary(0, &[0; 4]), "date"),
        (bson!(true), "binData"),
        (decimal("1"), "binData"),
    ] {
        check_error(doc! { "$convert": { "input": input, "to": to } }, doc! {}, 241);
    }
}

#[test]
fn options_of_a_conversion_are_checked() {
    let to = |to: Bson| doc! { "$convert": { "input": 42, "to": to } };
    gives(to(bson!({ "type": "string" })), "42");
    gives(to(bson!({ "type": { "$concat": ["str", "ing"] } })), "42");
    for (wanted, code) in [
        (bson!(true), 9),
        (bson!([]), 9),
        (bson!({}), 9),
        (bson!({ "subtype": 5 }), 9),
        (bson!({ "Type": "int" }), 9),
        (bson!({ "type": null }), 9),
        (bson!({ "type": 42 }), 9),
        (bson!({ "type": "str" }), 2),
        (bson!(99), 9),
        (bson!(0), 241),
        (bson!(-1), 241),
        (bson!({ "type": "array" }), 241),
        (bson!({ "type": "binData", "subtype": 1.5 }), 4_341_106),
        (bson!({ "type": "binData", "subtype": f64::NAN }), 4_341_106),
        (bson!({ "type": "binData", "subtype": -1 }), 4_341_107),
        (bson!({ "type": "binData", "subtype": 10 }), 4_341_107),
        (bson!({ "type": "binData", "subtype": 127 }), 4_341_107),
        (bson!({ "type": "binData", "subtype": 256 }), 4_341_107),
        (bson!({ "type": "binData", "subtype": "five" }), 4_341_108),
        (bson!({ "type": "binData", "subtype": null }), 4_341_108),
    ] {
        check_error(to(wanted), doc! {}, code);
    }
    let option = |input: Bson, to: &str, name: &str, option: Bson| doc! { "$convert": { "input": input, "to": to, name: option } };
    for (format, code) in [
        (bson!("xml"), 4_341_125),
        (bson!("BASE64"), 4_341_125),
        (bson!(""), 4_341_125),
        (bson!(42), 4_341_114),
        (bson!(null), 4_341_115),
    ] {
        check_error(option("hello".into(), "binData", "format", format), doc! {}, code);
    }
    for input in [binary(0, b"hello"), binary(4, &UUID)] {
        check_error(option(input, "string", "format", Bson::Null), doc! {}, 4_341_115);
    }
    for (order, code) in [(bson!("medium"), 9_130_002), (bson!("BIG"), 9_130_002), (bson!(1), 9_130_001)] {
        check_error(option(42.into(), "binData", "byteOrder", order), doc! {}, code);
    }
    gives(option("42".into(), "int", "byteOrder", "big".into()), 42);
    check_error(option(42.into(), "int", "Format", "hex".into()), doc! {}, 9);
}

proptest! {
    #[test]
    fn integer_arithmetic_agrees_with_the_standard_library(a in any::<i32>(), b in any::<i32>()) {
        for (operator, exact) in [
            ("$add", i64::from(a) + i64::from(b)),
            ("$subtract", i64::from(a) - i64::from(b)),
            ("$multiply", i64::from(a) * i64::from(b)),
        ] {
            let expected = i32::try_from(exact).map_or(Bson::Int64(exact), Bson::Int32);
            prop_assert_eq!(evaluate(doc! { operator: [a, b] }, doc! {}).unwrap(), Some(expected));
        }
    }

    #[test]
    fn texts_of_doubles_are_parsed_back(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
        let text = evaluate(doc! { "$toString": number }, doc! {}).unwrap().unwrap();
        let back = evaluate(doc! { "$toDouble": text }, doc! {}).unwrap().unwrap();
        prop_assert_eq!(back.as_f64(), Some(number));
    }
}
