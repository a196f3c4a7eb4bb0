use bson::{DateTime, Document, RawDocumentBuf, Timestamp};

use super::{Applied, Update, UpdateOptions, UpdateSource};
use crate::{Code, Context, MatchPosition, Result};

/// The time 2001-09-09T01:46:40Z.
const NOW_MILLIS: i64 = 1_000_000_000_000;

fn context() -> Context {
    Context::new(DateTime::from_millis(NOW_MILLIS), Timestamp { time: 9, increment: 3 }, 1)
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

struct Case {
    position: MatchPosition,
    filters: Vec<RawDocumentBuf>,
}

/// A case without a position, array filters and variables.
const PLAIN: Case = Case { position: MatchPosition { array_index: None }, filters: Vec::new() };

fn at(position: usize) -> Case {
    Case { position: MatchPosition { array_index: Some(position) }, filters: Vec::new() }
}

fn filtered<const N: usize>(filters: [Document; N]) -> Case {
    Case { position: MatchPosition::default(), filters: filters.iter().map(raw).collect() }
}

impl Case {
    fn run(&self, document: &Document, update: &Document) -> Result<Applied> {
        let options = UpdateOptions { array_filters: &self.filters, ..Default::default() };
        let update = Update::compile(UpdateSource::Document(&raw(update)), &options)?;
        update.apply(&raw(document), self.position, &context())
    }

    #[track_caller]
    fn check(&self, document: Document, update: Document, expected: Document) {
        let applied = self.run(&document, &update).unwrap_or_else(|error| panic!("{update}: {error:?}"));
        let actual = Document::try_from(&applied.document).unwrap();
        assert_eq!(actual, expected, "{document} {update}");
        assert_eq!(applied.document, raw(&expected), "{document} {update}: same values, other bytes");
        assert_eq!(applied.modified, document != expected, "{document} {update}: modified");
    }

    #[track_caller]
    fn fails(&self, document: Document, update: Document, code: Code, message: &str) {
        let error = self.run(&document, &update).expect_err(&format!("{update} must fail"));
        assert_eq!((error.code(), error.message()), (code, message), "{document} {update}");
    }
}

#[track_caller]
fn check(document: Document, update: Document, expected: Document) {
    PLAIN.check(document, update, expected);
}

#[track_caller]
fn fails(document: Document, update: Document, code: Code, message: &str) {
    PLAIN.fails(document, update, code, message);
}

#[track_caller]
fn unchanged(document: Document, update: Document) {
    PLAIN.check(document.clone(), update, document);
}

mod arrays;
mod bounds;
mod fields;
mod forms;
mod model;
mod pipeline;
mod positional;
mod upsert;
