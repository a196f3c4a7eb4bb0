//! Why a document does not match a filter, in the words of MongoDB's `errInfo`.
//!
//! ```text
//! {a: {$gt: 5}}    {operatorName: "$gt", specifiedAs: {a: {$gt: 5}}, reason: "comparison failed", consideredValue: 3}
//! ```
//!
//! Each condition of the filter is compiled and tried alone, which takes time: this is for a document that was refused.

use std::ops::ControlFlow;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::Filter;
use crate::bson_type::type_name;
use crate::path::TrailingArray;
use crate::schema::report::{SHOWN_BYTES_MAX, bytes_of, integer, put, shown};
use crate::{CompileOptions, Context, Expression, Path, Result, Schema};

/// Describes the conditions of a filter that a document does not fulfil; `None` if it matches.
///
/// # Errors
/// Returns the errors of [`Filter::compile`] and [`Filter::matches`].
pub fn mismatch(
    filter: &RawDocument,
    options: &CompileOptions,
    document: &RawDocument,
    context: &Context,
) -> Result<Option<RawDocumentBuf>> {
    Mismatch { options, document, context }.of_filter(filter)
}

struct Mismatch<'m> {
    options: &'m CompileOptions,
    document: &'m RawDocument,
    context: &'m Context,
}

impl Mismatch<'_> {
    fn of_filter(&self, filter: &RawDocument) -> Result<Option<RawDocumentBuf>> {
        let mut clauses = Vec::new();
        for element in filter {
            let (name, value) = element?;
            clauses.push(self.of_clause(name.as_str(), value)?);
        }
        Ok(joined(clauses))
    }

    /// Describes a condition that does not hold.
    fn of_clause(&self, name: &str, value: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        let written = one(name, value);
        if self.matches(&written)? {
            return Ok(None);
        }
        match (name, value) {
            ("$and" | "$or", RawBsonRef::Array(branches)) => {
                let mut clauses = Vec::new();
                for branch in branches {
                    clauses.push(match branch? {
                        RawBsonRef::Document(branch) => self.of_filter(branch)?,
                        _ => None,
                    });
                }
                Ok(Some(several(name, clauses)))
            }
            ("$nor", RawBsonRef::Array(branches)) => {
                let mut satisfied = RawArrayBuf::new();
                for (index, branch) in branches.into_iter().enumerate() {
                    if let RawBsonRef::Document(branch) = branch?
                        && self.matches(branch)?
                    {
                        satisfied.push(rawdoc! { "index": integer(index), "specifiedAs": branch.to_owned() });
                    }
                }
                Ok(Some(rawdoc! { "operatorName": "$nor", "clausesSatisfied": satisfied }))
            }
            ("$jsonSchema", RawBsonRef::Document(schema)) => {
                Schema::compile(schema)?.failures(self.document, self.context).map(Some)
            }
            ("$expr", expression) => {
                let expression = Expression::compile(expression, self.options)?;
                let found = expression.evaluate(self.document, self.context)?;
                let mut report =
                    rawdoc! { "operatorName": "$expr", "specifiedAs": written, "reason": "$expr did not match" };
                if let Some(found) = found.into_owned() {
                    report.append(bson::raw::cstr!("expressionResult"), found);
                }
                Ok(Some(report))
            }
            (path, RawBsonRef::Document(operators)) if has_operators(operators) => self.of_operators(path, operators),
            (path, _) => Ok(Some(self.of_operator(path, "$eq", written))),
        }
    }

    /// Describes the operators of a path that its values do not fulfil.
    fn of_operators(&self, path: &str, operators: &RawDocument) -> Result<Option<RawDocumentBuf>> {
        let mut clauses = Vec::new();
        for element in operators {
            let (operator, operand) = element?;
            if operator.as_str() == "$options" {
                continue;
            }
            let mut condition = one(operator.as_str(), operand);
            if let ("$regex", Some(options)) = (operator.as_str(), crate::path::field(operators, "$options")) {
                condition.append(bson::raw::cstr!("$options"), RawBson::from(options));
            }
            let written = one(path, RawBsonRef::Document(&condition));
            let fails = !self.matches(&written)?;
            clauses.push(fails.then(|| self.of_operator(path, operator.as_str(), written)));
        }
        Ok(joined(clauses))
    }

    /// Describes an operator that no value of a path fulfils.
    fn of_operator(&self, path: &str, operator: &str, written: RawDocumentBuf) -> RawDocumentBuf {
        let (mut values, mut bytes, mut is_there) = (Vec::new(), 0, false);
        let path = Path::new(path);
        let _: ControlFlow<()> = path.visit(self.document, TrailingArray::Elements, &mut |found| {
            let value = found.value.and_then(shown);
            bytes += value.as_ref().map_or(0, |value| bytes_of(value.as_raw_bson_ref()));
            if bytes > SHOWN_BYTES_MAX {
                return ControlFlow::Break(());
            }
            is_there |= found.value.is_some();
            values.extend(value);
            ControlFlow::Continue(())
        });
        let is_missing = !is_there && !matches!(operator, "$exists" | "$not" | "$ne" | "$nin");
        let reason = if is_missing { "field was missing" } else { reason(operator) };
        let mut report = rawdoc! { "operatorName": operator, "specifiedAs": written, "reason": reason };
        if operator == "$type" {
            let types: Vec<_> = values.iter().map(|value| type_name(value.as_raw_bson_ref()).into()).collect();
            put_considered(&mut report, ["consideredValue", "consideredValues"], values);
            put_considered(&mut report, ["consideredType", "consideredTypes"], types);
        } else if operator != "$exists" {
            put_considered(&mut report, ["consideredValue", "consideredValues"], values);
        }
        report
    }

    fn matches(&self, filter: &RawDocument) -> Result<bool> {
        Filter::compile(filter, self.options)?.matches(self.document, self.context)
    }
}

/// Appends a value, or several under the name of several.
fn put_considered(report: &mut RawDocumentBuf, [single, several]: [&str; 2], mut values: Vec<RawBson>) {
    match (values.pop(), values.is_empty()) {
        (None, _) => {}
        (Some(only), true) => put(report, single, only),
        (Some(last), false) => {
            let mut all = RawArrayBuf::new();
            for value in values.into_iter().chain([last]) {
                all.push(value);
            }
            put(report, several, all);
        }
    }
}

fn one(name: &str, value: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    put(&mut document, name, RawBson::from(value));
    document
}

/// Returns the description of the only condition that is there, or that of the conjunction of several.
fn joined(mut clauses: Vec<Option<RawDocumentBuf>>) -> Option<RawDocumentBuf> {
    if clauses.len() == 1 {
        return clauses.pop().flatten();
    }
    clauses.iter().any(Option::is_some).then(|| several("$and", clauses))
}

fn several(operator: &str, clauses: Vec<Option<RawDocumentBuf>>) -> RawDocumentBuf {
    let mut failing = RawArrayBuf::new();
    for (index, details) in clauses.into_iter().enumerate() {
        if let Some(details) = details {
            failing.push(rawdoc! { "index": integer(index), "details": details });
        }
    }
    rawdoc! { "operatorName": operator, "clausesNotSatisfied": failing }
}

fn has_operators(document: &RawDocument) -> bool {
    let first = document.iter_elements().next();
    first.is_some_and(|first| first.is_ok_and(|first| first.key().as_str().starts_with('$')))
}

/// Returns MongoDB's reason for an operator that does not hold.
fn reason(operator: &str) -> &'static str {
    match operator {
        "$type" => "type did not match",
        "$in" => "no matching value found in array",
        "$nin" => "matching value found in array",
        "$exists" => "path does not exist, or exists where it must not",
        "$regex" => "regular expression did not match",
        "$mod" => "$mod did not evaluate to expected remainder",
        "$size" => "array length was not equal to given size",
        "$all" => "array did not contain all specified values",
        "$elemMatch" => "array did not satisfy the child predicate",
        "$not" => "child expression matched",
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => "bitwise operator failed to match",
        _ => "comparison failed",
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::mismatch;
    use crate::CompileOptions;
    use crate::expression::testing::context;

    fn check(filter: RawDocumentBuf, document: RawDocumentBuf, expected: Option<RawDocumentBuf>) {
        let found = mismatch(&filter, &CompileOptions::default(), &document, &context()).unwrap();
        assert_eq!(found, expected, "{filter:?}");
    }

    #[test]
    fn each_condition_that_does_not_hold_is_described() {
        let over = |n: i32| rawdoc! { "a": { "$gt": n } };
        check(over(5), rawdoc! { "a": 6 }, None);
        let failed = rawdoc! { "operatorName": "$gt", "specifiedAs": over(5), "reason": "comparison failed", "consideredValue": 3 };
        check(over(5), rawdoc! { "a": 3 }, Some(failed.clone()));
        let missing = rawdoc! { "operatorName": "$gt", "specifiedAs": over(5), "reason": "field was missing" };
        check(over(5), rawdoc! {}, Some(missing));
        let several = rawdoc! {
            "operatorName": "$gt", "specifiedAs": over(5), "reason": "comparison failed", "consideredValues": [3, 4, [3, 4]],
        };
        check(over(5), rawdoc! { "a": [3, 4] }, Some(several));
        let both = rawdoc! { "b": 1, "a": { "$gt": 5, "$lt": 9 } };
        let failed = rawdoc! { "operatorName": "$and", "clausesNotSatisfied": [{ "index": 1, "details": {
            "operatorName": "$and", "clausesNotSatisfied": [{ "index": 0, "details": failed }],
        } }] };
        check(both, rawdoc! { "a": 3, "b": 1 }, Some(failed));
        let types = rawdoc! { "a": { "$type": "string" } };
        let failed = rawdoc! {
            "operatorName": "$type", "specifiedAs": types.clone(), "reason": "type did not match", "consideredValue": 3, "consideredType": "int",
        };
        check(types, rawdoc! { "a": 3 }, Some(failed));
        let either = rawdoc! { "$or": [{ "a": 1 }, { "$expr": { "$eq": ["$a", 2] } }] };
        let failed = rawdoc! { "operatorName": "$or", "clausesNotSatisfied": [
            { "index": 0, "details": {
                "operatorName": "$eq", "specifiedAs": { "a": 1 }, "reason": "comparison failed", "consideredValue": 3,
            } },
            { "index": 1, "details": {
                "operatorName": "$expr", "specifiedAs": { "$expr": { "$eq": ["$a", 2] } }, "reason": "$expr did not match",
                "expressionResult": false,
            } },
        ] };
        check(either, rawdoc! { "a": 3 }, Some(failed));
        let nor = rawdoc! { "$nor": [{ "a": 1 }, { "a": 3 }] };
        let failed =
            rawdoc! { "operatorName": "$nor", "clausesSatisfied": [{ "index": 1, "specifiedAs": { "a": 3 } }] };
        check(nor, rawdoc! { "a": 3 }, Some(failed));
        let pattern = rawdoc! { "a": { "$regex": "^x", "$options": "i" } };
        check(pattern.clone(), rawdoc! { "a": "XY" }, None);
        let failed = rawdoc! {
            "operatorName": "$regex", "specifiedAs": pattern.clone(), "reason": "regular expression did not match", "consideredValue": "y",
        };
        check(pattern, rawdoc! { "a": "y" }, Some(failed));
        let schema = rawdoc! { "$jsonSchema": { "required": ["a"] } };
        let failed = rawdoc! { "operatorName": "$jsonSchema", "schemaRulesNotSatisfied": [
            { "operatorName": "required", "specifiedAs": { "required": ["a"] }, "missingProperties": ["a"] },
        ] };
        check(schema, rawdoc! {}, Some(failed));
    }
}
