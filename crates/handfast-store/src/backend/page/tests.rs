use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::IteratorCursor;
use crate::{BatchLimit, Error, Result};

fn numbered(count: i32) -> impl Iterator<Item = Result<RawDocumentBuf>> {
    (0..count).map(|n| Ok(rawdoc! { "_id": n }))
}

/// Returns the number of documents of each page.
fn pages(count: i32, limit: BatchLimit) -> Vec<usize> {
    let mut paged = IteratorCursor::new(numbered(count));
    let mut sizes = Vec::new();
    loop {
        let page = paged.page(limit).expect("no error");
        sizes.push(page.documents.len());
        if page.exhausted {
            return sizes;
        }
    }
}

#[test]
fn pages_are_full_and_the_last_one_says_so() {
    let documents = |documents| BatchLimit { documents, bytes: usize::MAX };
    assert_eq!(pages(0, documents(3)), [0]);
    assert_eq!(pages(2, documents(3)), [2]);
    assert_eq!(pages(3, documents(3)), [3]);
    assert_eq!(pages(7, documents(3)), [3, 3, 1]);
    assert_eq!(pages(2, documents(0)), [1, 1]);
    // Each document has 14 bytes.
    let bytes = |bytes| BatchLimit { documents: usize::MAX, bytes };
    assert_eq!(pages(5, bytes(28)), [2, 2, 1]);
    assert_eq!(pages(5, bytes(41)), [2, 2, 1]);
    assert_eq!(pages(2, bytes(1)), [1, 1]);
}

#[test]
fn an_error_ends_the_cursor() {
    let failing = numbered(1).chain([Err(Error::command(Code::BadValue, "no")), Ok(rawdoc! { "_id": 9 })]);
    let mut paged = IteratorCursor::new(failing);
    paged.page(BatchLimit::REPLY).expect_err("the error");
    let mut rest = Vec::new();
    for _ in 0..3 {
        rest.extend(paged.page(BatchLimit::REPLY).expect("no more errors").documents);
    }
    assert!(!rest.contains(&rawdoc! { "_id": 9 }));
}
