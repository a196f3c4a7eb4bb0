//! Properties of all filters and documents; no input may cause a panic.

use bson::{DateTime, RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf, Timestamp, raw::CString, rawdoc};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::{
    CompileOptions, Context, Expression, Filter, Number, Path, depth,
    filter::Node,
    key, order,
    path::TrailingArray,
    testing::{document, name, value},
};

fn context() -> Context {
    Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0)
}

fn path() -> impl Strategy<Value = String> {
    vec(name(), 1..4).prop_map(|names| names.iter().map(|name: &CString| name.as_str()).collect::<Vec<_>>().join("."))
}

fn single(name: &str, value: impl Into<RawBson>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(CString::try_from(name).unwrap(), value.into());
    document
}

fn array(values: impl IntoIterator<Item = RawBson>) -> RawBson {
    let mut array = RawArrayBuf::new();
    values.into_iter().for_each(|value| array.push(value));
    RawBson::Array(array)
}

/// Generates `{$operator: operand}`, mostly valid.
fn operators() -> impl Strategy<Value = RawDocumentBuf> {
    let compare = (select(vec!["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]), value());
    let lists = (select(vec!["$in", "$nin", "$all"]), vec(value(), 0..4).prop_map(array));
    let others = prop_oneof![
        Just(("$exists", RawBson::Boolean(true))),
        (0..4).prop_map(|size| ("$size", RawBson::Int32(size))),
        (1..4, 0..3).prop_map(|(by, left)| ("$mod", array([RawBson::Int32(by), RawBson::Int32(left)]))),
        (0..256).prop_map(|mask| ("$bitsAnyClear", RawBson::Int32(mask))),
        select(vec!["number", "array", "null", "string"]).prop_map(|name| ("$type", RawBson::String(name.into()))),
    ];
    let trailing_array = prop_oneof![4 => compare, 2 => lists, 2 => others];
    let trailing_array = trailing_array.prop_map(|(operator, operand)| single(operator, operand)).boxed();
    trailing_array.prop_recursive(2, 4, 1, |inner| {
        (select(vec!["$not", "$elemMatch"]), inner).prop_map(|(operator, inner)| single(operator, inner))
    })
}

fn compiled(filter: &RawDocumentBuf) -> Option<Filter> {
    Filter::compile(filter, &CompileOptions::default()).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_negation_holds_exactly_where_the_condition_does_not(path in path(), operators in operators(), document in document()) {
        let positive = compiled(&single(&path, operators.clone()));
        let negative = compiled(&single(&path, single("$not", operators.clone())));
        let nor = compiled(&single("$nor", array([single(&path, operators).into()])));
        let answers = [&positive, &negative, &nor].map(|filter| filter.as_ref().map(|filter| filter.matches(&document, &context()).unwrap()));
        prop_assert_eq!(answers[0], answers[1].map(|answer| !answer));
        prop_assert_eq!(answers[0], answers[2].map(|answer| !answer));
    }

    #[test]
    fn and_and_or_match_as_documented(a in (path(), operators()), b in (path(), operators()), document in document()) {
        let (left, right) = (single(&a.0, a.1), single(&b.0, b.1));
        let both = array([left.clone().into(), right.clone().into()]);
        let answer = |filter: &RawDocumentBuf| compiled(filter).map(|filter| filter.matches(&document, &context()).unwrap());
        if let (Some(left), Some(right)) = (answer(&left), answer(&right)) {
            prop_assert_eq!(answer(&single("$and", both.clone())), Some(left && right));
            prop_assert_eq!(answer(&single("$or", both)), Some(left || right));
        }
    }

    #[test]
    fn or_of_values_of_one_path_matches_each_value(path in path(), x in value(), y in value(), document in document()) {
        let branches = [single(&path, single("$eq", x)), single(&path, single("$in", array([y])))];
        let answer = |filter: &RawDocumentBuf| compiled(filter).map(|filter| filter.matches(&document, &context()).unwrap());
        let each = branches.each_ref().map(answer);
        if let [Some(one), Some(other)] = each {
            prop_assert_eq!(answer(&single("$or", array(branches.map(Into::into)))), Some(one || other));
        }
    }

    /// Equality finds the value itself, and the order of values decides ranges.
    #[test]
    fn comparisons_agree_with_the_order(a in value(), b in value()) {
        let (left, right) = (a.as_raw_bson_ref(), b.as_raw_bson_ref());
        prop_assume!(!matches!(left, RawBsonRef::Array(_) | RawBsonRef::Undefined));
        prop_assume!(!matches!(right, RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined | RawBsonRef::MinKey | RawBsonRef::MaxKey));
        let document = rawdoc! { "a": a.clone() };
        let ask = |operator: &str| compiled(&single("a", single(operator, b.clone()))).unwrap().matches(&document, &context()).unwrap();
        let comparable = order::type_rank(left) == order::type_rank(right);
        let order = order::compare(left, right);
        let nan = [left, right].iter().any(|value| Number::of(*value).is_some_and(Number::is_nan));
        prop_assert_eq!(ask("$eq"), comparable && order.is_eq());
        prop_assert_eq!(ask("$lt"), comparable && !nan && order.is_lt());
        prop_assert_eq!(ask("$gt"), comparable && !nan && order.is_gt());
        prop_assert_eq!(ask("$lte"), ask("$lt") || ask("$eq"));
        prop_assert_eq!(ask("$gte"), ask("$gt") || ask("$eq"));
    }

    #[test]
    fn in_is_equality_with_one_of_them(values in vec(value(), 0..4), path in path(), document in document()) {
        let each: Option<Vec<bool>> = values.iter().map(|value| {
            // Documents of operators and regular expressions are not compared as literals.
            let literal = !matches!(value, RawBson::RegularExpression(_) | RawBson::Undefined);
            let filter = literal.then(|| compiled(&single(&path, single("$eq", value.clone())))).flatten();
            filter.map(|filter| filter.matches(&document, &context()).unwrap())
        }).collect();
        let together = compiled(&single(&path, single("$in", array(values))));
        if let (Some(each), Some(together)) = (each, together) {
            prop_assert_eq!(together.matches(&document, &context()).unwrap(), each.contains(&true));
        }
    }

    /// The position names an element through which the filter still matches.
    #[test]
    fn a_position_is_within_the_array(operators in operators(), elements in vec(value(), 0..5)) {
        let count = elements.len();
        let document = rawdoc! { "a": array(elements) };
        if let Some(filter) = compiled(&single("a", operators))
            && let Some(position) = filter.matches_position(&document, &context()).unwrap()
        {
            prop_assert!(position.array_index.is_none_or(|index| index < count));
        }
    }

    /// A document that matches fulfils each condition that follows from an expression, also with arrays, missing fields and mixed types.
    #[test]
    fn conditions_that_follow_from_an_expression_hold(
        path in vec(select(vec!["a", "b", "c"]), 1..3), operator in select(vec!["$eq", "$lt", "$lte", "$gt", "$gte", "$in"]),
        operands in vec(value(), 0..3), is_missing: bool, is_exchanged: bool, document in document()
    ) {
        let path = path.join(".");
        let field = RawBson::String(format!("${path}"));
        let operand = match (operator, operands.first()) {
            ("$in", _) => single("$literal", array(operands)).into(),
            (_, Some(value)) if !is_missing => single("$literal", value.clone()).into(),
            _ => RawBson::String("$$REMOVE".to_owned()),
        };
        let arguments = if is_exchanged && operator != "$in" { [operand, field] } else { [field, operand] };
        let filter = compiled(&single("$expr", single(operator, array(arguments)))).unwrap();
        let context = context();
        if filter.matches(&document, &context).unwrap() {
            let conditions = filter.necessary_conditions(&context);
            for implied in conditions.fields() {
                let implied = Filter { root: Node::Field(implied.clone()), collation: None };
                prop_assert!(implied.matches(&document, &context).unwrap(), "{filter:?} implies {implied:?}");
            }
            let value = Expression::compile(RawBsonRef::String(&format!("${path}")), &CompileOptions::default()).unwrap();
            for whole in conditions.whole_comparisons(&path) {
                prop_assert!(whole.accepts(value.evaluate(&document, &context).unwrap().get()), "{filter:?} implies {whole:?}");
            }
        }
    }

    #[test]
    fn arbitrary_documents_as_filters_do_not_panic(filter in document(), document in document()) {
        if let Some(filter) = compiled(&filter) {
            let _ = filter.matches(&document, &context());
        }
    }

    /// Damaged documents that pass the depth check do not make a filter panic.
    #[test]
    fn damaged_documents_do_not_panic(
        document in document(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        path in path(),
        operators in operators(),
    ) {
        let mut bytes = document.into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if depth::check(&bytes, depth::Limits::default()).is_ok() {
            let document = RawDocumentBuf::from_bytes(bytes).unwrap();
            if let Some(filter) = compiled(&single(&path, operators)) {
                let _ = filter.matches(&document, &context());
            }
            let _ = compiled(&document).map(|filter| filter.matches(&document, &context()));
            let _ = Path::new(&path).visit(&document, TrailingArray::Elements, &mut |visited| {
                if let Some(value) = visited.value {
                    key::encode(value, &mut Vec::new());
                }
                std::ops::ControlFlow::<()>::Continue(())
            });
            prop_assert!(order::compare_documents(&document, &document).is_eq());
        }
    }
}
