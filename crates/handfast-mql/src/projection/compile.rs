//! Compiles `{a: 1, "b.c": 1, ..}` to a tree.

use bson::raw::CString;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::expression::{Expression, path, value::show};
use crate::number::Number;
use crate::{Code, CompileOptions, Error, Filter, Result, bson_type, field_path, text};

use super::tree::{FieldTree, Node, Slice};
use super::{Kind, Projection, Syntax};

pub(super) fn compile(projection: &RawDocument, syntax: Syntax, options: &CompileOptions) -> Result<Projection> {
    let mut compiler =
        Compiler { syntax, options, root: FieldTree::default(), kind: None, id: None, has_element_match: false };
    compiler.document(projection, "")?;
    compiler.finish()
}

struct Compiler<'o> {
    syntax: Syntax,
    options: &'o CompileOptions,
    root: FieldTree,
    /// The kind of projection, by the fields so far.
    kind: Option<Kind>,
    /// Whether `_id` itself is shown, if the projection has it, which both kinds allow.
    id: Option<bool>,
    has_element_match: bool,
}

impl Compiler<'_> {
    fn finish(mut self) -> Result<Projection> {
        // Alone, `_id: 1` shows nothing else, and `_id: 0` and `$slice` show everything else.
        let alone = if self.id == Some(true) { Kind::Inclusion } else { Kind::Exclusion };
        let kind = self.kind.unwrap_or(alone);
        if self.id.is_some() && self.root.contains("_id") {
            match (self.syntax, kind, self.id) {
                (Syntax::Find, ..) | (Syntax::Stage, Kind::Inclusion, _) => {
                    return Err(self.error(31250, "Path collision at _id"));
                }
                // `$project` accepts `_id: 1` among exclusions, also beside `_id.x: 0`. The insertion below refuses `_id: 0`.
                (Syntax::Stage, ..) => {}
            }
        }
        match (kind, self.id) {
            (Kind::Inclusion, Some(true)) => self.root.insert("_id", Node::Include)?,
            (Kind::Inclusion, None) if !self.root.contains("_id") => self.root.insert("_id", Node::Include)?,
            (Kind::Exclusion, Some(false)) => self.root.insert("_id", Node::Exclude)?,
            // This is the default of the kind.
            _ => {}
        }
        Ok(Projection { syntax: self.syntax, kind, root: self.root })
    }

    /// Returns an error whose message names the stage, if the projection is one.
    fn error(&self, code: i32, message: impl AsRef<str>) -> Error {
        match self.syntax {
            Syntax::Find => bad(code, message.as_ref()),
            Syntax::Stage => bad(code, format!("Invalid $project :: caused by :: {}", message.as_ref())),
        }
    }

    fn document(&mut self, document: &RawDocument, parent: &str) -> Result<()> {
        for field in document.iter() {
            let (name, value) = field?;
            let path = path::join(parent, name.as_str());
            if self.syntax == Syntax::Stage {
                // Both are checked: the parts of the name, and the depth of the path, as functions recurse for each part.
                path::check(name.as_str())?;
                path::check(&path)?;
            }
            self.field(&path, value)?;
        }
        Ok(())
    }

    fn field(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        if self.syntax == Syntax::Find {
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
        }
        match value {
            RawBsonRef::Boolean(shown) => self.plain(path, shown),
            RawBsonRef::Document(document) => self.nested(path, document),
            _ => match Number::of(value) {
                Some(number) => self.plain(path, !number.is_zero()),
                None => self.compute(path, value),
            },
        }
    }

    /// Compiles `1` or `0`.
    fn plain(&mut self, path: &str, shown: bool) -> Result<()> {
        if path == "_id" {
            return match self.id.replace(shown) {
                Some(_) => Err(self.error(31250, "Path collision at _id")),
                None => Ok(()),
            };
        }
        if shown {
            self.include(path)?;
            self.root.insert(path, Node::Include)
        } else {
            if self.kind == Some(Kind::Inclusion) {
                return Err(self.error(31254, format!("Cannot do exclusion on field {path} in inclusion projection")));
            }
            self.kind = Some(Kind::Exclusion);
            self.root.insert(path, Node::Exclude)
        }
    }

    fn include(&mut self, path: &str) -> Result<()> {
        if self.kind == Some(Kind::Exclusion) {
            return Err(self.error(31253, format!("Cannot do inclusion on field {path} in exclusion projection")));
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
        if self.root.has_positional() {
            return Err(bad(31276, "Cannot specify more than one positional projection per query."));
        }
        if self.has_element_match {
            return Err(bad(31256, "Cannot specify positional operator and $elemMatch."));
        }
        field_path::check(path)?;
        self.include(path)?;
        self.root.insert(path, Node::Positional)
    }

    /// Compiles a document: an operator of `find`, an expression, or more fields.
    fn nested(&mut self, path: &str, document: &RawDocument) -> Result<()> {
        let mut fields = document.iter();
        let Some(first) = fields.next() else {
            const MESSAGE: &str = "An empty sub-projection is not a valid value. Found empty object at path";
            return Err(match self.syntax {
                Syntax::Find => bad(51270, MESSAGE),
                Syntax::Stage => self.error(51270, format!("{MESSAGE} {path}")),
            });
        };
        let (name, value) = first?;
        match (name.as_str(), self.syntax) {
            ("$slice", Syntax::Find) if fields.next().is_none() => self.slice(path, document, value),
            ("$elemMatch", Syntax::Find) if fields.next().is_none() => self.element_match(path, document, value),
            ("$meta", Syntax::Find) => {
                Err(bad(2, "$meta is not supported in projections: there are no text scores or sort keys"))
            }
            (operator, _) if operator.starts_with('$') => self
                .compute(path, RawBsonRef::Document(document))
                .map_err(|error| self.unknown_expression(operator, error)),
            _ => self.document(document, path),
        }
    }

    fn compute(&mut self, path: &str, value: RawBsonRef<'_>) -> Result<()> {
        if self.kind == Some(Kind::Exclusion) {
            return Err(match self.syntax {
                Syntax::Find => bad(31252, "Cannot use expression other than $meta in exclusion projection"),
                Syntax::Stage => self.error(
                    31252,
                    format!("Cannot use an expression in an exclusion projection: {path}: {}", show(value)),
                ),
            });
        }
        let expression = Expression::compile(value, self.options)?;
        self.kind = Some(Kind::Inclusion);
        self.root.insert(path, Node::Compute(expression))
    }

    /// Returns the error with MongoDB's code for an unknown operator that is the projection of a field, not inside an expression.
    fn unknown_expression(&self, operator: &str, error: Error) -> Error {
        if error.message() == format!("Unrecognized expression '{operator}'") {
            return self.error(31325, format!("Unknown expression {operator}"));
        }
        error
    }

    fn element_match(&mut self, path: &str, document: &RawDocument, condition: RawBsonRef<'_>) -> Result<()> {
        if !matches!(condition, RawBsonRef::Document(_)) {
            let kind = bson_type::type_name(condition);
            return Err(bad(31274, format!("elemMatch: Invalid argument, object required, but got {kind}")));
        }
        if path.contains('.') {
            return Err(bad(31275, "Cannot use $elemMatch projection on a nested field."));
        }
        if self.root.has_positional() {
            return Err(bad(31255, "Cannot specify positional operator and $elemMatch."));
        }
        let mut query = RawDocumentBuf::new();
        query.append(CString::try_from(path)?, document);
        let filter = Filter::compile(&query, self.options)?;
        self.include(path)?;
        self.has_element_match = true;
        self.root.insert(path, Node::ElementMatch(filter))
    }

    /// Compiles `$slice` of `find`, or else the operator of expressions with the same name.
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

/// Returns a number cut to an integer; one that does not fit counts as the largest of its sign.
fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    let number = Number::of(value)?;
    let beyond = if number.is_negative() { i64::MIN } else { i64::MAX };
    Some(number.to_i64_truncated().unwrap_or(if number.is_nan() { 0 } else { beyond }))
}

fn bad(code: i32, message: impl Into<String>) -> Error {
    Error::new(Code(code), message)
}
