//! Remarks that may be many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::console::write_remark;

/// The remarks of a kind that are written. Further ones are counted.
const WRITTEN_MAX: u64 = 10;

/// Remarks of a kind, of which the first ones are written to standard error.
#[derive(Clone, Default)]
pub(super) struct Remarks(Arc<AtomicU64>);

impl Remarks {
    /// Counts a remark, and writes it if it is one of the first.
    pub(super) fn add(&self, text: &str) {
        if let Some(text) = self.counted(text) {
            write_remark(&text);
        }
    }

    /// Returns the number of all remarks.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a remark. Returns what is written.
    fn counted(&self, text: &str) -> Option<String> {
        match self.0.fetch_add(1, Ordering::Relaxed) + 1 {
            ..WRITTEN_MAX => Some(text.to_owned()),
            WRITTEN_MAX => Some(format!("{text}; further ones are counted at the end")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Remarks, WRITTEN_MAX};

    #[test]
    fn the_first_remarks_are_written_and_all_are_counted() {
        let remarks = Remarks::default();
        let written: Vec<String> = (0..1_000).filter_map(|number| remarks.counted(&number.to_string())).collect();
        assert_eq!((written.len() as u64, remarks.count()), (WRITTEN_MAX, 1_000));
        assert_eq!((written[0].as_str(), written[9].as_str()), ("0", "9; further ones are counted at the end"));
    }
}
