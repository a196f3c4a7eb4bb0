//! The parts of dates (`$year` .. `$isoDayOfWeek`, `$dateToParts`), and dates from parts (`$dateFromParts`).

use bson::{RawBsonRef, RawDocumentBuf, raw::cstr};

use super::{
    arguments::{date_value, instant, integer, zone},
    civil::{Civil, MILLIS_A_DAY, MILLIS_A_MINUTE, MILLIS_A_SECOND, MILLIS_AN_HOUR, days_of_date, iso_year_start},
};
use crate::{
    error::{Code, Error, Result},
    expression::{
        compile::{Compiler, NamedErrors},
        node::{LazyOperator, Node, Scope},
        value::Value,
    },
};

/// An operator that returns a part of a date, such as `$year`.
#[derive(Debug)]
struct DatePart {
    operator: &'static str,
    date: Node,
    zone: Option<Node>,
    extract: fn(&Civil) -> i64,
}

/// Compiles `{$year: <date>}`, `{$year: [<date>]}` or `{$year: {date, timezone}}`.
pub(super) fn one(
    compiler: &mut Compiler<'_>,
    operator: &'static str,
    argument: RawBsonRef<'_>,
    extract: fn(&Civil) -> i64,
) -> Result<Node> {
    let named = match argument {
        RawBsonRef::Document(document) => {
            !document.iter().flatten().next().is_some_and(|(key, _)| key.as_str().starts_with('$'))
        }
        _ => false,
    };
    if named {
        let errors = NamedErrors { no_object: Code(40_535), unknown: Code(40_535) };
        let [date, zone] = compiler.named(operator, argument, ["date", "timezone"], &errors)?;
        let date = date.ok_or_else(|| Error::new(Code(40_539), format!("missing 'date' argument to {operator}")))?;
        return Ok(Node::lazy(DatePart { operator, date, zone, extract }));
    }
    let mut arguments = compiler.arguments(argument)?;
    let count = arguments.len();
    match arguments.pop() {
        Some(date) if count == 1 => Ok(Node::lazy(DatePart { operator, date, zone: None, extract })),
        _ => Err(Error::new(
            Code(40_536),
            format!("{operator} accepts exactly one argument if given an array, but was given {count}"),
        )),
    }
}

impl LazyOperator for DatePart {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let date = self.date.evaluate(scope)?;
        let Some(zone) = zone(self.operator, self.zone.as_ref(), scope)? else { return Ok(Value::NULL) };
        let Some(millis) = instant(&date)? else { return Ok(Value::NULL) };
        let part = (self.extract)(&Civil::from_millis(zone.local(millis)));
        // The year of an ISO week is a long, all other parts are ints.
        if self.operator == "$isoWeekYear" {
            return Ok(part.into());
        }
        Ok(i32::try_from(part).map_or_else(|_| Value::from(part), Value::from))
    }
}

#[derive(Debug)]
struct ToParts {
    date: Node,
    zone: Option<Node>,
    iso: Option<Node>,
}

pub(super) fn to_parts(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(40_524), unknown: Code(40_520) };
    let [date, zone, iso] = compiler.named("$dateToParts", argument, ["date", "timezone", "iso8601"], &errors)?;
    let date = date.ok_or_else(|| Error::new(Code(40_522), "Missing 'date' parameter to $dateToParts"))?;
    Ok(Node::lazy(ToParts { date, zone, iso }))
}

impl LazyOperator for ToParts {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let date = self.date.evaluate(scope)?;
        let Some(zone) = zone("$dateToParts", self.zone.as_ref(), scope)? else { return Ok(Value::NULL) };
        let iso = match &self.iso {
            None => false,
            Some(node) => {
                let value = node.evaluate(scope)?;
                if value.is_nullish() {
                    return Ok(Value::NULL);
                }
                value.get().and_then(RawBsonRef::as_bool).ok_or_else(|| {
                    Error::new(Code(40_521), format!("iso8601 must evaluate to a bool, found {}", value.type_name()))
                })?
            }
        };
        let Some(millis) = instant(&date)? else { return Ok(Value::NULL) };
        let civil = Civil::from_millis(zone.local(millis));
        let mut parts = RawDocumentBuf::new();
        if iso {
            let week = civil.iso_week();
            parts.append(cstr!("isoWeekYear"), week.year as i32);
            parts.append(cstr!("isoWeek"), week.week as i32);
            parts.append(cstr!("isoDayOfWeek"), civil.iso_day_of_week() as i32);
        } else {
            parts.append(cstr!("year"), civil.year as i32);
            parts.append(cstr!("month"), civil.month as i32);
            parts.append(cstr!("day"), civil.day as i32);
        }
        parts.append(cstr!("hour"), civil.hour as i32);
        parts.append(cstr!("minute"), civil.minute as i32);
        parts.append(cstr!("second"), civil.second as i32);
        parts.append(cstr!("millisecond"), civil.millisecond as i32);
        Ok(parts.into())
    }
}

#[derive(Debug)]
struct FromParts {
    iso: bool,
    /// The year, month and day; or the ISO year, the week and the day of the week.
    date: [Option<Node>; 3],
    hour: Option<Node>,
    minute: Option<Node>,
    second: Option<Node>,
    millisecond: Option<Node>,
    zone: Option<Node>,
}

pub(super) fn from_parts(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    const NAMES: [&str; 11] = [
        "year",
        "month",
        "day",
        "isoWeekYear",
        "isoWeek",
        "isoDayOfWeek",
        "hour",
        "minute",
        "second",
        "millisecond",
        "timezone",
    ];
    let errors = NamedErrors { no_object: Code(40_519), unknown: Code(40_518) };
    let [year, month, day, iso_year, iso_week, iso_day, hour, minute, second, millisecond, zone] =
        compiler.named("$dateFromParts", argument, NAMES, &errors)?;
    let iso = match (&year, &iso_year) {
        (None, None) => {
            return Err(Error::new(
                Code(40_516),
                "$dateFromParts requires either 'year' or 'isoWeekYear' to be present",
            ));
        }
        (Some(_), _) if iso_year.is_some() || iso_week.is_some() || iso_day.is_some() => {
            return Err(Error::new(Code(40_489), "$dateFromParts does not allow mixing natural dates with ISO dates"));
        }
        (None, Some(_)) if month.is_some() || day.is_some() => {
            return Err(Error::new(Code(40_525), "$dateFromParts does not allow mixing ISO dates with natural dates"));
        }
        (year, _) => year.is_none(),
    };
    let date = if iso { [iso_year, iso_week, iso_day] } else { [year, month, day] };
    Ok(Node::lazy(FromParts { iso, date, hour, minute, second, millisecond, zone }))
}

/// Returns a part's number, or `default` if it is not given, or `None` if it is null.
fn part(node: Option<&Node>, name: &str, default: i64, scope: Scope<'_>) -> Result<Option<i64>> {
    let Some(node) = node else { return Ok(Some(default)) };
    let value = node.evaluate(scope)?;
    let number = integer(&value, || {
        Error::new(
            Code(40_515),
            format!("'{name}' must evaluate to an integer, found {} with value {}", value.type_name(), value.show()),
        )
    })?;
    Ok(number)
}

/// Checks MongoDB's limits: 1 to 9999 for years, 16 bits for months and the like; seconds and milliseconds only have to fit 64 bits.
fn bounded(number: i64, name: &str) -> Result<i64> {
    let (range, code, bounds) = match name {
        "year" | "isoWeekYear" => (1..=9999, 40_523, "range 1 to 9999"),
        "second" | "millisecond" => (-1_000_000_000_000_000..=1_000_000_000_000_000, 31_034, "range of 50 bits"),
        _ => (i64::from(i16::MIN)..=i64::from(i16::MAX), 31_034, "range [-32768, 32767]"),
    };
    if range.contains(&number) {
        return Ok(number);
    }
    Err(Error::new(Code(code), format!("'{name}' must evaluate to an integer in the {bounds}, found {number}")))
}

impl LazyOperator for FromParts {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let names = if self.iso { ["isoWeekYear", "isoWeek", "isoDayOfWeek"] } else { ["year", "month", "day"] };
        let nodes = [
            (self.date[0].as_ref(), names[0], 1),
            (self.date[1].as_ref(), names[1], 1),
            (self.date[2].as_ref(), names[2], 1),
            (self.hour.as_ref(), "hour", 0),
            (self.minute.as_ref(), "minute", 0),
            (self.second.as_ref(), "second", 0),
            (self.millisecond.as_ref(), "millisecond", 0),
        ];
        let mut numbers = [0; 7];
        let mut null = false;
        for (number, (node, name, default)) in numbers.iter_mut().zip(nodes) {
            match part(node, name, default, scope)? {
                Some(value) => *number = bounded(value, name)?,
                None => null = true,
            }
        }
        let zone = zone("$dateFromParts", self.zone.as_ref(), scope)?;
        let Some(zone) = zone.filter(|_| !null) else { return Ok(Value::NULL) };
        let [year, second_part, third_part, hour, minute, second, millisecond] = numbers;
        let days = if self.iso {
            iso_year_start(year) + (second_part - 1) * 7 + third_part - 1
        } else {
            // Months and days outside their ranges carry over.
            let months = year * 12 + second_part - 1;
            days_of_date(months.div_euclid(12), months.rem_euclid(12) + 1, third_part)
        };
        let local = days * MILLIS_A_DAY
            + hour * MILLIS_AN_HOUR
            + minute * MILLIS_A_MINUTE
            + second * MILLIS_A_SECOND
            + millisecond;
        Ok(date_value(zone.instant(local)))
    }
}
