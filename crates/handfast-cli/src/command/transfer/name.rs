//! The name of a transfer: its id, which is the same whatever kind of file it comes from.
//!
//! A cell of CSV has no type, a value of JSON has one: `1` and `1`, `65a1b2c3d4e5f60718293a4b` and `{"$oid": ..}` are one id each. So ids
//! are compared as the text that they read as, and a transfer is recorded under that text. Earlier versions recorded the value as it
//! came: each of these is looked for, too.

use bson::Bson;
use bson::oid::ObjectId;
use bson::uuid::Uuid;

/// The name of a transfer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Name(Bson);

impl Name {
    /// The name that an id stands for. Binary data that is no UUID reads as nothing, and stays what it is.
    pub(super) fn new(id: Bson) -> Self {
        Name(match &id {
            Bson::Int32(number) => Bson::String(number.to_string()),
            Bson::Int64(number) => Bson::String(number.to_string()),
            Bson::ObjectId(id) => Bson::String(id.to_hex()),
            Bson::Binary(binary) => binary.to_uuid().map_or_else(|_| id.clone(), |uuid| Bson::String(uuid.to_string())),
            _ => id,
        })
    }

    /// The id that the transfer is recorded under.
    pub(super) fn id(&self) -> &Bson {
        &self.0
    }

    /// The ids that it may have been recorded under: its own, and the values of other types that read the same.
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

/// Whether two ids of accounts are one to a store, which compares numbers by value.
pub(super) fn is_same_account(one: &Bson, other: &Bson) -> bool {
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn whole(id: &Bson) -> Option<i64> {
    match id {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        // Shells write whole numbers so.
        Bson::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(*number as i64),
        _ => None,
    }
}
