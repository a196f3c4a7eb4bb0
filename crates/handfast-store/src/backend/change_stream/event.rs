//! The events that a stream shows for the records of a log.

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::LoggedChange;
use super::record::{self, Fields};
use super::token::{LogId, ResumeToken, TokenKind};
use crate::{Error, FullDocumentBefore, Namespace, Result, WatchScope};

/// The SHA-256 of nothing, which MongoDB shows as the user of sessions without a login.
const NO_USER: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// The changes of the catalog that only a stream with expanded events shows.
const EXPANDED: [&str; 4] = ["create", "createIndexes", "dropIndexes", "modify"];

/// Returns whether a stream shows a change.
pub(super) fn is_shown(scope: &WatchScope, expanded: bool, fields: &Fields<'_>) -> bool {
    if !expanded && (EXPANDED.contains(&fields.kind) || fields.is_of_view) {
        return false;
    }
    match scope {
        WatchScope::Collection(_) if fields.is_of_view => false,
        WatchScope::Deployment => true,
        WatchScope::Database(database) => {
            fields.database == database || fields.to.is_some_and(|to| to.get_str("db").is_ok_and(|to| to == database))
        }
        WatchScope::Collection(namespace) => is_about(fields, namespace),
    }
}

fn is_about(fields: &Fields<'_>, namespace: &Namespace) -> bool {
    let is_name =
        |database: &str, collection: &str| (database, collection) == (namespace.database(), namespace.collection());
    let new_name = fields.to.and_then(|to| Some((to.get_str("db").ok()?, to.get_str("coll").ok()?)));
    fields.collection.is_some_and(|collection| is_name(fields.database, collection))
        || new_name.is_some_and(|(database, collection)| is_name(database, collection))
}

/// Returns whether a change that a stream shows ends the stream.
pub(super) fn invalidates(scope: &WatchScope, fields: &Fields<'_>) -> bool {
    match scope {
        WatchScope::Deployment => false,
        WatchScope::Database(database) => fields.kind == "dropDatabase" && fields.database == database,
        WatchScope::Collection(_) => matches!(fields.kind, "drop" | "rename"),
    }
}

/// The whole document of an event.
pub(super) enum Document<'d> {
    /// The event has no such field.
    Absent,
    /// The document, or null.
    Shown(Option<&'d RawDocument>),
}

/// Returns the event of a change.
pub(super) fn of_change(
    change: &LoggedChange,
    fields: &Fields<'_>,
    log: LogId,
    expanded: bool,
    [after, before]: [Document<'_>; 2],
) -> RawDocumentBuf {
    let kind = match fields.kind {
        "i" => "insert",
        "u" => "update",
        "r" => "replace",
        "d" => "delete",
        other => other,
    };
    let token = ResumeToken { position: change.position, kind: TokenKind::Event, log };
    let mut event = begin(token, kind, change);
    if let (Some(session), Some(number)) = (fields.session, fields.number) {
        let user = Binary { subtype: BinarySubtype::Generic, bytes: NO_USER.to_vec() };
        let mut lsid = RawDocumentBuf::new();
        lsid.append(cstr!("id"), session);
        lsid.append(cstr!("uid"), user);
        event.append(cstr!("lsid"), lsid);
        event.append(cstr!("txnNumber"), number);
    }
    if expanded && fields.collection.is_some() && !fields.is_of_view {
        event.append(cstr!("collectionUUID"), record::uuid(change.collection));
    }
    event.append(cstr!("wallTime"), change.wall_time);
    if let Document::Shown(document) = after {
        event.append(cstr!("fullDocument"), or_null(document));
    }
    let mut namespace = rawdoc! { "db": fields.database };
    if let Some(collection) = fields.collection {
        namespace.append(cstr!("coll"), collection);
    }
    event.append(cstr!("ns"), namespace);
    if let Some(to) = fields.to {
        event.append(cstr!("to"), to);
    }
    if let Some(id) = fields.id {
        let mut key = RawDocumentBuf::new();
        key.append(cstr!("_id"), id);
        event.append(cstr!("documentKey"), key);
    }
    if let Some(description) = fields.update_description {
        event.append(cstr!("updateDescription"), description);
    }
    if let Some(description) = fields.description.filter(|_| expanded) {
        event.append(cstr!("operationDescription"), description);
    }
    if let Document::Shown(document) = before {
        event.append(cstr!("fullDocumentBeforeChange"), or_null(document));
    }
    event
}

/// Returns the event that follows the last change of a stream.
pub(super) fn of_invalidation(change: &LoggedChange, log: LogId) -> RawDocumentBuf {
    let token = ResumeToken { position: change.position, kind: TokenKind::Invalidation, log };
    let mut event = begin(token, "invalidate", change);
    event.append(cstr!("wallTime"), change.wall_time);
    event
}

fn begin(token: ResumeToken, kind: &str, change: &LoggedChange) -> RawDocumentBuf {
    let mut event = RawDocumentBuf::new();
    event.append(cstr!("_id"), token.to_document());
    event.append(cstr!("operationType"), kind);
    event.append(cstr!("clusterTime"), change.time);
    event
}

fn or_null(document: Option<&RawDocument>) -> RawBsonRef<'_> {
    document.map_or(RawBsonRef::Null, RawBsonRef::Document)
}

/// Returns the document before a change, as an event shows it.
///
/// # Errors
/// `NoMatchingDocument` (47) if it is required and the collection did not keep it.
pub(super) fn document_before<'r>(fields: &Fields<'r>, wanted: FullDocumentBefore) -> Result<Document<'r>> {
    let changes_document = matches!(fields.kind, "u" | "r" | "d");
    match (wanted, fields.before) {
        (FullDocumentBefore::Off, _) => Ok(Document::Absent),
        _ if !changes_document => Ok(Document::Absent),
        (FullDocumentBefore::Required, None) => Err(missing_image("pre-image")),
        (_, before) => Ok(Document::Shown(before)),
    }
}

/// Returns the error of a required document that the collection did not keep.
pub(super) fn missing_image(what: &str) -> Error {
    let text = format!(
        "Change stream was configured to require a {what} for all update, delete and replace events, but the {what} was not \
         found: this server keeps none (changeStreamPreAndPostImages)"
    );
    Error::command(Code::NoMatchingDocument, text)
}
