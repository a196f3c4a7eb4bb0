//! The conditions that follow from a filter, with its expressions.

use bson::{RawDocumentBuf, rawdoc};

use super::context;
use crate::filter::{Comparison, NecessaryConditions, Predicate};
use crate::{CompileOptions, Filter};

/// Returns the conditions as text, those of whole values in brackets.
fn necessary(filter: RawDocumentBuf) -> Vec<String> {
    let variables = rawdoc! { "v": 7, "list": [1, "x"], "nested": [[1]] };
    let mut options = CompileOptions::with_variables(&variables).unwrap();
    options.variables.push("missing".to_owned());
    let context = context().with_variables(variables);
    let filter = Filter::compile(&filter, &options).unwrap();
    shown(&filter.necessary_conditions(&context))
}

fn shown(conditions: &NecessaryConditions<'_>) -> Vec<String> {
    let sign = |comparison: Comparison| match comparison {
        Comparison::Equal => "=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    };
    let fields = conditions.fields().map(|field| match field.predicate() {
        Predicate::Compare(comparison, operand) => {
            format!("{} {} {:?}", field.path(), sign(*comparison), operand.value())
        }
        Predicate::In(choices) => format!("{} in {}", field.path(), choices.values().len()),
        other => format!("{} {other:?}", field.path()),
    });
    let paths = ["a", "a.b", "b"];
    let whole = paths.into_iter().flat_map(|path| {
        let shown = move |comparison: Comparison, operand: Option<bson::RawBsonRef<'_>>| {
            format!("[{path} {} {operand:?}]", sign(comparison))
        };
        conditions.whole_comparisons(path).map(move |whole| shown(whole.comparison(), whole.operand()))
    });
    fields.chain(whole).collect()
}

#[test]
fn equalities_of_expressions_are_those_of_filters() {
    for (expression, expected) in [
        (rawdoc! { "$eq": ["$a", 1] }, vec!["a = Int32(1)"]),
        (rawdoc! { "$eq": [1, "$a.b"] }, vec!["a.b = Int32(1)"]),
        (rawdoc! { "$eq": ["$$ROOT.a", { "$literal": "$x" }] }, vec!["a = String(\"$x\")"]),
        (rawdoc! { "$eq": ["$$CURRENT.a", "$$v"] }, vec!["a = Int32(7)"]),
        (rawdoc! { "$eq": ["$a", null] }, vec!["a = Null"]),
        (rawdoc! { "$in": ["$a", [1, 2, 1.0]] }, vec!["a in 2"]),
        (rawdoc! { "$in": ["$a", "$$list"] }, vec!["a in 2"]),
        (rawdoc! { "$in": ["$a", ["$$v", "x"]] }, vec!["a in 2"]),
        (
            rawdoc! { "$and": [{ "$eq": ["$a", 1] }, { "$and": [{ "$eq": ["$b", 2] }] }] },
            vec!["a = Int32(1)", "b = Int32(2)"],
        ),
        (rawdoc! { "$and": [{ "$eq": ["$a", 1] }, { "$ne": ["$b", 2] }, "$c"] }, vec!["a = Int32(1)"]),
        (rawdoc! { "$expr": { "$eq": ["$a", 1] } }, vec!["a = Int32(1)"]),
    ] {
        assert_eq!(necessary(rawdoc! { "$expr": expression.clone() }), expected, "{expression:?}");
    }
    let both = rawdoc! { "b": 5, "$and": [{ "$expr": { "$eq": ["$a", "$$v"] } }] };
    assert_eq!(necessary(both), ["b = Int32(5)", "a = Int32(7)"]);
}

#[test]
fn other_comparisons_of_expressions_are_of_whole_values() {
    for (expression, expected) in [
        (rawdoc! { "$gt": ["$a", 1] }, vec!["[a > Some(Int32(1))]"]),
        (rawdoc! { "$gt": [1, "$a"] }, vec!["[a < Some(Int32(1))]"]),
        (rawdoc! { "$lte": ["$$v", "$a.b"] }, vec!["[a.b >= Some(Int32(7))]"]),
        (
            rawdoc! { "$and": [{ "$gte": ["$a", 1] }, { "$lt": ["$a", 5] }] },
            vec!["[a >= Some(Int32(1))]", "[a < Some(Int32(5))]"],
        ),
        (rawdoc! { "$eq": ["$a", "$$missing"] }, vec!["[a = None]"]),
        (rawdoc! { "$eq": ["$a", "$$REMOVE"] }, vec!["[a = None]"]),
    ] {
        assert_eq!(necessary(rawdoc! { "$expr": expression.clone() }), expected, "{expression:?}");
    }
    // An array on the path is compared as an array: `"$a.b"` of `{a: [{b: 1}]}` is `[1]`, and `{"a.b": [1]}` does not match that.
    let array = necessary(rawdoc! { "$expr": { "$eq": ["$a.b", [1]] } });
    assert!(array.len() == 1 && array[0].starts_with("[a.b = Some(Array"), "{array:?}");
}

#[test]
fn nothing_follows_from_other_expressions() {
    for expression in [
        rawdoc! { "$eq": ["$a", "$b"] },
        rawdoc! { "$eq": [1, 1] },
        rawdoc! { "$ne": ["$a", 1] },
        rawdoc! { "$eq": ["$$ROOT", 1] },
        rawdoc! { "$or": [{ "$eq": ["$a", 1] }] },
        rawdoc! { "$not": [{ "$eq": ["$a", 1] }] },
        rawdoc! { "$eq": [{ "$add": ["$a", 1] }, 1] },
        rawdoc! { "$in": [1, "$a"] },
        rawdoc! { "$in": ["$a", "$$v"] },
        rawdoc! { "$in": ["$a", "$$nested"] },
        rawdoc! { "$in": ["$a", "$b"] },
        rawdoc! { "$let": { "vars": { "v": 1 }, "in": { "$eq": ["$a", "$$v"] } } },
        rawdoc! { "$let": { "vars": { "CURRENT": "$b" }, "in": { "$and": [{ "$eq": ["$a", 1] }] } } },
    ] {
        assert_eq!(necessary(rawdoc! { "$expr": expression.clone() }), Vec::<String>::new(), "{expression:?}");
    }
    let in_branches =
        rawdoc! { "$nor": [{ "$expr": { "$eq": ["$a", 1] } }], "$or": [{ "b": 1 }, { "$expr": { "$eq": ["$a", 1] } }] };
    assert_eq!(necessary(in_branches), Vec::<String>::new());
}
