use bson::{Bson, DateTime, Document, RawDocumentBuf, Timestamp, doc};

use super::{Projection, tree};
use crate::{Code, CompileOptions, Context, MatchPosition, Result};

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn context() -> Context {
    Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 1)
}

fn run(projection: &Document, position: Option<usize>, document: &Document) -> Result<Document> {
    let projection = Projection::compile(&raw(projection), &CompileOptions::default())?;
    let shown = projection.apply(&raw(document), MatchPosition { array_index: position }, &context())?;
    crate::depth::check(shown.as_bytes(), Default::default()).unwrap();
    Ok(Document::try_from(&shown).unwrap())
}

#[track_caller]
fn check(document: Document, projection: Document, expected: Document) {
    let shown = run(&projection, None, &document).unwrap_or_else(|error| panic!("{projection}: {error:?}"));
    // `Document` compares as a map, so the text checks the order as well.
    assert_eq!(shown.to_string(), expected.to_string(), "{document} {projection}");
}

#[track_caller]
fn check_at(position: usize, document: Document, projection: Document, expected: Document) {
    let shown = run(&projection, Some(position), &document).unwrap();
    assert_eq!(shown.to_string(), expected.to_string(), "{document} {projection}");
}

#[track_caller]
fn fails(projection: Document, code: i32, message: &str) {
    let error = run(&projection, None, &doc! {}).expect_err("must fail");
    assert_eq!((error.code(), error.message()), (Code(code), message), "{projection}");
}

#[test]
fn included_fields_are_shown() {
    let document = || doc! { "_id": 1, "a": 1, "b": { "c": 2, "d": 3 }, "e": [{ "c": 1, "f": 2 }, 5, { "g": 1 }, [{ "c": 9 }, 7]] };
    check(document(), doc! { "a": 1 }, doc! { "_id": 1, "a": 1 });
    check(document(), doc! { "b": true, "a": 5.5 }, doc! { "_id": 1, "a": 1, "b": { "c": 2, "d": 3 } });
    check(document(), doc! { "a": 1, "_id": 0 }, doc! { "a": 1 });
    check(document(), doc! { "_id": 1 }, doc! { "_id": 1 });
    check(document(), doc! { "_id": 1, "a": 1 }, doc! { "_id": 1, "a": 1 });
    check(document(), doc! { "b.c": 1 }, doc! { "_id": 1, "b": { "c": 2 } });
    check(document(), doc! { "b": { "c": 1 } }, doc! { "_id": 1, "b": { "c": 2 } });
    check(document(), doc! { "b.x": 1, "a.b": 1, "zz": 1 }, doc! { "_id": 1, "b": {} });
    check(document(), doc! { "e.c": 1 }, doc! { "_id": 1, "e": [{ "c": 1 }, {}, [{ "c": 9 }]] });
    check(document(), doc! { "_id": 0, "e.f": 1, "e.g": 1 }, doc! { "e": [{ "f": 2 }, { "g": 1 }, [{}]] });
    check(doc! { "_id": { "x": 1, "y": 2 }, "a": 1 }, doc! { "_id.x": 1 }, doc! { "_id": { "x": 1 } });
    check(doc! { "a": 1 }, doc! {}, doc! { "a": 1 });
}

#[test]
fn excluded_fields_are_hidden() {
    let document = || doc! { "_id": 1, "a": 1, "b": { "c": 2, "d": 3 }, "e": [{ "c": 1, "f": 2 }, 5, [{ "c": 9 }, 7]] };
    check(
        document(),
        doc! { "a": 0 },
        doc! { "_id": 1, "b": { "c": 2, "d": 3 }, "e": [{ "c": 1, "f": 2 }, 5, [{ "c": 9 }, 7]] },
    );
    check(document(), doc! { "_id": 0, "b": 0, "e": false }, doc! { "a": 1 });
    check(document(), doc! { "_id": 0, "b.c": 0, "e": 0 }, doc! { "a": 1, "b": { "d": 3 } });
    check(document(), doc! { "b": 0, "e.c": 0 }, doc! { "_id": 1, "a": 1, "e": [{ "f": 2 }, 5, [{}, 7]] });
    check(document(), doc! { "_id": 1, "b": 0, "e": 0 }, doc! { "_id": 1, "a": 1 });
    check(doc! { "_id": 1, "a": 1 }, doc! { "_id": 0 }, doc! { "a": 1 });
    check(doc! { "a": 1 }, doc! { "a.b": 0 }, doc! { "a": 1 });
}

#[test]
fn slice_shows_a_part_of_an_array() {
    let document = || doc! { "_id": 1, "a": [1, 2, 3, 4], "b": 5 };
    for (argument, expected) in [
        (Bson::Int32(2), vec![1, 2]),
        (Bson::Int32(0), vec![]),
        (Bson::Int32(9), vec![1, 2, 3, 4]),
        (Bson::Int32(-1), vec![4]),
        (Bson::Int32(-9), vec![1, 2, 3, 4]),
        (Bson::Double(2.7), vec![1, 2]),
        (Bson::Array(vec![1.into(), 2.into()]), vec![2, 3]),
        (Bson::Array(vec![(-3).into(), 2.into()]), vec![2, 3]),
        (Bson::Array(vec![(-9).into(), 2.into()]), vec![1, 2]),
        (Bson::Array(vec![9.into(), 2.into()]), vec![]),
    ] {
        check(document(), doc! { "a": { "$slice": argument } }, doc! { "_id": 1, "a": expected, "b": 5 });
    }
    check(document(), doc! { "a": { "$slice": 1 }, "b": 0 }, doc! { "_id": 1, "a": [1] });
    check(document(), doc! { "a": { "$slice": 1 }, "_id": 1 }, doc! { "_id": 1, "a": [1] });
    check(document(), doc! { "b": { "$slice": 1 } }, document());
    check(
        doc! { "b": { "a": [1, 2], "x": 1 }, "c": 1, "d": 1 },
        doc! { "b.a": { "$slice": 1 }, "c": 1 },
        doc! { "b": { "a": [1] }, "c": 1 },
    );
    check(
        doc! { "b": [{ "a": [1, 2] }, { "a": [3, 4], "x": 1 }] },
        doc! { "b.a": { "$slice": -1 } },
        doc! { "b": [{ "a": [2] }, { "a": [4], "x": 1 }] },
    );
}

#[test]
fn elem_match_shows_the_first_matching_element() {
    let document = || doc! { "_id": 1, "s": [{ "k": 1, "v": 1 }, { "k": 2, "v": 2 }, { "k": 2, "v": 3 }], "b": 5 };
    check(document(), doc! { "s": { "$elemMatch": { "k": 2 } } }, doc! { "_id": 1, "s": [{ "k": 2, "v": 2 }] });
    check(document(), doc! { "s": { "$elemMatch": { "k": 9 } } }, doc! { "_id": 1 });
    check(document(), doc! { "b": { "$elemMatch": { "k": 9 } } }, doc! { "_id": 1 });
    // Computed fields follow those of the document.
    check(
        document(),
        doc! { "s": { "$elemMatch": { "k": 1 } }, "b": 1 },
        doc! { "_id": 1, "b": 5, "s": [{ "k": 1, "v": 1 }] },
    );
    check(doc! { "_id": 1, "s": [1, 5, 7] }, doc! { "s": { "$elemMatch": { "$gt": 4 } } }, doc! { "_id": 1, "s": [5] });
    check(
        doc! { "_id": 1, "s": [{ "k": 1 }], "b": 5 },
        doc! { "s": { "$elemMatch": { "k": 1 } }, "_id": 0 },
        doc! { "s": [{ "k": 1 }] },
    );
}

#[test]
fn the_positional_operator_shows_the_matched_element() {
    let document = || doc! { "_id": 1, "a": [1, 2, 3], "b": { "c": [{ "x": 1 }, { "x": 2 }] }, "d": 5 };
    check_at(1, document(), doc! { "a.$": 1 }, doc! { "_id": 1, "a": [2] });
    check_at(0, document(), doc! { "a.$": 1, "d": 1 }, doc! { "_id": 1, "a": [1], "d": 5 });
    check_at(1, document(), doc! { "b.c.$": 1 }, doc! { "_id": 1, "b": { "c": [{ "x": 2 }] } });
    check_at(
        1,
        doc! { "l": [{ "m": [1, 2], "n": 1 }, { "m": [3, 4], "n": 2 }] },
        doc! { "l.m.$": 1 },
        doc! { "l": [{ "m": [3, 4] }] },
    );
    check_at(0, document(), doc! { "d.$": 1, "zz": 1 }, doc! { "_id": 1, "d": 5 });

    let code = |position, projection: Document| run(&projection, position, &document()).unwrap_err().code();
    assert_eq!(code(None, doc! { "a.$": 1 }), Code(51246));
    assert_eq!(code(Some(7), doc! { "a.$": 1 }), Code(51247));
}

#[test]
fn invalid_projections_are_refused() {
    fails(doc! { "a": 0, "b": 1 }, 31253, "Cannot do inclusion on field b in exclusion projection");
    fails(doc! { "a": 1, "b.c": 0 }, 31254, "Cannot do exclusion on field b.c in inclusion projection");
    fails(doc! { "a": 1, "b": { "c": 0 } }, 31254, "Cannot do exclusion on field b.c in inclusion projection");
    fails(doc! { "a": 1, "a.b": 1 }, 31249, "Path collision at a.b remaining portion b");
    fails(doc! { "a.b": 1, "a": 1 }, 31250, "Path collision at a");
    fails(doc! { "a.b": 1, "a.b.c.d": 1 }, 31249, "Path collision at a.b.c.d remaining portion c.d");
    let matched = || doc! { "$elemMatch": { "x": 1 } };
    fails(doc! { "a": 0, "b": matched() }, 31253, "Cannot do inclusion on field b in exclusion projection");
    fails(doc! { "b": matched(), "a": 0 }, 31254, "Cannot do exclusion on field a in inclusion projection");
    fails(doc! { "a": { "$unknown": 1 } }, 31325, "Unknown expression $unknown");
    let error = run(&doc! { "a": { "$add": [1, { "$unknown": 1 }] } }, None, &doc! {}).unwrap_err();
    assert_eq!(error.code(), Code(168));
    fails(doc! { "_id": 0, "_id.x": 1 }, 31250, "Path collision at _id");
    fails(doc! { "_id": "$x", "_id.x": 1 }, 31249, "Path collision at _id.x remaining portion x");
    fails(doc! { "_id": "x", "a": 0 }, 31254, "Cannot do exclusion on field a in inclusion projection");
    fails(doc! { "a": 0, "x": "$b" }, 31252, "Cannot use expression other than $meta in exclusion projection");
    fails(doc! { "a": {} }, 51270, "An empty sub-projection is not a valid value. Found empty object at path");
    fails(doc! { "": 1 }, 40352, "FieldPath cannot be constructed with empty string");
    fails(doc! { "a..b": 1 }, 15998, "FieldPath field names may not be empty strings.");
    fails(doc! { "a.": 1 }, 40353, "FieldPath must not end with a '.'.");
    fails(
        doc! { "$a": 1 },
        16410,
        "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
    );
    fails(
        doc! { "a": { "$meta": "textScore" } },
        2,
        "$meta is not supported in projections: there are no text scores or sort keys",
    );
}

#[test]
fn invalid_array_operators_are_refused() {
    let slice = |argument: Bson, why: &str| {
        let projection = doc! { "a": { "$slice": argument } };
        let error = run(&projection, None, &doc! {}).expect_err("must fail");
        assert_eq!(error.code(), Code(28667));
        let start = "Invalid $slice syntax. The given syntax { $slice: ";
        assert!(error.message().starts_with(start) && error.message().contains(why), "{}", error.message());
    };
    // As an expression this is well-formed, and fails when it is evaluated: 1 is not an array.
    let error = run(&doc! { "a": { "$slice": [1, 0] } }, None, &doc! {}).unwrap_err();
    assert_eq!(error.code(), Code(28724));
    slice(Bson::Array(vec![1.into()]), "$slice array argument should be of form [skip, limit]");
    slice("x".into(), "$slice only supports numbers and [skip, limit] arrays");
}

#[test]
fn invalid_positional_projections_are_refused() {
    fails(doc! { "a.$": 0 }, 31395, "positional projection cannot be used with exclusion");
    fails(doc! { "a.$": 1, "b.$": 1 }, 31276, "Cannot specify more than one positional projection per query.");
    fails(
        doc! { "a.$": 1, "b": { "$elemMatch": { "x": 1 } } },
        31255,
        "Cannot specify positional operator and $elemMatch.",
    );
    fails(
        doc! { "b": { "$elemMatch": { "x": 1 } }, "a.$": 1 },
        31256,
        "Cannot specify positional operator and $elemMatch.",
    );
    fails(doc! { "a.$": "x" }, 31308, "positional projection cannot be used with a literal");
    fails(
        doc! { "a.$": { "$add": [1] } },
        31271,
        "positional projection cannot be used with an expression or sub object",
    );
    fails(doc! { "b": 0, "a.$": 1 }, 31253, "Cannot do inclusion on field a in exclusion projection");
    fails(
        doc! { "a.$.b": 1 },
        31394,
        "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only \
         be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts \
         following the '$' and the results will be equivalent.",
    );
    fails(doc! { "a.b": { "$elemMatch": { "x": 1 } } }, 31275, "Cannot use $elemMatch projection on a nested field.");
    fails(doc! { "a": { "$elemMatch": 1 } }, 31274, "elemMatch: Invalid argument, object required, but got int");
}

#[test]
fn slice_counts_from_both_ends() {
    use tree::Slice;
    assert_eq!(Slice::count(i64::MIN).range(3), 0..3);
    assert_eq!(Slice { skip: i64::MAX, limit: usize::MAX }.range(3), 3..3);
    assert_eq!(Slice { skip: -2, limit: usize::MAX }.range(3), 1..3);
}

mod computed;
mod model;
mod stage;
