//! Units of time.

use super::civil::{MILLIS_A_DAY, MILLIS_A_MINUTE, MILLIS_A_SECOND, MILLIS_A_WEEK, MILLIS_AN_HOUR};
use crate::error::{Code, Error, Result};

/// A unit of time, as `$dateAdd`, `$dateDiff` and `$dateTrunc` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

impl Unit {
    pub(crate) fn parse(name: &str) -> Result<Unit> {
        Ok(match name {
            "year" => Unit::Year,
            "quarter" => Unit::Quarter,
            "month" => Unit::Month,
            "week" => Unit::Week,
            "day" => Unit::Day,
            "hour" => Unit::Hour,
            "minute" => Unit::Minute,
            "second" => Unit::Second,
            "millisecond" => Unit::Millisecond,
            other => return Err(Error::new(Code::FailedToParse, format!("unknown time unit value: {other}"))),
        })
    }

    /// Returns the milliseconds of a unit that always has the same length in UTC: a week or a shorter one.
    pub(crate) fn exact_millis(self) -> Option<i64> {
        match self.length() {
            Length::Months(_) => None,
            Length::Local(millis) | Length::Exact(millis) => Some(millis),
        }
    }

    pub(super) fn length(self) -> Length {
        match self {
            Unit::Year => Length::Months(12),
            Unit::Quarter => Length::Months(3),
            Unit::Month => Length::Months(1),
            Unit::Week => Length::Local(MILLIS_A_WEEK),
            Unit::Day => Length::Local(MILLIS_A_DAY),
            Unit::Hour => Length::Exact(MILLIS_AN_HOUR),
            Unit::Minute => Length::Exact(MILLIS_A_MINUTE),
            Unit::Second => Length::Exact(MILLIS_A_SECOND),
            Unit::Millisecond => Length::Exact(1),
        }
    }
}

/// The length of a unit: months vary, days vary where clocks change, hours do not.
pub(super) enum Length {
    /// A number of calendar months.
    Months(i64),
    /// A number of milliseconds on the local clock.
    Local(i64),
    /// A number of elapsed milliseconds.
    Exact(i64),
}

/// Returns the day a week begins with: days after Monday, 0 to 6.
pub(super) fn week_start(name: &str) -> Option<i64> {
    const DAYS: [(&str, &str); 7] = [
        ("monday", "mon"),
        ("tuesday", "tue"),
        ("wednesday", "wed"),
        ("thursday", "thu"),
        ("friday", "fri"),
        ("saturday", "sat"),
        ("sunday", "sun"),
    ];
    let name = name.to_ascii_lowercase();
    DAYS.iter().position(|(long, short)| name == *long || name == *short).map(|index| index as i64)
}
