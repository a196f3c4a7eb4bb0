//! Reads text as dates: for `$dateFromString` and `$toDate`.
//!
//! Without a format the ISO 8601 forms are read, and a few other common ones: `2017-02-08T12:10:40.787Z`,
//! `2017-02-08 12:10 +0100`, `20170208T121040Z`, `2017-02`, `02/08/2017`, `8 Feb 2017`, `Feb 8, 2017`, `2017-039`, `2017-W06-3`.

use bson::RawBsonRef;

use super::{
    arguments::{date_value, zone},
    civil::{
        MILLIS_A_DAY, MILLIS_A_MINUTE, MILLIS_A_SECOND, MILLIS_AN_HOUR, days_in_month, days_of_date, iso_year_start,
    },
    format::MONTHS,
    zone::{Zone, parse_offset},
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
struct FromString {
    text: Node,
    format: Option<Node>,
    zone: Option<Node>,
    on_error: Option<Node>,
    on_null: Option<Node>,
}

pub(super) fn compile(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(40_540), unknown: Code(40_541) };
    let names = ["dateString", "format", "timezone", "onError", "onNull"];
    let [text, format, zone, on_error, on_null] = compiler.named("$dateFromString", argument, names, &errors)?;
    let text = required(text, "$dateFromString", "dateString", 40_542)?;
    Ok(Node::lazy(FromString { text, format, zone, on_error, on_null }))
}

impl LazyOperator for FromString {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let text = self.text.evaluate(scope)?;
        let zone = zone("$dateFromString", self.zone.as_ref(), scope)?;
        let format = self.format.as_ref().map(|node| node.evaluate(scope)).transpose()?;
        if text.is_nullish() {
            return self.on_null.as_ref().map_or(Ok(Value::NULL), |node| node.evaluate(scope));
        }
        let Some(zone) = zone.filter(|_| !format.as_ref().is_some_and(Value::is_nullish)) else {
            return Ok(Value::NULL);
        };
        let result = self.read(&text, format.as_ref(), &zone);
        match (result, &self.on_error) {
            (Ok(millis), _) => Ok(date_value(millis)),
            (Err(error), Some(node)) if error.code() == Code::ConversionFailure => node.evaluate(scope),
            (Err(error), _) => Err(error),
        }
    }
}

impl FromString {
    fn read(&self, text: &Value<'_>, format: Option<&Value<'_>>, zone: &Zone) -> Result<i64> {
        let Some(text) = text.as_str() else {
            return Err(Error::new(
                Code::ConversionFailure,
                format!(
                    "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                    text.type_name(),
                    text.show()
                ),
            ));
        };
        let parts = match format {
            None => Reader::new(text).free_form(),
            Some(format) => {
                let Some(format) = format.as_str() else {
                    return Err(Error::new(
                        Code(40_684),
                        format!(
                            "$dateFromString requires that 'format' be a string, found: {} with value {}",
                            format.type_name(),
                            format.show()
                        ),
                    ));
                };
                check_format(format)?;
                Reader::new(text).by_format(format)
            }
        };
        let parts = parts.ok_or_else(|| failed(text))?;
        if parts.zone.is_some() && self.zone.is_some() {
            return Err(Error::new(
                Code::ConversionFailure,
                format!(
                    "you cannot pass in a date/time string with time zone information ('{text}') together with a timezone argument"
                ),
            ));
        }
        parts.instant(zone).ok_or_else(|| failed(text))
    }
}

fn failed(text: &str) -> Error {
    Error::new(Code::ConversionFailure, format!("Error parsing date string '{text}'"))
}

/// Returns the instant a text without a format means.
pub(crate) fn parse_text(text: &str) -> Result<i64> {
    Reader::new(text).free_form().and_then(|parts| parts.instant(&Zone::UTC)).ok_or_else(|| failed(text))
}

fn check_format(format: &str) -> Result<()> {
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            continue;
        }
        match letters.next() {
            Some('%' | 'b' | 'B' | 'd' | 'G' | 'H' | 'j' | 'L' | 'm' | 'M' | 'S' | 'u' | 'V' | 'Y' | 'z' | 'Z') => {}
            Some(other) => {
                return Err(Error::new(Code(18_536), format!("Invalid format character '%{other}' in format string")));
            }
            None => return Err(Error::new(Code(18_535), "Unmatched '%' at end of format string")),
        }
    }
    Ok(())
}
#[derive(Debug, Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
    second: Option<i64>,
    millisecond: Option<i64>,
    zone: Option<Zone>,
}

impl Parts {
    fn days(&self) -> Option<i64> {
        if let Some(year) = self.iso_year {
            if self.year.is_some() || self.month.is_some() || self.day.is_some() {
                return None;
            }
            let (week, day) = (self.iso_week.unwrap_or(1), self.iso_day.unwrap_or(1));
            let valid = (1..=53).contains(&week) && (1..=7).contains(&day);
            return valid.then(|| iso_year_start(year) + (week - 1) * 7 + day - 1);
        }
        let year = self.year?;
        if let Some(day) = self.day_of_year {
            return (1..=366).contains(&day).then(|| days_of_date(year, 1, 1) + day - 1);
        }
        let (month, day) = (self.month?, self.day.unwrap_or(1));
        if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
            return None;
        }
        Some(days_of_date(year, month, day))
    }

    fn instant(&self, zone: &Zone) -> Option<i64> {
        let hour = self.hour.unwrap_or(0);
        let minute = self.minute.unwrap_or(0);
        let second = self.second.unwrap_or(0);
        if hour > 24 || minute > 59 || second > 60 || (hour == 24 && (minute, second) != (0, 0)) {
            return None;
        }
        let local = self.days()? * MILLIS_A_DAY
            + hour * MILLIS_AN_HOUR
            + minute * MILLIS_A_MINUTE
            + second * MILLIS_A_SECOND
            + self.millisecond.unwrap_or(0);
        Some(self.zone.as_ref().unwrap_or(zone).instant(local))
    }
}

/// Reads a text from the left; every step says `None` if it does not fit.
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Reader { rest: text }
    }

    /// Reads between `low` and `high` digits.
    fn digits(&mut self, low: usize, high: usize) -> Option<i64> {
        let count = self.rest.bytes().take(high).take_while(u8::is_ascii_digit).count();
        if count < low {
            return None;
        }
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        digits.parse().ok()
    }

    fn consume(&mut self, text: char) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    /// Reads the English name of a month, whole or its first three letters.
    fn month_name(&mut self) -> Option<i64> {
        for (index, name) in MONTHS.iter().enumerate() {
            for form in [*name, &name[..3]] {
                let matches = self.rest.get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form));
                if matches && !self.rest[form.len()..].starts_with(|c: char| c.is_ascii_alphabetic()) {
                    self.rest = &self.rest[form.len()..];
                    return Some(index as i64 + 1);
                }
            }
        }
        None
    }

    /// Reads `.787`; digits beyond milliseconds are dropped.
    fn fraction(&mut self) -> Option<i64> {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return None;
        }
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        digits.chars().chain("00".chars()).take(3).collect::<String>().parse().ok()
    }

    fn zone(&mut self) -> Option<Zone> {
        let text = std::mem::take(&mut self.rest);
        if matches!(text, "z" | "Z") {
            return Some(Zone::UTC);
        }
        let offset_at = text.find(['+', '-']);
        if let Some(at) = offset_at
            && matches!(&text[..at], "" | "GMT" | "UTC")
        {
            return parse_offset(&text[at..]).map(Zone::Offset);
        }
        Zone::parse(text).ok()
    }

    fn free_form(mut self) -> Option<Parts> {
        self.rest = self.rest.trim();
        let mut parts = Parts::default();
        self.free_date(&mut parts)?;
        if self.rest.is_empty() {
            return Some(parts);
        }
        if self.consume('Z') {
            parts.zone = Some(Zone::UTC);
            return self.rest.is_empty().then_some(parts);
        }
        if !(self.consume('T') || self.consume('t') || self.consume(' ')) {
            return None;
        }
        self.skip_spaces();
        self.free_time(&mut parts)?;
        self.skip_spaces();
        if !self.rest.is_empty() {
            parts.zone = Some(self.zone()?);
        }
        Some(parts)
    }

    fn free_date(&mut self, parts: &mut Parts) -> Option<()> {
        if let Some(month) = self.month_name() {
            // Feb 8, 2017
            parts.month = Some(month);
            self.skip_spaces();
            parts.day = Some(self.digits(1, 2)?);
            self.consume(',');
            self.skip_spaces();
            parts.year = Some(self.digits(4, 4)?);
            return Some(());
        }
        let leading = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        match leading {
            8 => {
                parts.year = Some(self.digits(4, 4)?);
                parts.month = Some(self.digits(2, 2)?);
                parts.day = Some(self.digits(2, 2)?);
            }
            4 => {
                let year = self.digits(4, 4)?;
                self.after_year(year, parts)?;
            }
            1 | 2 => {
                let first = self.digits(1, 2)?;
                if self.consume('/') {
                    // 02/08/2017: month first
                    parts.month = Some(first);
                    parts.day = Some(self.digits(1, 2)?);
                    if !self.consume('/') {
                        return None;
                    }
                } else {
                    // 8 Feb 2017, 8-Feb-2017
                    parts.day = Some(first);
                    let _ = self.consume('-') || self.consume(' ');
                    parts.month = Some(self.month_name()?);
                    let _ = self.consume('-') || self.consume(' ');
                }
                parts.year = Some(self.digits(4, 4)?);
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads `-02-08`, `-02`, `-039`, `-W06-3`, `/02/08`.
    fn after_year(&mut self, year: i64, parts: &mut Parts) -> Option<()> {
        let separator = if self.consume('-') {
            '-'
        } else if self.consume('/') {
            '/'
        } else {
            return None;
        };
        if self.consume('W') {
            parts.iso_year = Some(year);
            parts.iso_week = Some(self.digits(2, 2)?);
            if self.consume('-') {
                parts.iso_day = Some(self.digits(1, 1)?);
            }
            return Some(());
        }
        parts.year = Some(year);
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if count == 3 && separator == '-' {
            parts.day_of_year = Some(self.digits(3, 3)?);
            return Some(());
        }
        parts.month = Some(self.digits(1, 2)?);
        if self.consume(separator) {
            parts.day = Some(self.digits(1, 2)?);
        }
        Some(())
    }

    /// Reads `12:10`, `12:10:40`, `12:10:40.787`, `121040`, `12`, with `am` or `pm`.
    fn free_time(&mut self, parts: &mut Parts) -> Option<()> {
        let run = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        parts.hour = Some(self.digits(1, 2)?);
        if run == 4 || run == 6 {
            parts.minute = Some(self.digits(2, 2)?);
            if run == 6 {
                parts.second = Some(self.digits(2, 2)?);
            }
        } else if self.consume(':') {
            parts.minute = Some(self.digits(1, 2)?);
            if self.consume(':') {
                parts.second = Some(self.digits(1, 2)?);
            }
        } else if run > 2 {
            return None;
        }
        if parts.second.is_some() && (self.consume('.') || self.consume(',')) {
            parts.millisecond = Some(self.fraction()?);
        }
        self.am_or_pm(parts)
    }

    fn am_or_pm(&mut self, parts: &mut Parts) -> Option<()> {
        let trimmed = self.rest.trim_start_matches(' ');
        // `am` must not be the beginning of `America/New_York`.
        if trimmed.as_bytes().get(2).is_some_and(u8::is_ascii_alphabetic) {
            return Some(());
        }
        let afternoon = match trimmed.get(..2) {
            Some(text) if text.eq_ignore_ascii_case("am") => false,
            Some(text) if text.eq_ignore_ascii_case("pm") => true,
            _ => return Some(()),
        };
        self.rest = &trimmed[2..];
        let hour = parts.hour.filter(|hour| (1..=12).contains(hour))?;
        parts.hour = Some(hour % 12 + if afternoon { 12 } else { 0 });
        Some(())
    }

    fn by_format(mut self, format: &str) -> Option<Parts> {
        let mut parts = Parts::default();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                if !self.consume(letter) {
                    return None;
                }
                continue;
            }
            match letters.next()? {
                '%' => self.consume('%').then_some(())?,
                'Y' => parts.year = Some(self.digits(4, 4)?),
                'G' => parts.iso_year = Some(self.digits(4, 4)?),
                'm' => parts.month = Some(self.digits(1, 2)?),
                'b' | 'B' => parts.month = Some(self.month_name()?),
                'd' => parts.day = Some(self.digits(1, 2)?),
                'j' => parts.day_of_year = Some(self.digits(1, 3)?),
                'H' => parts.hour = Some(self.digits(1, 2)?),
                'M' => parts.minute = Some(self.digits(1, 2)?),
                'S' => parts.second = Some(self.digits(1, 2)?),
                'L' => parts.millisecond = Some(self.digits(1, 3)?),
                'V' => parts.iso_week = Some(self.digits(1, 2)?),
                'u' => parts.iso_day = Some(self.digits(1, 1)?),
                'z' => parts.zone = Some(self.zone_prefix()?),
                'Z' => {
                    let sign = if self.consume('-') { -1 } else { 1 };
                    let _ = self.consume('+');
                    parts.zone = Some(Zone::Offset(sign * self.digits(1, 4)? * MILLIS_A_MINUTE));
                }
                _ => return None,
            }
        }
        self.rest.is_empty().then_some(parts)
    }

    /// Reads a zone in the middle of a text: up to the next space.
    fn zone_prefix(&mut self) -> Option<Zone> {
        let end = self.rest.find(' ').unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Reader::new(name).zone()
    }
}
