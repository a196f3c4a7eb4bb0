use bson::raw::cstr;
use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use handfast_store::{
    Aggregate, AggregateSource, Count, CreateIndexes, DeleteStatement, DropIndexes, Explain, Explained, Find,
    FindAndModify, Hint, IndexSelector, IndexSpec, Modification, ModifyCollection, ModifyIndex, Namespace,
    RenameCollection, ReturnDocument, UpdateSpec, UpdateStatement, Verbosity,
};

use super::{
    Command, aggregate, bounds, count, create_indexes, delete_statement, drop_indexes, explain, find, find_and_modify,
    modify_collection, rename, update_statement,
};

fn c() -> Namespace {
    Namespace::new("d", "c").expect("a valid name")
}

fn check(command: Command, expected: RawDocumentBuf) {
    assert_eq!(command.done(), expected);
}

#[test]
fn a_find_says_what_the_request_says_and_no_more() {
    check(find(&Find::new(c(), rawdoc! { "a": 1 })), rawdoc! { "find": "c", "filter": { "a": 1 } });
    let request = Find {
        projection: rawdoc! { "a": 1 },
        sort: rawdoc! { "b": -1 },
        skip: 3,
        limit: Some(5),
        hint: Some(Hint::Name("a_1".to_owned())),
        min: Some(rawdoc! { "a": 1 }),
        max: Some(rawdoc! { "a": 9 }),
        return_key: true,
        show_record_id: true,
        variables: rawdoc! { "x": "$a" },
        ..Find::new(c(), rawdoc! {})
    };
    let expected = rawdoc! {
        "find": "c", "filter": {}, "projection": { "a": 1 }, "sort": { "b": -1 }, "skip": 3_i64, "limit": 5_i64,
        "hint": "a_1", "min": { "a": 1 }, "max": { "a": 9 }, "returnKey": true, "showRecordId": true,
        "let": { "x": { "$literal": "$a" } },
    };
    check(find(&request), expected);
}

#[test]
fn a_skip_and_a_limit_are_numbers_that_a_server_takes() {
    let check = |skip, limit, expected| assert_eq!(bounds(skip, limit), expected, "{skip} {limit:?}");
    check(0, None, (None, None));
    check(2, Some(3), (Some(2), Some(3)));
    // A limit of 0 means no documents, and in a command all documents; so the command asks for one,
    // which the caller drops.
    check(0, Some(0), (None, Some(1)));
    check(u64::MAX, Some(u64::MAX), (Some(i64::MAX), None));
    check(5, Some(u64::MAX), (Some(5), None));
}

#[test]
fn statements_of_updates_and_deletes() {
    let one = UpdateStatement::one(rawdoc! { "_id": 1 }, UpdateSpec::Document(rawdoc! { "$inc": { "a": 1 } }));
    assert_eq!(update_statement(&one, &rawdoc! {}), rawdoc! { "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } });
    let all = UpdateStatement {
        multi: true,
        upsert: true,
        array_filters: vec![rawdoc! { "x": 1 }],
        sort: rawdoc! { "s": 1 },
        hint: Some(Hint::Key(rawdoc! { "a": 1 })),
        constants: rawdoc! { "k": "$v" },
        ..UpdateStatement::one(rawdoc! {}, UpdateSpec::Pipeline(vec![rawdoc! { "$unset": "a" }]))
    };
    let expected = rawdoc! {
        "q": {}, "u": [{ "$unset": "a" }], "multi": true, "upsert": true, "arrayFilters": [{ "x": 1 }],
        "sort": { "s": 1 }, "hint": { "a": 1 }, "c": { "k": "$v" },
    };
    assert_eq!(update_statement(&all, &rawdoc! {}), expected);
    let delete =
        |multi| delete_statement(&DeleteStatement { filter: rawdoc! { "a": 1 }, multi, hint: None }, &rawdoc! {});
    assert_eq!(delete(false), rawdoc! { "q": { "a": 1 }, "limit": 1 });
    assert_eq!(delete(true), rawdoc! { "q": { "a": 1 }, "limit": 0 });
}

#[test]
fn a_find_and_modify_removes_or_changes() {
    let remove = FindAndModify::new(c(), rawdoc! { "a": 1 }, Modification::Remove);
    check(find_and_modify(&remove), rawdoc! { "findAndModify": "c", "query": { "a": 1 }, "remove": true });
    let change = Modification::Update {
        update: UpdateSpec::Document(rawdoc! { "b": 2 }),
        upsert: true,
        returns: ReturnDocument::After,
        array_filters: vec![],
    };
    let request = FindAndModify {
        sort: rawdoc! { "a": 1 },
        projection: rawdoc! { "b": 1 },
        ..FindAndModify::new(c(), rawdoc! {}, change)
    };
    let expected = rawdoc! {
        "findAndModify": "c", "query": {}, "sort": { "a": 1 }, "fields": { "b": 1 }, "update": { "b": 2 },
        "upsert": true, "new": true,
    };
    check(find_and_modify(&request), expected);
}

#[test]
fn aggregations_and_counts() {
    let pipeline = vec![rawdoc! { "$match": {} }];
    let expected = rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }], "cursor": {} };
    check(aggregate(&Aggregate::new(c(), pipeline.clone())), expected);
    let source = AggregateSource::Database("d".to_owned());
    let expected = rawdoc! { "aggregate": 1, "pipeline": [{ "$match": {} }], "cursor": {} };
    check(aggregate(&Aggregate { source, ..Aggregate::new(c(), pipeline) }), expected);
    let counted = Count { skip: 1, limit: Some(2), ..Count::new(c(), rawdoc! { "a": 1 }) };
    check(count(&counted), rawdoc! { "count": "c", "query": { "a": 1 }, "skip": 1_i64, "limit": 2_i64 });
    let explained = Explained::Find(Find::new(c(), rawdoc! {}));
    let expected = rawdoc! { "explain": { "find": "c", "filter": {} }, "verbosity": "executionStats" };
    check(explain(&Explain { explained, verbosity: Verbosity::ExecutionStats }), expected);
}

#[test]
fn definitions_of_indexes_and_collections() {
    let spec = IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "a": 1 }) };
    let expected = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1", "unique": true }] };
    check(create_indexes(&CreateIndexes { namespace: c(), indexes: vec![spec] }), expected);
    let dropped = |selector, expected: RawBson| {
        let mut command = rawdoc! { "dropIndexes": "c" };
        command.append(cstr!("index"), expected);
        check(drop_indexes(&DropIndexes { namespace: c(), selector }), command);
    };
    dropped(IndexSelector::All, "*".into());
    dropped(IndexSelector::Names(vec!["a_1".to_owned()]), "a_1".into());
    let two = vec!["a_1".to_owned(), "b_1".to_owned()];
    dropped(IndexSelector::Names(two), RawArrayBuf::from_iter(["a_1", "b_1"]).into());
    dropped(IndexSelector::Key(rawdoc! { "a": 1 }), rawdoc! { "a": 1 }.into());
    let index = ModifyIndex {
        selector: IndexSelector::Names(vec!["t_1".to_owned()]),
        expire_after_seconds: Some(60),
        hidden: None,
    };
    let expected = rawdoc! { "collMod": "c", "index": { "name": "t_1", "expireAfterSeconds": 60_i64 } };
    check(modify_collection(&ModifyCollection { index: Some(index), ..ModifyCollection::new(c()) }), expected);
    let request = RenameCollection { from: c(), to: Namespace::new("e", "f").expect("valid"), drop_target: true };
    check(rename(&request), rawdoc! { "renameCollection": "d.c", "to": "e.f", "dropTarget": true });
}
