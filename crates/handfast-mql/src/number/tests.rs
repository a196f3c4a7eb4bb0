use std::cmp::Ordering;

use proptest::prelude::*;

use super::{N, Number};
use crate::decimal::Decimal;

fn d(text: &str) -> Number {
    N::Decimal(text.parse().unwrap())
}

#[test]
fn results_have_the_wider_type() {
    let max = N::Int(i32::MAX);
    assert_eq!(max.add(N::Int(1)), N::Long(2_147_483_648));
    assert_eq!(N::Int(1).add(N::Long(1)), N::Long(2));
    assert_eq!(N::Int(1).add(N::Double(0.5)), N::Double(1.5));
    assert_eq!(N::Double(0.1).add(d("1")), d("1.100000000000000"));
    assert_eq!(N::Long(i64::MAX).add(N::Int(1)), N::Double(9.223_372_036_854_776e18));
    assert_eq!(N::Long(i64::MAX).checked_add(N::Int(1)), None);
    assert_eq!(N::Int(i32::MIN).subtract(N::Int(1)), N::Long(-2_147_483_649));
    assert_eq!(N::Long(i64::MAX).multiply(N::Long(2)), N::Double(1.844_674_407_370_955_2e19));
    assert_eq!(N::Long(i64::MAX).checked_multiply(N::Long(2)), None);
    assert_eq!(N::Int(i32::MIN).negate(), N::Long(2_147_483_648));
    assert_eq!(N::Long(i64::MIN).negate(), N::Double(9.223_372_036_854_776e18));
    assert_eq!(N::Int(7).divide(N::Int(2)), Some(N::Double(3.5)));
    assert_eq!(N::Int(7).divide(d("2")), Some(d("3.5")));
    assert_eq!(N::Int(7).divide(N::Double(0.0)), None);
    assert_eq!(N::Int(-7).remainder(N::Int(4)), Some(N::Int(-3)));
    assert_eq!(N::Int(i32::MIN).remainder(N::Int(-1)), Some(N::Int(0)));
    assert_eq!(N::Long(i64::MIN).remainder(N::Int(-1)), Some(N::Long(0)));
    assert_eq!(N::Double(7.5).remainder(N::Int(2)), Some(N::Double(1.5)));
    assert_eq!(N::Int(7).remainder(d("-0")), None);
}

#[test]
fn comparison_does_not_round() {
    use Ordering::{Equal, Greater, Less};
    let beyond_doubles = 9_007_199_254_740_993_i64; // 2^53 + 1
    for (a, b, expected) in [
        (N::Long(beyond_doubles), N::Double(9_007_199_254_740_992.0), Greater),
        (N::Long(i64::MAX), N::Double(9.223_372_036_854_776e18), Less),
        (N::Long(i64::MIN), N::Double(-9.223_372_036_854_776e18), Equal),
        (N::Int(1), N::Double(1.5), Less),
        (N::Int(-1), N::Double(-1.5), Greater),
        (N::Int(0), N::Double(-0.0), Equal),
        (N::Int(0), N::Double(5e-324), Less),
        (N::Double(f64::NAN), N::Double(f64::NEG_INFINITY), Less),
        (N::Double(f64::NAN), N::Long(i64::MIN), Less),
        (N::Double(f64::NAN), d("NaN"), Equal),
        (N::Double(f64::INFINITY), d("Infinity"), Equal),
        (N::Double(f64::INFINITY), d("9E+6144"), Greater),
        (N::Double(f64::MAX), d("9E+6144"), Less),
        (N::Double(0.1), d("0.1"), Greater),
        (N::Double(0.1), d("0.1000000000000000055511151231257827"), Greater),
        (N::Double(0.1), d("0.1000000000000000055511151231257828"), Less),
        (N::Double(0.5), d("0.50"), Equal),
        (N::Double(-0.5), d("-0.50"), Equal),
        (N::Double(5e-324), d("4.940656458412465441765687928682213E-324"), Greater),
        (N::Double(5e-324), d("4.940656458412465441765687928682214E-324"), Less),
        (N::Double(5e-324), d("1E-6176"), Greater),
        (N::Double(0.0), d("1E-6176"), Less),
        (N::Double(-0.0), d("0E+10"), Equal),
        (N::Double(1e22), d("1E+22"), Equal),
        (N::Double(1e23), d("1E+23"), Less),
        (N::Double(-1e23), d("-1E+23"), Greater),
        (N::Long(i64::MAX), d("9223372036854775807.5"), Less),
    ] {
        assert_eq!(a.compare(&b), expected, "{a:?} {b:?}");
        assert_eq!(b.compare(&a), expected.reverse(), "{b:?} {a:?}");
    }
}

#[test]
fn integers_are_recognised() {
    assert_eq!(N::Double(5.0).to_i64_exact(), Some(5));
    assert_eq!(N::Double(5.5).to_i64_exact(), None);
    assert_eq!(N::Double(-5.5).to_i64_truncated(), Some(-5));
    assert_eq!(N::Double(9.3e18).to_i64_truncated(), None);
    assert_eq!(N::Double(f64::NAN).to_i64_truncated(), None);
    assert_eq!(d("5.00").to_i64_exact(), Some(5));
    assert_eq!(d("5.9").to_i64_truncated(), Some(5));
}

/// Generates integers, their doubles and decimals, and their neighbours.
pub(crate) fn any_number() -> impl Strategy<Value = Number> {
    let seed = prop_oneof![
        -20..20_i64,
        any::<i32>().prop_map(i64::from),
        any::<i64>(),
        (0..63_u32).prop_map(|power| 1 << power),
        Just(i64::MIN),
        Just(i64::MAX),
    ];
    let near = (seed, -1..=1_i64, 0..8_u8).prop_map(|(seed, step, kind)| {
        let value = seed.saturating_add(step);
        match kind {
            0 => i32::try_from(value).map_or(N::Long(value), N::Int),
            1 => N::Long(value),
            2 => N::Double(value as f64),
            3 => N::Double((value as f64).next_up()),
            4 => N::Decimal(Decimal::from(value)),
            5 => N::Decimal(Decimal::from(value).add("0.5".parse().unwrap())),
            6 => N::Decimal(Decimal::from(value).multiply("1.000".parse().unwrap())),
            _ => N::Decimal(Decimal::from_f64_all_digits(value as f64 / 8.0)),
        }
    });
    prop_oneof![
        4 => near,
        1 => any::<f64>().prop_map(N::Double),
        1 => any::<f64>().prop_map(|value| N::Decimal(Decimal::from_f64_all_digits(value))),
        1 => crate::decimal::tests::any_decimal().prop_map(N::Decimal),
    ]
}

proptest! {
    #[test]
    fn the_order_of_numbers_is_total(a in any_number(), b in any_number(), c in any_number()) {
        prop_assert_eq!(a.compare(&b), b.compare(&a).reverse());
        prop_assert!(a.compare(&a).is_eq());
        if a.compare(&b).is_le() && b.compare(&c).is_le() {
            prop_assert!(a.compare(&c).is_le());
        }
        if a.compare(&b).is_eq() {
            prop_assert_eq!(a.compare(&c), b.compare(&c));
        }
    }

    /// A double with few digits equals a decimal exactly, so both comparisons must agree.
    #[test]
    fn doubles_compare_as_their_decimals(a in -1_000_000..1_000_000_i64, b in -1_000_000..1_000_000_i64, shift in 0..40_u32) {
        let (x, y) = (a as f64 / (1_u64 << shift) as f64, b as f64);
        let exact = Decimal::from_f64_all_digits(x);
        // The product has 20 bits and 40 places, so at most 60 digits; only numbers of at most 34
        // digits are exact.
        if exact.to_string().len() < 34 {
            prop_assert!(N::Double(x).compare(&N::Decimal(exact)).is_eq());
            prop_assert_eq!(N::Decimal(exact).compare(&N::Double(y)), x.partial_cmp(&y).unwrap());
        }
    }
}
