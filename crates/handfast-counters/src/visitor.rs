//! Visitors, of whom a kind may count one view in a window of time.
//!
//! # The problem
//! Whether a reader was here before can only be seen if something of the reader is kept; an address or a cookie must not be.
//!
//! # The idea
//! A buffer keeps a [mark](VisitorMark) for the window: HMAC-SHA-256, cut to 128 bits, of the item and the visitor, under a [salt](Salt) of 256 random
//! bits. The salt is new on each day of the counters, in memory (or in Redis, which the instances share), and never in a document. That of the
//! day before is kept for a while, for the requests around midnight. Without it nobody can
//! find out whose mark one is, by trying all addresses, say; and the marks of a visitor on two items have nothing in common.
//!
//! The mark is set in the atomic step that counts the view. So of two requests at once one is counted, and a view that was refused leaves no mark.
//!
//! ```text
//!   10:00  reader A, ad 7   mark 5f.. until 10:30   counted
//!   10:29  reader A, ad 7   mark 5f..               repeated
//!   10:29  reader A, ad 8   mark 90.. until 10:59   counted
//!   10:30  reader A, ad 7   mark 5f.. until 11:00   counted
//! ```

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use handfast_store::Applied;
use handfast_store::source::os_random_bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::civil::Date;
use lru::LruCache;
use sha2::Sha256;

use crate::{Error, Item, Result, hex};

/// The longest window: the salt of the marks lives for a day.
pub const VISITOR_WINDOW_MAX: Duration = Duration::from_secs(24 * 3_600);

const SALT_BYTES: usize = 32;
const MARK_BYTES: usize = 16;

/// The secret of a day, under which visitors are hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt([u8; SALT_BYTES]);

/// The salted hash of a visitor of an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VisitorMark([u8; MARK_BYTES]);

/// A visitor of an item, whose next view is counted when the window is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// The salted hash.
    pub mark: VisitorMark,
    /// The time for which the mark is kept.
    pub window: Duration,
}

/// The salts of the last two days that were asked for, the last one first. Around midnight, requests of both days are in progress at once, and a clock may
/// be set back over it: neither may make a salt anew, or the marks under the old one would be forgotten.
#[derive(Default)]
pub(crate) struct DailySalt(Mutex<[Option<(Date, Salt)>; 2]>);

/// The marks that are kept, each until its window is over.
pub(crate) struct Marks {
    /// The last one that was set comes first.
    until: LruCache<VisitorMark, Duration>,
    marks_max: usize,
}

impl Salt {
    /// Creates a salt from the randomness of the operating system.
    ///
    /// # Errors
    /// [`Error::Buffer`] if it has none.
    pub fn new() -> Result<Self> {
        let mut salt = [0; SALT_BYTES];
        os_random_bytes(&mut salt).map_err(|error| Error::Buffer {
            what: format!("the operating system provides no random numbers: {error}"),
            applied: Applied::No,
        })?;
        Ok(Salt(salt))
    }

    /// Returns the salt as hexadecimal digits.
    pub(crate) fn digits(&self) -> String {
        hex::encode(&self.0)
    }

    /// Reads what [`Salt::digits`] has written.
    pub(crate) fn read(digits: &str) -> Option<Self> {
        hex::decode(digits).map(Salt)
    }

    /// Returns the mark of a visitor of an item. `visitor` is what tells visitors apart: a name that the caller gives them, or an address and a browser.
    pub fn mark(&self, item: &Item, visitor: &str) -> VisitorMark {
        let mut mark = [0; MARK_BYTES];
        // HMAC takes keys of any length.
        if let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(&self.0) {
            // No item has a line break in it.
            hmac.update(item.to_string().as_bytes());
            hmac.update(b"\n");
            hmac.update(visitor.as_bytes());
            for (byte, hashed) in mark.iter_mut().zip(hmac.finalize().into_bytes()) {
                *byte = hashed;
            }
        }
        VisitorMark(mark)
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Salt(..)")
    }
}

impl fmt::Display for VisitorMark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for VisitorMark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "VisitorMark({self})")
    }
}

impl DailySalt {
    /// Returns the salt of a day; the first call of a day makes it.
    pub(crate) fn of(&self, day: Date) -> Result<Salt> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [last, other] = *kept;
        match (last, other) {
            (Some((of_day, salt)), _) if of_day == day => Ok(salt),
            (_, Some((of_day, salt))) if of_day == day => {
                *kept = [other, last];
                Ok(salt)
            }
            _ => {
                let salt = Salt::new()?;
                *kept = [Some((day, salt)), last];
                Ok(salt)
            }
        }
    }
}

impl Marks {
    pub(crate) fn new(marks_max: usize) -> Self {
        Marks { until: LruCache::unbounded(), marks_max }
    }

    /// Returns whether the window of this mark is not over.
    pub(crate) fn has(&self, mark: &VisitorMark, now: Duration) -> bool {
        self.until.peek(mark).is_some_and(|until| *until > now)
    }

    /// Keeps a mark for its window. Beyond the limit the one that was set first is forgotten.
    pub(crate) fn set(&mut self, visitor: &Visitor, now: Duration) {
        self.until.put(visitor.mark, now.saturating_add(visitor.window));
        while self.until.len() > self.marks_max {
            self.until.pop_lru();
        }
    }

    /// Lets the oldest marks go whose windows are over. A short window behind a long one waits for it, and counts as over all the same.
    pub(crate) fn trim(&mut self, now: Duration) {
        while self.until.peek_lru().is_some_and(|(_, until)| *until <= now) {
            self.until.pop_lru();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.until.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::civil::date;

    use super::{DailySalt, Marks, Salt, Visitor, VisitorMark};
    use crate::Item;

    const MINUTE: Duration = Duration::from_secs(60);

    fn visitor(number: u8, window: Duration) -> Visitor {
        Visitor { mark: VisitorMark([number; 16]), window }
    }

    #[test]
    fn a_mark_is_of_an_item_a_visitor_and_a_salt() {
        let ad = |id: &str| Item::new("ads", id).expect("an item");
        let salt = Salt([7; 32]);
        let mark = salt.mark(&ad("7"), "a");
        assert_eq!(mark, salt.mark(&ad("7"), "a"));
        for other in [salt.mark(&ad("8"), "a"), salt.mark(&ad("7"), "b"), Salt([8; 32]).mark(&ad("7"), "a")] {
            assert_ne!(mark, other);
        }
        // printf 'ads/7\na' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707.. (32 bytes)
        assert_eq!(mark.to_string(), "9eabf8f71c10cee08559cf3d3b616404");
    }

    #[test]
    fn a_salt_is_of_one_day_and_is_read_as_it_was_written() {
        let daily = DailySalt::default();
        let of = |month, day| daily.of(date(2026, month, day)).expect("a salt");
        let (first, next) = (of(11, 30), of(12, 1));
        assert!(first != next);
        // Requests of both days at midnight, or a clock that is set back.
        for _ in 0..2 {
            assert!(of(11, 30) == first && of(12, 1) == next);
        }
        assert!(of(12, 2) != next && of(12, 1) == next);
        assert!(of(11, 30) != first, "it is forgotten");
        assert!(Salt::read(&next.digits()) == Some(next));
        for wrong in ["", "é", &next.digits()[1..], &next.digits().replace(|_| true, "g")] {
            assert!(Salt::read(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn marks_end_with_their_windows_and_have_a_limit() {
        let mut marks = Marks::new(3);
        marks.set(&visitor(1, 2 * MINUTE), MINUTE);
        marks.set(&visitor(2, MINUTE), MINUTE);
        let has = |marks: &Marks, number, now| marks.has(&visitor(number, MINUTE).mark, now);
        assert!(has(&marks, 1, 2 * MINUTE) && !has(&marks, 2, 2 * MINUTE) && !has(&marks, 1, 3 * MINUTE));
        marks.trim(2 * MINUTE);
        assert_eq!(marks.len(), 2, "the second waits for the first");
        marks.trim(3 * MINUTE);
        assert_eq!(marks.len(), 0);
        for number in 1..=4 {
            marks.set(&visitor(number, MINUTE), MINUTE);
        }
        assert_eq!((marks.len(), has(&marks, 1, MINUTE), has(&marks, 4, MINUTE)), (3, false, true));
    }
}
