//! Compiles any document as an update and applies it to any document: the result is valid BSON, or an error.
//!
//! The input is two documents, one after the other: the update and the document that it is applied to. An update `{pipeline: [..]}`
//! is a pipeline. A third document has array filters, one in each field.
//!
//! Each update is also applied to an array `a` of many copies of the document, as `$[]` multiplies the cost of an element.
#![no_main]

use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{DateTime, RawBsonRef, RawDocument, Timestamp};
use handfast_mql::filter::MatchPosition;
use handfast_mql::update::{Update, UpdateOptions, UpdateSource};
use handfast_mql::{Context, depth};
use libfuzzer_sys::fuzz_target;

/// The largest number of copies in the array.
const COPIES_MAX: usize = 1000;
/// The largest size of all copies in bytes, so that an update stays quick.
const COPIES_BYTES_MAX: usize = 256 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let Some((change, rest)) = next(bytes) else { return };
    let Some((document, rest)) = next(rest) else { return };
    let array_filters = match next(rest) {
        Some((filters, [])) => documents(filters.iter().flatten().map(|(_, filter)| filter)),
        None if rest.is_empty() => Vec::new(),
        _ => return,
    };
    let stages = match change.get("pipeline") {
        Ok(Some(RawBsonRef::Array(stages))) => Some(documents(stages.into_iter().flatten())),
        _ => None,
    };
    let source = match &stages {
        Some(stages) => UpdateSource::Pipeline(stages),
        None => UpdateSource::Document(change),
    };
    let options = UpdateOptions { array_filters: &array_filters, ..UpdateOptions::default() };
    let Ok(update) = Update::compile(source, &options) else { return };
    apply(&update, document);
    apply(&update, &copies(document));
});

/// Returns the document at the start of the bytes, if it is valid, and the bytes after it.
fn next(bytes: &[u8]) -> Option<(&RawDocument, &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let (document, rest) = bytes.split_at_checked(length)?;
    depth::check(document, depth::Limits::default()).ok()?;
    Some((RawDocument::from_bytes(document).expect("checked"), rest))
}

/// Returns the values that are documents.
fn documents<'a>(values: impl Iterator<Item = RawBsonRef<'a>>) -> Vec<RawDocumentBuf> {
    values.filter_map(|value| value.as_document().map(ToOwned::to_owned)).collect()
}

/// Returns `{a: [document, document, ..]}`.
fn copies(document: &RawDocument) -> RawDocumentBuf {
    let count = (COPIES_BYTES_MAX / document.as_bytes().len()).clamp(1, COPIES_MAX);
    let mut copies = RawDocumentBuf::new();
    copies.append(cstr!("a"), std::iter::repeat_n(document, count).collect::<RawArrayBuf>());
    copies
}

fn apply(update: &Update, document: &RawDocument) {
    let context = Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 1);
    let position = MatchPosition { array_index: Some(0) };
    let Ok(applied) = update.apply(document, position, &context) else { return };
    // The result may be nested more deeply than the update and the document; a store checks it.
    let limits = depth::Limits { nesting_max: usize::MAX, ..depth::Limits::default() };
    depth::check(applied.document.as_bytes(), limits).expect("the result of an update is not valid BSON");
    if !applied.modified {
        assert_eq!(applied.document.as_bytes(), document.as_bytes());
    }
    assert_eq!(update.apply(document, position, &context).expect("the first application succeeded"), applied);
}
