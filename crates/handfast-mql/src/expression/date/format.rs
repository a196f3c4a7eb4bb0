//! Formats dates as text: for `$dateToString`, and in the ISO form for conversions.

use bson::RawBsonRef;

use super::{
    arguments::{instant, zone},
    civil::{Civil, MILLIS_A_MINUTE},
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

const ISO_FORMAT: &str = "%Y-%m-%dT%H:%M:%S.%LZ";
const ISO_FORMAT_LOCAL: &str = "%Y-%m-%dT%H:%M:%S.%L";

/// Formats an instant as `2017-02-08T12:10:40.787Z`; years beyond four digits are written in full.
pub(crate) fn iso_text(millis: i64) -> String {
    let civil = Civil::from_millis(millis);
    let Civil { year, month, day, hour, minute, second, millisecond, .. } = civil;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

#[derive(Debug)]
struct ToString {
    date: Node,
    format: Option<Node>,
    zone: Option<Node>,
    on_null: Option<Node>,
}

pub(super) fn compile(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(18_629), unknown: Code(18_534) };
    let [date, format, zone, on_null] =
        compiler.named("$dateToString", argument, ["date", "format", "timezone", "onNull"], &errors)?;
    let date = required(date, "$dateToString", "date", 18_628)?;
    if let Some(format) = format.as_ref().and_then(Node::constant) {
        match format {
            RawBsonRef::String(text) => check(text)?,
            RawBsonRef::Null | RawBsonRef::Undefined => {}
            other => return Err(no_format(&Value::Ref(other))),
        }
    }
    Ok(Node::lazy(ToString { date, format, zone, on_null }))
}

fn no_format(value: &Value<'_>) -> Error {
    Error::new(
        Code(18_533),
        format!(
            "$dateToString requires that 'format' be a string, found: {} with value {}",
            value.type_name(),
            value.show()
        ),
    )
}

impl LazyOperator for ToString {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let date = self.date.evaluate(scope)?;
        let format = match &self.format {
            Some(node) => Some(node.evaluate(scope)?),
            None => None,
        };
        if format.as_ref().is_some_and(Value::is_nullish) {
            return self.null(scope);
        }
        let format = match &format {
            None => None,
            Some(value) => Some(value.as_str().ok_or_else(|| no_format(value))?),
        };
        let Some(zone) = zone("$dateToString", self.zone.as_ref(), scope)? else { return Ok(Value::NULL) };
        let Some(millis) = instant(&date)? else { return self.null(scope) };
        let format = match format {
            Some(format) => format,
            None if zone.is_utc() => ISO_FORMAT,
            None => ISO_FORMAT_LOCAL,
        };
        Ok(write(format, millis, &zone)?.into())
    }
}

impl ToString {
    fn null<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        self.on_null.as_ref().map_or(Ok(Value::NULL), |node| node.evaluate(scope))
    }
}

/// Checks the letters of a format.
fn check(format: &str) -> Result<()> {
    write(format, 0, &Zone::UTC).map(drop)
}

fn write(format: &str, millis: i64, zone: &Zone) -> Result<String> {
    let offset = zone.offset_at(millis);
    let civil = Civil::from_millis(millis.saturating_add(offset));
    let mut out = String::with_capacity(format.len() + 16);
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let Some(letter) = letters.next() else {
            return Err(Error::new(Code(18_535), "Unmatched '%' at end of format string"));
        };
        write_part(letter, &civil, offset, &mut out)?;
    }
    Ok(out)
}

fn write_part(letter: char, civil: &Civil, offset: i64, out: &mut String) -> Result<()> {
    let part = match letter {
        '%' => "%".to_owned(),
        'Y' => four_digits(civil.year)?,
        'G' => four_digits(civil.iso_week().year)?,
        'm' => format!("{:02}", civil.month),
        'd' => format!("{:02}", civil.day),
        'H' => format!("{:02}", civil.hour),
        'M' => format!("{:02}", civil.minute),
        'S' => format!("{:02}", civil.second),
        'L' => format!("{:03}", civil.millisecond),
        'j' => format!("{:03}", civil.day_of_year()),
        'w' => civil.day_of_week().to_string(),
        'u' => civil.iso_day_of_week().to_string(),
        'U' => format!("{:02}", civil.week()),
        'V' => format!("{:02}", civil.iso_week().week),
        'b' => MONTHS[civil.month as usize - 1][..3].to_owned(),
        'B' => MONTHS[civil.month as usize - 1].to_owned(),
        'z' => {
            let minutes = offset / MILLIS_A_MINUTE;
            let sign = if minutes < 0 { '-' } else { '+' };
            format!("{sign}{:02}{:02}", minutes.abs() / 60, minutes.abs() % 60)
        }
        'Z' => (offset / MILLIS_A_MINUTE).to_string(),
        other => {
            return Err(Error::new(Code(18_536), format!("Invalid format character '%{other}' in format string")));
        }
    };
    out.push_str(&part);
    Ok(())
}

fn four_digits(year: i64) -> Result<String> {
    if (0..=9999).contains(&year) {
        return Ok(format!("{year:04}"));
    }
    Err(Error::new(
        Code(18_537),
        format!("Could not convert date to string: date component was outside the supported range of 0-9999: {year}"),
    ))
}

/// The English names of months, for the format's `%B` and `%b` and for `$dateFromString`.
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
