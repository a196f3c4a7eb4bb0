//! Walks a document along the tree of a projection and writes the projected document.

use std::cell::Cell;

use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::depth::ANSWER_BYTES_MAX;
use crate::element::{Element, elements};
use crate::expression::{Expression, limits};
use crate::raw_writer::{IndexName, RawWriter};
use crate::{Code, Context, Error, MatchPosition, Result};

use super::tree::{FieldTree, Node};
use super::{Kind, Projection, Syntax};

pub(super) fn apply(
    projection: &Projection,
    document: &RawDocument,
    position: MatchPosition,
    context: &Context,
) -> Result<RawDocumentBuf> {
    let walk = Walk {
        syntax: projection.syntax,
        kind: projection.kind,
        root: document,
        position: position.array_index,
        context,
        computed_bytes: Cell::new(0),
    };
    let mut bytes = Vec::with_capacity(document.as_bytes().len());
    let mut writer = RawWriter::new(&mut bytes);
    walk.fields(&projection.root, Some(document), &mut writer, PositionalState::Pending)?;
    writer.finish()?;
    if projection.syntax == Syntax::Stage && bytes.capacity() / 2 > bytes.len() {
        // Later stages hold the document and count its bytes, so a small result must not keep the memory of the whole document.
        bytes.shrink_to_fit();
    }
    let shown = RawDocumentBuf::from_bytes(bytes)?;
    if projection.syntax == Syntax::Stage && projection.root.adds_fields() {
        limits::check_depth(RawBsonRef::Document(&shown))?;
    }
    Ok(shown)
}

struct Walk<'a> {
    syntax: Syntax,
    kind: Kind,
    /// The whole document, which expressions at any depth see.
    root: &'a RawDocument,
    position: Option<usize>,
    context: &'a Context,
    /// The bytes of all computed fields. A field is computed again in each element of the arrays on its path, so a
    /// projection of a few bytes could make terabytes.
    computed_bytes: Cell<usize>,
}

/// `$` selects one element of the first array on its path; the arrays inside that element are shown whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PositionalState {
    Pending,
    Applied,
}

impl Walk<'_> {
    /// Writes the projected fields of a document, then the added ones. There is no document where a path of added fields
    /// leads out of the document.
    fn fields(
        &self,
        tree: &FieldTree,
        document: Option<&RawDocument>,
        writer: &mut RawWriter<'_>,
        state: PositionalState,
    ) -> Result<()> {
        // The first element of the document for each node of the tree.
        let mut present: Vec<Option<Element<'_>>> = vec![None; if tree.adds_fields() { tree.len() } else { 0 }];
        let id_first =
            self.syntax == Syntax::Find && document.is_some_and(|document| std::ptr::eq(document, self.root));
        if id_first && let Some((_, Node::Compute(expression))) = tree.get("_id") {
            self.compute("_id", expression, writer)?;
        }
        if let Some(document) = document {
            for element in elements(document) {
                let element = element?;
                let Some((position, node)) = tree.get(element.name()) else {
                    if self.kind != Kind::Inclusion {
                        writer.copy(element);
                    }
                    continue;
                };
                let is_first = match present.get_mut(position) {
                    Some(first @ None) => {
                        *first = Some(element);
                        true
                    }
                    _ => false,
                };
                match node {
                    Node::Compute(expression) if self.kind == Kind::Addition && is_first => {
                        self.compute(element.name(), expression, writer)?;
                    }
                    _ => self.field(node, element, writer, state)?,
                }
            }
        }
        for ((name, node), present) in tree.iter().zip(present) {
            match node {
                Node::Compute(_)
                    if (id_first && name == "_id") || (self.kind == Kind::Addition && present.is_some()) => {}
                Node::Compute(expression) => self.compute(name, expression, writer)?,
                Node::ElementMatch(filter) => {
                    if let Some(array) = present.map(|present| present.as_array()).transpose()?.flatten()
                        && let Some(MatchPosition { array_index: Some(index) }) =
                            filter.matches_position(self.root, self.context)?
                        && let Some(element) = elements(array).nth(index).transpose()?
                    {
                        one_element(name, element, writer)?;
                    }
                }
                // Fields that the document has are written at their positions.
                Node::Fields(inner) if present.is_none() && inner.adds_fields() => {
                    let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
                    self.fields(inner, None, &mut nested, state)?;
                    nested.finish()?;
                    self.check_bytes(writer)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a computed field, unless its value is missing.
    ///
    /// # Errors
    /// `BSONObjectTooLarge` (10334) if the answer has become larger than a document may be; in a stage,
    /// `ExceededMemoryLimit` (146) if the document or the computed fields together exceed the bound of expressions.
    fn compute(&self, name: &str, expression: &Expression, writer: &mut RawWriter<'_>) -> Result<()> {
        let value = expression.evaluate(self.root, self.context)?;
        let Some(value) = value.get() else { return Ok(()) };
        let bytes_before = writer.buffered();
        writer.append(name, value);
        let bytes = writer.buffered();
        match self.syntax {
            Syntax::Find if bytes > ANSWER_BYTES_MAX => {
                let message = format!("the projected document is larger than {ANSWER_BYTES_MAX} bytes");
                Err(Error::new(Code::BSONObjectTooLarge, message))
            }
            Syntax::Find => Ok(()),
            Syntax::Stage => {
                self.check_bytes(writer)?;
                self.computed_bytes.set(self.computed_bytes.get().saturating_add(bytes - bytes_before));
                limits::check_bytes(self.computed_bytes.get())
            }
        }
    }

    /// Refuses a document or array that is larger than the value of an expression may be.
    fn check_bytes(&self, writer: &RawWriter<'_>) -> Result<()> {
        match self.syntax {
            Syntax::Find => Ok(()),
            Syntax::Stage => limits::check_bytes(writer.document_bytes()),
        }
    }

    /// Writes a field that the document has.
    fn field(
        &self,
        node: &Node,
        element: Element<'_>,
        writer: &mut RawWriter<'_>,
        state: PositionalState,
    ) -> Result<()> {
        match node {
            Node::Include => writer.copy(element),
            Node::Exclude | Node::Compute(_) | Node::ElementMatch(_) => {}
            Node::Slice(slice) => match element.as_array()? {
                Some(array) => {
                    let range = slice.range(elements(array).count());
                    let mut nested = writer.nested(ElementType::Array, element.name());
                    let mut index_name = IndexName::new();
                    for (index, item) in elements(array).skip(range.start).take(range.len()).enumerate() {
                        nested.copy_as(index_name.text(index), item?);
                    }
                    nested.finish()?;
                }
                None => writer.copy(element),
            },
            Node::Positional => match element.as_array()? {
                Some(array) if state == PositionalState::Pending => {
                    one_element(element.name(), self.matched(array)?, writer)?;
                }
                _ => writer.copy(element),
            },
            Node::Fields(tree) => self.inside(tree, element.name(), element, writer, state)?,
        }
        Ok(())
    }

    /// Writes a value some of whose fields are named.
    fn inside(
        &self,
        tree: &FieldTree,
        name: &str,
        element: Element<'_>,
        writer: &mut RawWriter<'_>,
        state: PositionalState,
    ) -> Result<()> {
        if let Some(document) = element.as_document()? {
            let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
            self.fields(tree, Some(document), &mut nested, state)?;
            nested.finish()
        } else if let Some(array) = element.as_array()? {
            let mut nested = writer.nested(ElementType::Array, name);
            let mut index_name = IndexName::new();
            if state == PositionalState::Pending && tree.has_positional() {
                self.inside(tree, index_name.text(0), self.matched(array)?, &mut nested, PositionalState::Applied)?;
            } else {
                let mut index = 0;
                for item in elements(array) {
                    let item = item?;
                    if !self.shows_inside(tree, item) {
                        continue;
                    }
                    self.inside(tree, index_name.text(index), item, &mut nested, state)?;
                    self.check_bytes(&nested)?;
                    index += 1;
                }
            }
            nested.finish()
        } else if tree.adds_fields() {
            // A document with the computed fields replaces a scalar.
            let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
            self.fields(tree, None, &mut nested, state)?;
            nested.finish()
        } else {
            if self.kind != Kind::Inclusion {
                writer.copy_as(name, element);
            }
            Ok(())
        }
    }

    /// Tells whether anything is shown for an array element: an inclusion of fields leaves scalars out.
    fn shows_inside(&self, tree: &FieldTree, element: Element<'_>) -> bool {
        let container = element.is_array() || element.tag() == ElementType::EmbeddedDocument as u8;
        self.kind != Kind::Inclusion || container || tree.adds_fields()
    }
    fn matched<'e>(&self, array: &'e RawDocument) -> Result<Element<'e>> {
        let Some(index) = self.position else {
            let message = "positional operator '.$' couldn't find a matching element in the array";
            return Err(Error::new(Code(51246), message));
        };
        let element = elements(array).nth(index).transpose()?;
        element.ok_or_else(|| Error::new(Code(51247), "positional operator '.$' element mismatch"))
    }
}

/// Writes `name: [element]`.
fn one_element(name: &str, element: Element<'_>, writer: &mut RawWriter<'_>) -> Result<()> {
    let mut nested = writer.nested(ElementType::Array, name);
    nested.copy_as("0", element);
    nested.finish()
}
