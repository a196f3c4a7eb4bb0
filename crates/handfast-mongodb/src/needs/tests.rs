use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use handfast_store::{
    CreateIndexes, Delete, DeleteStatement, Find, Hint, IndexSpec, Namespace, RenameCollection, Update, UpdateSpec,
    UpdateStatement,
};

use super::{Needs, Stored, check};
use crate::capability::{Capabilities, Capability};

fn c() -> Namespace {
    Namespace::new("d", "c").expect("a valid name")
}

/// Returns the capabilities that a request needs.
fn needed(request: &impl Needs) -> Vec<Capability> {
    let mut all = Vec::new();
    let reported = request.needs(&mut |capability| {
        all.push(capability);
        Ok(())
    });
    reported.expect("nothing is refused");
    all
}

fn updating(statement: UpdateStatement) -> Update {
    Update::new(c(), vec![statement])
}

fn set(change: RawDocumentBuf) -> UpdateStatement {
    UpdateStatement::one(rawdoc! {}, UpdateSpec::Document(change))
}

#[test]
fn plain_requests_need_nothing() {
    assert_eq!(needed(&Find::new(c(), rawdoc! { "a.b": 1 })), []);
    assert_eq!(needed(&updating(set(rawdoc! { "$set": { "a.b": [[1]] } }))), [], "a path, and an argument");
    assert_eq!(needed(&Delete::new(c(), vec![])), []);
    assert_eq!(needed(&Stored(&rawdoc! { "_id": 1, "a": [{ "b": [1.5] }], "t": true, "n": null })), []);
    assert_eq!(needed(&CreateIndexes { namespace: c(), indexes: vec![IndexSpec::new(rawdoc! { "a": 1 })] }), []);
}

#[test]
fn options_of_requests_are_needed() {
    let hint = Some(Hint::Name("a_1".to_owned()));
    let find = Find { hint: hint.clone(), variables: rawdoc! { "x": 1 }, ..Find::new(c(), rawdoc! {}) };
    assert_eq!(needed(&find), [Capability::Hints, Capability::Variables]);
    let pipeline = UpdateStatement::one(rawdoc! {}, UpdateSpec::Pipeline(vec![]));
    let statement = UpdateStatement { constants: rawdoc! { "k": 1 }, ..pipeline };
    assert_eq!(needed(&updating(statement)), [Capability::PipelineUpdates, Capability::Constants]);
    let statement = UpdateStatement { array_filters: vec![rawdoc! {}], sort: rawdoc! { "a": 1 }, ..set(rawdoc! {}) };
    assert_eq!(needed(&updating(statement)), [Capability::ArrayFilters, Capability::SortedUpdates]);
    let delete = Delete::new(c(), vec![DeleteStatement { filter: rawdoc! {}, multi: false, hint }]);
    assert_eq!(needed(&delete), [Capability::Hints]);
    let rename = RenameCollection { from: c(), to: Namespace::new("e", "c").expect("valid"), drop_target: true };
    assert_eq!(needed(&rename), [Capability::RenameAcrossDatabases, Capability::RenameOntoAnother]);
}

#[test]
fn options_of_indexes_are_needed() {
    let spec = || IndexSpec::new(rawdoc! { "a": 1 });
    let indexes = vec![
        IndexSpec { sparse: true, ..spec() },
        IndexSpec { partial_filter: Some(rawdoc! {}), ..spec() },
        IndexSpec { expire_after_seconds: Some(1), hidden: true, ..spec() },
    ];
    let expected =
        [Capability::SparseIndexes, Capability::PartialIndexes, Capability::ExpiringIndexes, Capability::HiddenIndexes];
    assert_eq!(needed(&CreateIndexes { namespace: c(), indexes }), expected);
}

#[test]
fn values_are_needed_however_deep_they_are() {
    let check = |value: RawBson, expected: &[Capability]| {
        let inner = rawdoc! { "v": value.clone() };
        assert_eq!(needed(&Stored(&rawdoc! { "_id": 1, "a": { "b": inner.clone() } })), expected, "{value:?}");
        let element = rawdoc! { "_id": 1, "a": RawArrayBuf::from_iter([inner]) };
        assert_eq!(needed(&Stored(&element)), expected, "{value:?} in an array");
        let replacement = updating(set(rawdoc! { "v": value.clone() }));
        assert_eq!(needed(&replacement), expected, "{value:?} in a replacement");
    };
    check(f64::NAN.into(), &[Capability::InfiniteNumbers]);
    check(f64::NEG_INFINITY.into(), &[Capability::InfiniteNumbers]);
    check(RawBson::MaxKey, &[Capability::ExtremeKeys]);
    check(RawBson::Undefined, &[Capability::ObsoleteTypes]);
    check(RawBson::Decimal128(bson::Decimal128::from_bytes([0; 16])), &[Capability::Decimals]);
    check(RawArrayBuf::from_iter([RawArrayBuf::new()]).into(), &[Capability::NestedArrays]);
    check(rawdoc! { "x.y": 1 }.into(), &[Capability::DottedNames]);
}

#[test]
fn a_nan_in_an_id_is_needed_where_the_document_is_written() {
    let nested = rawdoc! { "a": [1, { "b": f64::NAN }] };
    for (id, expected) in [
        (RawBson::from(f64::NAN), [Capability::NanIds].as_slice()),
        (nested.into(), &[Capability::NanIds]),
        (1.5.into(), &[]),
        ("NaN".into(), &[]),
    ] {
        let finds_nan =
            |all: Vec<Capability>| all.into_iter().filter(|one| *one == Capability::NanIds).collect::<Vec<_>>();
        assert_eq!(finds_nan(needed(&Stored(&rawdoc! { "_id": id.clone() }))), expected, "{id:?} stored");
        let filter = rawdoc! { "_id": { "$eq": id.clone() }, "x": f64::NAN };
        let update = UpdateStatement::one(filter.clone(), UpdateSpec::Document(rawdoc! { "$set": { "n": 1 } }));
        assert_eq!(finds_nan(needed(&updating(update))), expected, "{id:?} updated");
        assert_eq!(needed(&Delete::new(c(), vec![DeleteStatement { filter, multi: false, hint: None }])), []);
    }
    let number = rawdoc! { "_id": 1, "n": f64::NAN };
    assert_eq!(needed(&Stored(&number)), [Capability::InfiniteNumbers]);
}

#[test]
fn missing_capabilities_are_refused_by_name() {
    let server = Capabilities::new("Tiny 1".to_owned(), [Capability::Hints]);
    let find = |hint| Find { hint, ..Find::new(c(), rawdoc! {}) };
    check(&find(None), &server).expect("nothing is missing for it");
    let refused = check(&find(Some(Hint::Key(rawdoc! { "a": 1 }))), &server).expect_err("hints are missing");
    assert_eq!(refused.message(), "the server (Tiny 1) has no hints");
    assert_eq!(refused.code(), handfast_mql::Code::CommandNotSupported);
    check(&find(Some(Hint::Key(rawdoc! { "a": 1 }))), &Capabilities::default()).expect("nothing is missing at all");
}
