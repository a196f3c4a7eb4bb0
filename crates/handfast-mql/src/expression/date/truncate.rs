//! `$dateTrunc`: the beginning of the bin a date lies in; bins are counted from 2000-01-01 (weeks from the first one).

use bson::RawBsonRef;

use super::{
    arguments::{date_value, instant, integer, unit, zone},
    arithmetic::YEARS_MAX,
    civil::{Civil, MILLIS_A_DAY, days_of_date},
    difference::{SUNDAY, week_start_of},
    unit::{Length, Unit},
    zone::Zone,
};
use crate::{
    error::{Code, Error, Result},
    expression::{
        compile::{Compiler, NamedErrors, required},
        node::{LazyOperator, Node, Scope},
        value::Value,
    },
};

#[derive(Debug)]
struct Truncate {
    date: Node,
    unit: Node,
    bin: Option<Node>,
    zone: Option<Node>,
    week_start: Option<Node>,
}

pub(super) fn compile(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(5_439_007), unknown: Code(5_439_008) };
    let names = ["date", "unit", "binSize", "timezone", "startOfWeek"];
    let [date, unit, bin, zone, week_start] = compiler.named("$dateTrunc", argument, names, &errors)?;
    Ok(Node::lazy(Truncate {
        date: required(date, "$dateTrunc", "date", 5_439_009)?,
        unit: required(unit, "$dateTrunc", "unit", 5_439_010)?,
        bin,
        zone,
        week_start,
    }))
}

impl LazyOperator for Truncate {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let date = self.date.evaluate(scope)?;
        let unit = unit("$dateTrunc", &self.unit, scope)?;
        let bin = match &self.bin {
            None => Some(1),
            Some(node) => {
                let value = node.evaluate(scope)?;
                integer(&value, || {
                    Error::new(
                        Code(5_439_017),
                        format!("$dateTrunc requires 'binSize' to be a 64-bit integer, but got {}", value.show()),
                    )
                })?
            }
        };
        let zone = zone("$dateTrunc", self.zone.as_ref(), scope)?;
        let week_start = match unit {
            Some(Unit::Week) => week_start_of("$dateTrunc", self.week_start.as_ref(), SUNDAY, scope)?,
            _ => Some(SUNDAY),
        };
        let millis = instant(&date).map_err(|_| {
            Error::new(
                Code(5_439_012),
                format!("$dateTrunc requires 'date' to be a date, but got {}", date.type_name()),
            )
        })?;
        let (Some(millis), Some(unit), Some(bin), Some(zone), Some(week_start)) = (millis, unit, bin, zone, week_start)
        else {
            return Ok(Value::NULL);
        };
        if bin <= 0 {
            return Err(Error::new(
                Code(5_439_018),
                format!("$dateTrunc requires 'binSize' to be greater than 0, but got {bin}"),
            ));
        }
        truncate(millis, unit, bin, &zone, week_start)
            .map(date_value)
            .ok_or_else(|| Error::new(Code(5_439_020), "$dateTrunc overflowed".to_owned()))
    }
}

/// The year of the date from which bins are counted: 2000-01-01, a Saturday.
const REFERENCE_YEAR: i64 = 2000;

fn truncate(millis: i64, unit: Unit, bin: i64, zone: &Zone, week_start: i64) -> Option<i64> {
    let local = zone.local(millis);
    let reference = days_of_date(REFERENCE_YEAR, 1, 1);
    let floor = |value: i64, origin: i64, length: i64| {
        origin.checked_add(value.checked_sub(origin)?.div_euclid(length).checked_mul(length)?)
    };
    match unit.length() {
        Length::Months(months) => {
            let civil = Civil::from_millis(local);
            let month = floor(civil.year * 12 + civil.month - 1, REFERENCE_YEAR * 12, months.checked_mul(bin)?)?;
            let year = month.div_euclid(12);
            if year.abs() > YEARS_MAX {
                return None;
            }
            let days = days_of_date(year, month.rem_euclid(12) + 1, 1);
            Some(zone.instant(days.checked_mul(MILLIS_A_DAY)?))
        }
        Length::Local(length) => {
            let origin = if unit == Unit::Week {
                // The first week that begins on or after the reference day.
                reference + (week_start - (reference + 3)).rem_euclid(7)
            } else {
                reference
            };
            let start = floor(local, origin * MILLIS_A_DAY, length.checked_mul(bin)?)?;
            Some(zone.instant(start))
        }
        Length::Exact(length) => {
            // Hours and shorter units are counted in elapsed time, from the reference in this zone.
            let origin = zone.instant(reference * MILLIS_A_DAY);
            floor(millis, origin, length.checked_mul(bin)?)
        }
    }
}
