//! Writes BSON in one buffer, from the front to the back.
//!
//! A reply holds up to 16 MiB of documents in an array in a document. If it were built from values, each level would copy the levels
//! below it. Here each byte is written once, and the length of a level is filled in when the level is closed.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bson::{DateTime, RawArrayBuf, Timestamp, oid::ObjectId};

/// The initial capacity, which is enough for most replies, including those with one small document.
const SMALL_BYTES: usize = 2048;
/// The number of levels that most replies do not exceed.
const SMALL_DEPTH: usize = 4;

/// A document that is being written.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// The offset of the length of each open document or array, the outermost first.
    open: Vec<usize>,
}

/// A value that can be written.
pub(crate) trait Put {
    const KIND: ElementType;
    fn put(&self, bytes: &mut Vec<u8>);
}

impl Writer {
    /// Begins an empty document.
    pub(crate) fn new() -> Self {
        let mut writer = Writer { bytes: Vec::with_capacity(SMALL_BYTES), open: Vec::with_capacity(SMALL_DEPTH) };
        writer.bytes.extend_from_slice(&[0; 4]);
        writer.open.push(0);
        writer
    }

    /// Reserves capacity for the bytes that follow.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn key(&mut self, kind: ElementType, key: &str) {
        self.bytes.push(kind as u8);
        if key.as_bytes().contains(&0) {
            // A zero byte would end the name, and the rest of it would be read as a value.
            self.bytes.extend(key.bytes().filter(|&byte| byte != 0));
        } else {
            self.bytes.extend_from_slice(key.as_bytes());
        }
        self.bytes.push(0);
    }

    /// Writes a field.
    pub(crate) fn put<V: Put>(&mut self, key: &str, value: V) -> &mut Self {
        self.key(V::KIND, key);
        value.put(&mut self.bytes);
        self
    }

    /// Writes a field if there is a value.
    pub(crate) fn put_some<V: Put>(&mut self, key: &str, value: Option<V>) -> &mut Self {
        if let Some(value) = value {
            self.put(key, value);
        }
        self
    }

    /// Writes a field of any type.
    pub(crate) fn put_any(&mut self, key: &str, value: RawBsonRef<'_>) -> &mut Self {
        let mut holder = RawDocumentBuf::new();
        holder.append(bson::raw::cstr!("v"), value);
        // int32 length, type, "v", 0, the value, 0
        if let Some([kind, b'v', 0, value @ .., 0]) = holder.as_bytes().get(4..) {
            self.bytes.push(*kind);
            self.bytes.extend(key.bytes().filter(|&byte| byte != 0));
            self.bytes.push(0);
            self.bytes.extend_from_slice(value);
        }
        self
    }

    /// Writes all fields of a document.
    pub(crate) fn put_all(&mut self, document: &RawDocument) -> &mut Self {
        if let Some([fields @ .., 0]) = document.as_bytes().get(4..) {
            self.put_fields(fields);
        }
        self
    }

    /// Writes encoded fields, which are the bytes between a document's length and its final zero.
    pub(crate) fn put_fields(&mut self, fields: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(fields);
        self
    }

    /// Opens an embedded document.
    pub(crate) fn begin_document(&mut self, key: &str) -> &mut Self {
        self.begin(ElementType::EmbeddedDocument, key)
    }

    /// Opens an array. The caller writes its keys, which [`Writer::array`] does by itself.
    pub(crate) fn begin_array(&mut self, key: &str) -> &mut Self {
        self.begin(ElementType::Array, key)
    }

    fn begin(&mut self, kind: ElementType, key: &str) -> &mut Self {
        self.key(kind, key);
        self.open.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
        self
    }

    /// Closes the innermost open document or array. [`Writer::finish`] closes the outermost one.
    pub(crate) fn end(&mut self) -> &mut Self {
        if self.open.len() > 1 {
            self.close();
        }
        self
    }

    fn close(&mut self) {
        let Some(start) = self.open.pop() else { return };
        self.bytes.push(0);
        let length = i32::try_from(self.bytes.len() - start).unwrap_or(i32::MAX);
        if let Some(prefix) = self.bytes.get_mut(start..start + 4) {
            prefix.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Writes an array of values.
    pub(crate) fn array<V: Put>(&mut self, key: &str, values: impl IntoIterator<Item = V>) -> &mut Self {
        self.begin_array(key);
        for (place, value) in values.into_iter().enumerate() {
            let mut digits = [0; 20];
            self.put(decimal(place, &mut digits), value);
        }
        self.end()
    }

    /// Closes all that is open, and returns the document.
    pub(crate) fn finish(mut self) -> RawDocumentBuf {
        while !self.open.is_empty() {
            self.close();
        }
        // The bytes begin with their length and end with a zero, so this does not fail.
        RawDocumentBuf::from_bytes(self.bytes).unwrap_or_default()
    }
}

/// Formats a number in decimal without an allocation.
pub(crate) fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &str {
    let mut start = digits.len();
    loop {
        start -= 1;
        if let Some(digit) = digits.get_mut(start) {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        }
        number /= 10;
        if number == 0 || start == 0 {
            break;
        }
    }
    digits.get(start..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default()
}

macro_rules! put {
    ($($type:ty = $kind:ident, |$value:ident, $bytes:ident| $body:expr;)+) => {
        $(impl Put for $type {
            const KIND: ElementType = ElementType::$kind;
            fn put(&self, $bytes: &mut Vec<u8>) {
                let $value = self;
                $body
            }
        })+
    };
}

fn put_text(text: &str, bytes: &mut Vec<u8>) {
    let length = i32::try_from(text.len() + 1).unwrap_or(i32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
}

put! {
    f64 = Double, |value, bytes| bytes.extend_from_slice(&value.to_le_bytes());
    i32 = Int32, |value, bytes| bytes.extend_from_slice(&value.to_le_bytes());
    i64 = Int64, |value, bytes| bytes.extend_from_slice(&value.to_le_bytes());
    bool = Boolean, |value, bytes| bytes.push(u8::from(*value));
    &str = String, |value, bytes| put_text(value, bytes);
    &String = String, |value, bytes| put_text(value, bytes);
    String = String, |value, bytes| put_text(value, bytes);
    &RawDocument = EmbeddedDocument, |value, bytes| bytes.extend_from_slice(value.as_bytes());
    &RawDocumentBuf = EmbeddedDocument, |value, bytes| bytes.extend_from_slice(value.as_bytes());
    RawDocumentBuf = EmbeddedDocument, |value, bytes| bytes.extend_from_slice(value.as_bytes());
    &RawArray = Array, |value, bytes| bytes.extend_from_slice(value.as_bytes());
    &RawArrayBuf = Array, |value, bytes| bytes.extend_from_slice(value.as_bytes());
    DateTime = DateTime, |value, bytes| bytes.extend_from_slice(&value.timestamp_millis().to_le_bytes());
    Timestamp = Timestamp, |value, bytes| {
        bytes.extend_from_slice(&value.increment.to_le_bytes());
        bytes.extend_from_slice(&value.time.to_le_bytes());
    };
    ObjectId = ObjectId, |value, bytes| bytes.extend_from_slice(&value.bytes());
    () = Null, |_value, _bytes| {};
}

/// Writes a count in the smallest integer type that holds it, as MongoDB does.
pub(crate) fn put_count(writer: &mut Writer, key: &str, count: u64) {
    match i32::try_from(count) {
        Ok(small) => writer.put(key, small),
        Err(_) => writer.put(key, i64::try_from(count).unwrap_or(i64::MAX)),
    };
}

/// A UUID, which is binary data of subtype 4.
pub(crate) struct Uuid(pub(crate) [u8; 16]);

impl Put for Uuid {
    const KIND: ElementType = ElementType::Binary;
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&16_i32.to_le_bytes());
        bytes.push(4);
        bytes.extend_from_slice(&self.0);
    }
}

/// Binary data of the generic subtype.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Put for Bytes<'_> {
    const KIND: ElementType = ElementType::Binary;
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&i32::try_from(self.0.len()).unwrap_or(i32::MAX).to_le_bytes());
        bytes.push(0);
        bytes.extend_from_slice(self.0);
    }
}

#[cfg(test)]
mod tests;
