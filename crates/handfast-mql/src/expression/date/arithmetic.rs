//! `$dateAdd` and `$dateSubtract`: calendar units are added on the local calendar, hours and shorter units as elapsed time.

use bson::RawBsonRef;

use super::{
    arguments::{date_value, instant, integer, unit, zone},
    civil::{Civil, MILLIS_A_DAY, days_in_month, days_of_date},
    unit::{Length, Unit},
    zone::Zone,
};
use crate::{
    error::{Code, Error, Result},
    expression::{
        compile::{Compiler, NamedErrors},
        node::{LazyOperator, Node, Scope},
        value::Value,
    },
};

#[derive(Debug)]
struct Add {
    operator: &'static str,
    sign: i64,
    start: Node,
    unit: Node,
    amount: Node,
    zone: Option<Node>,
}

pub(super) fn compile(
    compiler: &mut Compiler<'_>,
    operator: &'static str,
    argument: RawBsonRef<'_>,
    sign: i64,
) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(5_166_400), unknown: Code(5_166_401) };
    let names = ["startDate", "unit", "amount", "timezone"];
    let [start, unit, amount, zone] = compiler.named(operator, argument, names, &errors)?;
    let (Some(start), Some(unit), Some(amount)) = (start, unit, amount) else {
        return Err(Error::new(
            Code(5_166_402),
            format!("{operator} requires startDate, unit, and amount to be present"),
        ));
    };
    Ok(Node::lazy(Add { operator, sign, start, unit, amount, zone }))
}

impl LazyOperator for Add {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let operator = self.operator;
        let start = self.start.evaluate(scope)?;
        let unit = unit(operator, &self.unit, scope)?;
        let amount = self.amount.evaluate(scope)?;
        let zone = zone(operator, self.zone.as_ref(), scope)?;
        let start = instant(&start).map_err(|_| {
            Error::new(Code(5_166_403), format!("{operator} requires startDate to be convertible to a date"))
        })?;
        let amount = integer(&amount, || {
            Error::new(Code(5_166_405), format!("{operator} expects integer amount of time units"))
        })?;
        let (Some(start), Some(unit), Some(amount), Some(zone)) = (start, unit, amount, zone) else {
            return Ok(Value::NULL);
        };
        let overflow = || Error::new(Code(5_166_406), format!("{operator} overflowed"));
        let invalid =
            |code: i32| Error::new(Code(code), format!("invalid {operator} 'amount' parameter value: {amount}"));
        // Only the negation of the smallest number fails.
        let amount = amount.checked_mul(self.sign).ok_or_else(|| invalid(6_045_000))?;
        if amount.unsigned_abs() > amount_max(unit) {
            return Err(invalid(5_976_500));
        }
        add(start, unit, amount, &zone).map(date_value).ok_or_else(overflow)
    }
}

/// The furthest years the calendar arithmetic is asked about: a BSON date spans 292 million years either way.
pub(super) const YEARS_MAX: i64 = 300_000_000;

/// Returns the number of units that no two dates are apart.
fn amount_max(unit: Unit) -> u64 {
    /// The days of the shortest month, which is the least length of a month.
    const MONTH_DAYS_MIN: i64 = 28;
    let millis = match unit.length() {
        Length::Exact(millis) | Length::Local(millis) => millis,
        Length::Months(months) => months * MONTH_DAYS_MIN * MILLIS_A_DAY,
    };
    u64::MAX / millis.unsigned_abs()
}

/// Adds units to an instant in UTC, in milliseconds; `None` if the result is no date.
pub(crate) fn add_units(start: i64, unit: Unit, amount: i64) -> Option<i64> {
    add(start, unit, amount, &Zone::UTC)
}

/// Adds units to an instant; `None` if the result is no date.
pub(super) fn add(start: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    match unit.length() {
        Length::Exact(length) => start.checked_add(amount.checked_mul(length)?),
        Length::Local(length) => {
            if let Zone::Offset(_) = zone {
                return start.checked_add(amount.checked_mul(length)?);
            }
            Some(zone.instant(zone.local(start).checked_add(amount.checked_mul(length)?)?))
        }
        Length::Months(length) => {
            let local = zone.local(start);
            let civil = Civil::from_millis(local);
            let months = (civil.year * 12 + civil.month - 1).checked_add(amount.checked_mul(length)?)?;
            let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
            if year.abs() > YEARS_MAX {
                return None;
            }
            let day = civil.day.min(days_in_month(year, month));
            let days = days_of_date(year, month, day);
            let moved = days.checked_mul(MILLIS_A_DAY)?.checked_add(local.rem_euclid(MILLIS_A_DAY))?;
            Some(zone.instant(moved))
        }
    }
}
