//! Views, as they are counted and as they wait in the queue.

use jiff::civil::Date;

use crate::{Error, Item, ItemId, Kind, Result, Visitor};

/// The maximum number of views that one request adds.
pub const VIEWS_MAX: u32 = 1_000_000;
/// The largest total that views make, a half of [`TOTAL_MAX`](crate::TOTAL_MAX). The other half is for views that are counted while the store cannot
/// tell the total: a queue holds fewer (at most 2^32 requests of [`VIEWS_MAX`]). So what is exported can be imported.
pub const COUNTED_TOTAL_MAX: u64 = 1 << 52;
const _: () = assert!(COUNTED_TOTAL_MAX + (u32::MAX as u64) * (VIEWS_MAX as u64) <= crate::TOTAL_MAX);
/// The maximum length of an idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 128;

/// Reads a day such as `2026-11-30`; `None` for any other text, also for a day with a time behind it.
pub fn parse_day(text: &str) -> Option<Date> {
    // A time or a zone behind the day would be read, too, and ignored.
    if text.len() == "2026-11-30".len() { text.parse().ok() } else { None }
}

/// A request that adds views to an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The item.
    pub item: Item,
    /// The number of views, 1 or more.
    pub views: u32,
    /// The day that they are counted on.
    pub day: Date,
    /// The key by which a repeated request is recognised.
    pub key: Option<IdempotencyKey>,
    /// The visitor, of whom one view in a window is counted.
    pub visitor: Option<Visitor>,
}

/// A client's name for a request on an item: a request with a key that was carried out is not carried out again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(Box<str>);

/// The number of an event in the queue of its kind. Later events have larger numbers.
pub type SequenceNumber = u64;

/// An event in the queue of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number of the event in the queue.
    pub number: SequenceNumber,
    /// The item, whose kind is the queue's.
    pub id: ItemId,
    /// The change of the item.
    pub change: Change,
}

/// The change that an event makes to its item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds views on a day.
    Views {
        /// The number of views.
        views: u32,
        /// The day.
        day: Date,
    },
    /// Deletes the item with all views that were counted before.
    Delete,
}

/// Events that one instance saves together. A batch never changes after it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The kind of all its items.
    pub kind: Kind,
    /// The events, with ascending numbers; at least one.
    pub events: Vec<Event>,
}

impl Batch {
    /// Returns the name of the batch within its kind, which no other batch has: the number of its last event.
    pub fn number(&self) -> SequenceNumber {
        self.events.last().map_or(0, |event| event.number)
    }

    /// Returns the number of its first event.
    pub fn first(&self) -> SequenceNumber {
        self.events.first().map_or(0, |event| event.number)
    }

    /// Returns the number of its views.
    pub fn views(&self) -> u64 {
        self.events.iter().map(|event| event.change.views()).sum()
    }
}

impl Change {
    /// Returns the number of views that the change adds.
    pub fn views(&self) -> u64 {
        match self {
            Change::Views { views, .. } => u64::from(*views),
            Change::Delete => 0,
        }
    }
}

impl View {
    /// Creates a request that adds views to an item.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `views` is 0 or above [`VIEWS_MAX`].
    pub fn new(item: Item, views: u32, day: Date) -> Result<Self> {
        if views == 0 || views > VIEWS_MAX {
            return Err(Error::invalid(format!("the number of views must be 1 to {VIEWS_MAX}, and is {views}")));
        }
        Ok(View { item, views, day, key: None, visitor: None })
    }
}

impl IdempotencyKey {
    /// Checks a key.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key that is empty, too long, or has other than visible ASCII characters.
    pub fn new(key: &str) -> Result<Self> {
        if (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(IdempotencyKey(key.into()));
        }
        Err(Error::invalid(format!("an idempotency key must be 1 to {KEY_BYTES_MAX} visible ASCII characters")))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name under which the key of a view is remembered.
    pub(crate) fn of_view(&self, item: &Item) -> String {
        format!("{item}/{}", self.0)
    }

    /// Returns the name under which the key of a deletion is remembered. No kind has a space, so it is none of a view.
    pub(crate) fn of_deletion(&self, item: &Item) -> String {
        format!("deletion {item}/{}", self.0)
    }
}
