//! Compiles filter documents.

use std::sync::Arc;

use bson::{RawBsonRef, RawDocument, rawdoc};

use super::{
    bits::{BitCondition, BitTest},
    node::{Choices, Comparison, ElementNode, Node, Operand, Predicate, conjunction, disjunction},
    regex::RegexTest,
    types::TypeSet,
};
use crate::field_path::is_reference_field;
use crate::{Code, CompileOptions, Error, Number, Path, Result, Schema, expression::Expression, path};

/// The options and the enclosing operators that a condition is compiled with.
#[derive(Clone, Copy)]
pub(super) struct Scope<'o> {
    pub(super) options: &'o CompileOptions,
    /// Whether the condition is outside of `$elemMatch`.
    pub(super) top: bool,
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(Code::BadValue, message)
}

/// Compiles `{path: condition, $and: [..], ..}`.
pub(super) fn document(filter: &RawDocument, scope: &Scope<'_>) -> Result<Node> {
    let mut all = Vec::new();
    for element in filter {
        let (name, value) = element?;
        let name = name.as_str();
        match name.strip_prefix('$') {
            None => all.push(field(&Path::new(name), value, scope)?),
            Some(operator) => all.extend(logical(operator, value, scope)?),
        }
    }
    if all.len() == 1 { Ok(all.remove(0)) } else { Ok(Node::And(all)) }
}

/// Compiles an operator in the place of a path; none for one that has no condition.
fn logical(operator: &str, value: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Option<Node>> {
    Ok(Some(match operator {
        "and" => match branches(operator, value, scope)? {
            mut one if one.len() == 1 => one.remove(0),
            all => Node::And(all),
        },
        "or" => disjunction(branches(operator, value, scope)?, scope.options.collation.as_ref()),
        "nor" => Node::Nor(branches(operator, value, scope)?),
        "expr" if scope.top => Node::Expression(Arc::new(Expression::compile(value, scope.options)?)),
        "jsonSchema" if scope.top => match value {
            RawBsonRef::Document(schema) => Node::Schema(Arc::new(Schema::compile(schema)?)),
            _ => return Err(Error::new(Code::TypeMismatch, "$jsonSchema must be an object")),
        },
        "expr" | "text" | "where" | "jsonSchema" if !scope.top => {
            return Err(bad(format!("${operator} can only be applied to the top-level document")));
        }
        "ref" | "id" | "db" => literal(value)?.at(&Path::new(&format!("${operator}"))),
        "comment" => return Ok(None),
        "where" => return Err(bad("$where is not supported: there is no JavaScript engine; use $expr")),
        "text" => return Err(Error::new(Code::IndexNotFound, "text index required for $text query")),
        "sampleRate" => Node::Expression(Arc::new(sample_rate(value, scope)?)),
        _ => {
            return Err(bad(format!(
                "unknown top level operator: ${operator}. If you have a field name that starts with a '$' symbol, \
                 consider using $getField or $setField."
            )));
        }
    }))
}

/// Compiles `$sampleRate` to the expression that MongoDB's manual gives for it.
fn sample_rate(value: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Expression> {
    let rate = Number::of(value).ok_or_else(|| bad("argument to $sampleRate must be a numeric type"))?.to_f64();
    if !(0.0..=1.0).contains(&rate) {
        return Err(bad(format!("numeric argument to $sampleRate must be in [0, 1], but is {rate}")));
    }
    Expression::compile(RawBsonRef::Document(&rawdoc! { "$lt": [{ "$rand": {} }, rate] }), scope.options)
}

fn branches(operator: &str, value: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Vec<Node>> {
    let RawBsonRef::Array(array) = value else {
        return Err(bad(format!("${operator} must be an array")));
    };
    let mut nodes = Vec::new();
    for entry in array {
        let RawBsonRef::Document(filter) = entry? else {
            return Err(bad("$or/$and/$nor entries need to be full objects"));
        };
        nodes.push(document(filter, scope)?);
    }
    if nodes.is_empty() {
        return Err(bad("$and/$or/$nor must be a nonempty array"));
    }
    Ok(nodes)
}

/// Compiles `path: condition`: operators, a regular expression, or a literal.
fn field(path: &Path, value: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Node> {
    match value {
        RawBsonRef::Document(operators) if is_operators(operators)? => {
            Ok(conjunction(predicates(path, operators, scope)?, path))
        }
        value => Ok(implicit(value)?.at(path)),
    }
}

/// Tells whether a document is one of operators: its first name starts with `$`. The names of a DBRef do not count.
fn is_operators(document: &RawDocument) -> Result<bool> {
    let Some(first) = document.iter_elements().next() else { return Ok(false) };
    let first = first?;
    let name = first.key().as_str();
    Ok(name.starts_with('$') && !is_reference_field(name))
}

fn literal(value: RawBsonRef<'_>) -> Result<ElementNode> {
    match value {
        RawBsonRef::Undefined => Err(bad("cannot compare to undefined")),
        value => Ok(ElementNode::Is(Predicate::Compare(Comparison::Equal, Operand::new(value)))),
    }
}

/// Compiles a value in the place of operators: a regular expression matches, everything else is compared.
fn implicit(value: RawBsonRef<'_>) -> Result<ElementNode> {
    match value {
        RawBsonRef::RegularExpression(_) => {
            Ok(ElementNode::Is(Predicate::Regex(RegexTest::compile_operands(value, None)?)))
        }
        value => literal(value),
    }
}

/// Compiles `{$gt: 5, $lt: 9}`, the predicates on the values at a path.
fn predicates(path: &Path, operators: &RawDocument, scope: &Scope<'_>) -> Result<Vec<ElementNode>> {
    let mut all = Vec::new();
    for element in operators {
        let (name, operand) = element?;
        match name.as_str() {
            "$regex" => {
                let options = path::field(operators, "$options");
                all.push(ElementNode::Is(Predicate::Regex(RegexTest::compile_operands(operand, options)?)));
            }
            "$options" if path::field(operators, "$regex").is_none() => return Err(bad("$options needs a $regex")),
            "$options" => {}
            name => all.push(predicate(path, name, operand, scope)?),
        }
    }
    Ok(all)
}

fn predicate(path: &Path, name: &str, operand: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<ElementNode> {
    let is = |predicate| Ok(ElementNode::Is(predicate));
    let compare = |comparison| range(path, comparison, operand);
    match name {
        "$eq" => literal(operand),
        "$ne" => match operand {
            RawBsonRef::RegularExpression(_) => Err(bad("Can't have regex as arg to $ne.")),
            operand => Ok(ElementNode::Not(vec![literal(operand)?])),
        },
        "$lt" => compare(Comparison::Less),
        "$lte" => compare(Comparison::LessOrEqual),
        "$gt" => compare(Comparison::Greater),
        "$gte" => compare(Comparison::GreaterOrEqual),
        "$in" => is(Predicate::In(choices(name, operand, scope)?)),
        "$nin" => Ok(ElementNode::Not(vec![ElementNode::Is(Predicate::In(choices(name, operand, scope)?))])),
        "$exists" if is_true(operand) => is(Predicate::Exists),
        "$exists" => Ok(ElementNode::Not(vec![ElementNode::Is(Predicate::Exists)])),
        "$type" => is(Predicate::Type(TypeSet::compile(operand)?)),
        "$mod" => modulo(operand),
        "$size" => size(operand),
        "$not" => not(path, operand, scope),
        "$all" => all(path, operand, scope),
        "$elemMatch" => element_match(path, operand, scope),
        "$bitsAllSet" => is(Predicate::Bits(BitTest::compile(name, BitCondition::AllSet, operand)?)),
        "$bitsAllClear" => is(Predicate::Bits(BitTest::compile(name, BitCondition::AllClear, operand)?)),
        "$bitsAnySet" => is(Predicate::Bits(BitTest::compile(name, BitCondition::AnySet, operand)?)),
        "$bitsAnyClear" => is(Predicate::Bits(BitTest::compile(name, BitCondition::AnyClear, operand)?)),
        "$near" | "$nearSphere" | "$geoNear" | "$geoWithin" | "$geoIntersects" | "$within" => {
            Err(bad(format!("{name} is not supported: there are no geospatial indexes")))
        }
        _ => Err(bad(format!("unknown operator: {name}"))),
    }
}

fn range(path: &Path, comparison: Comparison, operand: RawBsonRef<'_>) -> Result<ElementNode> {
    match operand {
        RawBsonRef::RegularExpression(_) => {
            Err(bad(format!("Can't have RegEx as arg to predicate over field '{path}'.")))
        }
        RawBsonRef::Undefined => Err(bad("cannot compare to undefined")),
        operand => Ok(ElementNode::Is(Predicate::Compare(comparison, Operand::new(operand)))),
    }
}

fn choices(name: &str, operand: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<Choices> {
    let RawBsonRef::Array(array) = operand else { return Err(bad(format!("{name} needs an array"))) };
    let (mut values, mut patterns) = (Vec::new(), Vec::new());
    for value in array {
        match value? {
            value @ RawBsonRef::RegularExpression(_) => patterns.push(RegexTest::compile_operands(value, None)?),
            RawBsonRef::Document(document) if is_operators(document)? => {
                return Err(bad(format!("cannot nest $ under {name}")));
            }
            RawBsonRef::Undefined => return Err(bad("InMatchExpression equality cannot be undefined")),
            value => values.push(Operand::new(value)),
        }
    }
    Ok(Choices::new(values, patterns, scope.options.collation.as_ref()))
}

/// Tells whether a value counts as true: everything but false, zero, null and undefined.
fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => value,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        value => !Number::of(value).is_some_and(Number::is_zero),
    }
}

fn modulo(operand: RawBsonRef<'_>) -> Result<ElementNode> {
    let RawBsonRef::Array(array) = operand else { return Err(bad("malformed mod, needs to be an array")) };
    let mut parts = array.into_iter();
    let (Some(divisor), Some(remainder)) = (parts.next().transpose()?, parts.next().transpose()?) else {
        return Err(bad("malformed mod, not enough elements"));
    };
    if parts.next().is_some() {
        return Err(bad("malformed mod, too many elements"));
    }
    let whole = |name: &str, value: RawBsonRef<'_>| {
        let number = Number::of(value).ok_or_else(|| bad(format!("malformed mod, {name} not a number")))?;
        number.to_i64_truncated().ok_or_else(|| {
            bad(format!("malformed mod, {name} value is invalid :: caused by :: out of range of a 64-bit integer"))
        })
    };
    let (divisor, remainder) = (whole("divisor", divisor)?, whole("remainder", remainder)?);
    if divisor == 0 {
        return Err(bad("divisor cannot be 0"));
    }
    Ok(ElementNode::Is(Predicate::Modulo { divisor, remainder }))
}

fn size(operand: RawBsonRef<'_>) -> Result<ElementNode> {
    let fail = |what: &str| bad(format!("Failed to parse $size. {what}"));
    let number = Number::of(operand).ok_or_else(|| fail("Expected a number"))?;
    match number.to_i64_exact() {
        Some(size) if size >= 0 => Ok(ElementNode::Is(Predicate::Size(size))),
        Some(_) => Err(fail("Expected a non-negative number")),
        None => Err(fail("Expected an integer")),
    }
}

fn not(path: &Path, operand: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<ElementNode> {
    match operand {
        RawBsonRef::Document(document) if document.is_empty() => Err(bad("$not cannot be empty")),
        RawBsonRef::Document(document) => Ok(ElementNode::Not(predicates(path, document, scope)?)),
        RawBsonRef::RegularExpression(_) => Ok(ElementNode::Not(vec![implicit(operand)?])),
        _ => Err(bad("$not needs a regex or a document")),
    }
}

fn all(path: &Path, operand: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<ElementNode> {
    let RawBsonRef::Array(array) = operand else { return Err(bad("$all needs an array")) };
    let mut nodes = Vec::new();
    let mut element_matches = None;
    for value in array {
        let value = value?;
        let nested = match value {
            RawBsonRef::Document(document) if is_operators(document)? => Some(document),
            _ => None,
        };
        let is_element_match = match nested {
            None => false,
            Some(document) => {
                let first = document.iter_elements().next().transpose()?;
                if first.is_none_or(|first| first.key().as_str() != "$elemMatch") {
                    return Err(bad("no $ expressions in $all"));
                }
                true
            }
        };
        if *element_matches.get_or_insert(is_element_match) != is_element_match {
            return Err(bad("$all/$elemMatch has to be consistent"));
        }
        match nested {
            Some(document) => nodes.extend(predicates(path, document, scope)?),
            None => nodes.push(implicit(value)?),
        }
    }
    // An empty `$all` matches nothing.
    Ok(match nodes.len() {
        0 => ElementNode::Never,
        1 => nodes.remove(0),
        _ => ElementNode::Every(nodes),
    })
}

fn element_match(path: &Path, operand: RawBsonRef<'_>, scope: &Scope<'_>) -> Result<ElementNode> {
    let RawBsonRef::Document(document) = operand else { return Err(bad("$elemMatch needs an Object")) };
    let first = document.iter_elements().next().transpose()?;
    let logical = first.is_some_and(|first| matches!(first.key().as_str(), "$and" | "$or" | "$nor" | "$where"));
    let scope = Scope { top: false, ..*scope };
    Ok(ElementNode::Is(if !logical && is_operators(document)? {
        Predicate::ElementValue(predicates(path, document, &scope)?)
    } else {
        Predicate::ElementDocument(Box::new(self::document(document, &scope)?))
    }))
}
