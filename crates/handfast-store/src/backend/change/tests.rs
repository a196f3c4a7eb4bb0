use bson::{RawDocumentBuf, rawdoc};

use super::{Change, CompiledFindAndModify, joined};
use crate::{FindAndModify, Modification, Namespace, Result, ReturnDocument, Sources, UpdateSpec, UpdateStatement};

fn statement(filter: RawDocumentBuf, change: RawDocumentBuf) -> UpdateStatement {
    UpdateStatement::one(filter, UpdateSpec::Document(change))
}

fn compile(statement: &UpdateStatement) -> Result<Change, i32> {
    Change::of_statement(statement, &rawdoc! {}).map_err(|error| error.code().0)
}

/// Returns the document after the change, or `None` if it does not match.
fn apply(statement: &UpdateStatement, document: RawDocumentBuf) -> Result<Option<RawDocumentBuf>, i32> {
    let context = Sources::seeded(1).context(&rawdoc! {});
    let applied = compile(statement)?.apply(&document, &context).map_err(|error| error.code().0)?;
    Ok(applied.map(|applied| applied.document))
}

#[test]
fn a_change_checks_its_filter_again() {
    let raise = statement(rawdoc! { "n": { "$lt": 5 } }, rawdoc! { "$inc": { "n": 1 } });
    assert_eq!(apply(&raise, rawdoc! { "_id": 1, "n": 4 }), Ok(Some(rawdoc! { "_id": 1, "n": 5 })));
    assert_eq!(apply(&raise, rawdoc! { "_id": 1, "n": 5 }), Ok(None));
}

#[test]
fn positions_come_from_the_filter() {
    let at = statement(rawdoc! { "a": 2 }, rawdoc! { "$set": { "a.$": 9 } });
    assert_eq!(apply(&at, rawdoc! { "_id": 1, "a": [1, 2, 2] }), Ok(Some(rawdoc! { "_id": 1, "a": [1, 9, 2] })));
}

#[test]
fn a_change_keeps_the_id() {
    assert_eq!(apply(&statement(rawdoc! {}, rawdoc! { "$set": { "_id": 2 } }), rawdoc! { "_id": 1 }), Err(66));
    assert_eq!(apply(&statement(rawdoc! {}, rawdoc! { "_id": 2 }), rawdoc! { "_id": 1 }), Err(66));
    let pipeline = UpdateStatement::one(rawdoc! {}, UpdateSpec::Pipeline(vec![rawdoc! { "$set": { "_id": 2 } }]));
    assert_eq!(apply(&pipeline, rawdoc! { "_id": 1 }), Err(66));
}

#[test]
fn a_change_that_nests_too_deeply_is_refused() {
    let nested = |levels: usize| {
        let path = bson::raw::CString::try_from(vec!["a"; levels].join(".")).expect("no zero");
        let mut fields = RawDocumentBuf::new();
        fields.append(path, 1);
        statement(rawdoc! {}, rawdoc! { "$set": fields })
    };
    assert!(apply(&nested(90), rawdoc! { "_id": 1 }).is_ok());
    assert_eq!(apply(&nested(150), rawdoc! { "_id": 1 }), Err(15));
    let twice = UpdateStatement::one(rawdoc! {}, UpdateSpec::Pipeline(vec![rawdoc! { "$set": { "b": "$$ROOT" } }]));
    let mut document = rawdoc! { "_id": 1 };
    let refused = (0..200).find_map(|_| match apply(&twice, document.clone()) {
        Ok(grown) => {
            document = grown.expect("it matches");
            None
        }
        Err(code) => Some(code),
    });
    assert_eq!(refused, Some(15));
}

#[test]
fn statements_that_contradict_are_refused() {
    let many = |change: RawDocumentBuf| UpdateStatement { multi: true, ..statement(rawdoc! {}, change) };
    assert_eq!(compile(&many(rawdoc! { "a": 1 })).map(|_| ()), Err(9));
    let sorted = UpdateStatement { sort: rawdoc! { "a": 1 }, ..many(rawdoc! { "$set": { "a": 1 } }) };
    assert_eq!(compile(&sorted).map(|_| ()), Err(9));
    compile(&many(rawdoc! { "$set": { "a": 1 } })).expect("accepted");
}

#[test]
fn constants_come_before_variables() {
    let variables = rawdoc! { "a": 1, "b": 1 };
    let both = joined(&variables, &rawdoc! { "b": 2, "c": 2 }).expect("BSON");
    assert_eq!(both.into_owned(), rawdoc! { "b": 2, "c": 2, "a": 1 });
}

#[test]
fn an_insertion_is_ready_to_be_stored() {
    let sources = Sources::seeded(1);
    let change = compile(&statement(rawdoc! { "a": 1 }, rawdoc! { "$set": { "b": 2 } })).expect("valid");
    let made = change.insertion(&*sources.ids, &sources.context(&rawdoc! {})).expect("made");
    let names: Vec<_> = made.iter().flatten().map(|(name, _)| name.as_str().to_owned()).collect();
    assert_eq!(names, ["_id", "a", "b"]);
    let array = compile(&statement(rawdoc! { "_id": [1] }, rawdoc! { "$set": { "b": 2 } })).expect("valid");
    assert!(array.insertion(&*sources.ids, &sources.context(&rawdoc! {})).is_err());
}

#[test]
fn a_find_and_modify_returns_the_requested_version() {
    let context = Sources::seeded(1).context(&rawdoc! {});
    let compiled = |returns| {
        let update = UpdateSpec::Document(rawdoc! { "$set": { "a.$": 9 } });
        let change = Modification::Update { update, upsert: true, returns, array_filters: vec![] };
        let request = FindAndModify::new(Namespace::valid("d", "c"), rawdoc! { "a": 5 }, change);
        CompiledFindAndModify::compile(&FindAndModify { projection: rawdoc! { "a.$": 1 }, ..request }).expect("valid")
    };
    let (before, after) = (rawdoc! { "_id": 1, "a": [1, 5] }, rawdoc! { "_id": 1, "a": [1, 9] });
    // The position is that of the match in the document before the change, for both versions.
    let shown =
        |returns| compiled(returns).changed(before.clone(), Some(after.clone()), &context).expect("shown").value;
    assert_eq!(shown(ReturnDocument::Before), Some(rawdoc! { "_id": 1, "a": [5] }));
    assert_eq!(shown(ReturnDocument::After), Some(rawdoc! { "_id": 1, "a": [9] }));
}
