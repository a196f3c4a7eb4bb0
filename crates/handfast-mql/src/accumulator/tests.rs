use crate::{Number, accumulator::Sum};

fn sum(numbers: &[f64]) -> Number {
    let mut sum = Sum::default();
    numbers.iter().for_each(|number| sum.add(Number::Double(*number)));
    sum.total()
}

#[test]
fn sums_of_doubles_have_no_rounding_errors() {
    assert_eq!(sum(&[0.1; 10]), Number::Double(1.0));
    assert_eq!(sum(&[1e100, 1.0, -1e100]), Number::Double(1.0));
    assert_eq!(sum(&[f64::INFINITY, 1.0]), Number::Double(f64::INFINITY));
    assert_eq!(sum(&[f64::MAX, f64::MAX]), Number::Double(f64::INFINITY));
}

#[test]
fn sums_of_longs_are_exact_beyond_the_range_of_longs() {
    let mut sum = Sum::default();
    for number in [i64::MAX, i64::MAX, -i64::MAX, -i64::MAX, 5] {
        sum.add(Number::Long(number));
    }
    assert_eq!(sum.total(), Number::Long(5));
    let mut sum = Sum::default();
    sum.add(Number::Int(i32::MAX));
    sum.add(Number::Int(1));
    assert_eq!(sum.total(), Number::Long(1 << 31));
    // A double among them does not make the sum of the longs inexact.
    let mut sum = Sum::default();
    for number in [Number::Long((1 << 53) + 1), Number::Double(0.0), Number::Long(-(1 << 53))] {
        sum.add(number);
    }
    assert_eq!(sum.total(), Number::Double(1.0));
}
