//! Decodes keys to values.
//!
//! Keys come from disk. Bytes that no encoder wrote are an error and never a panic; the depth of nesting is limited.

use bson::{
    Binary, DateTime, Decimal128, RawArrayBuf, RawBson, RawDocumentBuf, Regex, Timestamp, oid::ObjectId, raw::CString,
};

use super::{Direction, END, TypeBits, kind, number, subtype, tag};
use crate::element::db_pointer;
use crate::error::{Code, Error, Result};

/// The largest number of levels of a key: those of a document within MongoDB's limits, and a reserve.
const DEPTH_MAX: usize = 200;

/// Decodes the values of a key, component by component.
#[derive(Debug)]
pub struct Decoder<'a> {
    key: &'a [u8],
    bits: &'a [u8],
    /// The mask that inverts the bytes of a descending component.
    mask: u8,
}

/// Returns the values of a compound key.
///
/// # Errors
/// `DataCorruptionDetected` if no encoder wrote this, or bytes are left over.
pub fn decode(key: &[u8], bits: &TypeBits, directions: &[Direction]) -> Result<Vec<RawBson>> {
    let mut decoder = Decoder::new(key, bits.as_bytes());
    let values = directions.iter().map(|direction| decoder.next(*direction)).collect::<Result<_>>()?;
    if decoder.rest().is_empty() && decoder.bits.is_empty() { Ok(values) } else { Err(corrupt("bytes are left over")) }
}

fn corrupt(what: &str) -> Error {
    Error::new(Code::DataCorruptionDetected, format!("not a key: {what}"))
}

impl<'a> Decoder<'a> {
    /// Creates a decoder over a key and the bytes of its [`TypeBits`].
    pub fn new(key: &'a [u8], bits: &'a [u8]) -> Self {
        Decoder { key, bits, mask: 0 }
    }

    /// Returns the bytes after the values that were decoded so far.
    pub fn rest(&self) -> &'a [u8] {
        self.key
    }

    /// Returns the value of the next component.
    ///
    /// # Errors
    /// `DataCorruptionDetected` if no encoder wrote this.
    pub fn next(&mut self, direction: Direction) -> Result<RawBson> {
        self.mask = if direction == Direction::Descending { 0xff } else { 0 };
        let tag = self.byte()?;
        self.value(tag, 0)
    }

    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.key.split_first().ok_or_else(|| corrupt("it is too short"))?;
        self.key = rest;
        Ok(first ^ self.mask)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.key.split_first_chunk::<N>().ok_or_else(|| corrupt("it is too short"))?;
        self.key = rest;
        Ok(first.map(|byte| byte ^ self.mask))
    }

    fn kind(&mut self) -> Result<u8> {
        let (first, rest) = self.bits.split_first().ok_or_else(|| corrupt("a type is missing"))?;
        self.bits = rest;
        Ok(*first)
    }

    fn kind_bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.bits.split_first_chunk::<N>().ok_or_else(|| corrupt("a type is missing"))?;
        self.bits = rest;
        Ok(*first)
    }

    fn value(&mut self, tag: u8, depth: usize) -> Result<RawBson> {
        if depth > DEPTH_MAX {
            return Err(corrupt("it is nested too deeply"));
        }
        Ok(match tag {
            tag::MIN_KEY => RawBson::MinKey,
            tag::EMPTY_ARRAY => RawBson::Undefined,
            tag::NULL => match self.kind()? {
                kind::NULL => RawBson::Null,
                kind::UNDEFINED => RawBson::Undefined,
                _ => return Err(corrupt("unknown type of null")),
            },
            tag::NAN | tag::NEGATIVE | tag::ZERO | tag::POSITIVE => self.number(tag)?,
            tag::TEXT => {
                let symbol = self.kind()?;
                let text = self.text()?;
                match symbol {
                    kind::STRING => RawBson::String(text),
                    kind::SYMBOL => RawBson::Symbol(text),
                    _ => return Err(corrupt("unknown type of text")),
                }
            }
            tag::OBJECT => RawBson::Document(self.fields(depth)?),
            tag::ARRAY => RawBson::Array(self.elements(depth)?),
            tag::BINARY => self.binary()?,
            tag::OBJECT_ID => RawBson::ObjectId(ObjectId::from_bytes(self.bytes()?)),
            tag::BOOLEAN => RawBson::Boolean(self.byte()? != 0),
            tag::DATE_TIME => RawBson::DateTime(DateTime::from_millis(i64::from_be_bytes(self.bytes()?) ^ i64::MIN)),
            tag::TIMESTAMP => {
                let (time, increment) = (u32::from_be_bytes(self.bytes()?), u32::from_be_bytes(self.bytes()?));
                RawBson::Timestamp(Timestamp { time, increment })
            }
            tag::REGULAR_EXPRESSION => {
                let (pattern, options) = (self.c_string()?, self.c_string()?);
                RawBson::RegularExpression(Regex { pattern, options })
            }
            tag::DB_POINTER => {
                let namespace = self.text()?;
                db_pointer(&namespace, self.bytes()?)?
            }
            tag::CODE => RawBson::JavaScriptCode(self.text()?),
            tag::CODE_WITH_SCOPE => {
                let code = self.text()?;
                let scope = self.fields(depth)?;
                RawBson::JavaScriptCodeWithScope(bson::RawJavaScriptCodeWithScope { code, scope })
            }
            tag::MAX_KEY => RawBson::MaxKey,
            _ => return Err(corrupt("unknown tag")),
        })
    }

    fn text(&mut self) -> Result<String> {
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    0 => break,
                    0xff => text.push(0),
                    _ => return Err(corrupt("unknown escape")),
                },
                byte => text.push(byte),
            }
        }
        String::from_utf8(text).map_err(|_| corrupt("text that is not UTF-8"))
    }

    fn c_string(&mut self) -> Result<CString> {
        CString::try_from(self.text()?).map_err(|_| corrupt("a zero where none can be"))
    }

    fn fields(&mut self, depth: usize) -> Result<RawDocumentBuf> {
        let mut document = RawDocumentBuf::new();
        // The byte is the type in the order, which the value repeats.
        while self.byte()? != END {
            let name = self.c_string()?;
            let tag = self.byte()?;
            document.append(name, self.value(tag, depth + 1)?);
        }
        Ok(document)
    }

    fn elements(&mut self, depth: usize) -> Result<RawArrayBuf> {
        let mut array = RawArrayBuf::new();
        loop {
            match self.byte()? {
                END => return Ok(array),
                tag => array.push(self.value(tag, depth + 1)?),
            }
        }
    }

    fn binary(&mut self) -> Result<RawBson> {
        let length = u32::from_be_bytes(self.bytes()?) as usize;
        let subtype = subtype(self.byte()?);
        let (bytes, rest) = self.key.split_at_checked(length).ok_or_else(|| corrupt("it is too short"))?;
        self.key = rest;
        let bytes = bytes.iter().map(|byte| byte ^ self.mask).collect();
        Ok(RawBson::Binary(Binary { subtype, bytes }))
    }

    fn number(&mut self, tag: u8) -> Result<RawBson> {
        // The magnitude gives the end of the number in any case; the type bits hold a decimal in full.
        let kind = self.kind()?;
        let magnitude = if tag == tag::POSITIVE || tag == tag::NEGATIVE { self.magnitude(tag)? } else { (0.0, None) };
        let negative = tag == tag::NEGATIVE;
        let (double, digits) = magnitude;
        Ok(match kind {
            kind::DECIMAL => RawBson::Decimal128(Decimal128::from_bytes(self.kind_bytes()?)),
            kind::DOUBLE_BITS => RawBson::Double(f64::from_bits(u64::from_be_bytes(self.kind_bytes()?))),
            kind::NEGATIVE_ZERO => RawBson::Double(-0.0),
            kind::DOUBLE => RawBson::Double(if negative { -double } else { double }),
            kind::INT | kind::LONG => {
                // Exact up to 2^63, which only the sign tells from the first number that is no long.
                let magnitude = digits.unwrap_or(double as i128);
                let signed = if negative { -magnitude } else { magnitude };
                let long = i64::try_from(signed).map_err(|_| corrupt("a long out of range"))?;
                if kind == kind::LONG {
                    RawBson::Int64(long)
                } else {
                    RawBson::Int32(i32::try_from(long).map_err(|_| corrupt("an int out of range"))?)
                }
            }
            _ => return Err(corrupt("unknown type of number")),
        })
    }

    /// Returns the double, and the digits as an integer where there are any (they matter for longs only).
    fn magnitude(&mut self, tag: u8) -> Result<(f64, Option<i128>)> {
        let own = self.mask;
        if tag == tag::NEGATIVE {
            self.mask = !own;
        }
        let double = f64::from_bits(u64::from_be_bytes(self.bytes()?));
        let digits = match self.byte()? {
            number::EXACT => None,
            number::DIGITS => Some(self.digits()?),
            _ => return Err(corrupt("unknown form of number")),
        };
        self.mask = own;
        Ok((double, digits))
    }

    fn digits(&mut self) -> Result<i128> {
        let point = number::unbias(u16::from_be_bytes(self.bytes()?));
        let (mut value, mut count) = (0_i128, 0);
        loop {
            match self.byte()? {
                0 => break,
                digit @ 1..=10 if count < crate::decimal::DIGITS_MAX => {
                    value = value * 10 + i128::from(digit - 1);
                    count += 1;
                }
                _ => return Err(corrupt("a digit that is none")),
            }
        }
        let zeros = u32::try_from(point - count as i32).unwrap_or(0);
        Ok(10_i128.checked_pow(zeros).and_then(|unit| value.checked_mul(unit)).unwrap_or(i128::MAX))
    }
}
