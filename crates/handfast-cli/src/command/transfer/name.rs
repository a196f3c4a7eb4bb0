//! The names of transfers.
//!
//! The name of a row is its id, which is the same in every kind of file: a cell of CSV has no type, a value of JSON has one, and `1` and `1`,
//! `65a1b2c3d4e5f60718293a4b` and `{"$oid": ..}` are one id each. So ids are compared as the text that they read as, and a transfer is recorded
//! under that text. Earlier versions recorded the value itself: these are looked for, too.
//!
//! A row without an id has a name made of the batch, its content, and the number of earlier rows with the same content. So a name does not
//! depend on the position of a row: the file may be run again with lines added or moved, and each row is applied once. Two equal rows are two
//! transfers. An edited row has another name: it is another transfer, beside the first one.

use std::collections::HashMap;

use bson::Bson;
use bson::oid::ObjectId;
use bson::uuid::Uuid;
use serde_json::json;

use super::row::Row;
use crate::id::extended_json;

/// Different rows without ids whose content is remembered while the file is read: some 200 MB.
const UNNAMED_ROWS_MAX: usize = 1_000_000;

/// The name of a transfer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Name(Bson);

impl Name {
    /// Returns the name that an id stands for. Binary data that is no UUID has no text, and stays a value.
    pub(super) fn new(id: Bson) -> Self {
        Name(match &id {
            Bson::Int32(number) => Bson::String(number.to_string()),
            Bson::Int64(number) => Bson::String(number.to_string()),
            Bson::ObjectId(id) => Bson::String(id.to_hex()),
            Bson::Binary(binary) => binary.to_uuid().map_or_else(|_| id.clone(), |uuid| Bson::String(uuid.to_string())),
            _ => id,
        })
    }

    /// Returns the id under which the transfer is recorded.
    pub(super) fn id(&self) -> &Bson {
        &self.0
    }

    /// Returns the ids under which it may have been recorded: its own, and values of other types with the same text.
    pub(super) fn recorded(&self) -> Vec<Bson> {
        let mut ids = vec![self.0.clone()];
        let Bson::String(text) = &self.0 else { return ids };
        if let Some(number) = text.parse::<i64>().ok().filter(|number| number.to_string() == *text) {
            ids.push(Bson::Int64(number));
        }
        if let Some(id) = ObjectId::parse_str(text).ok().filter(|id| id.to_hex() == *text) {
            ids.push(Bson::ObjectId(id));
        }
        if let Some(uuid) = Uuid::parse_str(text).ok().filter(|uuid| uuid.to_string() == *text) {
            ids.push(Bson::from(uuid));
        }
        ids
    }
}

/// Names rows.
pub(super) struct Names {
    batch: Option<String>,
    /// The number of rows with each content.
    counts: HashMap<String, u64>,
}

impl Names {
    pub(super) fn new(batch: Option<String>) -> Self {
        Names { batch, counts: HashMap::new() }
    }

    /// Returns the id of a row, or the name made for it.
    pub(super) fn name(&mut self, row: &Row) -> Result<Bson, String> {
        if let Some(id) = &row.id {
            return Ok(id.clone());
        }
        let Some(batch) = &self.batch else {
            return Err("the row has no id: add one, or name the whole file with --batch".to_owned());
        };
        let Row { from, to, amount, asset, .. } = row;
        let content = json!([batch, extended_json(from), extended_json(to), amount, asset]).to_string();
        if self.counts.len() >= UNNAMED_ROWS_MAX && !self.counts.contains_key(&content) {
            return Err(format!("more than {UNNAMED_ROWS_MAX} different rows have no id: add ids, or split the file"));
        }
        let times = self.counts.entry(content).or_default();
        *times += 1;
        Ok(Bson::String(json!([batch, extended_json(from), extended_json(to), amount, asset, *times]).to_string()))
    }
}
