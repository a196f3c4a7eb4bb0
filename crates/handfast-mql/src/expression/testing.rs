//! Tables of cases: an expression, a document, the expected result.

use bson::{Bson, DateTime, Document, RawBson, RawDocumentBuf, Timestamp, doc};

use super::Expression;
use crate::{CompileOptions, Context, Result};

/// Creates the context of all tests: half past midnight at the epoch.
pub(crate) fn context() -> Context {
    Context::new(DateTime::from_millis(1_800_000), Timestamp { time: 7, increment: 3 }, 42)
}

/// Evaluates; `None` is missing.
pub(crate) fn evaluate(expression: impl Into<Bson>, document: Document) -> Result<Option<Bson>> {
    let source = RawBson::try_from(expression.into()).unwrap();
    let document = RawDocumentBuf::try_from(document).unwrap();
    let expression = Expression::compile(source.as_raw_bson_ref(), &CompileOptions::default())?;
    let context = context();
    let value = expression.evaluate(&document, &context)?;
    Ok(value.into_owned().map(|value| Bson::try_from(value).unwrap()))
}

/// Checks that the value of the expression is this one, type included.
#[track_caller]
pub(crate) fn check(expression: impl Into<Bson>, document: Document, expected: impl Into<Bson>) {
    let expression = expression.into();
    assert_eq!(evaluate(expression.clone(), document), Ok(Some(expected.into())), "{expression}");
}

/// Checks that the value of the expression without a document is this one.
#[track_caller]
pub(crate) fn gives(expression: impl Into<Bson>, expected: impl Into<Bson>) {
    check(expression, doc! {}, expected);
}

/// Checks that the value of the expression is missing.
#[track_caller]
pub(crate) fn check_missing(expression: impl Into<Bson>, document: Document) {
    let expression = expression.into();
    assert_eq!(evaluate(expression.clone(), document), Ok(None), "{expression}");
}

/// Checks that the expression fails with this code, when compiled or when evaluated.
#[track_caller]
pub(crate) fn check_error(expression: impl Into<Bson>, document: Document, code: i32) {
    let expression = expression.into();
    let error = evaluate(expression.clone(), document).map_err(|error| (error.code().0, error.message().to_owned()));
    match error {
        Err((found, message)) => assert_eq!(found, code, "{expression}: {message}"),
        Ok(value) => panic!("{expression} should fail with {code}, gives {value:?}"),
    }
}

/// Checks that the expression without a document fails with this code and this message.
#[track_caller]
pub(crate) fn fails(expression: impl Into<Bson>, code: i32, message: &str) {
    let expression = expression.into();
    let error = evaluate(expression.clone(), doc! {}).expect_err(&expression.to_string());
    assert_eq!((error.code().0, error.message()), (code, message), "{expression}");
}
