//! The answers of the scripts: a word, and what belongs to it; and the fields of what is read without a script.

use redis::Value;

use super::text;
use crate::buffer::Total;
use crate::{Change, Error, Event, ItemId, Result};

/// An answer of the script that counts views, unless the kind must be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// The view was counted, or a request with its key was counted before.
    Counted(Total),
    /// A view of its visitor was counted in this window.
    Repeated(Total),
    /// The item has no entry.
    Absent,
    /// The stored total may be out of date.
    Outdated,
    /// The queue has no place.
    Full,
}

/// The fields of a hash, some of which may be missing.
#[derive(Default)]
pub(super) struct Row<'v>(&'v [Value]);

/// An answer of the script with the other steps.
pub(super) struct Answer(Vec<Value>);

impl Answer {
    /// # Errors
    /// [`Error::Damaged`] for what the script does not answer.
    pub(super) fn new(value: Value) -> Result<Self> {
        match value {
            Value::Array(values) if values.first().and_then(text).is_some() => Ok(Answer(values)),
            other => Err(Error::damaged(format!("the script has answered {other:?} of Redis, and not an array"))),
        }
    }

    /// Returns what happened.
    pub(super) fn word(&self) -> &str {
        self.0.first().and_then(text).unwrap_or_default()
    }

    fn part(&self, at: usize) -> Result<&Value> {
        self.0.get(at).ok_or_else(|| Error::damaged(format!("the answer {:?} of Redis ends too early", self.word())))
    }

    fn text(&self, at: usize) -> Result<&str> {
        let part = self.part(at)?;
        text(part).ok_or_else(|| self.unreadable(part))
    }

    /// Returns a number, which is written as a text or as a number.
    pub(super) fn number(&self, at: usize) -> Result<u64> {
        let part = self.part(at)?;
        number(part).ok_or_else(|| self.unreadable(part))
    }

    fn unreadable(&self, part: &Value) -> Error {
        Error::damaged(format!("the answer {:?} of Redis has {part:?}", self.word()))
    }

    /// Returns the total that stands behind the word in three parts: the stored one, which may be unknown, the pending one, and whether it is
    /// partial.
    pub(super) fn counted(&self) -> Result<Total> {
        let stored = if self.text(1)?.is_empty() { 0 } else { self.number(1)? };
        Ok(Total { views: stored.saturating_add(self.number(2)?), partial: self.number(3)? == 1 })
    }

    /// Returns the events of a batch.
    pub(super) fn events(&self) -> Result<Vec<Event>> {
        let events: Vec<Event> = (1..self.0.len()).map(|at| event(self.text(at)?)).collect::<Result<_>>()?;
        if events.is_empty() {
            return Err(Error::damaged("a batch of Redis has no events"));
        }
        Ok(events)
    }
}

impl Count {
    /// Reads an answer to a request with so many views; nothing if the kind must be begun.
    ///
    /// # Errors
    /// [`Error::Damaged`] for what the script does not answer.
    pub(super) fn new(answer: &Value, views: u32) -> Result<Option<Self>> {
        let damaged = || Error::damaged(format!("the script that counts views has answered {answer:?} of Redis"));
        let mut parts = text(answer).ok_or_else(damaged)?.split('|');
        let word = parts.next();
        let added = match word {
            Some("begin") => return Ok(None),
            Some("absent") => return Ok(Some(Count::Absent)),
            Some("outdated") => return Ok(Some(Count::Outdated)),
            Some("full") => return Ok(Some(Count::Full)),
            Some("counted") => u64::from(views),
            Some("remembered" | "repeated") => 0,
            _ => return Err(damaged()),
        };
        let [Some(stored), Some(pending), Some(partial), None] = [(); 4].map(|()| parts.next()) else {
            return Err(damaged());
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| damaged());
        let stored = if stored.is_empty() { 0 } else { number(stored)? };
        let views = stored.saturating_add(number(pending)?).saturating_add(added);
        let total = Total { views, partial: partial == "1" };
        Ok(Some(if word == Some("repeated") { Count::Repeated(total) } else { Count::Counted(total) }))
    }
}

impl<'v> Row<'v> {
    /// # Errors
    /// [`Error::Damaged`] for what is no answer of `HMGET`.
    pub(super) fn new(value: &'v Value) -> Result<Self> {
        match value {
            Value::Array(fields) => Ok(Row(fields)),
            other => Err(Error::damaged(format!("HMGET of Redis has answered {other:?}"))),
        }
    }

    pub(super) fn text(&self, at: usize) -> Result<Option<&'v str>> {
        match self.0.get(at) {
            None | Some(Value::Nil) => Ok(None),
            Some(value) => text(value).map(Some).ok_or_else(|| unreadable(value)),
        }
    }

    pub(super) fn number(&self, at: usize) -> Result<Option<u64>> {
        match self.0.get(at) {
            None | Some(Value::Nil) => Ok(None),
            Some(value) => number(value).map(Some).ok_or_else(|| unreadable(value)),
        }
    }

    /// Returns the total of an entry, whose fields are s, p, g and o (`steps.lua`); nothing if it counts as none.
    pub(super) fn total(&self, generation: Option<&str>) -> Result<Option<Total>> {
        let Some(pending) = self.number(1)? else { return Ok(None) };
        let is_current = self.text(2)? == generation;
        if pending == 0 && !is_current && self.text(3)?.is_none() {
            return Ok(None);
        }
        let stored = self.number(0)?;
        let views = stored.unwrap_or(0).saturating_add(pending);
        Ok(Some(Total { views, partial: stored.is_none() || !is_current }))
    }
}

fn unreadable(value: &Value) -> Error {
    Error::damaged(format!("a hash of Redis has the field {value:?}"))
}

/// Returns a number, which is written as a text or as a number.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other).and_then(|text| text.parse().ok()),
    }
}

/// Reads `NUMBER|ID|VIEWS|DAY` or `NUMBER|ID|D`.
fn event(text: &str) -> Result<Event> {
    let damaged = || Error::damaged(format!("event {text:?} of Redis"));
    let mut parts = text.split('|');
    let mut part = || parts.next().ok_or_else(damaged);
    let number = part()?.parse().map_err(|_| damaged())?;
    let id = ItemId::new(part()?)?;
    let change = match part()? {
        "D" => Change::Delete,
        views => {
            Change::Views { views: views.parse().map_err(|_| damaged())?, day: part()?.parse().map_err(|_| damaged())? }
        }
    };
    Ok(Event { number, id, change })
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use redis::Value;

    use super::{Answer, Count, Row, event};
    use crate::buffer::Total;
    use crate::{Change, ItemId};

    #[test]
    fn events_are_read() {
        let id = ItemId::new("a:b").expect("an id");
        let views = event("1790000000000000|a:b|3|2026-11-30").expect("an event");
        assert_eq!((views.number, views.id), (1_790_000_000_000_000, id));
        assert_eq!(views.change, Change::Views { views: 3, day: date(2026, 11, 30) });
        assert_eq!(event("1|a|D").expect("an event").change, Change::Delete);
        for damaged in ["", "1", "1|a", "x|a|D", "1|a|3", "1|a|3|2026-13-01", "1|a b|D"] {
            assert!(event(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn totals_are_added_without_loss() {
        let large = "9007199254740993";
        let row = |fields: &[Option<&str>]| {
            let fields = fields.iter().map(|field| field.map_or(Value::Nil, |text| Value::BulkString(text.into())));
            Value::Array(fields.collect())
        };
        let total = |fields: &[Option<&str>]| {
            let value = row(fields);
            Row::new(&value).and_then(|row| row.total(Some("7"))).expect("a row")
        };
        let whole = |views| Some(Total { views, partial: false });
        let partial = |views| Some(Total { views, partial: true });
        assert_eq!(total(&[Some(large), Some("1"), Some("7"), None]), whole(9_007_199_254_740_994));
        assert_eq!(total(&[None, Some("5"), Some("7"), None]), partial(5));
        assert_eq!(total(&[Some("3"), Some("5"), Some("6"), None]), partial(8), "of an earlier generation");
        assert_eq!(total(&[Some("3"), Some("0"), Some("6"), None]), None, "nothing needs it");
        assert_eq!(total(&[Some("0"), Some("0"), Some("6"), Some("1")]), partial(0), "a deletion needs it");
        assert_eq!(total(&[Some("3"), Some("0"), Some("7"), None]), whole(3));
        assert_eq!(total(&[None, None, None, None]), None);
        let damaged = row(&[None, Some("many"), Some("7"), None]);
        assert!(Row::new(&damaged).and_then(|row| row.total(Some("7"))).is_err());
    }

    #[test]
    fn the_answer_to_a_view_is_read() {
        let count = |text: &str| Count::new(&Value::BulkString(text.into()), 3).ok();
        let counted = |views, partial| Some(Some(Count::Counted(Total { views, partial })));
        assert_eq!(count("counted|9007199254740993|1|0"), counted(9_007_199_254_740_997, false));
        assert_eq!(count("counted||1|1"), counted(4, true));
        assert_eq!(count("remembered|5|1|0"), counted(6, false));
        assert_eq!(count("repeated|5|1|0"), Some(Some(Count::Repeated(Total { views: 6, partial: false }))));
        assert_eq!(count("begin"), Some(None));
        let others = [Count::Absent, Count::Outdated, Count::Full].map(|count| Some(Some(count)));
        assert_eq!(["absent", "outdated", "full"].map(count), others);
        for damaged in ["", "x", "counted", "counted|1|2", "counted|1|2|0|0", "counted|a|2|0"] {
            assert_eq!(count(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for value in [Value::Nil, Value::Int(1), Value::Array(Vec::new()), Value::Array(vec![Value::Int(1)])] {
            assert!(Answer::new(value).is_err());
        }
    }
}
