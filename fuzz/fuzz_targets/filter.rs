//! Compiles any document as a filter and evaluates it on any document, twice with the same result.
#![no_main]

use bson::{DateTime, RawDocument, Timestamp};
use handfast_mql::{CompileOptions, Context, Filter, depth};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The input is two documents, one after the other.
    let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize) else { return };
    let Some((first, second)) = bytes.split_at_checked(length) else { return };
    let limits = depth::Limits::default();
    if depth::check(first, limits).is_err() || depth::check(second, limits).is_err() {
        return;
    }
    let (filter, document) =
        (RawDocument::from_bytes(first).expect("checked"), RawDocument::from_bytes(second).expect("checked"));
    let context = Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 1);
    if let Ok(filter) = Filter::compile(filter, &CompileOptions::default()) {
        let once = filter.matches(document, &context);
        assert_eq!(once, filter.matches_position(document, &context).map(|position| position.is_some()));
    }
});
