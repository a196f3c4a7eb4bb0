//! The evaluation of a filter over one document counts steps, and can be ended.

use bson::{Bson, Document, doc};

use super::{CompileOptions, Filter, context};
use crate::Code;

fn raw(document: &Document) -> bson::RawDocumentBuf {
    bson::RawDocumentBuf::try_from(document).unwrap()
}

fn regex(pattern: &str, options: &str) -> Bson {
    super::regex(pattern, options).try_into().unwrap()
}

#[test]
fn conditions_on_a_document_count_as_steps_and_can_be_interrupted() {
    let numbers = doc! { "a": (0..100).collect::<Vec<_>>(), "d": vec![doc! { "b": 1 }; 100], "t": "x".repeat(6400) };
    // Branches of equality would be joined to an $in.
    let branches = |name: &str| (0..100).map(|n| doc! { name: { "$gt": 1000 + n } }).collect::<Vec<_>>();
    let document = raw(&numbers);
    for (filter, steps) in [
        (doc! { "a": 1000 }, 100),
        (doc! { "a": { "$elemMatch": { "$gt": 5, "$lt": 5 } } }, 100),
        (doc! { "d": { "$elemMatch": { "$or": branches("b") } } }, 10_000),
        (doc! { "d.b": 1000 }, 100),
        (doc! { "$nor": branches("a"), "x": 1 }, 10_000),
        (doc! { "t": { "$regex": "^y" } }, 100),
        (doc! { "t": { "$in": [regex("^y", "")] } }, 100),
        (doc! { "t": { "$regex": "(?!y)z" } }, 10_000),
    ] {
        let compiled = Filter::compile(&raw(&filter), &CompileOptions::default()).unwrap();
        let context = context();
        context.bound_steps(steps - 1);
        let error = compiled.matches(&document, &context).unwrap_err();
        assert_eq!(error.code(), Code::OperationFailed, "{filter}");
        context.bound_steps(10 * steps);
        assert!(!compiled.matches(&document, &context).unwrap(), "{filter}");
        context.interrupt.stop(Code::MaxTimeMSExpired);
        let error = compiled.matches(&document, &context).unwrap_err();
        assert_eq!(error.code(), Code::MaxTimeMSExpired, "{filter}");
    }
}
