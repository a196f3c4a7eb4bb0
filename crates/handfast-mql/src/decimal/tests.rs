use bson::Decimal128;
use proptest::prelude::*;

use super::{BIAS, COEFFICIENT_MAX, DIGITS_MAX, Decimal, EXPONENT_MAX, EXPONENT_MIN, Rounding};

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

#[test]
fn text_round_trips_as_the_bson_specification_writes_it() {
    for text in [
        "0",
        "-0",
        "1",
        "-1",
        "1.5",
        "0.001234",
        "0.00000012345",
        "1E+3",
        "1.05E+3",
        "1.05E-9",
        "12345678901234567",
        "0.1000000000000000000000000000000000",
        "1.234567890123456789012345678901234E-6143",
        "1E-6176",
        "0E-6176",
        "0E+6111",
        "9.999999999999999999999999999999999E+6144",
        "Infinity",
        "-Infinity",
        "NaN",
        "0.000001",
        "1E-7",
    ] {
        let read = decimal(text);
        let written = if text == "0.00000012345" { "1.2345E-7" } else { text };
        assert_eq!(read.to_string(), written);
        assert_eq!(read.encode().to_string(), written, "bson reads the bytes of {text} differently");
        assert_eq!(Decimal::decode(read.encode()), read);
    }
}

/// The digits are those of the exponential function of these numbers as tables have them, rounded.
#[test]
fn powers_of_e_have_34_digits() {
    for (text, expected) in [
        ("0", "1"),
        ("-0", "1"),
        ("0E+6111", "1"),
        ("1E-6143", "1"),
        ("-1E-6143", "1"),
        ("1", "2.718281828459045235360287471352662"),
        ("-1", "0.3678794411714423215955237701614609"),
        ("0.5", "1.648721270700128146848650787814164"),
        ("2", "7.389056098930650227230427460575008"),
        ("10", "22026.46579480671651695790064528424"),
        ("1E+2", "2.688117141816135448412625551580014E+43"),
        ("1E+6144", "Infinity"),
        ("14150", "Infinity"),
        ("-14230", "0E-6176"),
        ("-9.999999999999999999999999999999999E+6144", "0E-6176"),
        ("Infinity", "Infinity"),
        ("-Infinity", "0"),
        ("NaN", "NaN"),
    ] {
        assert_eq!(decimal(text).exponential().to_string(), expected, "{text}");
    }
}

#[test]
fn text_beyond_the_format_is_rounded() {
    for (text, expected) in [
        ("10000000000000000000000000000000005", "1.000000000000000000000000000000000E+34"),
        ("10000000000000000000000000000000015", "1.000000000000000000000000000000002E+34"),
        (
            "100000000000000000000000000000000050000000000000000000000000000001",
            "1.000000000000000000000000000000001E+65",
        ),
        ("1000000000000000000000000000000000500000001", "1.000000000000000000000000000000001E+42"),
        ("99999999999999999999999999999999995", "1.000000000000000000000000000000000E+35"),
        ("1E+6145", "Infinity"),
        ("-1E+99999999999999999999", "-Infinity"),
        ("1E-6177", "0E-6176"),
        ("6E-6177", "1E-6176"),
        ("5E-6177", "0E-6176"),
        ("15E-6177", "2E-6176"),
        ("1E-99999999999999999999", "0E-6176"),
        ("0E+99999999", "0E+6111"),
        ("1E+6112", "1.0E+6112"),
        ("inf", "Infinity"),
        ("-nAn", "NaN"),
        ("+.5", "0.5"),
        ("5.", "5"),
    ] {
        assert_eq!(decimal(text).to_string(), expected, "{text}");
    }
    for text in ["", ".", "-", "1e", "1e+", "1.2.3", "0x10", " 1", "1 ", "--1", "1_0", "é"] {
        assert!(text.parse::<Decimal>().is_err(), "{text}");
    }
}

#[test]
fn arithmetic_keeps_the_exponent_that_ieee_754_prefers() {
    type Operation = fn(Decimal, Decimal) -> Decimal;
    let cases: &[(&str, Operation, &str, &str)] = &[
        ("1.10", Decimal::add, "2.20", "3.30"),
        ("1", Decimal::add, "0E-3", "1.000"),
        ("0E+3", Decimal::add, "1", "1"),
        ("0E+3", Decimal::add, "0E-2", "0.00"),
        ("-0", Decimal::add, "-0", "-0"),
        ("-0", Decimal::add, "0", "0"),
        ("5", Decimal::subtract, "5", "0"),
        ("1", Decimal::add, "1E-40", "1.000000000000000000000000000000000"),
        ("1", Decimal::subtract, "1E-40", "1.000000000000000000000000000000000"),
        ("1", Decimal::subtract, "1E-34", "0.9999999999999999999999999999999999"),
        ("1", Decimal::subtract, "5E-35", "1.000000000000000000000000000000000"),
        ("1", Decimal::subtract, "6E-35", "0.9999999999999999999999999999999999"),
        ("1E+6111", Decimal::add, "1E-6176", "1.000000000000000000000000000000000E+6111"),
        ("9.999999999999999999999999999999999E+6144", Decimal::add, "9E+6144", "Infinity"),
        ("Infinity", Decimal::subtract, "Infinity", "NaN"),
        ("Infinity", Decimal::add, "-1", "Infinity"),
        ("1.20", Decimal::multiply, "2", "2.40"),
        ("-0", Decimal::multiply, "5", "-0"),
        (
            "9999999999999999999999999999999999",
            Decimal::multiply,
            "9999999999999999999999999999999999",
            "9.999999999999999999999999999999998E+67",
        ),
        ("1E+6000", Decimal::multiply, "1E+6000", "Infinity"),
        ("1E-6000", Decimal::multiply, "1E-6000", "0E-6176"),
        ("Infinity", Decimal::multiply, "0", "NaN"),
        ("-Infinity", Decimal::multiply, "2", "-Infinity"),
        ("1", Decimal::divide, "3", "0.3333333333333333333333333333333333"),
        ("2", Decimal::divide, "3", "0.6666666666666666666666666666666667"),
        ("1", Decimal::divide, "4", "0.25"),
        ("6", Decimal::divide, "2", "3"),
        ("100", Decimal::divide, "10", "10"),
        ("1", Decimal::divide, "0", "Infinity"),
        ("-1", Decimal::divide, "0", "-Infinity"),
        ("0", Decimal::divide, "0", "NaN"),
        ("1", Decimal::divide, "Infinity", "0E-6176"),
        ("7.5", Decimal::remainder, "2", "1.5"),
        ("-7.5", Decimal::remainder, "2", "-1.5"),
        ("1E+6111", Decimal::remainder, "7", "6"),
        ("1", Decimal::remainder, "1E+6111", "1"),
        ("1", Decimal::remainder, "0", "NaN"),
    ];
    for (a, operation, b, expected) in cases {
        assert_eq!(operation(decimal(a), decimal(b)).to_string(), *expected, "{a} {b}");
    }
}

#[test]
fn doubles_are_converted_with_fifteen_digits() {
    for (double, expected) in [
        (1000.55, "1000.55000000000"),
        (9_999_999.5, "9999999.50000000"),
        (0.1, "0.100000000000000"),
        (-2.5, "-2.50000000000000"),
        (1e300, "1.00000000000000E+300"),
        (0.0, "0"),
        (-0.0, "-0"),
        (f64::INFINITY, "Infinity"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(Decimal::from_f64(double).to_string(), expected);
    }
    assert_eq!(Decimal::from_f64_all_digits(0.1).to_string(), "0.1000000000000000055511151231257827");
}

#[test]
fn coefficients_beyond_the_format_count_as_zero() {
    // The value has a long form, and a short form with 10^34.
    let long = Decimal::decode(Decimal128::from_bytes((0b11 << 125 | 1_u128 << 111).to_le_bytes()));
    let short = Decimal::decode(Decimal128::from_bytes(((BIAS as u128) << 113 | 10_u128.pow(34)).to_le_bytes()));
    assert!(long.is_zero() && short.is_zero());
}

#[test]
fn integers_survive_the_conversion() {
    for integer in [0, 1, -1, i64::MAX, i64::MIN, 1_000_000] {
        assert_eq!(Decimal::from(integer).to_i64_exact(), Some(integer));
    }
    assert_eq!(decimal("1E+18").to_i64_exact(), Some(1_000_000_000_000_000_000));
    assert_eq!(decimal("9223372036854775808").to_i64_exact(), None);
    assert_eq!(decimal("2.5").to_i64_exact(), None);
    assert_eq!(decimal("2.5").to_i64(Rounding::HalfEven), Some(2));
    assert_eq!(decimal("-2.5").to_i64(Rounding::Floor), Some(-3));
    assert_eq!(decimal("-2.5").to_i64(Rounding::Ceiling), Some(-2));
    assert_eq!(decimal("0E+6000").to_i64_exact(), Some(0));
    assert_eq!(decimal("1E+6000").to_i64_exact(), None);
}

/// Generates any stored form: random bits are nearly always a NaN or a huge number, so most are made from parts.
pub(crate) fn any_decimal() -> impl Strategy<Value = Decimal> {
    let coefficient = prop_oneof![
        0..1000_u128,
        (0..=DIGITS_MAX).prop_map(|power| 10_u128.pow(power).min(COEFFICIENT_MAX)),
        (0..DIGITS_MAX, 1..100_u128).prop_map(|(power, factor)| (10_u128.pow(power) * factor).min(COEFFICIENT_MAX)),
        0..=COEFFICIENT_MAX,
        COEFFICIENT_MAX - 10..=COEFFICIENT_MAX,
    ];
    let exponent =
        prop_oneof![-40..40, EXPONENT_MIN..EXPONENT_MIN + 40, EXPONENT_MAX - 40..=EXPONENT_MAX, -6176..=6111];
    let finite = (any::<bool>(), coefficient, exponent)
        .prop_map(|(negative, coefficient, exponent)| Decimal::new(negative, coefficient, exponent));
    prop_oneof![
        20 => finite,
        1 => any::<bool>().prop_map(|negative| Decimal::Infinity { negative }),
        1 => Just(Decimal::NaN),
        1 => any::<u128>().prop_map(|bits| Decimal::decode(Decimal128::from_bytes(bits.to_le_bytes()))),
    ]
}

proptest! {
    /// e^a e^b = e^(a+b), within some units of the last digit, and e^x of a double is its exponential.
    #[test]
    fn powers_of_e_multiply_as_their_exponents_add(a in -700_000_i64..700_000, b in -700_000_i64..700_000) {
        let thousandths = |number: i64| Decimal::new(number < 0, u128::from(number.unsigned_abs()), -3);
        let (one, other) = (thousandths(a), thousandths(b));
        let product = one.exponential().multiply(other.exponential());
        let sum = one.add(other).exponential();
        let error = product.subtract(sum).divide(sum).absolute();
        prop_assert!(error.compare(Decimal::new(false, 4, -33)).is_le(), "{a}, {b}: {product} is not {sum}");
        let double = (a as f64 / 1000.0).exp();
        if double.is_normal() {
            prop_assert!((one.exponential().to_f64() / double - 1.0).abs() < 1e-12, "{a}");
        }
    }

    #[test]
    fn stored_form_and_text_round_trip(a in any_decimal()) {
        prop_assert_eq!(Decimal::decode(a.encode()), a);
        prop_assert_eq!(a.to_string().parse::<Decimal>().unwrap(), a);
        prop_assert_eq!(a.to_string(), a.encode().to_string());
        prop_assert!(a.normalize().compare(a).is_eq());
    }

    #[test]
    fn no_bits_panic(a in any::<u128>(), b in any::<u128>()) {
        let (a, b) = (Decimal::decode(Decimal128::from_bytes(a.to_le_bytes())), Decimal::decode(Decimal128::from_bytes(b.to_le_bytes())));
        for result in [a.add(b), a.subtract(b), a.multiply(b), a.divide(b), a.remainder(b), a.round(3, Rounding::Floor)] {
            prop_assert_eq!(Decimal::decode(result.encode()), result);
        }
    }

    #[test]
    fn small_arithmetic_agrees_with_integers(a in -1_000_000_000_i64..1_000_000_000, b in -1_000_000_000_i64..1_000_000_000) {
        let (x, y) = (Decimal::from(a), Decimal::from(b));
        prop_assert_eq!(x.add(y).to_i64_exact(), Some(a + b));
        prop_assert_eq!(x.subtract(y).to_i64_exact(), Some(a - b));
        prop_assert_eq!(x.multiply(y).to_i64_exact(), Some(a * b));
        prop_assert_eq!(x.compare(y), a.cmp(&b));
        if b != 0 {
            prop_assert_eq!(x.remainder(y).to_i64_exact(), Some(a % b));
            prop_assert_eq!(x.divide(y).to_i64(Rounding::Truncate), Some(a / b));
        }
    }

    /// Sums, differences and products are compared with exact rational arithmetic in 10^-k units of i128.
    #[test]
    fn rounding_is_to_the_nearest(a in any::<i64>(), b in any::<i64>(), c in 1..1_000_000_i64) {
        // a * b has up to 38 digits: the product is exact in i128, and the decimal must be the nearest of 34 digits.
        let exact = i128::from(a) * i128::from(b);
        let rounded = Decimal::from(a).multiply(Decimal::from(b));
        if let Decimal::Finite { coefficient, exponent, .. } = rounded {
            let unit = 10_u128.pow(u32::try_from(exponent.max(0)).unwrap());
            let error = (coefficient * unit).abs_diff(exact.unsigned_abs());
            prop_assert!(error * 2 <= unit && (error * 2 < unit || coefficient % 2 == 0 || error == 0));
        }
        // q = a / c: |q * c - a| is at most half a unit of q's last digit, times c.
        let quotient = Decimal::from(a).divide(Decimal::from(c));
        let back = quotient.multiply(Decimal::from(c)).subtract(Decimal::from(a)).absolute();
        prop_assert!(back.compare(Decimal::from(a).absolute().multiply(decimal("1E-32"))).is_le());
    }

    #[test]
    fn the_order_of_decimals_is_total(a in any_decimal(), b in any_decimal(), c in any_decimal()) {
        prop_assert_eq!(a.compare(b), b.compare(a).reverse());
        if a.compare(b).is_le() && b.compare(c).is_le() {
            prop_assert!(a.compare(c).is_le());
        }
        if a.is_finite() && b.is_finite() {
            let difference = a.subtract(b);
            prop_assert_eq!(a.compare(b).is_eq(), difference.is_zero());
            prop_assert_eq!(a.compare(b).is_lt(), difference.is_negative() && !difference.is_zero());
        }
    }

    #[test]
    fn doubles_survive_seventeen_digits(a in any::<f64>()) {
        if a.is_finite() {
            prop_assert_eq!(Decimal::from_f64_all_digits(a).to_f64(), a);
        }
    }
}
