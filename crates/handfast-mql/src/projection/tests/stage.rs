//! The errors and results of `find` and of `$project` where they differ.

use bson::{Document, doc};

use super::super::Projection;
use super::{context, raw, run};
use crate::{Code, CompileOptions, MatchPosition, Result};

fn project(projection: &Document, document: &Document) -> Result<Document> {
    let projection = Projection::compile_project(&raw(projection), &CompileOptions::default())?;
    let shown = projection.apply(&raw(document), MatchPosition::default(), &context())?;
    Ok(Document::try_from(&shown).unwrap())
}

#[track_caller]
fn check_errors(projection: Document, find: (i32, &str), stage: (i32, &str)) {
    let found = run(&projection, None, &doc! {}).expect_err("find must refuse");
    assert_eq!((found.code().0, found.message()), find, "{projection}");
    let found = project(&projection, &doc! {}).expect_err("$project must refuse");
    assert_eq!((found.code().0, found.message()), stage, "{projection}");
}

#[test]
fn find_and_project_refuse_the_same_projections() {
    check_errors(
        doc! { "a": 0, "b": 1 },
        (31253, "Cannot do inclusion on field b in exclusion projection"),
        (31253, "Invalid $project :: caused by :: Cannot do inclusion on field b in exclusion projection"),
    );
    check_errors(
        doc! { "a": 1, "b": 0 },
        (31254, "Cannot do exclusion on field b in inclusion projection"),
        (31254, "Invalid $project :: caused by :: Cannot do exclusion on field b in inclusion projection"),
    );
    check_errors(
        doc! { "a": 0, "b.c": "$x" },
        (31252, "Cannot use expression other than $meta in exclusion projection"),
        (31252, "Invalid $project :: caused by :: Cannot use an expression in an exclusion projection: b.c: \"$x\""),
    );
    check_errors(
        doc! { "a": { "b": {} } },
        (51270, "An empty sub-projection is not a valid value. Found empty object at path"),
        (
            51270,
            "Invalid $project :: caused by :: An empty sub-projection is not a valid value. Found empty object at path a.b",
        ),
    );
    check_errors(
        doc! { "a": { "$unknown": 1 } },
        (31325, "Unknown expression $unknown"),
        (31325, "Invalid $project :: caused by :: Unknown expression $unknown"),
    );
    check_errors(
        doc! { "_id": 0, "_id.x": 1 },
        (31250, "Path collision at _id"),
        (31250, "Invalid $project :: caused by :: Path collision at _id"),
    );
    check_errors(doc! { "_id": 0, "_id.x": 0 }, (31250, "Path collision at _id"), (31250, "Path collision at _id"));
    let collision = (31249, "Path collision at a.b remaining portion b");
    check_errors(doc! { "a": 1, "a.b": 1 }, collision, collision);
}

#[test]
fn invalid_paths_are_refused() {
    check_errors(
        doc! { "": 1 },
        (40352, "FieldPath cannot be constructed with empty string"),
        (15998, "FieldPath field names may not be empty strings."),
    );
    check_errors(
        doc! { "a": { "": 1 } },
        (40353, "FieldPath must not end with a '.'."),
        (15998, "FieldPath field names may not be empty strings."),
    );
    check_errors(
        doc! { "$a": 1 },
        (16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField."),
        (16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField. Found '$a'"),
    );
    check_errors(
        doc! { "a": { "$meta": "textScore" } },
        (2, "$meta is not supported in projections: there are no text scores or sort keys"),
        (31325, "Invalid $project :: caused by :: Unknown expression $meta"),
    );
}

#[test]
fn find_and_project_have_their_results() {
    let document = doc! { "_id": 1, "a": 5, "l": [1, 2, 3] };
    let check = |projection: Document, find: Result<Document>, stage: Result<Document>| {
        // `Document` compares as a map, so the text checks the order as well.
        let text =
            |result: Result<Document>| result.map(|document| document.to_string()).map_err(|error| error.code().0);
        assert_eq!(text(run(&projection, None, &document)), text(find), "{projection}");
        assert_eq!(text(project(&projection, &document)), text(stage), "{projection}");
    };
    check(doc! { "_id": "$a", "l": 1 }, Ok(doc! { "_id": 5, "l": [1, 2, 3] }), Ok(doc! { "l": [1, 2, 3], "_id": 5 }));
    check(
        doc! { "_id": 1, "_id.x": 0 },
        Err(crate::Error::new(Code(31250), "")),
        Ok(doc! { "_id": 1, "a": 5, "l": [1, 2, 3] }),
    );
    check(
        doc! { "l": { "$slice": [1, 2] } },
        Ok(doc! { "_id": 1, "a": 5, "l": [2, 3] }),
        Err(crate::Error::new(Code(28724), "")),
    );
    check(doc! { "a.$ref": 1 }, Ok(doc! { "_id": 1 }), Ok(doc! { "_id": 1 }));
}

/// Functions of the tree recurse for each part of a path, so the depth limit applies to the whole path of nested names.
#[test]
fn the_depth_limit_applies_to_nested_paths_together() {
    let long = vec!["a"; 200].join(".");
    let mut nested = doc! { &long: 1 };
    for _ in 0..90 {
        nested = doc! { &long: nested };
    }
    let nested = raw(&nested);
    let options = CompileOptions::default();
    for refused in [
        Projection::compile_project(&nested, &options),
        Projection::compile_add_fields("$set", &nested, &options),
        Projection::compile(&nested, &options),
    ] {
        let error = refused.expect_err("a path of 18,200 parts");
        assert_eq!((error.code(), error.message()), (Code::Overflow, "FieldPath is too long"));
    }
    let allowed = doc! { vec!["a"; 100].join("."): { vec!["b"; 100].join("."): 1 } };
    Projection::compile_project(&raw(&allowed), &options).expect("a path of 200 parts");
}
