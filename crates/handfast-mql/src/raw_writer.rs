//! The writer of raw documents and arrays: appends elements to a buffer and fills in each length when its container ends.
//!
//! A nested document or array is written where it stands, so that none is copied into its parent.

use bson::RawBsonRef;
use bson::spec::ElementType;

use crate::element::{Element, OwnedElement};
use crate::{Code, Error, Result};

/// The length of a BSON document is an `i32`.
const LENGTH_MAX: usize = i32::MAX as usize;

/// Writes one document or array at the end of a buffer; [`RawWriter::nested`] opens another inside.
pub(crate) struct RawWriter<'b> {
    buffer: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> RawWriter<'b> {
    pub(crate) fn new(buffer: &'b mut Vec<u8>) -> Self {
        let start = buffer.len();
        buffer.extend_from_slice(&[0; 4]);
        RawWriter { buffer, start }
    }

    /// Returns the bytes in the buffer: those of this document and of the documents around it.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the length that this document has if it ends here.
    pub(crate) fn document_bytes(&self) -> usize {
        self.buffer.len() - self.start + 1
    }

    /// Copies an element with its name.
    pub(crate) fn copy(&mut self, element: Element<'_>) {
        self.buffer.extend_from_slice(element.bytes());
    }

    /// Copies an element's value under another name.
    pub(crate) fn copy_as(&mut self, name: &str, element: Element<'_>) {
        self.value(element.tag(), name, element.payload());
    }

    /// Writes an element with this value.
    pub(crate) fn append(&mut self, name: &str, value: RawBsonRef<'_>) {
        let payload: &[u8] = match value {
            RawBsonRef::Double(number) => &number.to_le_bytes(),
            RawBsonRef::Int32(number) => &number.to_le_bytes(),
            RawBsonRef::Int64(number) => &number.to_le_bytes(),
            RawBsonRef::DateTime(date) => &date.timestamp_millis().to_le_bytes(),
            RawBsonRef::Decimal128(number) => &number.bytes(),
            RawBsonRef::ObjectId(id) => &id.bytes(),
            RawBsonRef::Boolean(truth) => &[u8::from(truth)],
            RawBsonRef::Null => &[],
            RawBsonRef::Document(document) => document.as_bytes(),
            RawBsonRef::Array(array) => array.as_bytes(),
            RawBsonRef::String(text) => {
                self.head(ElementType::String as u8, name);
                self.buffer.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
                self.buffer.extend_from_slice(text.as_bytes());
                self.buffer.push(0);
                return;
            }
            // The library knows how the rare types are written.
            other => return self.copy_as(name, OwnedElement::new(other).element()),
        };
        self.value(value.element_type() as u8, name, payload);
    }

    /// Writes an element from its parts.
    pub(crate) fn value(&mut self, tag: u8, name: &str, payload: &[u8]) {
        self.head(tag, name);
        self.buffer.extend_from_slice(payload);
    }

    /// Opens a document or array as the next element. The caller finishes it before it writes on.
    pub(crate) fn nested(&mut self, kind: ElementType, name: &str) -> RawWriter<'_> {
        self.head(kind as u8, name);
        RawWriter::new(self.buffer)
    }

    /// Writes type and name; the caller writes the payload by [`RawWriter::buffer`].
    fn head(&mut self, tag: u8, name: &str) {
        self.buffer.push(tag);
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.push(0);
    }

    /// Ends the document.
    ///
    /// # Errors
    /// `BSONObjectTooLarge` if its length does not fit BSON.
    pub(crate) fn finish(self) -> Result<()> {
        self.buffer.push(0);
        let length = self.buffer.len() - self.start;
        if length > LENGTH_MAX {
            return Err(Error::new(Code::BSONObjectTooLarge, "a document of more than 2 GiB cannot be written"));
        }
        let length = (length as i32).to_le_bytes();
        if let Some(head) = self.buffer.get_mut(self.start..self.start + 4) {
            head.copy_from_slice(&length);
        }
        Ok(())
    }
}

/// The decimal text of array indexes, without an allocation each.
pub(crate) struct IndexName {
    digits: [u8; 20],
}

impl IndexName {
    pub(crate) fn new() -> Self {
        IndexName { digits: [0; 20] }
    }

    pub(crate) fn text(&mut self, index: usize) -> &str {
        let mut at = self.digits.len();
        let mut rest = index;
        loop {
            at -= 1;
            self.digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        std::str::from_utf8(&self.digits[at..]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
