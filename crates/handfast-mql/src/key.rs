//! Encodes values as bytes whose order is the order of values: the keys of documents and of index entries.
//!
//! A key-value engine compares keys byte by byte. [`encode`] turns a value into bytes that compare so exactly as
//! [`order::compare`] compares the values; equal values, also those of different number types,
//! have equal bytes. No encoding is a prefix of another one, so that encodings can be put one after the other
//! ([`encode_compound`], a key followed by a record id) and still compare component by component. A descending component is the same
//! bytes, inverted.
//!
//! ```text
//! value    = tag payload                            tags follow the order of types
//! number   = sign (magnitude below)                 NaN < negative < zero < positive, each a tag of its own
//! magnitude= f64 bits, rounded toward zero, 00      if that double is the number
//!          | f64 bits, 01 exponent digits 00        if not: a long above 2^53, a decimal; its decimal digits order
//!                                                   all numbers that share the double
//! text     = bytes, 00 escaped as 00 ff, then 00 00
//! object   = (type, name, value).. 00               array = value.. 00
//! ```
//!
//! Distinctions between equal values (`2` or `2.0`, a string or a symbol, `1.0` or `1.00`) go into [`TypeBits`], a separate short
//! string that takes no part in the order: `decode(encode(x)) = x`.
//!
//! Source: the order of types is MongoDB's documentation; the encoding is Handfast's own (spec: store).

mod decode;
mod number;

use bson::{RawArray, RawBsonRef, RawDocument, spec::BinarySubtype};

use crate::{collation::Collation, element, order};

pub use decode::{Decoder, decode};

/// The direction in which a component of a compound key sorts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Small values come first.
    #[default]
    Ascending,
    /// Large values come first.
    Descending,
}

/// The distinctions that equal keys lose, such as number types, in the order of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBits(Vec<u8>);

impl TypeBits {
    /// Returns the bits as bytes, for storing.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A receiver of the distinctions that equal keys lose.
trait TypeBitsSink {
    fn push_bits(&mut self, kind: &[u8]);

    /// Appends a string, without its tag.
    fn append_string(&self, text: &str, out: &mut Vec<u8>) {
        append_text(text.as_bytes(), out);
    }
}

impl TypeBitsSink for TypeBits {
    fn push_bits(&mut self, kind: &[u8]) {
        self.0.extend_from_slice(kind);
    }
}

/// The receiver for keys that are never decoded: keeps nothing, allocates nothing.
struct DiscardTypeBits;

impl TypeBitsSink for DiscardTypeBits {
    fn push_bits(&mut self, _kind: &[u8]) {}
}

/// The receiver for keys in the order of a collation, which cannot be decoded: strings are their sort keys.
struct Collated<'c>(&'c Collation);

impl TypeBitsSink for Collated<'_> {
    fn push_bits(&mut self, _kind: &[u8]) {}

    fn append_string(&self, text: &str, out: &mut Vec<u8>) {
        let mut sort_key = Vec::with_capacity(2 * text.len() + SHORT_BYTES);
        self.0.append_sort_key(text, &mut sort_key);
        append_text(&sort_key, out);
    }
}

/// The byte that ends an object or an array, which is less than every tag.
const END: u8 = 0x00;
/// The first bytes of values, in the order of the types, with gaps for later additions.
mod tag {
    pub(super) const MIN_KEY: u8 = 0x10;
    pub(super) const EMPTY_ARRAY: u8 = 0x14;
    pub(super) const NULL: u8 = 0x18;
    pub(super) const NAN: u8 = 0x20;
    pub(super) const NEGATIVE: u8 = 0x21;
    pub(super) const ZERO: u8 = 0x22;
    pub(super) const POSITIVE: u8 = 0x23;
    pub(super) const TEXT: u8 = 0x30;
    pub(super) const OBJECT: u8 = 0x38;
    pub(super) const ARRAY: u8 = 0x40;
    pub(super) const BINARY: u8 = 0x48;
    pub(super) const OBJECT_ID: u8 = 0x50;
    pub(super) const BOOLEAN: u8 = 0x58;
    pub(super) const DATE_TIME: u8 = 0x60;
    pub(super) const TIMESTAMP: u8 = 0x68;
    pub(super) const REGULAR_EXPRESSION: u8 = 0x70;
    pub(super) const DB_POINTER: u8 = 0x78;
    pub(super) const CODE: u8 = 0x80;
    pub(super) const CODE_WITH_SCOPE: u8 = 0x88;
    pub(super) const MAX_KEY: u8 = 0xf0;
}

/// The entries of [`TypeBits`].
mod kind {
    pub(super) const NULL: u8 = 0;
    pub(super) const UNDEFINED: u8 = 1;
    pub(super) const STRING: u8 = 0;
    pub(super) const SYMBOL: u8 = 1;
    pub(super) const INT: u8 = 0;
    pub(super) const LONG: u8 = 1;
    pub(super) const DOUBLE: u8 = 2;
    /// A decimal, whose sixteen bytes follow: equal values have several forms.
    pub(super) const DECIMAL: u8 = 3;
    pub(super) const NEGATIVE_ZERO: u8 = 4;
    /// A NaN, whose eight bytes follow.
    pub(super) const DOUBLE_BITS: u8 = 5;
}

/// The capacity for the key of a number, a date or an ObjectId.
const SHORT_BYTES: usize = 16;

/// Appends the key of one value.
pub fn encode(value: RawBsonRef<'_>, out: &mut Vec<u8>) {
    append(value, out, &mut DiscardTypeBits);
}

/// Returns the key of one value: equal for values that are equal.
pub fn encoded(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(SHORT_BYTES);
    encode(value, &mut key);
    key
}

/// Appends the key of one value in the order of a collation ([`order::compare_under`]). It cannot be decoded.
pub fn encode_under(value: RawBsonRef<'_>, collation: Option<&Collation>, out: &mut Vec<u8>) {
    match collation {
        None => append(value, out, &mut DiscardTypeBits),
        Some(collation) => append(value, out, &mut Collated(collation)),
    }
}

/// Returns the key of one value in the order of a collation.
pub fn encoded_under(value: RawBsonRef<'_>, collation: Option<&Collation>) -> Vec<u8> {
    let mut key = Vec::with_capacity(SHORT_BYTES);
    encode_under(value, collation, &mut key);
    key
}

/// Appends the key of one component of a compound key in the order of a collation.
pub fn encode_directed_under(
    value: RawBsonRef<'_>,
    direction: Direction,
    collation: Option<&Collation>,
    out: &mut Vec<u8>,
) {
    directed(direction, out, |out| encode_under(value, collation, out));
}

/// Appends the key of one component of a compound key.
pub fn encode_directed(value: RawBsonRef<'_>, direction: Direction, out: &mut Vec<u8>) {
    directed(direction, out, |out| append(value, out, &mut DiscardTypeBits));
}

/// Appends the key of one component, and the type bits that [`decode()`] needs.
pub fn encode_typed(value: RawBsonRef<'_>, direction: Direction, out: &mut Vec<u8>, bits: &mut TypeBits) {
    directed(direction, out, |out| append(value, out, bits));
}

/// Appends the key of an empty array in sorts and multikey indexes, which take the elements of arrays: less than null.
pub fn encode_empty_array(direction: Direction, out: &mut Vec<u8>) {
    directed(direction, out, |out| out.push(tag::EMPTY_ARRAY));
}

/// Returns the key of several values, component by component.
pub fn encode_compound<'a>(components: impl IntoIterator<Item = (RawBsonRef<'a>, Direction)>) -> Vec<u8> {
    let mut key = Vec::new();
    for (value, direction) in components {
        encode_directed(value, direction, &mut key);
    }
    key
}

/// Returns the keys of all values that compare with `value` by their own rules (all numbers, all strings ..): from the
/// first bytes, inclusive, to the second, exclusive. For bounds of range queries, which never cross types.
pub fn type_range(value: RawBsonRef<'_>) -> (Vec<u8>, Vec<u8>) {
    let first = match value {
        RawBsonRef::MinKey => tag::MIN_KEY,
        RawBsonRef::Null | RawBsonRef::Undefined => tag::NULL,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
            return (vec![tag::NAN], vec![tag::POSITIVE + 1]);
        }
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => tag::TEXT,
        RawBsonRef::Document(_) => tag::OBJECT,
        RawBsonRef::Array(_) => tag::ARRAY,
        RawBsonRef::Binary(_) => tag::BINARY,
        RawBsonRef::ObjectId(_) => tag::OBJECT_ID,
        RawBsonRef::Boolean(_) => tag::BOOLEAN,
        RawBsonRef::DateTime(_) => tag::DATE_TIME,
        RawBsonRef::Timestamp(_) => tag::TIMESTAMP,
        RawBsonRef::RegularExpression(_) => tag::REGULAR_EXPRESSION,
        RawBsonRef::DbPointer(_) => tag::DB_POINTER,
        RawBsonRef::JavaScriptCode(_) => tag::CODE,
        RawBsonRef::JavaScriptCodeWithScope(_) => tag::CODE_WITH_SCOPE,
        RawBsonRef::MaxKey => tag::MAX_KEY,
    };
    (vec![first], vec![first + 1])
}

fn directed(direction: Direction, out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    append(out);
    if direction == Direction::Descending {
        invert(out.get_mut(start..).unwrap_or_default());
    }
}

fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

fn append(value: RawBsonRef<'_>, out: &mut Vec<u8>, bits: &mut impl TypeBitsSink) {
    use RawBsonRef as V;
    match value {
        V::MinKey => out.push(tag::MIN_KEY),
        V::Null => append_kind(tag::NULL, kind::NULL, out, bits),
        V::Undefined => append_kind(tag::NULL, kind::UNDEFINED, out, bits),
        V::Int32(_) | V::Int64(_) | V::Double(_) | V::Decimal128(_) => number::append(value, out, bits),
        V::String(text) => {
            append_kind(tag::TEXT, kind::STRING, out, bits);
            bits.append_string(text, out);
        }
        V::Symbol(text) => {
            append_kind(tag::TEXT, kind::SYMBOL, out, bits);
            bits.append_string(text, out);
        }
        V::Document(document) => {
            out.push(tag::OBJECT);
            append_fields(document, out, bits);
        }
        V::Array(array) => {
            out.push(tag::ARRAY);
            append_elements(array, out, bits);
        }
        V::Binary(binary) => append_binary(binary, out),
        V::ObjectId(id) => {
            out.push(tag::OBJECT_ID);
            out.extend_from_slice(&id.bytes());
        }
        V::Boolean(value) => out.extend_from_slice(&[tag::BOOLEAN, u8::from(value)]),
        V::DateTime(date) => {
            out.push(tag::DATE_TIME);
            // Two's complement with the sign bit flipped compares as unsigned bytes.
            out.extend_from_slice(&(date.timestamp_millis() ^ i64::MIN).to_be_bytes());
        }
        V::Timestamp(timestamp) => {
            out.push(tag::TIMESTAMP);
            out.extend_from_slice(&timestamp.time.to_be_bytes());
            out.extend_from_slice(&timestamp.increment.to_be_bytes());
        }
        V::RegularExpression(regex) => {
            out.push(tag::REGULAR_EXPRESSION);
            append_text(regex.pattern.as_str().as_bytes(), out);
            append_text(regex.options.as_str().as_bytes(), out);
        }
        V::DbPointer(_) => {
            let (namespace, id) = element::db_pointer_parts(value);
            out.push(tag::DB_POINTER);
            append_text(&namespace, out);
            out.extend_from_slice(&id);
        }
        V::JavaScriptCode(code) => {
            out.push(tag::CODE);
            append_text(code.as_bytes(), out);
        }
        V::JavaScriptCodeWithScope(code) => {
            out.push(tag::CODE_WITH_SCOPE);
            append_text(code.code.as_bytes(), out);
            append_fields(code.scope, out, bits);
        }
        V::MaxKey => out.push(tag::MAX_KEY),
    }
}

fn append_kind(tag: u8, kind: u8, out: &mut Vec<u8>, bits: &mut impl TypeBitsSink) {
    out.push(tag);
    bits.push_bits(&[kind]);
}

fn append_text(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    for piece in text.split_inclusive(|byte| *byte == 0) {
        out.extend_from_slice(piece);
        if piece.ends_with(&[0]) {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn append_fields(document: &RawDocument, out: &mut Vec<u8>, bits: &mut impl TypeBitsSink) {
    for (name, value) in document.iter().map_while(Result::ok) {
        // The type precedes the name, as in the order of values; 1 is added so that it differs from the end.
        out.push(order::type_rank(value) + 1);
        append_text(name.as_str().as_bytes(), out);
        append(value, out, bits);
    }
    out.push(END);
}

fn append_elements(array: &RawArray, out: &mut Vec<u8>, bits: &mut impl TypeBitsSink) {
    for value in array.into_iter().map_while(Result::ok) {
        append(value, out, bits);
    }
    out.push(END);
}

fn append_binary(binary: bson::RawBinaryRef<'_>, out: &mut Vec<u8>) {
    out.push(tag::BINARY);
    // A document of 16 MiB holds no longer binary value.
    out.extend_from_slice(&(binary.bytes.len() as u32).to_be_bytes());
    out.push(u8::from(binary.subtype));
    out.extend_from_slice(binary.bytes);
}

fn subtype(byte: u8) -> BinarySubtype {
    BinarySubtype::from(byte)
}

#[cfg(test)]
mod tests;
