//! The answers of the script: a word, and what belongs to it.

use redis::Value;

use super::text;
use crate::buffer::Total;
use crate::{Change, Error, Event, ItemId, Result};

/// An answer of the script.
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
        let number = match part {
            Value::Int(number) => u64::try_from(*number).ok(),
            other => text(other).and_then(|text| text.parse().ok()),
        };
        number.ok_or_else(|| self.unreadable(part))
    }

    fn unreadable(&self, part: &Value) -> Error {
        Error::damaged(format!("the answer {:?} of Redis has {part:?}", self.word()))
    }

    /// Returns the total of one item, which stands behind the word.
    pub(super) fn counted(&self) -> Result<Total> {
        self.total(1)?.ok_or_else(|| Error::damaged(format!("the answer {:?} of Redis has no total", self.word())))
    }

    /// Returns the totals of some items, which stand behind the word and the epoch.
    pub(super) fn totals(&self, items: usize) -> Result<Vec<Option<Total>>> {
        (0..items).map(|item| self.total(2 + 3 * item)).collect()
    }

    /// Returns the total whose parts stand at a position: the stored one, which may be unknown, the pending one, and whether it is partial.
    fn total(&self, at: usize) -> Result<Option<Total>> {
        if self.text(at + 1)?.is_empty() {
            return Ok(None);
        }
        let stored = if self.text(at)?.is_empty() { 0 } else { self.number(at)? };
        Ok(Some(Total { views: stored.saturating_add(self.number(at + 1)?), partial: self.number(at + 2)? == 1 }))
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

    use super::{Answer, event};
    use crate::buffer::Total;
    use crate::{Change, ItemId};

    fn texts(texts: &[&str]) -> Vec<Value> {
        texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect()
    }

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
        let mut values = texts(&["totals", "7", "9007199254740993", "1"]);
        values.push(Value::Int(0));
        values.extend(texts(&["", "5"]));
        values.push(Value::Int(1));
        values.extend(texts(&["", ""]));
        values.push(Value::Int(0));
        let answer = Answer::new(Value::Array(values)).expect("an answer");
        let expected = [
            Some(Total { views: 9_007_199_254_740_994, partial: false }),
            Some(Total { views: 5, partial: true }),
            None,
        ];
        assert_eq!(answer.totals(3).expect("totals"), expected);
        assert_eq!(answer.number(1).expect("an epoch"), 7);
        assert!(answer.totals(4).is_err());
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for value in [Value::Nil, Value::Int(1), Value::Array(Vec::new()), Value::Array(vec![Value::Int(1)])] {
            assert!(Answer::new(value).is_err());
        }
    }
}
