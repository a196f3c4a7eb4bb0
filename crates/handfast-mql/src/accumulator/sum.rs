//! Sums and averages over the four numeric types.

use super::window::Merge;
use crate::{decimal::Decimal, number::Number};

/// A sum: whole numbers exactly, doubles with their rounding errors, decimals as decimals.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    whole: i128,
    /// The sum of the doubles, without the rounding error in `lost`.
    double: f64,
    lost: f64,
    decimal: Decimal,
    widest: WidestType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WidestType {
    Int,
    Long,
    Double,
    Decimal,
}

impl Default for Sum {
    fn default() -> Self {
        Sum { whole: 0, double: 0.0, lost: 0.0, decimal: Decimal::ZERO, widest: WidestType::Int }
    }
}

impl Sum {
    pub(crate) fn add(&mut self, number: Number) {
        match number {
            Number::Int(value) => self.whole = self.whole.saturating_add(i128::from(value)),
            Number::Long(value) => {
                self.whole = self.whole.saturating_add(i128::from(value));
                self.widest = self.widest.max(WidestType::Long);
            }
            Number::Double(value) => {
                self.add_double(value);
                self.widest = self.widest.max(WidestType::Double);
            }
            Number::Decimal(value) => {
                self.decimal = self.decimal.add(value);
                self.widest = WidestType::Decimal;
            }
        }
    }

    fn add_double(&mut self, value: f64) {
        let sum = self.double + value;
        if sum.is_finite() {
            // The smaller operand is the one that lost digits.
            self.lost += if self.double.abs() >= value.abs() {
                (self.double - sum) + value
            } else {
                (value - sum) + self.double
            };
        }
        self.double = sum;
    }

    /// Returns the sum of everything but the decimals, as a double.
    fn doubles(&self) -> f64 {
        if !self.double.is_finite() {
            return self.double;
        }
        // The sum of the whole numbers is added in two halves, so that no digit is lost.
        let high = self.whole as f64;
        let low = if high.abs() < 1e30 { (self.whole - high as i128) as f64 } else { 0.0 };
        let mut total = Sum { double: high, lost: low, ..Sum::default() };
        total.add_double(self.double);
        total.add_double(self.lost);
        total.double + total.lost
    }

    /// Returns the total in the widest type of the numbers: a long if an int does not hold it, a double if a long does not.
    pub(crate) fn total(&self) -> Number {
        match self.widest {
            WidestType::Decimal => Number::Decimal(self.decimal.add(self.others_as_decimal())),
            WidestType::Double => Number::Double(self.doubles()),
            widest => match (i32::try_from(self.whole), i64::try_from(self.whole)) {
                (Ok(whole), _) if widest == WidestType::Int => Number::Int(whole),
                (_, Ok(whole)) => Number::Long(whole),
                _ => Number::Double(self.whole as f64),
            },
        }
    }

    /// Returns the sum of all but the decimals. The total of doubles counts with 15 digits, as each double would.
    fn others_as_decimal(&self) -> Decimal {
        let magnitude = Decimal::new(self.whole < 0, self.whole.unsigned_abs(), 0);
        if self.double == 0.0 && self.lost == 0.0 {
            return magnitude;
        }
        magnitude.add(Decimal::from_f64(self.double + self.lost))
    }
}

impl Merge for Sum {
    fn merge(&mut self, later: &Self) {
        self.whole = self.whole.saturating_add(later.whole);
        self.add_double(later.double);
        self.lost += later.lost;
        if later.widest == WidestType::Decimal {
            self.decimal = self.decimal.add(later.decimal);
        }
        self.widest = self.widest.max(later.widest);
    }
}

/// An average: a decimal if there are decimals, else a double; none if there are no numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Average {
    sum: Sum,
    count: i64,
}

impl Average {
    pub(crate) fn add(&mut self, number: Number) {
        self.sum.add(number);
        self.count += 1;
    }

    pub(crate) fn result(&self) -> Option<Number> {
        if self.count == 0 {
            return None;
        }
        Some(match self.sum.total() {
            Number::Decimal(total) => Number::Decimal(total.divide(Decimal::from(self.count))),
            _ => Number::Double(self.sum.doubles() / self.count as f64),
        })
    }
}

impl Merge for Average {
    fn merge(&mut self, later: &Self) {
        self.sum.merge(&later.sum);
        self.count += later.count;
    }
}
