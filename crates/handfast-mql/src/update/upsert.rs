//! The document of an upsert: the fields that the filter compares by equality, changed by the update.
//!
//! ```text
//! filter {a: 1, "b.c": {$eq: 2}, d: {$gt: 5}}, update {$inc: {n: 1}}  ->  {a: 1, b: {c: 2}, n: 1}
//! ```
//!
//! A replacement takes only `_id` from the filter. If neither has an `_id`, the caller adds one.

use std::collections::BTreeSet;

use bson::RawDocumentBuf;

use crate::element::{OwnedElement, elements, find};
use crate::filter::{Comparison, Filter, Node, Predicate};
use crate::{Code, Context, Error, MatchPosition, Result};

use super::apply::ApplyContext;
use super::growth::{GrowthLimit, check_size};
use super::path::{COMPONENTS_MAX, FieldName};
use super::replacement::{id_first, replace};
use super::tree::{Container, Value};
use super::{Kind, Update, run};

impl Update {
    /// Returns the document to insert if no document matches the filter. It has no `_id` if neither filter nor update
    /// give one; if it has one, it is the first field.
    ///
    /// # Errors
    /// `NotSingleValueField` (54) if the filter fixes two values of one field, or a field and a field inside it;
    /// `NotExactValueField` (111) for a replacement, if the filter names parts of `_id`;
    /// `QueryFeatureNotAllowed` (224) for a filter with `$expr`; `ImmutableField` (66) if the update sets another `_id` than
    /// the filter; the errors of [`Update::apply`].
    pub fn upsert(&self, filter: &Filter, context: &Context) -> Result<RawDocumentBuf> {
        check_upsert_filter(filter)?;
        let made = match &self.kind {
            Kind::Operators(operators) => {
                let base = base_document(&equalities(filter))?;
                let apply_context = ApplyContext { position: MatchPosition::default(), inserting: true, context };
                run(operators, &base, apply_context)?.unwrap_or(base)
            }
            Kind::Pipeline(pipeline) => pipeline.apply(&base_document(&equalities(filter))?, context)?,
            Kind::Replacement(new) => replace(&id_document(&equalities(filter))?, new)?,
        };
        let first = elements(&made).next().transpose()?;
        let made = match find(&made, "_id")? {
            Some(id) if first.is_none_or(|first| first.name() != "_id") => id_first(Some(id), &made)?,
            _ => made,
        };
        let made = self.stamped(made, context)?;
        check_size(made.as_bytes().len(), true)?;
        Ok(made)
    }
}

/// Checks that an upsert may have this filter, whether or not a document matches, so that the result does not depend on the stored
/// documents.
///
/// # Errors
/// `QueryFeatureNotAllowed` (224) for `$expr`.
pub fn check_upsert_filter(filter: &Filter) -> Result<()> {
    let mut pending = vec![filter.root()];
    while let Some(node) = pending.pop() {
        match node {
            Node::And(nodes) | Node::Or(nodes) | Node::Nor(nodes) => pending.extend(nodes),
            Node::Not(node) => pending.push(node),
            Node::Expression(_) => {
                let message = "$expr is not allowed in the query predicate for an upsert";
                return Err(Error::new(Code::QueryFeatureNotAllowed, message));
            }
            Node::Field(_) | Node::Schema(_) => {}
        }
    }
    Ok(())
}

/// A field and the value that a filter fixes for it.
struct Equality {
    path: String,
    value: OwnedElement,
}

/// Returns the equalities of a filter: `{a: 1}`, `{a: {$eq: 1}}`, `{a: {$in: [1]}}`, `{a: {$all: [1]}}`, alone or in `$and`.
fn equalities(filter: &Filter) -> Vec<Equality> {
    let single = |predicate: &Predicate| match predicate {
        Predicate::Compare(Comparison::Equal, operand) => Some(OwnedElement::new(operand.value())),
        Predicate::In(choices) => match choices.values() {
            [only] if choices.patterns().is_empty() => Some(OwnedElement::new(only.value())),
            _ => None,
        },
        _ => None,
    };
    filter
        .conjuncts()
        .filter_map(|field| {
            Some(Equality { path: field.path().as_str().to_owned(), value: single(field.predicate())? })
        })
        .collect()
}

/// Returns the fields of a filter's equalities, in the order of their paths.
fn base_document(equalities: &[Equality]) -> Result<RawDocumentBuf> {
    let mut fields: Vec<&Equality> = equalities.iter().collect();
    fields.sort_by(|a, b| a.path.cmp(&b.path));
    let mut seen = BTreeSet::new();
    for Equality { path, .. } in &fields {
        let above = path.match_indices('.').filter_map(|(dot, _)| path.get(..dot));
        if let Some(other) = above.chain([path.as_str()]).find(|other| seen.contains(other)) {
            return Err(not_apart(other, path));
        }
        seen.insert(path.as_str());
    }
    let (mut root, mut growth) = (Container::empty_document(), GrowthLimit::new(true));
    for Equality { path, value } in fields {
        put(&mut root, path, Value::Borrowed(value.element()), &mut growth)?;
    }
    Ok(RawDocumentBuf::from_bytes(root.into_bytes(64, &growth)?)?)
}

fn not_apart(one: &str, other: &str) -> Error {
    let message = if one == other {
        format!("cannot infer query fields to set, path '{one}' is matched twice")
    } else {
        format!("cannot infer query fields to set, both paths '{one}' and '{other}' are matched")
    };
    Error::new(Code::NotSingleValueField, message)
}

fn put<'a>(root: &mut Container<'a>, path: &str, value: Value<'a>, growth: &mut GrowthLimit) -> Result<()> {
    let mut container = root;
    let mut names = path.split('.').enumerate().peekable();
    while let Some((depth, name)) = names.next() {
        if depth >= COMPONENTS_MAX {
            return Err(Error::new(Code::Overflow, format!("a path may have at most {COMPONENTS_MAX} components")));
        }
        let name = FieldName::new(name);
        if names.peek().is_none() {
            return container.add(&name, value, growth);
        }
        let at = match container.locate(&name) {
            Some(at) => at,
            None => {
                container.add(&name, Value::Open(Container::empty_document()), growth)?;
                container.len() - 1
            }
        };
        let child = container.child(at)?;
        container = child.ok_or_else(|| Error::new(Code::InternalError, "an upsert's field is in its own way"))?;
    }
    Ok(())
}

/// Returns `{_id: ..}` if the filter fixes `_id` by equality.
fn id_document(equalities: &[Equality]) -> Result<RawDocumentBuf> {
    let mut ids = Vec::new();
    for Equality { path, value } in equalities {
        if path == "_id" {
            ids.push(Equality { path: path.clone(), value: value.clone() });
        } else if path.starts_with("_id.") {
            let message = format!("field at '_id' must be exactly specified, field at sub-path '{path}'found");
            return Err(Error::new(Code::NotExactValueField, message));
        }
    }
    base_document(&ids)
}
