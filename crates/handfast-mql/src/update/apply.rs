//! Walks a document along the tree of an update and lets the operators change the values there.

use std::borrow::Cow;

use bson::{RawBsonRef, RawDocument};

use crate::element::Element;
use crate::{Code, Context, Error, MatchPosition, Result, order, text};

use super::compile::Operators;
use super::growth::GrowthLimit;
use super::operator::{Missing, Scope, Target, rename_through_array};
use super::path::{Component, FieldName, UpdatePath};
use super::plan::{self, Children, Key, Node};
use super::tree::{Container, Value};
#[derive(Clone, Copy)]
pub(super) struct ApplyContext<'c> {
    /// The position of the array element that the filter matched, which `$` stands for.
    pub(super) position: MatchPosition,
    pub(super) inserting: bool,
    pub(super) context: &'c Context,
}

/// Returns the bytes of the changed document; none if no operator touched anything.
pub(super) fn apply<'a>(
    operators: &'a Operators,
    document: &'a RawDocument,
    apply_context: ApplyContext<'_>,
) -> Result<Option<Vec<u8>>> {
    let ApplyContext { position, inserting, context } = apply_context;
    context.read(document.as_bytes().len())?;
    let mut root = Container::document(document)?;
    let mut walk = Walk {
        operators,
        position: position.array_index,
        scope: Scope { document, inserting, context, renamed: Vec::new() },
        growth: GrowthLimit::new(inserting),
        trail: Vec::new(),
        buffer: Vec::new(),
    };
    let mut touched = walk.take_renamed(&mut root)?;
    touched |= walk.fields(&operators.root, &mut root)?;
    // An estimate of the bytes that a small update adds.
    let capacity = document.as_bytes().len() + 64;
    touched.then(|| root.into_bytes(capacity, &walk.growth)).transpose()
}

struct Walk<'a, 'c> {
    operators: &'a Operators,
    position: Option<usize>,
    scope: Scope<'a, 'c>,
    growth: GrowthLimit,
    /// The steps from the root to the current position.
    trail: Vec<Step<'a>>,
    buffer: Vec<u8>,
}

struct Step<'a> {
    name: FieldName,
    /// The value before the update; none for a field that the update creates.
    element: Option<Element<'a>>,
}

impl<'a> Walk<'a, '_> {
    /// Removes the values of all `$rename`s from the document before any other change. That is the same as
    /// doing it later: no other operator may change those paths.
    fn take_renamed(&mut self, root: &mut Container<'a>) -> Result<bool> {
        let mut touched = false;
        for path in &self.operators.renames {
            self.scope.context.step()?;
            let value = self.take(path, root)?;
            if value.is_some() && path.prefix(1) == "_id" {
                return Err(immutable_id(&path.text));
            }
            touched |= value.is_some();
            self.scope.renamed.push(value);
        }
        Ok(touched)
    }

    fn take(&self, path: &UpdatePath, root: &mut Container<'a>) -> Result<Option<Value<'a>>> {
        let mut container = root;
        let last = path.components.len() - 1;
        for (depth, component) in path.components.iter().enumerate() {
            let Component::Field(name) = component else { return Ok(None) };
            if container.is_array() && name.index().is_none() {
                return Err(self.untraversable(path, depth));
            }
            let Some(at) = container.locate(name) else { return Ok(None) };
            if container.is_array() {
                return Err(rename_through_array("source", path, depth, &self.scope));
            }
            if depth == last {
                return Ok(container.take(at));
            }
            match container.child(at)? {
                Some(child) => container = child,
                None => return Err(self.untraversable(path, depth + 1)),
            }
        }
        Ok(None)
    }

    fn untraversable(&self, path: &UpdatePath, depth: usize) -> Error {
        let name = path.prefix(depth).rsplit('.').next().unwrap_or_default().to_owned();
        let element = value_at(self.scope.document, path, depth).map(|value| text::field(&name, value));
        let message = format!(
            "cannot use the part ({name} of {}) to traverse the element ({{{}}})",
            path.text,
            element.unwrap_or_default()
        );
        Error::new(Code::PathNotViable, message)
    }

    /// Applies the nodes below a document, or below an array by index.
    fn fields(&mut self, children: &Children, container: &mut Container<'a>) -> Result<bool> {
        let children = match (children.contains_key(&Key::Positional), self.position) {
            (false, _) => Cow::Borrowed(children),
            (true, Some(index)) => Cow::Owned(plan::resolve_positional(children, index, &self.trail_path())?),
            (true, None) => {
                let message = "The positional operator did not find the match needed from the query.";
                return Err(Error::new(Code::BadValue, message));
            }
        };
        let mut touched = false;
        for (key, node) in children.iter() {
            self.scope.context.step()?;
            let Key::Field(name) = key else { continue };
            touched |= if self.trail.is_empty() {
                self.root_field(node, name, container)?
            } else {
                self.step(node, name, container.locate(name), container)?
            };
        }
        Ok(touched)
    }

    /// Applies the node of a field of the document itself: `_id` must not change.
    fn root_field(&mut self, node: &Node, name: &FieldName, root: &mut Container<'a>) -> Result<bool> {
        let at = root.locate(name);
        let kept = at.and_then(|at| root.kept(at));
        let touched = self.step(node, name, at, root)?;
        if !touched {
            return Ok(false);
        }
        if name.as_str().starts_with('$') && !self.scope.inserting {
            let message = format!(
                "The dollar ($) prefixed field '{0}' in '{0}' is not allowed in the context of an update's \
                 replacement document. Consider using an aggregation pipeline with $replaceWith.",
                name.as_str()
            );
            return Err(Error::new(Code::DollarPrefixedFieldName, message));
        }
        if name.as_str() == "_id"
            && let Some(old) = kept
        {
            let now = root.position("_id");
            let same = match now {
                Some(at) => root.with_value(at, &self.growth, |new| same(new, old))?,
                None => false,
            };
            match now {
                // The value is equal, perhaps of another numeric type: the stored form stays.
                Some(at) if same => root.restore(at, old),
                _ => return Err(immutable_id(&self.first_path(node))),
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Applies a node to one field or element, present or not.
    fn step(
        &mut self,
        node: &Node,
        name: &FieldName,
        at: Option<usize>,
        container: &mut Container<'a>,
    ) -> Result<bool> {
        if at.is_none() && container.is_array() && name.index().is_none() {
            // The trail ends at the array.
            return self.blocked(node, name).map(|()| false);
        }
        match node {
            Node::Leaf(leaf) => {
                let Some(operator) = self.operators.list.get(leaf.operator) else { return Ok(false) };
                if operator.action.has_value_to_move(&self.scope) {
                    self.check_rename_target(&operator.path)?;
                }
                operator.action.apply(
                    &operator.path,
                    Target { container, name, at, growth: &mut self.growth },
                    &mut self.scope,
                )
            }
            Node::Fields(_) | Node::Elements(_) => match at {
                Some(at) => self.descend(node, name, at, container),
                None => self.create(node, name, container),
            },
        }
    }

    fn descend(&mut self, node: &Node, name: &FieldName, at: usize, container: &mut Container<'a>) -> Result<bool> {
        let element = container.kept(at);
        self.trail.push(Step { name: name.clone(), element });
        let touched = match (container.child(at)?, node) {
            (Some(child), Node::Fields(children)) => self.fields(children, child)?,
            (Some(child), Node::Elements(children)) if child.is_array() => self.elements(children, child)?,
            (_, Node::Elements(_)) => return Err(self.not_an_array()),
            (None, Node::Fields(children)) => {
                for (key, node) in children {
                    match key {
                        Key::Field(name) => self.blocked(node, name)?,
                        _ => self.blocked(node, &FieldName::new(key.to_string()))?,
                    }
                }
                false
            }
            (_, Node::Leaf(_)) => false,
        };
        self.trail.pop();
        if !touched && let Some(element) = element {
            container.restore(at, element);
        }
        Ok(touched)
    }

    /// Applies a node to a field that does not exist: to an empty document, which is kept if an operator added to it.
    fn create(&mut self, node: &Node, name: &FieldName, container: &mut Container<'a>) -> Result<bool> {
        let Node::Fields(children) = node else {
            let message = format!(
                "The path '{}' must exist in the document in order to apply array updates.",
                self.path_of(name)
            );
            return Err(Error::new(Code::BadValue, message));
        };
        self.trail.push(Step { name: name.clone(), element: None });
        let mut fresh = Container::empty_document();
        let touched = self.fields(children, &mut fresh)?;
        self.trail.pop();
        if touched {
            container.add(name, Value::Open(fresh), &mut self.growth)?;
        }
        Ok(touched)
    }

    /// Applies the nodes below `$[]` and `$[name]` to the elements of an array.
    fn elements(&mut self, children: &Children, array: &mut Container<'a>) -> Result<bool> {
        let mut touched = false;
        for at in 0..array.len() {
            let mut selected: Vec<&Node> = Vec::new();
            for (key, node) in children {
                self.scope.context.step()?;
                let takes = match (key, array.element(at)) {
                    (Key::Every, _) => true,
                    (Key::Filter(index), Some(element)) => match self.operators.filters.get(*index) {
                        Some(filter) => filter.selects(element, &mut self.buffer, self.scope.context)?,
                        None => false,
                    },
                    _ => false,
                };
                if takes {
                    selected.push(node);
                }
            }
            let name = FieldName::new(at.to_string());
            touched |= match selected.as_slice() {
                [] => false,
                [node] => self.step(node, &name, Some(at), array)?,
                several => {
                    let merged = plan::merge(several, &self.path_of(&name))?;
                    self.step(&merged, &name, Some(at), array)?
                }
            };
        }
        Ok(touched)
    }

    /// Returns the error of the first operator that would have to go below the trail's end.
    fn blocked(&self, node: &Node, name: &FieldName) -> Result<()> {
        match node {
            Node::Fields(children) | Node::Elements(children) => {
                children.values().try_for_each(|node| self.blocked(node, name))
            }
            Node::Leaf(leaf) => {
                let Some(operator) = self.operators.list.get(leaf.operator) else { return Ok(()) };
                let blocker = self.blocker();
                let message = match operator.action.missing(&self.scope) {
                    Missing::Ignore => return Ok(()),
                    Missing::Create => format!("Cannot create field '{}' in element {{{blocker}}}", name.as_str()),
                    Missing::Viable => format!(
                        "Cannot use the part ({}) of ({}) to traverse the element ({{{blocker}}})",
                        name.as_str(),
                        operator.path.text
                    ),
                };
                Err(Error::new(Code::PathNotViable, message))
            }
        }
    }

    /// Refuses a `$rename` that would put its value into an array, at any depth.
    fn check_rename_target(&self, path: &UpdatePath) -> Result<()> {
        match self.trail.iter().position(|step| step.element.is_some_and(|element| element.is_array())) {
            Some(depth) => Err(rename_through_array("destination", path, depth + 1, &self.scope)),
            None => Ok(()),
        }
    }

    /// Returns the field at the trail's end, as in `a: 1`.
    fn blocker(&self) -> String {
        let Some(step) = self.trail.last() else { return String::new() };
        match step.element.map(|element| element.value()) {
            Some(Ok(value)) => text::field(step.name.as_str(), value),
            _ => step.name.as_str().to_owned(),
        }
    }

    fn not_an_array(&self) -> Error {
        let message = format!("Cannot apply array updates to non-array element {}", self.blocker());
        Error::new(Code::BadValue, message)
    }
    fn trail_path(&self) -> String {
        self.trail.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(".")
    }

    fn path_of(&self, name: &FieldName) -> String {
        let mut path = self.trail_path();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name.as_str());
        path
    }

    fn first_path(&self, node: &Node) -> String {
        match node {
            Node::Leaf(leaf) => {
                self.operators.list.get(leaf.operator).map_or_else(String::new, |operator| operator.path.text.clone())
            }
            Node::Fields(children) | Node::Elements(children) => {
                children.values().next().map_or_else(String::new, |node| self.first_path(node))
            }
        }
    }
}

/// Returns MongoDB's error for a change of `_id` by an operator.
pub(super) fn immutable_id(path: &str) -> Error {
    let message = format!("Performing an update on the path '{path}' would modify the immutable field '_id'");
    Error::new(Code::ImmutableField, message)
}

fn same(new: Element<'_>, old: Element<'_>) -> Result<bool> {
    Ok(order::compare(new.value()?, old.value()?).is_eq())
}

/// Returns the value that the first components of a path lead to.
fn value_at<'d>(document: &'d RawDocument, path: &UpdatePath, depth: usize) -> Option<RawBsonRef<'d>> {
    let mut value = RawBsonRef::Document(document);
    for component in path.components.iter().take(depth) {
        let Component::Field(name) = component else { return None };
        value = match value {
            RawBsonRef::Document(document) => document.get(name.as_str()).ok()??,
            RawBsonRef::Array(array) => array.get(name.index()?).ok()??,
            _ => return None,
        };
    }
    Some(value)
}
