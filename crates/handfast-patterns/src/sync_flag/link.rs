//! Links, which say which fields of a main document have copies, and where.

use std::fmt;
use std::sync::Arc;

use bson::{Bson, DateTime, Document, Timestamp, doc};
use handfast_mql::expression::may_vary;
use handfast_mql::{CompileOptions, Context, Expression};
use handfast_store::Namespace;

use super::SyncFields;
use crate::fields::is_path;
use crate::steps::raw;
use crate::update::is_within;
use crate::value::at_path;
use crate::{Error, Result};

/// A link: copies of fields of a main document in the documents of a collection, which name the main document.
///
/// ```
/// use bson::{Bson, Document};
/// use handfast_patterns::Link;
/// use handfast_store::Namespace;
///
/// # fn main() -> handfast_patterns::Result<()> {
/// let initial = |user: &Document| user.get_str("name").ok()?.get(..1).map(Bson::from);
/// let link = Link::new(Namespace::new("site", "comments")?, "user")
///     .field("name", "userName")
///     .computed("userInitial", initial);
/// // {_id: 9, user: 1, userName: "John", userInitial: "J", userVersion: 6, text: ..}
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Link {
    pub(super) target: Namespace,
    pub(super) foreign_key: String,
    pub(super) version: String,
    pub(super) syncing: String,
    pub(super) on_delete: OnDelete,
    pub(super) copied: Vec<(String, Source)>,
}

/// The source of a copied field.
#[derive(Clone)]
pub(super) enum Source {
    Field(String),
    /// An expression as it was given, and compiled.
    Expression(Bson, Arc<Computed>),
    Function(Arc<Computed>),
}

/// A function from a main document to a value of its copies.
pub(super) type Computed = dyn Fn(&Document) -> Option<Bson> + Send + Sync;

/// The treatment of documents with copies when their main document is deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OnDelete {
    /// The copied fields are removed.
    #[default]
    Unset,
    /// The copied fields get these values; those without a value are removed.
    Set(Document),
    /// The documents are deleted.
    Remove,
    /// The copied fields stay as they are.
    Keep,
}

impl OnDelete {
    /// Returns the name that declarations store.
    pub(super) fn name(&self) -> &'static str {
        match self {
            OnDelete::Unset => "unset",
            OnDelete::Set(_) => "set",
            OnDelete::Remove => "remove",
            OnDelete::Keep => "keep",
        }
    }
}

/// The values of copied fields by path; `None` for a field that must be absent.
pub(super) type Values = Vec<(String, Option<Bson>)>;

impl Link {
    /// Creates a link to the documents of `target` whose field `foreign_key` holds the `_id` of their main document.
    /// Paths may lead into documents (`author.id`), not through arrays. The version of a copy is in `<foreign
    /// key>Version`, its own flag in `<foreign key>Syncing`.
    pub fn new(target: Namespace, foreign_key: impl Into<String>) -> Self {
        let foreign_key = foreign_key.into();
        Link {
            target,
            version: format!("{foreign_key}Version"),
            syncing: format!("{foreign_key}Syncing"),
            foreign_key,
            on_delete: OnDelete::default(),
            copied: Vec::new(),
        }
    }

    /// Copies the value at a path of the main document to a path of the copy.
    #[must_use]
    pub fn field(self, main: impl Into<String>, copy: impl Into<String>) -> Self {
        self.copied(copy, Source::Field(main.into()))
    }

    /// Computes the value at a path of the copy from the main document. The function must return the same value for
    /// the same document in every process.
    #[must_use]
    pub fn computed(
        self,
        copy: impl Into<String>,
        value: impl Fn(&Document) -> Option<Bson> + Send + Sync + 'static,
    ) -> Self {
        self.copied(copy, Source::Function(Arc::new(value)))
    }

    /// Computes the value at a path of the copy from the main document by an aggregation expression, such as
    /// `{$toUpper: "$name"}`. The document has no fields of the pattern there. A command can be given an expression, but not the function of [`Link::computed`]. If the
    /// expression fails on a document, its copies lack the field.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid expression, and for one that depends on time or chance.
    pub fn expression(self, copy: impl Into<String>, expression: impl Into<Bson>) -> Result<Self> {
        let expression = expression.into();
        let written = raw(&doc! { "of": expression.clone() })?;
        if may_vary(&written) {
            return Err(Error::invalid(
                "the expression of a copied field must depend on the main document alone, not on time or chance",
            ));
        }
        let compiled = match written.get("of") {
            Ok(Some(of)) => Expression::compile(of, &CompileOptions::default()),
            Ok(None) => return Err(Error::invalid("an expression is missing")),
            Err(error) => return Err(Error::invalid(error.to_string())),
        };
        let compiled =
            compiled.map_err(|error| Error::invalid(format!("{written:?} is not an expression: {error}")))?;
        let value = move |main: &Document| {
            let main = raw(main).ok()?;
            let nothing_varies = Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0);
            let value = compiled.evaluate(&main, &nothing_varies).ok()?.into_owned()?;
            Bson::try_from(value.as_raw_bson_ref().to_owned()).ok()
        };
        Ok(self.copied(copy, Source::Expression(expression, Arc::new(value))))
    }

    fn copied(mut self, copy: impl Into<String>, source: Source) -> Self {
        self.copied.push((copy.into(), source));
        self
    }

    /// Sets the treatment of the copies when their main document is deleted.
    #[must_use]
    pub fn on_delete(self, on_delete: OnDelete) -> Self {
        Link { on_delete, ..self }
    }

    /// Sets other names for the version of a copy, and for its own flag.
    #[must_use]
    pub fn with_fields(self, version: impl Into<String>, syncing: impl Into<String>) -> Self {
        Link { version: version.into(), syncing: syncing.into(), ..self }
    }

    /// Returns the collection of the copies.
    pub fn target(&self) -> &Namespace {
        &self.target
    }

    /// Returns the treatment of the copies when their main document is deleted.
    pub fn deleted(&self) -> &OnDelete {
        &self.on_delete
    }

    /// Returns the field in which copies name their main document.
    pub fn foreign_key(&self) -> &str {
        &self.foreign_key
    }

    /// Returns the paths of the fields of a copy that follow from its main document.
    pub fn copied_fields(&self) -> impl Iterator<Item = &str> {
        self.copied.iter().map(|(path, _)| path.as_str())
    }

    /// Returns these paths, each with the field of the main document that is copied there; `None` for a computed one.
    pub(super) fn copied_from(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        self.copied.iter().map(|(copy, source)| match source {
            Source::Field(from) => (copy.as_str(), Some(from.clone())),
            Source::Expression(..) | Source::Function(_) => (copy.as_str(), None),
        })
    }

    /// Returns the values of the copied fields for this main document.
    pub(super) fn values(&self, main: &Document) -> Values {
        let value = |source: &Source| match source {
            Source::Field(path) => at_path(main, path).cloned(),
            Source::Expression(_, value) | Source::Function(value) => value(main),
        };
        self.copied.iter().map(|(path, source)| (path.clone(), value(source))).collect()
    }

    /// Returns the values of the copied fields after the main document was deleted; empty if they may stay.
    pub(super) fn values_left(&self) -> Values {
        let value = |path: &String| match &self.on_delete {
            OnDelete::Set(values) => values.get(path).cloned(),
            OnDelete::Unset | OnDelete::Remove | OnDelete::Keep => None,
        };
        match self.on_delete {
            OnDelete::Unset | OnDelete::Set(_) => {
                self.copied.iter().map(|(path, _)| (path.clone(), value(path))).collect()
            }
            OnDelete::Remove | OnDelete::Keep => Vec::new(),
        }
    }

    /// Returns every path that is written into a copy.
    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.copied.iter().map(|(path, _)| path).chain([&self.version, &self.syncing])
    }

    pub(super) fn check(&self, fields: &SyncFields) -> Result<()> {
        let named = format!("the link to {} by {}", self.target, self.foreign_key);
        if self.copied.is_empty() {
            return Err(Error::invalid(format!("{named} copies nothing: name fields")));
        }
        if let OnDelete::Set(values) = &self.on_delete
            && let Some(path) = values.keys().find(|path| !self.copied.iter().any(|(copied, _)| copied == *path))
        {
            return Err(Error::invalid(format!("{named} is to set {path} on delete, which is no field of a copy")));
        }
        let of_main = self.copied.iter().filter_map(|(_, source)| match source {
            Source::Field(path) => Some(path),
            Source::Expression(..) | Source::Function(_) => None,
        });
        let is_kept = |path: &&String| fields.paths().iter().any(|kept| is_within(path, kept));
        if let Some(path) = of_main.clone().find(is_kept) {
            return Err(Error::invalid(format!("{named} would copy {path}, which the pattern itself changes")));
        }
        // A copy may have the `_id` of its main document, as its own or among the copied fields.
        let is_readable = |path: &str| path == "_id" || is_path(path.strip_prefix("_id.").unwrap_or(path));
        let mut read = of_main.chain([&self.foreign_key]).filter(|path| !is_readable(path));
        if let Some(path) = read.next().or_else(|| self.paths().find(|path| !is_readable(path))) {
            return Err(Error::invalid(format!("{named} has the path {path:?}, which no field can have")));
        }
        let taken = |path: &&String| is_within(path, &self.foreign_key) || is_within(path, "_id");
        match self.paths().find(taken) {
            Some(path) => Err(Error::invalid(format!("{named} would write {path}, by which copies are found"))),
            None => Ok(()),
        }
    }
}

/// Checks that no two links write to the same field, and that none writes to the key of another one.
pub(super) fn check_all(links: &[Link], fields: &SyncFields) -> Result<()> {
    if links.is_empty() {
        return Err(Error::invalid("a sync flag without links keeps nothing in sync: name at least one"));
    }
    let mut written: Vec<(&Namespace, &String)> = Vec::new();
    for link in links {
        link.check(fields)?;
        for path in link.paths() {
            let overlaps = |(target, other): &&(&Namespace, &String)| **target == link.target && is_within(path, other);
            if let Some((_, other)) = written.iter().find(overlaps) {
                return Err(Error::invalid(format!("{path} and {other} in {} overlap: both are written", link.target)));
            }
            written.push((&link.target, path));
        }
    }
    for link in links {
        let is_over =
            |(target, path): &&(&Namespace, &String)| **target == link.target && is_within(path, &link.foreign_key);
        if let Some((_, path)) = written.iter().find(is_over) {
            let (key, target) = (&link.foreign_key, &link.target);
            return Err(Error::invalid(format!("{path} in {target} is written, and {key} there names main documents")));
        }
    }
    Ok(())
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copied: Vec<_> = self.copied.iter().map(|(path, _)| path).collect();
        f.debug_struct("Link")
            .field("target", &self.target)
            .field("foreign_key", &self.foreign_key)
            .field("copied", &copied)
            .field("on_delete", &self.on_delete)
            .finish_non_exhaustive()
    }
}
