//! Compiles any array of documents as a pipeline and runs it over any document: the results are valid BSON, or an error.
#![no_main]

use bson::{DateTime, RawDocument, Timestamp};
use handfast_mql::{CompileOptions, Context, Pipeline, depth};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The input is `{pipeline: [..]}` and a document, one after the other.
    let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize) else { return };
    let Some((first, second)) = bytes.split_at_checked(length) else { return };
    let limits = depth::Limits::default();
    if depth::check(first, limits).is_err() || depth::check(second, limits).is_err() {
        return;
    }
    let (command, document) =
        (RawDocument::from_bytes(first).expect("checked"), RawDocument::from_bytes(second).expect("checked"));
    let Ok(stages) = command.get_array("pipeline") else { return };
    let stages: Vec<&RawDocument> = stages.into_iter().filter_map(|stage| stage.ok()?.as_document()).collect();
    let Ok(pipeline) = Pipeline::compile(&stages, &CompileOptions::default()) else { return };
    if !pipeline.is_pure() {
        return;
    }
    let context = Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 1);
    if let Ok(documents) = pipeline.run([document.to_owned(), document.to_owned()], &context) {
        // Results may be nested more deeply than the input; a store checks them.
        let limits = depth::Limits { nesting_max: usize::MAX, bytes_max: usize::MAX };
        for document in documents {
            depth::check(document.as_bytes(), limits).expect("a pipeline made an unsound document");
        }
    }
});
