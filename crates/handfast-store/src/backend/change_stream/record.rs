//! The records of a change log: one change each, as a small document.
//!
//! ```text
//! o   kind: "i" insert, "u" update, "r" replace, "d" delete, "drop", "rename", "dropDatabase", "create", ..
//! d c database and collection                   (no collection for dropDatabase)
//! k   _id                                       update, delete
//! f   document after the change                 insert, replace; update if the collection keeps images
//! b   document before the change                if the collection keeps images
//! u   updateDescription                         update
//! t   {db, coll}: the new name                  rename
//! p   operationDescription                      the changes of the catalog
//! v   true                                      create, modify and drop of a view
//! s n session and number of the transaction     changes of a transaction
//! ```

use bson::raw::{CStr, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::difference::update_description;
use crate::{CollectionOptions, IndexSpec, Namespace, Ticket, WriteKind};

/// The states of a document around its change.
#[derive(Clone, Copy)]
pub struct States<'d> {
    /// The document before.
    pub before: Option<&'d RawDocument>,
    /// The document after.
    pub after: Option<&'d RawDocument>,
    /// The kind of the change, if both exist.
    pub kind: WriteKind,
    /// Whether both are kept in full.
    pub keeps_images: bool,
}

/// Returns the record of a changed document; `None` if it has not changed.
pub fn of_document(namespace: &Namespace, id: RawBsonRef<'_>, states: States<'_>) -> Option<RawDocumentBuf> {
    let States { before, after, kind, keeps_images } = states;
    let mut record = match (before, after) {
        (None, None) => return None,
        (None, Some(after)) => with_document(namespace, "i", after),
        (Some(_), None) => {
            let mut record = begin(namespace, "d");
            record.append(cstr!("k"), id);
            record
        }
        (Some(before), Some(after)) if before.as_bytes() == after.as_bytes() && kind == WriteKind::Update => {
            return None;
        }
        (Some(before), Some(after)) => {
            let description = if kind == WriteKind::Update { update_description(before, after) } else { None };
            match description {
                // Only the order of fields has changed, which no description can say.
                None => with_document(namespace, "r", after),
                Some(description) => {
                    let mut record = begin(namespace, "u");
                    record.append(cstr!("k"), id);
                    record.append(cstr!("u"), description);
                    if keeps_images {
                        record.append(cstr!("f"), after);
                    }
                    record
                }
            }
        }
    };
    if let Some(before) = before.filter(|_| keeps_images) {
        record.append(cstr!("b"), before);
    }
    Some(record)
}

fn with_document(namespace: &Namespace, kind: &str, document: &RawDocument) -> RawDocumentBuf {
    let mut record = begin(namespace, kind);
    record.append(cstr!("f"), document);
    record
}

fn begin(namespace: &Namespace, kind: &str) -> RawDocumentBuf {
    let mut record = RawDocumentBuf::new();
    record.append(cstr!("o"), kind);
    record.append(cstr!("d"), namespace.database());
    record.append(cstr!("c"), namespace.collection());
    record
}

/// Returns the record of a dropped collection.
pub fn of_drop(namespace: &Namespace) -> RawDocumentBuf {
    begin(namespace, "drop")
}

/// Returns the record of a dropped database.
pub fn of_drop_database(database: &str) -> RawDocumentBuf {
    rawdoc! { "o": "dropDatabase", "d": database }
}

/// Returns the record of a renamed collection. `dropped` is the UUID of the collection that had the new name.
pub fn of_rename(from: &Namespace, to: &Namespace, dropped: Option<[u8; 16]>) -> RawDocumentBuf {
    let mut record = begin(from, "rename");
    let name = rawdoc! { "db": to.database(), "coll": to.collection() };
    let mut description = RawDocumentBuf::new();
    description.append(cstr!("to"), name.as_ref());
    if let Some(dropped) = dropped {
        description.append(cstr!("dropTarget"), uuid(dropped));
    }
    record.append(cstr!("t"), name);
    record.append(cstr!("p"), description);
    record
}

/// Returns the record of a created collection.
pub fn of_create(namespace: &Namespace) -> RawDocumentBuf {
    let mut record = begin(namespace, "create");
    let index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": crate::index::ID_INDEX_NAME };
    record.append(cstr!("p"), rawdoc! { "idIndex": index });
    record
}

/// Returns the record of a view that was created or changed (`create`, `modify`), with its definition, or dropped (`drop`).
pub fn of_view(namespace: &Namespace, kind: &str, options: Option<&CollectionOptions>) -> RawDocumentBuf {
    let mut record = begin(namespace, kind);
    if let Some(options) = options {
        record.append(cstr!("p"), options.to_document());
    }
    record.append(cstr!("v"), true);
    record
}

/// Returns the record of created (`createIndexes`) or dropped (`dropIndexes`) indexes.
pub fn of_indexes<'i>(
    namespace: &Namespace,
    kind: &str,
    indexes: impl IntoIterator<Item = &'i IndexSpec>,
) -> RawDocumentBuf {
    let mut record = begin(namespace, kind);
    let list: bson::RawArrayBuf = indexes.into_iter().map(IndexSpec::to_document).collect();
    record.append(cstr!("p"), rawdoc! { "indexes": list });
    record
}

/// Returns the record of changed options of a collection or of an index (`modify`).
pub fn of_modify(namespace: &Namespace, description: RawDocumentBuf) -> RawDocumentBuf {
    let mut record = begin(namespace, "modify");
    record.append(cstr!("p"), description);
    record
}

/// Adds the transaction that a change belongs to.
pub fn add_transaction(record: &mut RawDocumentBuf, transaction: Ticket) {
    record.append(cstr!("s"), uuid(transaction.session));
    record.append(cstr!("n"), transaction.number);
}

pub(super) fn uuid(bytes: [u8; 16]) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: bytes.to_vec() }
}

/// The fields of a record.
#[derive(Clone, Copy, Default)]
pub(super) struct Fields<'r> {
    pub(super) kind: &'r str,
    pub(super) database: &'r str,
    pub(super) collection: Option<&'r str>,
    pub(super) id: Option<RawBsonRef<'r>>,
    pub(super) after: Option<&'r RawDocument>,
    pub(super) before: Option<&'r RawDocument>,
    pub(super) update_description: Option<&'r RawDocument>,
    pub(super) to: Option<&'r RawDocument>,
    pub(super) description: Option<&'r RawDocument>,
    pub(super) is_of_view: bool,
    pub(super) session: Option<RawBsonRef<'r>>,
    pub(super) number: Option<i64>,
}

impl<'r> Fields<'r> {
    /// Reads a record.
    ///
    /// # Errors
    /// `InvalidBSON` (22) if it is damaged.
    pub(super) fn of(record: &'r RawDocument) -> crate::Result<Self> {
        let mut fields = Fields::default();
        for element in record {
            let (name, value): (&CStr, RawBsonRef<'r>) = element.map_err(handfast_mql::Error::from)?;
            match name.as_str() {
                "o" => fields.kind = value.as_str().unwrap_or_default(),
                "d" => fields.database = value.as_str().unwrap_or_default(),
                "c" => fields.collection = value.as_str(),
                "k" => fields.id = Some(value),
                "f" => fields.after = value.as_document(),
                "b" => fields.before = value.as_document(),
                "u" => fields.update_description = value.as_document(),
                "t" => fields.to = value.as_document(),
                "p" => fields.description = value.as_document(),
                "v" => fields.is_of_view = value.as_bool().unwrap_or(false),
                "s" => fields.session = Some(value),
                "n" => fields.number = value.as_i64(),
                _ => {}
            }
        }
        if fields.id.is_none() {
            fields.id = fields.after.and_then(|after| after.get("_id").ok().flatten());
        }
        Ok(fields)
    }
}
