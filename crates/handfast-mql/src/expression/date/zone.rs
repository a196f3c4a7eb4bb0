//! Time zones: offsets from UTC (`+05:30`) and names of the tz database (`Europe/Berlin`).
//!
//! The names come from `jiff` with its tables compiled in: the answer does not depend on the machine, nothing is read
//! from a file. Beyond the years jiff covers (-9999 to 9999) the zone's offset at the nearest end applies.

use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};

use super::civil::{MILLIS_A_MINUTE, MILLIS_A_SECOND, MILLIS_AN_HOUR};
use crate::error::{Code, Error, Result};
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// A fixed number of milliseconds east of UTC.
    Offset(i64),
    Named(TimeZone),
}

impl Zone {
    pub(crate) const UTC: Zone = Zone::Offset(0);

    /// Reads `UTC`, `GMT`, `+hh`, `+hhmm`, `+hh:mm` or a name of the tz database, in its spelling there.
    pub(crate) fn parse(text: &str) -> Result<Zone> {
        let unknown = || Error::new(Code(40_485), format!("unrecognized time zone identifier: \"{text}\""));
        if matches!(text, "UTC" | "GMT") {
            return Ok(Zone::UTC);
        }
        if text.starts_with(['+', '-']) {
            return parse_offset(text).map(Zone::Offset).ok_or_else(unknown);
        }
        // The database itself finds names in any case.
        let zone = TimeZoneDatabase::bundled().get(text).ok().filter(|zone| zone.iana_name() == Some(text));
        zone.map(Zone::Named).ok_or_else(unknown)
    }
    pub(crate) fn is_utc(&self) -> bool {
        matches!(self, Zone::Offset(0))
    }

    /// Returns the milliseconds east of UTC at an instant.
    pub(crate) fn offset_at(&self, millis: i64) -> i64 {
        match self {
            Zone::Offset(offset) => *offset,
            Zone::Named(zone) => {
                let bound = |end: Timestamp| end.as_millisecond();
                let within = millis.clamp(bound(Timestamp::MIN) + 1, bound(Timestamp::MAX) - 1);
                Timestamp::from_millisecond(within)
                    .map_or(0, |instant| i64::from(zone.to_offset(instant).seconds()) * MILLIS_A_SECOND)
            }
        }
    }

    /// Returns the local milliseconds at an instant.
    pub(crate) fn local(&self, millis: i64) -> i64 {
        millis.saturating_add(self.offset_at(millis))
    }

    /// Returns the instant of local milliseconds. A time that comes twice is the earlier one; one that is skipped is
    /// moved on by the length of the gap.
    pub(crate) fn instant(&self, local: i64) -> i64 {
        let before = self.offset_at(local.saturating_sub(MILLIS_A_DAY_MAX));
        let first = local.saturating_sub(before);
        if self.offset_at(first) == before {
            return first;
        }
        let after = self.offset_at(local.saturating_add(MILLIS_A_DAY_MAX));
        let second = local.saturating_sub(after);
        // In a gap neither fits: the offset before it moves the time on.
        if self.offset_at(second) == after { second } else { first }
    }
}

/// An upper bound on the offset of a zone: an instant that is so much earlier lies before the change in question.
const MILLIS_A_DAY_MAX: i64 = 26 * MILLIS_AN_HOUR;

/// Parses `+hh`, `+hhmm`, `+hh:mm`.
pub(crate) fn parse_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().split_first()? {
        (b'+', digits) => (1, digits),
        (b'-', digits) => (-1, digits),
        _ => return None,
    };
    let digits: Vec<i64> = match digits {
        [a, b] => vec![*a, *b, b'0', b'0'],
        [a, b, c, d] | [a, b, b':', c, d] => vec![*a, *b, *c, *d],
        _ => return None,
    }
    .into_iter()
    .map(|byte| byte.is_ascii_digit().then(|| i64::from(byte - b'0')))
    .collect::<Option<_>>()?;
    let [a, b, c, d] = digits[..] else { return None };
    Some(sign * ((a * 10 + b) * MILLIS_AN_HOUR + (c * 10 + d) * MILLIS_A_MINUTE))
}
