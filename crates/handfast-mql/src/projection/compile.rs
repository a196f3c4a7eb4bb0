//! From `{a: 1, "b.c": 1, ..}` to a tree.

use bson::raw::CString;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::expression::Expression;
use crate::number::Number;
use crate::{Code, CompileOptions, Error, Filter, Result, bson_type, field_path, text};

use super::tree::{Children, Node, Slice};
use super::{Kind, Projection};

pub(super) fn compile(projection: &RawDocument, options: &CompileOptions) -> Result<Projection> {
    let mut compiler =
        Compiler { options, root: Children::default(), kind: None, id: None, positional: false, matches: false };
    compiler.document(projection, "")?;
    let Compiler { mut root, kind, id, positional, .. } = compiler;
    if id.is_some() && root.get("_id").is_some() {
        return Err(bad(31250, "Path collision at _id"));
    }
    // Alone, `_id: 1` shows nothing else, and `_id: 0` and `$slice` show everything else.
    let alone = if id == Some(true) { Kind::Inclusion } else { Kind::Exclusion };
    let kind = kind.unwrap_or(alone);
    match (kind, id) {
        (Kind::Inclusion, Some(true)) | (Kind::Exclusion, Some(false)) => {
            root.insert("_id", if kind == Kind::Inclusion { Node::Include } else { Node::Exclude })?;
        }
        (Kind::Inclusion, None) if root.get("_id").is_none() => root.insert("_id", Node::Include)?,
        // What the kind does to it anyway.
        _ => {}
    }
    Ok(Projection { kind, root, positional })
}

struct Compiler<'o> {
    options: &'o CompileOptions,
    root: Children,
    /// What the fields seen so far say.
    kind: Option<Kind>,
    /// What is said about `_id` itself, which goes with both kinds.
    id: Option<bool>,
    positional: bool,
    /// There is an `$elemMatch`.
    matches: bool,
}

impl Compiler<'_> {
    fn document(&mut self, document: &RawDocument, prefix: &str) -> Result<()> {
        for field in document.iter() {
            let (name, value) = field?;
            let path = if prefix.is_empty() { name.as_str().to_owned() } else { format!("{prefix}.{}", name.as_str()) };
            self.field(&path, value)?;
        }
        Ok(())
    }

    fn field(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        if let Some(array) = path.strip_suffix(".$") {
            return self.positional(array, value);
        }
        if path.split('.').any(|name| name == "$") {
            return Err(bad(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection \
                 may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, \
                 remove the parts following the '$' and the results will be equivalent.",
            ));
        }
        field_path::check(path)?;
        match value {
            RawBsonRef::Boolean(shown) => self.plain(path, shown),
            RawBsonRef::Document(document) => self.nested(path, document),
            _ => match Number::of(value) {
                Some(number) => self.plain(path, !number.is_zero()),
                None => self.compute(path, value),
            },
        }
    }

    /// `1` or `0`.
    fn plain(&mut self, path: &str, shown: bool) -> Result<()> {
        if path == "_id" {
            return match self.id.replace(shown) {
                Some(_) => Err(bad(31250, "Path collision at _id")),
                None => Ok(()),
            };
        }
        if shown {
            self.include(path)?;
            self.root.insert(path, Node::Include)
        } else {
            if self.kind == Some(Kind::Inclusion) {
                return Err(bad(31254, format!("Cannot do exclusion on field {path} in inclusion projection")));
            }
            self.kind = Some(Kind::Exclusion);
            self.root.insert(path, Node::Exclude)
        }
    }

    fn include(&mut self, path: &str) -> Result<()> {
        if self.kind == Some(Kind::Exclusion) {
            return Err(bad(31253, format!("Cannot do inclusion on field {path} in exclusion projection")));
        }
        self.kind = Some(Kind::Inclusion);
        Ok(())
    }

    fn positional(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        let shown = match (value, Number::of(value)) {
            (RawBsonRef::Boolean(shown), _) => shown,
            (_, Some(number)) => !number.is_zero(),
            (RawBsonRef::Document(_), _) => {
                return Err(bad(31271, "positional projection cannot be used with an expression or sub object"));
            }
            _ => return Err(bad(31308, "positional projection cannot be used with a literal")),
        };
        if !shown {
            return Err(bad(31395, "positional projection cannot be used with exclusion"));
        }
        if self.positional {
            return Err(bad(31276, "Cannot specify more than one positional projection per query."));
        }
        if self.matches {
            return Err(bad(31256, "Cannot specify positional operator and $elemMatch."));
        }
        field_path::check(path)?;
        self.include(path)?;
        self.positional = true;
        self.root.insert(path, Node::Positional)
    }

    /// A document: a find operator, an expression, or more fields.
    fn nested(&mut self, path: &str, document: &RawDocument) -> Result<()> {
        let mut fields = document.iter();
        let Some(first) = fields.next() else {
            return Err(bad(51270, "An empty sub-projection is not a valid value. Found empty object at path"));
        };
        let (name, value) = first?;
        match name.as_str() {
            "$slice" if fields.next().is_none() => self.slice(path, document, value),
            "$elemMatch" if fields.next().is_none() => self.element_match(path, document, value),
            "$meta" => Err(bad(2, "$meta is not supported in projections: there are no text scores or sort keys")),
            operator if operator.starts_with('$') => {
                self.compute(path, RawBsonRef::Document(document)).map_err(|error| unknown_expression(operator, error))
            }
            _ => self.document(document, path),
        }
    }

    fn compute(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        if self.kind == Some(Kind::Exclusion) {
            return Err(bad(31252, "Cannot use expression other than $meta in exclusion projection"));
        }
        let expression = Expression::compile(value, self.options)?;
        self.kind = Some(Kind::Inclusion);
        self.root.insert(path, Node::Compute(expression))
    }

    fn element_match(&mut self, path: &str, document: &RawDocument, condition: RawBsonRef<'_>) -> Result<()> {
        if !matches!(condition, RawBsonRef::Document(_)) {
            let kind = bson_type::type_name(condition);
            return Err(bad(31274, format!("elemMatch: Invalid argument, object required, but got {kind}")));
        }
        if path.contains('.') {
            return Err(bad(31275, "Cannot use $elemMatch projection on a nested field."));
        }
        if self.positional {
            return Err(bad(31255, "Cannot specify positional operator and $elemMatch."));
        }
        let mut query = RawDocumentBuf::new();
        query.append(CString::try_from(path)?, document);
        let filter = Filter::compile(&query, self.options)?;
        self.include(path)?;
        self.matches = true;
        self.root.insert(path, Node::ElementMatch(filter))
    }

    /// `$slice` of `find`, or else the operator of expressions with the same name.
    fn slice(&mut self, path: &str, document: &RawDocument, argument: RawBsonRef<'_>) -> Result<()> {
        match slice(argument) {
            Ok(slice) => self.root.insert(path, Node::Slice(slice)),
            Err(find) => match Expression::compile(RawBsonRef::Document(document), self.options) {
                Ok(_) => self.compute(path, RawBsonRef::Document(document)),
                Err(expression) => Err(bad(
                    28667,
                    format!(
                        "Invalid $slice syntax. The given syntax {} did not match the find() syntax because :: {} :: The \
                         given syntax did not match the expression $slice syntax. :: caused by :: {}",
                        text::document(document),
                        find.message(),
                        expression.message()
                    ),
                )),
            },
        }
    }
}

/// MongoDB's code where an unknown operator is the projection of a field, and not somewhere inside an expression.
fn unknown_expression(operator: &str, error: Error) -> Error {
    const INVALID_PIPELINE_OPERATOR: Code = Code(168);
    if error.code() == INVALID_PIPELINE_OPERATOR && error.message().ends_with(&format!("'{operator}'")) {
        return bad(31325, format!("Unknown expression {operator}"));
    }
    error
}

fn slice(argument: RawBsonRef<'_>) -> Result<Slice> {
    if let Some(count) = integer(argument) {
        return Ok(Slice::count(count));
    }
    let RawBsonRef::Array(array) = argument else {
        return Err(bad(31273, "$slice only supports numbers and [skip, limit] arrays"));
    };
    let items: Vec<RawBsonRef<'_>> = array.into_iter().take(3).collect::<std::result::Result<_, _>>()?;
    let [skip, limit] = items.as_slice() else {
        return Err(bad(31272, "$slice array argument should be of form [skip, limit]"));
    };
    let number = |code: i32, name: &str, value: RawBsonRef<'_>| {
        integer(value).ok_or_else(|| {
            let kind = bson_type::type_name(value);
            bad(code, format!("$slice expects the {name} argument to be a number, got {kind}"))
        })
    };
    let (skip, limit) = (number(31257, "skip", *skip)?, number(31258, "limit", *limit)?);
    if limit <= 0 {
        return Err(bad(31259, format!("$slice limit must be positive, got {limit}")));
    }
    Ok(Slice { skip, limit: usize::try_from(limit).unwrap_or(usize::MAX) })
}

/// A number cut to an integer; one that does not fit counts as the largest of its sign.
fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    let number = Number::of(value)?;
    let beyond = if number.is_negative() { i64::MIN } else { i64::MAX };
    Some(number.to_i64_truncated().unwrap_or(if number.is_nan() { 0 } else { beyond }))
}

fn bad(code: i32, message: impl Into<String>) -> Error {
    Error::new(Code(code), message)
}
