//! `$project`, `$addFields` (`$set`) and `$unset`: a tree of paths laid over a document.
//!
//! Each leaf of the tree keeps a field, drops it, or computes it. Arrays on the way are transparent: the tree applies to
//! each of their documents. What stands where a computed path needs a document is replaced by one.
//!
//! ```text
//! {$project: {a: 1, b: {c: "$x"}}}     a  keep          over {a: 5, x: 7, z: 9}
//!                                      b -- c compute    gives {a: 5, b: {c: 7}}
//! ```

use std::cell::Cell;
use std::collections::HashMap;

use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::{
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{
        Expression, Value, is_number, limits,
        path::split,
        value::{self, show},
    },
};

/// A compiled `$project`, `$addFields`, `$set` or `$unset`.
#[derive(Debug)]
pub struct Shape {
    tree: Tree,
    mode: Mode,
}

/// What happens to a field that the tree does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `$project` that names what stays.
    Include,
    /// `$project` that names what goes, `$unset`.
    Exclude,
    /// `$addFields`.
    Add,
}

#[derive(Debug, Default)]
struct Tree {
    children: Vec<(String, Child)>,
    places: HashMap<String, usize>,
    computes: bool,
}

#[derive(Debug)]
enum Child {
    Keep,
    Drop,
    Compute(Expression),
    Nested(Tree),
}

impl Shape {
    /// Compiles the argument of `$project`.
    ///
    /// # Errors
    /// Inclusion and exclusion mixed (31253, 31254), paths that collide (31249, 31250), an expression that is none.
    pub fn project(document: &RawDocument, options: &CompileOptions) -> Result<Shape> {
        if document.is_empty() {
            return Err(Error::new(
                Code(51_272),
                "Invalid $project :: caused by :: projection specification must have at least one field",
            ));
        }
        let mut builder = Builder { options, mode: None, id: None, tree: Tree::default() };
        builder.fields(&mut Vec::new(), document)?;
        builder.finish()
    }

    /// Compiles the argument of `$addFields` or `$set`.
    ///
    /// # Errors
    /// As `project`, and 40177 if there are no fields.
    pub fn add_fields(stage: &str, document: &RawDocument, options: &CompileOptions) -> Result<Shape> {
        if document.is_empty() {
            return Err(Error::new(
                Code(40_177),
                format!("Invalid {stage} :: caused by :: specification must have at least one field"),
            ));
        }
        let mut tree = Tree::default();
        add_computed(&mut tree, &mut Vec::new(), document, options)?;
        Ok(Shape { tree, mode: Mode::Add })
    }

    /// Compiles the argument of `$unset`: one path or several.
    ///
    /// # Errors
    /// 31002, 31119, 31120 for anything but non-empty strings.
    pub fn unset(argument: RawBsonRef<'_>) -> Result<Shape> {
        let mut tree = Tree::default();
        match argument {
            RawBsonRef::String(path) => tree.insert(&split(path)?, Child::Drop)?,
            RawBsonRef::Array(array) => {
                if array.is_empty() {
                    return Err(Error::new(
                        Code(31_119),
                        "$unset specification must be a string or an array with at least one field",
                    ));
                }
                for path in value::items(array) {
                    let RawBsonRef::String(path) = path? else {
                        return Err(Error::new(
                            Code(31_120),
                            "$unset specification must be a string or an array containing only string values",
                        ));
                    };
                    tree.insert(&split(path)?, Child::Drop)?;
                }
            }
            _ => return Err(Error::new(Code(31_002), "$unset specification must be a string or an array")),
        }
        Ok(Shape { tree, mode: Mode::Exclude })
    }

    /// The document in its new shape.
    ///
    /// # Errors
    /// What the computed fields fail with; 146 if they are more than 100 MB together.
    pub fn apply(&self, document: &RawDocument, context: &Context) -> Result<RawDocumentBuf> {
        let mut out = RawDocumentBuf::new();
        self.document(
            &self.tree,
            document,
            &Input { root: document, context, computed_bytes: Cell::new(0) },
            &mut out,
        )?;
        if self.tree.computes {
            limits::check_depth(RawBsonRef::Document(&out))?;
        }
        Ok(out)
    }

    fn document(&self, tree: &Tree, document: &RawDocument, input: &Input<'_>, out: &mut RawDocumentBuf) -> Result<()> {
        let mut placed = vec![false; if tree.computes { tree.children.len() } else { 0 }];
        for field in value::fields(document) {
            let (key, old) = field?;
            let Some(place) = tree.places.get(key.as_str()) else {
                if self.mode != Mode::Include {
                    out.append(key, old);
                }
                continue;
            };
            match &tree.children[*place].1 {
                Child::Keep => out.append(key, old),
                Child::Drop => {}
                Child::Compute(expression) => {
                    // In $project a computed field comes after what is kept, as a new one does.
                    if self.mode == Mode::Add && !std::mem::replace(&mut placed[*place], true) {
                        input.compute(expression, key.as_str(), out)?;
                    }
                }
                Child::Nested(nested) => {
                    if let Some(new) = self.value(nested, old, input)? {
                        out.append(key, new.or_null());
                        if nested.computes {
                            placed[*place] = true;
                        }
                    }
                }
            }
        }
        if !tree.computes {
            return Ok(());
        }
        for ((name, child), placed) in tree.children.iter().zip(placed) {
            match child {
                Child::Compute(expression) if !placed => input.compute(expression, name, out)?,
                Child::Nested(nested) if !placed && nested.computes => {
                    let mut inner = RawDocumentBuf::new();
                    self.document(nested, &RawDocumentBuf::new(), input, &mut inner)?;
                    value::append(out, name, RawBsonRef::Document(&inner))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The tree over a value that is not the document itself; `None` if nothing stays of it.
    fn value<'v>(&self, tree: &Tree, old: RawBsonRef<'v>, input: &Input<'_>) -> Result<Option<Value<'v>>> {
        match old {
            RawBsonRef::Document(document) => {
                let mut inner = RawDocumentBuf::new();
                self.document(tree, document, input, &mut inner)?;
                Ok(Some(inner.into()))
            }
            RawBsonRef::Array(array) => Ok(Some(self.items(tree, array, input)?.into())),
            _ if tree.computes => {
                let mut inner = RawDocumentBuf::new();
                self.document(tree, &RawDocumentBuf::new(), input, &mut inner)?;
                Ok(Some(inner.into()))
            }
            _ if self.mode == Mode::Include => Ok(None),
            other => Ok(Some(other.into())),
        }
    }

    fn items(&self, tree: &Tree, array: &RawArray, input: &Input<'_>) -> Result<RawArrayBuf> {
        let mut out = RawArrayBuf::new();
        for item in value::items(array) {
            if let Some(new) = self.value(tree, item?, input)? {
                value::push(&mut out, new.or_null())?;
            }
        }
        Ok(out)
    }
}

/// The document that expressions see, whatever depth they stand at.
struct Input<'a> {
    root: &'a RawDocument,
    context: &'a Context,
    /// A field is computed anew in each element of the arrays on its path: a few bytes can ask for terabytes.
    computed_bytes: Cell<usize>,
}

impl Input<'_> {
    fn compute(&self, expression: &Expression, name: &str, out: &mut RawDocumentBuf) -> Result<()> {
        match expression.evaluate(self.root, self.context)?.get() {
            Some(value) => {
                let before = out.as_bytes().len();
                value::append(out, name, value)?;
                let made = self.computed_bytes.get().saturating_add(out.as_bytes().len().saturating_sub(before));
                self.computed_bytes.set(made);
                limits::check_bytes(made)
            }
            None => Ok(()),
        }
    }
}

impl Tree {
    fn insert(&mut self, path: &[String], child: Child) -> Result<()> {
        self.insert_at(path, 0, child)
    }

    fn insert_at(&mut self, path: &[String], depth: usize, child: Child) -> Result<()> {
        let Some(name) = path.get(depth) else { return Ok(()) };
        let is_leaf = depth + 1 == path.len();
        self.computes |= matches!(child, Child::Compute(_));
        let place = self.places.get(name).copied();
        match (place.and_then(|place| self.children.get_mut(place)), is_leaf) {
            (None, true) => self.add(name, child),
            (None, false) => {
                let mut nested = Tree::default();
                nested.insert_at(path, depth + 1, child)?;
                self.add(name, Child::Nested(nested));
            }
            (Some((_, Child::Nested(nested))), false) => nested.insert_at(path, depth + 1, child)?,
            (Some(_), true) => {
                return Err(Error::new(Code(31_250), format!("Path collision at {}", path.join("."))));
            }
            (Some(_), false) => {
                return Err(Error::new(
                    Code(31_249),
                    format!("Path collision at {} remaining portion {}", path.join("."), path[depth + 1..].join(".")),
                ));
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, child: Child) {
        self.places.insert(name.to_owned(), self.children.len());
        self.children.push((name.to_owned(), child));
    }
}

/// Reads the argument of `$project`.
struct Builder<'o> {
    options: &'o CompileOptions,
    mode: Option<Mode>,
    /// What is said of `_id`, which goes with either mode.
    id: Option<bool>,
    tree: Tree,
}

impl Builder<'_> {
    fn fields(&mut self, prefix: &mut Vec<String>, document: &RawDocument) -> Result<()> {
        for field in value::fields(document) {
            let (key, item) = field?;
            let parts = split(key.as_str())?;
            let count = parts.len();
            prefix.extend(parts);
            self.field(prefix, item)?;
            prefix.truncate(prefix.len() - count);
        }
        Ok(())
    }

    fn field(&mut self, path: &mut Vec<String>, item: RawBsonRef<'_>) -> Result<()> {
        match item {
            RawBsonRef::Boolean(_) => self.flag(path, value::is_true(item)),
            number if is_number(number) => self.flag(path, value::is_true(number)),
            RawBsonRef::Document(nested) if !is_operator(nested) => {
                if nested.is_empty() {
                    return Err(Error::new(
                        Code(51_270),
                        format!(
                            "Invalid $project :: caused by :: An empty sub-projection is not a valid value. Found empty object at path {}",
                            path.join(".")
                        ),
                    ));
                }
                self.fields(path, nested)
            }
            computed => {
                if self.mode == Some(Mode::Exclude) {
                    return Err(Error::new(
                        Code(31_252),
                        format!(
                            "Invalid $project :: caused by :: Cannot use an expression in an exclusion projection: {}: {}",
                            path.join("."),
                            show(computed)
                        ),
                    ));
                }
                self.mode = Some(Mode::Include);
                let expression =
                    Expression::compile(computed, self.options).map_err(|error| unknown(error, computed))?;
                self.tree.insert(path, Child::Compute(expression))
            }
        }
    }

    fn flag(&mut self, path: &[String], keep: bool) -> Result<()> {
        if let [only] = path
            && only == "_id"
        {
            if self.id.is_some() {
                return Err(Error::new(Code(31_250), "Invalid $project :: caused by :: Path collision at _id"));
            }
            self.id = Some(keep);
            return Ok(());
        }
        let (mode, child) = if keep { (Mode::Include, Child::Keep) } else { (Mode::Exclude, Child::Drop) };
        match self.mode {
            None => self.mode = Some(mode),
            Some(known) if known == mode => {}
            Some(Mode::Exclude) => {
                return Err(Error::new(
                    Code(31_253),
                    format!(
                        "Invalid $project :: caused by :: Cannot do inclusion on field {} in exclusion projection",
                        path.join(".")
                    ),
                ));
            }
            Some(_) => {
                return Err(Error::new(
                    Code(31_254),
                    format!(
                        "Invalid $project :: caused by :: Cannot do exclusion on field {} in inclusion projection",
                        path.join(".")
                    ),
                ));
            }
        }
        self.tree.insert(path, child)
    }

    fn finish(mut self) -> Result<Shape> {
        let mode = match (self.mode, self.id) {
            (Some(mode), _) => mode,
            (None, Some(true)) => Mode::Include,
            (None, _) => Mode::Exclude,
        };
        match mode {
            Mode::Include => {
                // `_id` stays unless it is excluded or computed; `_id.x` alone keeps only that of it.
                let named = self.tree.places.contains_key("_id");
                match self.id {
                    Some(true) | None if !named => self.tree.insert(&["_id".to_owned()], Child::Keep)?,
                    Some(_) if named => {
                        return Err(Error::new(Code(31_250), "Invalid $project :: caused by :: Path collision at _id"));
                    }
                    _ => {}
                }
            }
            _ => {
                if self.id == Some(false) {
                    self.tree.insert(&["_id".to_owned()], Child::Drop)?;
                }
            }
        }
        Ok(Shape { tree: self.tree, mode })
    }
}

/// An unknown operator right in the projection has a code of its own.
fn unknown(error: Error, computed: RawBsonRef<'_>) -> Error {
    let name = computed.as_document().and_then(|document| document.iter().flatten().next());
    match name {
        Some((name, _)) if error.message() == format!("Unrecognized expression '{name}'") => {
            Error::new(Code(31_325), format!("Invalid $project :: caused by :: Unknown expression {name}"))
        }
        _ => error,
    }
}

/// Whether a document is an expression: its first field begins with `$`.
pub(crate) fn is_operator(document: &RawDocument) -> bool {
    document.iter().flatten().next().is_some_and(|(key, _)| key.as_str().starts_with('$'))
}

fn add_computed(
    tree: &mut Tree,
    prefix: &mut Vec<String>,
    document: &RawDocument,
    options: &CompileOptions,
) -> Result<()> {
    for field in value::fields(document) {
        let (key, item) = field?;
        let parts = split(key.as_str())?;
        let count = parts.len();
        prefix.extend(parts);
        match item {
            RawBsonRef::Document(nested) if !is_operator(nested) && !nested.is_empty() => {
                add_computed(tree, prefix, nested, options)?;
            }
            other => tree.insert(prefix, Child::Compute(Expression::compile(other, options)?))?,
        }
        prefix.truncate(prefix.len() - count);
    }
    Ok(())
}

/// The document with the value at a dotted path set (or, for `None`, removed); a value that is no document on the way
/// is replaced by one.
pub(crate) fn with_path(
    document: &RawDocument,
    path: &[String],
    new: Option<RawBsonRef<'_>>,
) -> Result<RawDocumentBuf> {
    let mut out = RawDocumentBuf::new();
    let [name, rest @ ..] = path else { return Ok(document.to_owned()) };
    let mut placed = false;
    for field in value::fields(document) {
        let (key, old) = field?;
        if placed || key.as_str() != name {
            out.append(key, old);
            continue;
        }
        placed = true;
        if rest.is_empty() {
            if let Some(new) = new {
                out.append(key, new);
            }
            continue;
        }
        match (old, new) {
            (RawBsonRef::Document(inner), _) => out.append(key, with_path(inner, rest, new)?),
            (_, Some(_)) => out.append(key, with_path(&RawDocumentBuf::new(), rest, new)?),
            (old, None) => out.append(key, old),
        }
    }
    if let Some(new) = new.filter(|_| !placed) {
        let value = if rest.is_empty() {
            value::to_owned(new)
        } else {
            RawBson::Document(with_path(&RawDocumentBuf::new(), rest, Some(new))?)
        };
        value::append(&mut out, name, value.as_raw_bson_ref())?;
    }
    Ok(out)
}
