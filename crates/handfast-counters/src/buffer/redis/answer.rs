//! The answers of the scripts: an outcome, and what belongs to it; and the fields of what is read without a script.

use redis::Value;

use super::text;
use crate::buffer::Total;
use crate::{Change, Error, Event, ItemId, Result, SequenceNumber};

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
    /// The total has no place for the views.
    TooLarge(Total),
}

/// The entry of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'v> {
    pending: u64,
    stored: Option<u64>,
    generation: &'v str,
    has_deletions: bool,
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

    /// Returns the name of what happened.
    pub(super) fn outcome(&self) -> &str {
        self.0.first().and_then(text).unwrap_or_default()
    }

    fn part(&self, at: usize) -> Result<&Value> {
        self.0.get(at).ok_or_else(|| Error::damaged(format!("the answer {:?} of Redis ends too early", self.outcome())))
    }

    pub(super) fn text(&self, at: usize) -> Result<&str> {
        let part = self.part(at)?;
        text(part).ok_or_else(|| self.unreadable(part))
    }

    /// Returns a number, which is written as a text or as a number.
    pub(super) fn number(&self, at: usize) -> Result<u64> {
        let part = self.part(at)?;
        number(part).ok_or_else(|| self.unreadable(part))
    }

    fn unreadable(&self, part: &Value) -> Error {
        Error::damaged(format!("the answer {:?} of Redis has {part:?}", self.outcome()))
    }

    /// Returns the total that stands behind the outcome in three parts: the stored one, which may be unknown, the pending one, and whether it is
    /// partial.
    pub(super) fn counted(&self) -> Result<Total> {
        let stored = if self.text(1)?.is_empty() { 0 } else { self.number(1)? };
        Ok(Total { views: stored.saturating_add(self.number(2)?), partial: self.number(3)? == 1 })
    }

    /// Returns the events of a batch.
    pub(super) fn events(&self) -> Result<Vec<Event>> {
        let first = self.number(1)?;
        let numbers = first..;
        let events: Vec<Event> =
            numbers.zip(2..self.0.len()).map(|(number, at)| event(number, self.text(at)?)).collect::<Result<_>>()?;
        if events.is_empty() {
            return Err(Error::damaged("a batch of Redis has no events"));
        }
        Ok(events)
    }
}

impl Count {
    /// Reads an answer to a request with so many views, on a kind of this generation; nothing if the kind must be begun.
    ///
    /// # Errors
    /// [`Error::Damaged`] for what the script does not answer.
    pub(super) fn new(answer: &Value, views: u32, generation: &str) -> Result<Option<Self>> {
        let damaged = || Error::damaged(format!("the script that counts views has answered {answer:?} of Redis"));
        let answer = text(answer).ok_or_else(damaged)?;
        let (outcome, entry) = match answer.split_once('|') {
            Some((outcome, entry)) => (outcome, entry),
            None if answer == "begin" => return Ok(None),
            None if answer == "absent" => return Ok(Some(Count::Absent)),
            None if answer == "outdated" => return Ok(Some(Count::Outdated)),
            None if answer == "full" => return Ok(Some(Count::Full)),
            None => return Err(damaged()),
        };
        let before = Entry::read(entry).ok_or_else(damaged)?.total(generation);
        let total = Total { views: before.views.saturating_add(views.into()), ..before };
        match outcome {
            "counted" => Ok(Some(Count::Counted(total))),
            "remembered" => Ok(Some(Count::Counted(before))),
            "repeated" => Ok(Some(Count::Repeated(before))),
            "large" => Ok(Some(Count::TooLarge(before))),
            _ => Err(damaged()),
        }
    }
}

impl<'v> Entry<'v> {
    /// Reads `PENDING|STORED|GENERATION|FIRST|DELETIONS` (`steps.lua`).
    fn read(text: &'v str) -> Option<Self> {
        let mut parts = text.split('|');
        let [pending, stored, generation, _, deletions] = [(); 5].map(|()| parts.next());
        let stored = stored.filter(|stored| !stored.is_empty());
        let entry = Entry {
            pending: pending?.parse().ok()?,
            stored: stored.map(str::parse).transpose().ok()?,
            generation: generation?,
            has_deletions: deletions? != "0",
        };
        parts.next().is_none().then_some(entry)
    }

    fn total(&self, generation: &str) -> Total {
        let views = self.stored.unwrap_or(0).saturating_add(self.pending);
        Total { views, partial: self.stored.is_none() || self.generation != generation }
    }

    /// Returns the total of a text of an entry in a kind of this generation; nothing if it is not there, or counts as none.
    ///
    /// # Errors
    /// [`Error::Damaged`] for what is no entry.
    pub(super) fn total_of(value: &'v Value, generation: &str) -> Result<Option<Total>> {
        let damaged = || Error::damaged(format!("an item of Redis has the entry {value:?}"));
        if *value == Value::Nil {
            return Ok(None);
        }
        let entry = text(value).and_then(Entry::read).ok_or_else(damaged)?;
        let is_needed = entry.pending > 0 || entry.has_deletions || entry.generation == generation;
        Ok(is_needed.then(|| entry.total(generation)))
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
}

fn unreadable(value: &Value) -> Error {
    Error::damaged(format!("a hash of Redis has the field {value:?}"))
}

/// Returns the values of an array.
///
/// # Errors
/// [`Error::Damaged`] for another answer.
pub(super) fn values(answer: &Value) -> Result<&[Value]> {
    match answer {
        Value::Array(values) => Ok(values),
        other => Err(Error::damaged(format!("MGET of Redis has answered {other:?}"))),
    }
}

/// Returns a number, which is written as a text or as a number.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other).and_then(|text| text.parse().ok()),
    }
}

/// Returns the generation of a kind and the number of events in batches, of the text `GENERATION|CLAIMED`; `None` if it is not there.
///
/// # Errors
/// [`Error::Damaged`] for another text.
pub(super) fn generation(value: &Value) -> Result<Option<(&str, u64)>> {
    if *value == Value::Nil {
        return Ok(None);
    }
    let parts = text(value).and_then(|text| text.split_once('|'));
    let found = parts.and_then(|(generation, claimed)| Some((generation, claimed.parse().ok()?)));
    found.map(Some).ok_or_else(|| Error::damaged(format!("a kind of Redis has the generation {value:?}")))
}

/// Reads `ID|VIEWS|DAY` or `ID|D`.
fn event(number: SequenceNumber, text: &str) -> Result<Event> {
    let damaged = || Error::damaged(format!("event {text:?} of Redis"));
    let mut parts = text.split('|');
    let mut part = || parts.next().ok_or_else(damaged);
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

    use super::{Answer, Count, Entry, event, generation};
    use crate::buffer::Total;
    use crate::{Change, ItemId};

    #[test]
    fn events_are_read() {
        let id = ItemId::new("a:b").expect("an id");
        let views = event(1_790_000_000_000_000, "a:b|3|2026-11-30").expect("an event");
        assert_eq!((views.number, views.id), (1_790_000_000_000_000, id));
        assert_eq!(views.change, Change::Views { views: 3, day: date(2026, 11, 30) });
        assert_eq!(event(1, "a|D").expect("an event").change, Change::Delete);
        for damaged in ["", "a", "a|x|2026-11-30", "a|3", "a|3|2026-13-01", "a b|D"] {
            assert!(event(1, damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn totals_are_added_without_loss() {
        let value = |text: &str| Value::BulkString(text.into());
        let total = |text: &str| Entry::total_of(&value(text), "7").expect("an entry");
        let whole = |views| Some(Total { views, partial: false });
        let partial = |views| Some(Total { views, partial: true });
        assert_eq!(total("1|9007199254740993|7|1|0"), whole(9_007_199_254_740_994));
        assert_eq!(total("5||7|1|0"), partial(5));
        assert_eq!(total("5|3|6|1|0"), partial(8), "of an earlier generation");
        assert_eq!(total("0|3|6|1|0"), None, "nothing needs it");
        assert_eq!(total("0|0|6|1|1"), partial(0), "a deletion needs it");
        assert_eq!(total("0|3|7|1|0"), whole(3));
        assert_eq!(Entry::total_of(&Value::Nil, "7").expect("nothing"), None);
        for damaged in ["", "1", "many|3|7|1|0", "1|many|7|1|0", "1|3|7|1", "1|3|7|1|0|"] {
            assert!(Entry::total_of(&value(damaged), "7").is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn the_generation_of_a_kind_is_read() {
        let value = |text: &str| Value::BulkString(text.into());
        assert_eq!(generation(&value("7|12")).expect("a generation"), Some(("7", 12)));
        assert_eq!(generation(&Value::Nil).expect("nothing"), None);
        for damaged in ["", "7", "7|", "7|x"] {
            assert!(generation(&value(damaged)).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn the_answer_to_a_view_is_read() {
        let count = |text: &str| Count::new(&Value::BulkString(text.into()), 3, "7").ok();
        let counted = |views, partial| Some(Some(Count::Counted(Total { views, partial })));
        assert_eq!(count("counted|1|9007199254740993|7|1|0"), counted(9_007_199_254_740_997, false));
        assert_eq!(count("counted|1||7|1|0"), counted(4, true));
        assert_eq!(count("remembered|1|5|7|1|0"), counted(6, false));
        assert_eq!(count("repeated|1|5|7|1|0"), Some(Some(Count::Repeated(Total { views: 6, partial: false }))));
        assert_eq!(count("begin"), Some(None));
        let others = [Count::Absent, Count::Outdated, Count::Full].map(|count| Some(Some(count)));
        assert_eq!(["absent", "outdated", "full"].map(count), others);
        for damaged in ["", "x", "counted", "counted|1|2", "x|1|5|7|1|0", "counted|a|5|7|1|0"] {
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
