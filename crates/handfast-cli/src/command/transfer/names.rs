//! Names for rows that have none: the batch, what the row says, and how often the same was said before.
//!
//! So a name does not depend on where in the file the row stands. The file may be run again, also with lines added or moved; each row is
//! applied once. Two rows that say the same are two transfers. A row that was edited has another name: it is a transfer of its
//! own, beside the one that it was.

use std::collections::HashMap;

use bson::Bson;
use serde_json::json;

use super::row::Row;
use crate::id::extended;

/// Rows that say different things, of which each is remembered while the file is read: some 200 MB.
const NAMED_MAX: usize = 1_000_000;

/// Gives names.
pub(super) struct Names {
    batch: Option<String>,
    /// How often a row was there.
    seen: HashMap<String, u64>,
}

impl Names {
    pub(super) fn new(batch: Option<String>) -> Self {
        Names { batch, seen: HashMap::new() }
    }

    /// The name of the row: its own, or one that is made.
    ///
    /// # Errors
    /// The text says why it cannot have one.
    pub(super) fn name(&mut self, row: &Row) -> Result<Bson, String> {
        if let Some(id) = &row.id {
            return Ok(id.clone());
        }
        let Some(batch) = &self.batch else {
            return Err("it has no id: give it one, or the whole file a name with --batch".to_owned());
        };
        let Row { from, to, amount, asset, .. } = row;
        let content = json!([batch, extended(from), extended(to), amount, asset]).to_string();
        if self.seen.len() >= NAMED_MAX && !self.seen.contains_key(&content) {
            return Err(format!("more than {NAMED_MAX} different rows have no id: give them ids, or split the file"));
        }
        let times = self.seen.entry(content).or_default();
        *times += 1;
        Ok(Bson::String(json!([batch, extended(from), extended(to), amount, asset, *times]).to_string()))
    }
}
