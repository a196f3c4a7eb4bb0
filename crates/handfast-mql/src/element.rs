//! Elements of raw documents, with the bytes that they consist of.
//!
//! An update or a projection keeps most of a document as it is. So that it can copy what it keeps without parsing and
//! encoding it, an [`Element`] knows its range in the document: type byte, name, NUL, payload. A value
//! that belongs to no document yet (an operand, a computed result) is an [`OwnedElement`]: the only element of its own
//! document, so that it too has bytes to copy and a [`RawBsonRef`] to read.
//!
//! A [`RawWriter`] builds documents from elements.

use bson::raw::CStr;
use bson::spec::ElementType;
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::raw_writer::RawWriter;
use crate::{Code, Error, Result};

/// An element of a raw document. It takes 32 bytes, as an array that an update opens may have a million of them.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    document: &'a RawDocument,
    start: u32,
    payload: u32,
    end: u32,
}

impl std::fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.name(), self.value())
    }
}
const NULL_DOCUMENT: &[u8] = b"\x07\0\0\0\x0a\0\0";

impl Element<'static> {
    /// Creates a `null` that belongs to no document.
    pub(crate) fn null() -> Result<Self> {
        let document = RawDocument::from_bytes(NULL_DOCUMENT)?;
        Ok(Element { document, start: 4, payload: 6, end: 6 })
    }
}

impl<'a> Element<'a> {
    /// Returns the field's name; in an array, the index as text, which is not checked.
    pub(crate) fn name(&self) -> &'a str {
        // The iterator that created this element has checked the name.
        std::str::from_utf8(self.name_bytes()).unwrap_or_default()
    }

    /// Returns the name's bytes: enough to compare.
    pub(crate) fn name_bytes(&self) -> &'a [u8] {
        let name = self.start as usize + 1..(self.payload as usize).saturating_sub(1);
        self.document.as_bytes().get(name).unwrap_or_default()
    }

    /// Returns the bytes of the whole element in its document.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.document.as_bytes().get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Returns the bytes from this element to another one of the same document, if that follows at once.
    pub(crate) fn joined(self, next: Element<'a>) -> Option<Element<'a>> {
        let adjacent = self.end == next.start && std::ptr::eq(self.document, next.document);
        adjacent.then_some(Element { end: next.end, ..self })
    }

    /// Returns the value without type and name.
    pub(crate) fn payload(&self) -> &'a [u8] {
        self.document.as_bytes().get(self.payload as usize..self.end as usize).unwrap_or_default()
    }

    /// Returns the type byte of the BSON specification.
    pub(crate) fn tag(&self) -> u8 {
        self.document.as_bytes().get(self.start as usize).copied().unwrap_or_default()
    }
    pub(crate) fn as_document(&self) -> Result<Option<&'a RawDocument>> {
        self.nested(ElementType::EmbeddedDocument)
    }

    /// Returns the elements of the value, if it is an array, as a document whose names are indexes.
    pub(crate) fn as_array(&self) -> Result<Option<&'a RawDocument>> {
        self.nested(ElementType::Array)
    }
    pub(crate) fn is_array(&self) -> bool {
        self.tag() == ElementType::Array as u8
    }

    fn nested(&self, kind: ElementType) -> Result<Option<&'a RawDocument>> {
        if self.tag() == kind as u8 { Ok(Some(RawDocument::from_bytes(self.payload())?)) } else { Ok(None) }
    }

    pub(crate) fn value(&self) -> Result<RawBsonRef<'a>> {
        // The common types are read from their bytes; the library's parser would start at the document's beginning.
        let payload = self.payload();
        Ok(match self.tag() {
            0x01 => RawBsonRef::Double(f64::from_le_bytes(fixed(payload)?)),
            0x02 => RawBsonRef::String(text(payload)?),
            0x03 => RawBsonRef::Document(RawDocument::from_bytes(payload)?),
            0x08 => RawBsonRef::Boolean(payload.first().is_some_and(|&byte| byte != 0)),
            0x09 => RawBsonRef::DateTime(bson::DateTime::from_millis(i64::from_le_bytes(fixed(payload)?))),
            0x07 => RawBsonRef::ObjectId(bson::oid::ObjectId::from_bytes(fixed(payload)?)),
            0x0A => RawBsonRef::Null,
            0x10 => RawBsonRef::Int32(i32::from_le_bytes(fixed(payload)?)),
            0x12 => RawBsonRef::Int64(i64::from_le_bytes(fixed(payload)?)),
            0x13 => RawBsonRef::Decimal128(bson::Decimal128::from_bytes(fixed(payload)?)),
            _ => self.parsed()?,
        })
    }

    /// Reads the value with the library.
    fn parsed(&self) -> Result<RawBsonRef<'a>> {
        let mut offset = 4;
        for element in self.document.iter_elements() {
            let element = element?;
            if offset == self.start as usize {
                return Ok(element.value()?);
            }
            offset += 1 + element.key().len() + 1 + element.size();
        }
        Err(Error::new(Code::InvalidBSON, "invalid BSON: an element is not where it was"))
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| Error::new(Code::InvalidBSON, "invalid BSON: a value has the wrong length"))
}

fn text(payload: &[u8]) -> Result<&str> {
    let bytes = payload.get(4..payload.len().saturating_sub(1)).unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|_| Error::new(Code::InvalidBSON, "invalid BSON: a string is not UTF-8"))
}

/// Returns the elements of a document, in order. Stops after the first that is broken.
pub(crate) fn elements(document: &RawDocument) -> Elements<'_> {
    Elements { document, offset: 4 }
}

/// The iterator of [`elements`]. It reads types, lengths and the ends of names only: half the time of an update
/// is spent in stepping over elements.
pub(crate) struct Elements<'a> {
    document: &'a RawDocument,
    offset: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.document.as_bytes();
        // The last byte is the document's own NUL.
        let body = bytes.get(..bytes.len().saturating_sub(1))?;
        let start = self.offset;
        let tag = *body.get(start)?;
        let element = (|| {
            let name = body.get(start + 1..)?;
            let payload = start + 1 + name.iter().position(|&byte| byte == 0)? + 1;
            let end = payload.checked_add(payload_size(tag, body.get(payload..)?)?)?;
            // A document's length is an i32, so that its offsets fit.
            let element =
                Element { document: self.document, start: start as u32, payload: payload as u32, end: end as u32 };
            (end <= body.len()).then_some(element)
        })();
        self.offset = element.map_or(usize::MAX, |element| element.end as usize);
        let broken =
            || Error::new(Code::InvalidBSON, format!("invalid BSON at byte {start}: an element that is broken"));
        Some(element.ok_or_else(broken))
    }
}

/// Returns how many bytes the value of a type takes at the beginning of these.
fn payload_size(tag: u8, bytes: &[u8]) -> Option<usize> {
    let length = || usize::try_from(i32::from_le_bytes(bytes.get(..4)?.try_into().ok()?)).ok();
    let past_nul = |bytes: &[u8]| Some(bytes.iter().position(|&byte| byte == 0)? + 1);
    match tag {
        0x06 | 0x0A | 0x7F | 0xFF => Some(0),
        0x08 => Some(1),
        0x10 => Some(4),
        0x01 | 0x09 | 0x11 | 0x12 => Some(8),
        0x07 => Some(12),
        0x13 => Some(16),
        0x02 | 0x0D | 0x0E => length()?.checked_add(4),
        0x03 | 0x04 | 0x0F => length(),
        0x05 => length()?.checked_add(5),
        0x0C => length()?.checked_add(16),
        0x0B => {
            let pattern = past_nul(bytes)?;
            Some(pattern + past_nul(bytes.get(pattern..)?)?)
        }
        _ => None,
    }
}
pub(crate) fn find<'a>(document: &'a RawDocument, name: &str) -> Result<Option<Element<'a>>> {
    for element in elements(document) {
        let element = element?;
        if element.name_bytes() == name.as_bytes() {
            return Ok(Some(element));
        }
    }
    Ok(None)
}

/// A value that owns its bytes: a document whose only element, named "", holds it.
#[derive(Clone, Debug)]
pub(crate) struct OwnedElement(RawDocumentBuf);

const NO_NAME: &CStr = bson::raw::cstr!("");

impl OwnedElement {
    pub(crate) fn new(value: RawBsonRef<'_>) -> Self {
        let mut document = RawDocumentBuf::new();
        document.append(NO_NAME, value);
        OwnedElement(document)
    }

    /// Creates an element from the bytes of its value, for example those that a [`RawWriter`] wrote.
    pub(crate) fn from_payload(kind: ElementType, bytes: &[u8]) -> Result<Self> {
        let mut document = Vec::with_capacity(bytes.len() + 7);
        let mut writer = RawWriter::new(&mut document);
        writer.value(kind as u8, "", bytes);
        writer.finish()?;
        Ok(OwnedElement(RawDocumentBuf::from_bytes(document)?))
    }

    pub(crate) fn element(&self) -> Element<'_> {
        let end = self.0.as_bytes().len() as u32 - 1;
        Element { document: &self.0, start: 4, payload: 6, end }
    }
}

impl From<RawBson> for OwnedElement {
    fn from(value: RawBson) -> Self {
        OwnedElement::new(value.as_raw_bson_ref())
    }
}

/// Creates a DBPointer, a type deprecated since BSON 1.0. `bson` has no public constructor for it, so it is read from bytes.
pub(crate) fn db_pointer(namespace: &str, id: [u8; 12]) -> Result<RawBson> {
    let mut payload = (namespace.len() as i32 + 1).to_le_bytes().to_vec();
    payload.extend_from_slice(namespace.as_bytes());
    payload.push(0);
    payload.extend_from_slice(&id);
    let pointer = OwnedElement::from_payload(ElementType::DbPointer, &payload)?;
    Ok(pointer.element().value()?.into())
}

/// Returns the namespace and the id of a DBPointer. `bson` keeps both private, so they are read from its bytes.
pub(crate) fn db_pointer_parts(pointer: RawBsonRef<'_>) -> (Vec<u8>, [u8; 12]) {
    let holder = OwnedElement::new(pointer);
    // Length of the namespace (4), namespace, NUL (1), id (12).
    let payload = holder.element().payload();
    let (namespace, id) = payload.split_last_chunk().unwrap_or((&[], &[0; 12]));
    (namespace.get(4..namespace.len().saturating_sub(1)).unwrap_or_default().to_vec(), *id)
}

/// Tells whether two values are the same bytes of the same type.
pub(crate) fn identical(a: Element<'_>, b: Element<'_>) -> bool {
    a.tag() == b.tag() && a.payload() == b.payload()
}

#[cfg(test)]
pub(crate) mod tests;
