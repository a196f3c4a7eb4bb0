//! The request that opens a change stream.

use bson::{RawDocumentBuf, Timestamp};

use super::Namespace;

/// Opens a change stream.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The collections whose changes are shown.
    pub scope: WatchScope,
    /// The moment at which the stream begins.
    pub start: WatchStart,
    /// Whether events of updates have the whole document.
    pub full_document: FullDocument,
    /// Whether events have the document before the change.
    pub full_document_before: FullDocumentBefore,
    /// Whether there are events of created collections and of indexes, and further fields.
    pub expanded: bool,
    /// The stages after `$changeStream`.
    pub pipeline: Vec<RawDocumentBuf>,
    /// The values of `let`.
    pub variables: RawDocumentBuf,
}

impl Watch {
    /// Creates a request for the changes from now on.
    pub fn new(scope: WatchScope) -> Self {
        Watch {
            scope,
            start: WatchStart::Now,
            full_document: FullDocument::default(),
            full_document_before: FullDocumentBefore::default(),
            expanded: false,
            pipeline: Vec::new(),
            variables: RawDocumentBuf::new(),
        }
    }
}

/// The collections whose changes a stream shows. It never shows those of `admin`, `config` and `local`, and of system collections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// One collection, which need not exist yet.
    Collection(Namespace),
    /// All collections of a database.
    Database(String),
    /// All collections.
    Deployment,
}

/// The moment at which a change stream begins.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchStart {
    /// When it is opened.
    Now,
    /// After the event of this token, which must not be that of an invalidation.
    ResumeAfter(RawDocumentBuf),
    /// After the event of this token.
    StartAfter(RawDocumentBuf),
    /// At this moment of the cluster time.
    At(Timestamp),
}

/// Whether events of updates have the whole document, MongoDB's `fullDocument`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullDocument {
    /// Events of inserts and replacements have it.
    #[default]
    Default,
    /// Events of updates have it as it is when the event is read, or null.
    UpdateLookup,
    /// Events of updates have it as it was after the update, or null if the collection does not keep that.
    WhenAvailable,
    /// As `WhenAvailable`, with an error in place of null.
    Required,
}

/// Whether events have the document before the change, MongoDB's `fullDocumentBeforeChange`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullDocumentBefore {
    /// They do not have it.
    #[default]
    Off,
    /// They have it, or null if the collection does not keep that.
    WhenAvailable,
    /// As `WhenAvailable`, with an error in place of null.
    Required,
}
