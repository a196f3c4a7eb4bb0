//! Any document is an update or an error; applied to any document it gives one that is sound, or an error.
//!
//! Each update is also applied to an array of many copies of the document, `a`: what one element costs, `$[]` makes many.
#![no_main]

use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{DateTime, RawDocument, Timestamp};
use handfast_mql::filter::MatchPosition;
use handfast_mql::update::{Update, UpdateOptions, UpdateSource};
use handfast_mql::{Context, depth};
use libfuzzer_sys::fuzz_target;

/// Copies in the array, at most.
const COPIES_MAX: usize = 1000;
/// Bytes of the copies, at most: an application must stay quick.
const COPIES_BYTES_MAX: usize = 256 * 1024;

fuzz_target!(|bytes: &[u8]| {
    // The input is two documents, one behind the other.
    let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize) else { return };
    let Some((first, second)) = bytes.split_at_checked(length) else { return };
    let limits = depth::Limits::default();
    if depth::check(first, limits).is_err() || depth::check(second, limits).is_err() {
        return;
    }
    let (change, document) =
        (RawDocument::from_bytes(first).expect("checked"), RawDocument::from_bytes(second).expect("checked"));
    let Ok(update) = Update::compile(UpdateSource::Document(change), &UpdateOptions::default()) else { return };
    apply(&update, document);
    apply(&update, &copies(document));
});

/// `{a: [document, document, ..]}`
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
    // An update may nest deeper than either of the two; the store checks the result before it keeps it.
    let limits = depth::Limits { nesting_max: usize::MAX, ..depth::Limits::default() };
    depth::check(applied.document.as_bytes(), limits).expect("an update made an unsound document");
    if !applied.modified {
        assert_eq!(applied.document.as_bytes(), document.as_bytes());
    }
    assert_eq!(update.apply(document, position, &context).expect("it worked once"), applied);
}
