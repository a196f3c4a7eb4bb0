//! The size of a result is limited before it is built: an update of a few bytes must not make terabytes.

use bson::{Bson, Document, doc};

use super::super::{Update, UpdateOptions, UpdateSource};
use super::{Case, PLAIN, check, context, filtered, raw};
use crate::depth::DOCUMENT_BYTES_MAX;
use crate::filter::Filter;
use crate::{Code, CompileOptions};

/// Returns an array with a thousand copies of an element.
fn thousand(element: impl Into<Bson>) -> Document {
    doc! { "a": vec![element.into(); 1000] }
}

/// Returns 15 MB of text.
fn large() -> String {
    "x".repeat(15_000_000)
}

#[track_caller]
fn too_large(document: Document, update: Document) {
    let filter = Filter::compile(&raw(&document), &CompileOptions::default()).unwrap();
    let refused = PLAIN.run(&document, &update).expect_err("it is too large");
    assert_eq!(refused.code(), Code(17419));
    assert_eq!(refused.message(), "Resulting document after update is larger than 16777216");
    let update = Update::compile(UpdateSource::Document(&raw(&update)), &UpdateOptions::default()).unwrap();
    let refused = update.upsert(&filter, &context()).expect_err("it is too large");
    assert_eq!(refused.code(), Code(17420));
    assert_eq!(refused.message(), "Document to upsert is larger than 16777216");
}

#[test]
fn a_result_may_be_as_large_as_a_stored_document() {
    let overhead = raw(&doc! { "a": "", "b": "" }).as_bytes().len();
    let document = doc! { "a": "x".repeat(DOCUMENT_BYTES_MAX - overhead - 100) };
    let largest = PLAIN.run(&document, &doc! { "$set": { "b": "x".repeat(100) } }).unwrap();
    assert_eq!(largest.document.as_bytes().len(), DOCUMENT_BYTES_MAX);
    too_large(document, doc! { "$set": { "b": "x".repeat(101) } });
}

#[test]
fn padding_in_every_element_is_limited() {
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$set": { "a.$[].1500000": 1 } });
    // A result that fits is padded.
    let padded = PLAIN.run(&thousand(Bson::Array(Vec::new())), &doc! { "$set": { "a.$[].9": 1 } }).unwrap();
    assert_eq!(
        padded.document,
        raw(&thousand({
            let mut row = vec![Bson::Null; 9];
            row.push(Bson::Int32(1));
            Bson::Array(row)
        }))
    );
}

#[test]
fn copies_of_an_operand_are_limited() {
    too_large(thousand(0), doc! { "$set": { "a.$[]": large() } });
    too_large(thousand(0), doc! { "$max": { "a.$[]": large() } });
    too_large(thousand(doc! { "b": 1 }), doc! { "$set": { "a.$[].b": large() } });
    too_large(thousand(doc! {}), doc! { "$set": { "a.$[].b": large() } });
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$push": { "a.$[]": large() } });
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$addToSet": { "a.$[]": large() } });
}

#[test]
fn values_added_to_every_array_are_limited() {
    let values: Vec<String> = (0..1000).map(|number| format!("{number:015000}")).collect();
    let each = || doc! { "$each": values.clone() };
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$push": { "a.$[]": each() } });
    too_large(thousand(Bson::Array(Vec::new())), doc! { "$addToSet": { "a.$[]": each() } });
    too_large(thousand(doc! {}), doc! { "$push": { "a.$[].b": each() } });
    too_large(thousand(doc! {}), doc! { "$addToSet": { "a.$[].b": each() } });
}

#[test]
fn elements_that_slice_cuts_off_do_not_count_as_growth() {
    let values: Vec<String> = (0..30).map(|number| format!("{number:01000}")).collect();
    let cut = |slice: i32| doc! { "$push": { "a.$[]": { "$each": values.clone(), "$slice": slice } } };
    let empty = thousand(Bson::Array(Vec::new()));
    PLAIN.check(empty.clone(), cut(2), thousand(Bson::from(values[..2].to_vec())));
    PLAIN.check(empty, cut(-1), thousand(Bson::from(values[29..].to_vec())));
}

#[test]
fn documents_nested_in_every_element_are_limited() {
    let rows = doc! { "a": vec![Bson::Document(doc! {}); 10_000] };
    let path = format!("a.$[].{}", vec!["b".repeat(1000); 90].join("."));
    too_large(rows, doc! { "$set": { path: 1 } });
}

/// The number of fields, which is too large for a search one by one.
const MANY: i32 = 100;

#[test]
fn many_paths_change_a_document_of_many_fields() {
    let old: Document = (0..MANY).map(|n| (format!("f{n}"), Bson::from(n))).collect();
    let part = |from: i32, value: fn(i32) -> Bson| -> Document {
        (from..from + 20).map(|n| (format!("f{n:03}").replace("f0", "f"), value(n))).collect()
    };
    let update = doc! {
        "$unset": part(10, |_| "".into()),
        "$inc": part(30, |_| 1000.into()),
        "$rename": part(50, |n| format!("renamed{n}").into()),
        "$set": part(110, Into::into),
    };
    let mut expected = old.clone();
    for n in 10..30 {
        expected.remove(format!("f{n}"));
        expected.insert(format!("f{}", n + 20), n + 20 + 1000);
    }
    for n in 110..130 {
        expected.insert(format!("f{n}"), n);
    }
    for n in 50..70 {
        expected.remove(format!("f{n}"));
        expected.insert(format!("renamed{n}"), n);
    }
    check(old, update, expected);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a search for each path through all fields takes minutes")]
fn an_update_of_many_paths_takes_linear_time() {
    let fields = |from: i32, value: i32| -> Document {
        (from..from + 50_000).map(|n| (format!("f{n}"), value.into())).collect()
    };
    let started = std::time::Instant::now();
    let update = doc! { "$set": fields(50_000, 2), "$unset": fields(0, 1) };
    check(fields(0, 1), update, fields(50_000, 2));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

/// Applies an update with a bound on the steps, and returns the code of the error.
fn bounded(case: &Case, document: &Document, update: &Document, steps_max: u64) -> Option<Code> {
    let options = UpdateOptions { array_filters: &case.filters, ..Default::default() };
    let update = Update::compile(UpdateSource::Document(&raw(update)), &options).unwrap();
    let context = context();
    context.bound_steps(steps_max);
    update.apply(&raw(document), case.position, &context).err().map(|error| error.code())
}

#[test]
fn array_elements_that_an_update_reads_count_as_steps() {
    let numbers = doc! { "a": (0..100).collect::<Vec<_>>() };
    // Branches of equality would be joined to an $in.
    let branches = |name: &str| (0..100).map(|n| doc! { name: { "$gt": 1000 + n } }).collect::<Vec<_>>();
    let case = filtered([doc! { "$or": branches("x") }]);
    for (case, document, update, steps) in [
        (&case, &numbers, doc! { "$set": { "a.$[x]": 1 } }, 10_000),
        (&PLAIN, &numbers, doc! { "$pull": { "a": { "$in": [1000], "$gt": 5 } } }, 100),
        (&PLAIN, &numbers, doc! { "$pull": { "a": 1000 } }, 100),
        (&PLAIN, &numbers, doc! { "$pullAll": { "a": [1000] } }, 100),
        (&PLAIN, &numbers, doc! { "$addToSet": { "a": 1000 } }, 100),
        (&PLAIN, &numbers, doc! { "$push": { "a": { "$each": [], "$sort": 1 } } }, 500),
        (
            &PLAIN,
            &doc! { "a": vec![doc! { "b": 1 }; 100] },
            doc! { "$pull": { "a": { "$or": branches("b") } } },
            10_000,
        ),
        (&PLAIN, &numbers, doc! { "$inc": { "a.$[]": 1 } }, 100),
        (&PLAIN, &doc! {}, doc! { "$set": (0..100).map(|n| (format!("f{n}"), n.into())).collect::<Document>() }, 100),
        (&PLAIN, &doc! { "a": "x".repeat(200 * 1024) }, doc! { "$set": { "b": 1 } }, 200),
    ] {
        assert_eq!(bounded(case, document, &update, steps - 1), Some(Code::OperationFailed), "{update}");
        assert_eq!(bounded(case, document, &update, 10 * steps), None, "{update}");
    }
}
