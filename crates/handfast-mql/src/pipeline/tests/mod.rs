//! Tables of cases: a pipeline, its input, the expected results.

mod bounds;
mod densify;
mod fill;
mod foreign;
mod granularity;
mod group;
mod project;
mod random;
mod spill;
mod stages;
mod window;

use bson::{Bson, Document, RawDocumentBuf};

use super::Pipeline;
use crate::{CompileOptions, Result, expression::testing::context};

fn raw(documents: impl IntoIterator<Item = Document>) -> Vec<RawDocumentBuf> {
    documents.into_iter().map(|document| RawDocumentBuf::try_from(document).unwrap()).collect()
}

fn documents(array: impl Into<Bson>) -> Vec<Document> {
    match array.into() {
        Bson::Array(items) => items.into_iter().map(|item| item.as_document().unwrap().clone()).collect(),
        Bson::Document(document) => vec![document],
        other => panic!("{other} is no list of documents"),
    }
}

fn compile(stages: impl Into<Bson>) -> Result<Pipeline> {
    Pipeline::compile(&raw(documents(stages)), &CompileOptions::default())
}

fn run(stages: impl Into<Bson>, input: impl Into<Bson>) -> Result<Vec<Document>> {
    let results = compile(stages)?.run(raw(documents(input)), &context())?;
    Ok(results.into_iter().map(|document| Document::try_from(document).unwrap()).collect())
}

/// Checks that the pipeline returns exactly the expected documents.
#[track_caller]
fn check(stages: impl Into<Bson>, input: impl Into<Bson>, expected: impl Into<Bson>) {
    let stages = stages.into();
    assert_eq!(run(stages.clone(), input), Ok(documents(expected)), "{stages}");
}

/// Checks that the pipeline fails with this code, when it is compiled or when it runs on an empty
/// document.
#[track_caller]
fn check_error(stages: impl Into<Bson>, code: i32) {
    let stages = stages.into();
    match run(stages.clone(), Document::new()) {
        Err(error) => assert_eq!(error.code().0, code, "{stages}: {error}"),
        Ok(results) => panic!("{stages} should fail with {code}, gives {results:?}"),
    }
}
