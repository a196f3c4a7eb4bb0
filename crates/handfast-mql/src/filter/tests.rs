use super::*;
use bson::{DateTime, RawDocumentBuf, Timestamp, rawdoc};

pub(super) fn context() -> Context {
    Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0)
}

fn compile(filter: &RawDocumentBuf) -> Filter {
    Filter::compile(filter, &CompileOptions::default()).unwrap()
}

pub(super) fn check(filter: RawDocumentBuf, document: RawDocumentBuf, expected: bool) {
    let matched = compile(&filter).matches(&document, &context()).unwrap();
    assert_eq!(matched, expected, "{filter:?} on {document:?}");
}

#[test]
fn equality() {
    check(rawdoc! {}, rawdoc! { "a": 1 }, true);
    check(rawdoc! { "a": 1 }, rawdoc! { "a": 1.0 }, true);
    check(rawdoc! { "a": 1 }, rawdoc! { "a": [2, 1] }, true);
}
