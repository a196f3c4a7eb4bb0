//! `$dateDiff`: how many boundaries of a unit lie between two dates (so from 23:59 to 0:01 is one day).

use bson::RawBsonRef;

use super::{
    arguments::{instant, unit, zone},
    civil::{Civil, MILLIS_A_MINUTE, MILLIS_A_SECOND, MILLIS_AN_HOUR},
    unit::{Unit, week_start},
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
struct Difference {
    start: Node,
    end: Node,
    unit: Node,
    zone: Option<Node>,
    week_start: Option<Node>,
}

pub(super) fn compile(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(5_166_301), unknown: Code(5_166_302) };
    let names = ["startDate", "endDate", "unit", "timezone", "startOfWeek"];
    let [start, end, unit, zone, week_start] = compiler.named("$dateDiff", argument, names, &errors)?;
    Ok(Node::lazy(Difference {
        start: required(start, "$dateDiff", "startDate", 5_166_303)?,
        end: required(end, "$dateDiff", "endDate", 5_166_304)?,
        unit: required(unit, "$dateDiff", "unit", 5_166_305)?,
        zone,
        week_start,
    }))
}

/// Returns the first day of the week an argument names: `default` if there is none, `None` for null.
pub(super) fn week_start_of(
    operator: &str,
    node: Option<&Node>,
    default: i64,
    scope: Scope<'_>,
) -> Result<Option<i64>> {
    let Some(node) = node else { return Ok(Some(default)) };
    let value = node.evaluate(scope)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let Some(name) = value.as_str() else {
        return Err(Error::new(
            Code(5_439_015),
            format!("{operator} requires 'startOfWeek' to be a string, but got {}", value.type_name()),
        ));
    };
    week_start(name).map(Some).ok_or_else(|| {
        let text = format!("{operator} parameter 'startOfWeek' value cannot be recognized as a day of a week: {name}");
        Error::new(Code(5_439_016), text)
    })
}

impl LazyOperator for Difference {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let (start, end) = (self.start.evaluate(scope)?, self.end.evaluate(scope)?);
        let unit = unit("$dateDiff", &self.unit, scope)?;
        let zone = zone("$dateDiff", self.zone.as_ref(), scope)?;
        let week_start = match unit {
            Some(Unit::Week) => week_start_of("$dateDiff", self.week_start.as_ref(), SUNDAY, scope)?,
            _ => Some(SUNDAY),
        };
        let date = |value: &Value<'_>, name: &str| {
            instant(value).map_err(|_| {
                Error::new(
                    Code(5_166_307),
                    format!("$dateDiff requires '{name}' to be a date, but got {}", value.type_name()),
                )
            })
        };
        let (start, end) = (date(&start, "startDate")?, date(&end, "endDate")?);
        let (Some(start), Some(end), Some(unit), Some(zone), Some(week_start)) = (start, end, unit, zone, week_start)
        else {
            return Ok(Value::NULL);
        };
        let count = difference(start, end, unit, &zone, week_start)
            .ok_or_else(|| Error::new(Code(5_166_308), "$dateDiff overflowed".to_owned()))?;
        Ok(count.into())
    }
}

/// The default first day of a week in `$dateDiff` and `$dateTrunc`, in days after Monday.
pub(super) const SUNDAY: i64 = 6;

fn difference(start: i64, end: i64, unit: Unit, zone: &Zone, week_start: i64) -> Option<i64> {
    let (from, to) = (Civil::from_millis(zone.local(start)), Civil::from_millis(zone.local(end)));
    let months = |civil: &Civil| civil.year * 12 + civil.month - 1;
    let weeks = |civil: &Civil| (civil.days + 3 - week_start).div_euclid(7);
    // Hours and shorter units are counted in elapsed time, with the boundaries of the local clock.
    let exact = |length: i64| {
        let boundary = |millis: i64| Some(millis.checked_add(zone.offset_at(start))?.div_euclid(length));
        boundary(end)?.checked_sub(boundary(start)?)
    };
    match unit {
        Unit::Year => Some(to.year - from.year),
        Unit::Quarter => Some(months(&to).div_euclid(3) - months(&from).div_euclid(3)),
        Unit::Month => Some(months(&to) - months(&from)),
        Unit::Week => Some(weeks(&to) - weeks(&from)),
        Unit::Day => Some(to.days - from.days),
        Unit::Hour => exact(MILLIS_AN_HOUR),
        Unit::Minute => exact(MILLIS_A_MINUTE),
        Unit::Second => exact(MILLIS_A_SECOND),
        Unit::Millisecond => end.checked_sub(start),
    }
}
