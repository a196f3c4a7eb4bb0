//! Walks a document along the tree of a projection and writes what is shown.

use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::depth::ANSWER_BYTES_MAX;
use crate::element::{Element, OwnedElement, elements, find};
use crate::raw_writer::{IndexName, RawWriter};
use crate::{Code, Context, Error, MatchPosition, Result};

use super::tree::{Children, Node};
use super::{Kind, Projection};

pub(super) fn apply(
    projection: &Projection,
    document: &RawDocument,
    position: MatchPosition,
    context: &Context,
) -> Result<RawDocumentBuf> {
    let walk = Walk { kind: projection.kind, root: document, position: position.array_index, context };
    let mut bytes = Vec::with_capacity(document.as_bytes().len());
    let mut writer = RawWriter::new(&mut bytes);
    walk.fields(&projection.root, Some(document), &mut writer, Trim::Pending)?;
    writer.finish()?;
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

struct Walk<'a> {
    kind: Kind,
    root: &'a RawDocument,
    position: Option<usize>,
    context: &'a Context,
}

/// `$` takes one element of the first array on its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trim {
    Pending,
    Done,
}

impl Walk<'_> {
    /// Writes what is shown of a document, then what is added to it; the document may not be there.
    fn fields(
        &self,
        children: &Children,
        document: Option<&RawDocument>,
        writer: &mut RawWriter<'_>,
        trim: Trim,
    ) -> Result<()> {
        if let Some(document) = document {
            // A computed `_id` takes the place of the one there is.
            self.computed_id(children, document, writer)?;
            for element in elements(document) {
                let element = element?;
                match children.get(element.name()) {
                    Some(node) => self.field(node, element, writer, trim)?,
                    None if self.kind == Kind::Exclusion => writer.copy(element),
                    None => {}
                }
            }
        }
        for (name, node) in children.iter().filter(|(_, node)| node.adds()) {
            let present = match document {
                Some(document) => find(document, name)?,
                None => None,
            };
            match node {
                Node::Compute(_) if self.is_root(document) && name == "_id" => {}
                Node::Compute(expression) => {
                    if let Some(value) = expression.evaluate(self.root, self.context)?.get() {
                        computed(name, value, writer)?;
                    }
                }
                Node::ElementMatch(filter) => {
                    if let Some(array) = present.map(|present| present.as_array()).transpose()?.flatten()
                        && let Some(MatchPosition { array_index: Some(index) }) =
                            filter.matches_position(self.root, self.context)?
                        && let Some(element) = elements(array).nth(index).transpose()?
                    {
                        one_element(name, element, writer)?;
                    }
                }
                // Present ones have been written where they stand.
                Node::Fields(inner) if present.is_none() => {
                    let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
                    self.fields(inner, None, &mut nested, trim)?;
                    nested.finish()?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn computed_id(&self, children: &Children, document: &RawDocument, writer: &mut RawWriter<'_>) -> Result<()> {
        if self.is_root(Some(document))
            && let Some(Node::Compute(expression)) = children.get("_id")
            && let Some(value) = expression.evaluate(self.root, self.context)?.get()
        {
            computed("_id", value, writer)?;
        }
        Ok(())
    }

    fn is_root(&self, document: Option<&RawDocument>) -> bool {
        document.is_some_and(|document| std::ptr::eq(document, self.root))
    }

    /// Writes what is shown of a field that is there.
    fn field(&self, node: &Node, element: Element<'_>, writer: &mut RawWriter<'_>, trim: Trim) -> Result<()> {
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
                Some(array) if trim == Trim::Pending => one_element(element.name(), self.matched(array)?, writer)?,
                _ => writer.copy(element),
            },
            Node::Fields(children) => self.inside(node, children, element.name(), element, writer, trim)?,
        }
        Ok(())
    }

    /// Writes what is shown of a value some of whose fields are named.
    fn inside(
        &self,
        node: &Node,
        children: &Children,
        name: &str,
        element: Element<'_>,
        writer: &mut RawWriter<'_>,
        trim: Trim,
    ) -> Result<()> {
        if let Some(document) = element.as_document()? {
            let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
            self.fields(children, Some(document), &mut nested, trim)?;
            nested.finish()
        } else if let Some(array) = element.as_array()? {
            let mut nested = writer.nested(ElementType::Array, name);
            let mut index_name = IndexName::new();
            if trim == Trim::Pending && node.has_positional() {
                self.inside(node, children, index_name.text(0), self.matched(array)?, &mut nested, Trim::Done)?;
            } else {
                let mut index = 0;
                for item in elements(array) {
                    let item = item?;
                    if !self.shows_inside(node, item) {
                        continue;
                    }
                    self.inside(node, children, index_name.text(index), item, &mut nested, trim)?;
                    index += 1;
                }
            }
            nested.finish()
        } else if node.adds() {
            // A scalar gives way to a document with the computed fields.
            let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
            self.fields(children, None, &mut nested, trim)?;
            nested.finish()
        } else {
            if self.kind == Kind::Exclusion {
                writer.copy_as(name, element);
            }
            Ok(())
        }
    }

    /// Whether anything is shown for an array element: an inclusion of fields leaves scalars out.
    fn shows_inside(&self, node: &Node, element: Element<'_>) -> bool {
        let container = element.is_array() || element.tag() == ElementType::EmbeddedDocument as u8;
        self.kind == Kind::Exclusion || container || node.adds()
    }

    /// The array element that the query matched.
    fn matched<'e>(&self, array: &'e RawDocument) -> Result<Element<'e>> {
        let Some(index) = self.position else {
            let message = "positional operator '.$' couldn't find a matching element in the array";
            return Err(Error::new(Code(51246), message));
        };
        let element = elements(array).nth(index).transpose()?;
        element.ok_or_else(|| Error::new(Code(51247), "positional operator '.$' element mismatch"))
    }
}

/// Writes a computed field. A field is computed anew in each element of the arrays on its path: a few bytes can ask for
/// terabytes, so that what is written so far is looked at.
///
/// # Errors
/// `BSONObjectTooLarge` (10334) if the answer has become larger than a document may be.
fn computed(name: &str, value: RawBsonRef<'_>, writer: &mut RawWriter<'_>) -> Result<()> {
    writer.copy_as(name, OwnedElement::new(value).element());
    let bytes = writer.buffered();
    if bytes <= ANSWER_BYTES_MAX {
        return Ok(());
    }
    let message = format!("the projected document is larger than {ANSWER_BYTES_MAX} bytes");
    Err(Error::new(Code::BSONObjectTooLarge, message))
}

/// `name: [element]`
fn one_element(name: &str, element: Element<'_>, writer: &mut RawWriter<'_>) -> Result<()> {
    let mut nested = writer.nested(ElementType::Array, name);
    nested.copy_as("0", element);
    nested.finish()
}
