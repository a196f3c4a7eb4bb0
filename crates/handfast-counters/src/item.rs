//! The things whose views are counted: a kind (`ads`) and an id within it (`4711`).
//!
//! Both become parts of URLs, of Redis keys and of `_id`s, so they are checked once, here: what is an [`Item`] can be put
//! anywhere without escaping.

use std::fmt;
use std::sync::Arc;

use crate::{Error, Result};

/// The maximum length of a kind, in bytes.
pub const KIND_BYTES_MAX: usize = 32;
/// The maximum length of an item's id, in bytes.
pub const ID_BYTES_MAX: usize = 128;

/// A kind of items, such as `ads`: lower-case letters, digits, `_` and `-`, and a letter first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Arc<str>);

/// The id of an item within its kind: what a URL may contain without escaping, which is letters, digits and `-._~`, and `:`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(Arc<str>);

/// An item whose views are counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// The kind.
    pub kind: Kind,
    /// The id within the kind.
    pub id: ItemId,
}

impl Kind {
    /// Checks the name of a kind.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is empty, too long, or has other characters.
    pub fn new(name: &str) -> Result<Self> {
        let letters = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
        let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if letters && first && name.len() <= KIND_BYTES_MAX {
            return Ok(Kind(name.into()));
        }
        Err(Error::invalid(format!(
            "kind {name:?} must be 1 to {KIND_BYTES_MAX} lower-case letters, digits, '_' or '-', with a letter first"
        )))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ItemId {
    /// Checks an id.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an id that is empty, too long, or has other characters.
    pub fn new(id: &str) -> Result<Self> {
        let letters =
            id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':'));
        // Clients and proxies take these two out of a path.
        let is_a_path = matches!(id, "." | "..");
        if letters && !is_a_path && !id.is_empty() && id.len() <= ID_BYTES_MAX {
            return Ok(ItemId(id.into()));
        }
        Err(Error::invalid(format!(
            "id {id:?} must be 1 to {ID_BYTES_MAX} letters, digits, '-', '.', '_', '~' or ':', and not '.' or '..'"
        )))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Item {
    /// Checks a kind and an id.
    ///
    /// # Errors
    /// Those of [`Kind::new`] and [`ItemId::new`].
    pub fn new(kind: &str, id: &str) -> Result<Self> {
        Ok(Item { kind: Kind::new(kind)?, id: ItemId::new(id)? })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for ItemId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind, self.id)
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::{ID_BYTES_MAX, ItemId, KIND_BYTES_MAX, Kind};

    #[test]
    fn kinds_and_ids_are_checked() {
        for good in ["ads", "a", "a-1_b", &"k".repeat(KIND_BYTES_MAX)] {
            assert_eq!(Kind::new(good).expect("valid").as_str(), good);
        }
        for bad in ["", "Ads", "1ads", "a/b", "a b", "ä", "a{b}", &"k".repeat(KIND_BYTES_MAX + 1)] {
            let error = Kind::new(bad).expect_err("invalid").to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
        for good in ["4711", "A.b-c_d~e:f", &"1".repeat(ID_BYTES_MAX)] {
            assert_eq!(ItemId::new(good).expect("valid").as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a,b", "a b", "a{b}", "é", "\n", &"1".repeat(ID_BYTES_MAX + 1)] {
            assert!(ItemId::new(bad).is_err(), "{bad:?}");
        }
    }
}
