//! The conversions of `$convert` between binary values and texts or numbers.
//!
//! ```text
//! text    <-> binary   by `format`: base64, base64url, utf8, hex, uuid (which is subtype 4)
//! number  <-> binary   by `byteOrder`: little, big; an int has 4 bytes, a long and a double 8
//! ```
//!
//! Source: MongoDB's documentation of `$convert`.

use base64::{
    Engine,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bson::{Binary, RawBinaryRef, RawBson, Uuid, spec::BinarySubtype};

use super::{convert::failure, value::Value};
use crate::{
    error::{Code, Error, Result},
    number::Number,
};

const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new());
/// Without padding; texts with padding are read as well.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The bytes of a UUID, and the letters of its text.
const UUID_BYTES: usize = 16;
const UUID_LETTERS: usize = 36;

/// The text form of a binary value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Base64,
    Base64Url,
    Utf8,
    Hex,
    Uuid,
}

impl Format {
    /// Reads the argument `format`; `None` if it is null or missing.
    ///
    /// # Errors
    /// 4341114 for no string, 4341125 for an unknown one.
    pub(crate) fn of(value: &Value<'_>) -> Result<Option<Self>> {
        if value.is_nullish() {
            return Ok(None);
        }
        let name = value.as_str().ok_or_else(|| {
            Error::new(
                Code(4_341_114),
                format!("$convert requires that 'format' be a string, found: {}", value.type_name()),
            )
        })?;
        Ok(Some(match name {
            "base64" => Format::Base64,
            "base64url" => Format::Base64Url,
            "utf8" => Format::Utf8,
            "hex" => Format::Hex,
            "uuid" => Format::Uuid,
            _ => {
                return Err(Error::new(
                    Code(4_341_125),
                    format!("Invalid 'format' argument for $convert: {}", value.show()),
                ));
            }
        }))
    }

    /// Returns the format, or the error that it is missing.
    pub(crate) fn required(format: Option<Self>, source: &str, target: &str) -> Result<Self> {
        format.ok_or_else(|| {
            Error::new(
                Code(4_341_115),
                format!("Format must be specified when converting from '{source}' to '{target}'"),
            )
        })
    }
}

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    #[default]
    Little,
    Big,
}

impl ByteOrder {
    /// Reads the argument `byteOrder`.
    ///
    /// # Errors
    /// 9130001 for no string, 9130002 for an unknown one.
    pub(crate) fn of(value: &Value<'_>) -> Result<Self> {
        if value.is_nullish() {
            return Ok(ByteOrder::default());
        }
        match value.as_str() {
            Some("little") => Ok(ByteOrder::Little),
            Some("big") => Ok(ByteOrder::Big),
            Some(_) => {
                Err(Error::new(Code(9_130_002), format!("Invalid 'byteOrder' argument for $convert: {}", value.show())))
            }
            None => Err(Error::new(
                Code(9_130_001),
                format!("$convert requires that 'byteOrder' be a string, found: {}", value.type_name()),
            )),
        }
    }
}

/// Reads `subtype` of the argument `to`.
///
/// # Errors
/// 4341108 for no number, 4341106 for no whole one, 4341107 for one that BSON does not define.
pub(crate) fn subtype(value: &Value<'_>) -> Result<BinarySubtype> {
    let number = value.get().and_then(Number::of).ok_or_else(|| {
        Error::new(
            Code(4_341_108),
            format!("$convert's 'subtype' argument must be a number, but is {}", value.type_name()),
        )
    })?;
    let number = number.to_i64_exact().ok_or_else(|| {
        Error::new(
            Code(4_341_106),
            format!("In $convert, numeric 'subtype' argument is not an integer: {}", value.show()),
        )
    })?;
    match u8::try_from(number) {
        Ok(number @ (0..=9 | 128..)) => Ok(BinarySubtype::from(number)),
        _ => Err(Error::new(
            Code(4_341_107),
            format!("In $convert, numeric value for 'subtype' does not correspond to a BinData type: {}", value.show()),
        )),
    }
}

pub(crate) fn made<'a>(subtype: BinarySubtype, bytes: Vec<u8>) -> Value<'a> {
    Value::Owned(RawBson::Binary(Binary { subtype, bytes }))
}

/// Returns a binary value as a text.
pub(crate) fn to_text(binary: RawBinaryRef<'_>, format: Format) -> Result<String> {
    check_uuid(format, binary.subtype)?;
    Ok(match format {
        Format::Base64 => BASE64.encode(binary.bytes),
        Format::Base64Url => BASE64_URL.encode(binary.bytes),
        Format::Utf8 => std::str::from_utf8(binary.bytes)
            .map_err(|_| failed("BinData", "string", "it is not valid UTF-8"))?
            .to_owned(),
        Format::Hex => binary.bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
        Format::Uuid => uuid_text(binary.bytes).ok_or_else(|| failed("BinData", "string", "a UUID has 16 bytes"))?,
    })
}

/// Returns a binary value as `$toString` shows it: a UUID in its own form, everything else in base64.
pub(crate) fn to_own_text(binary: RawBinaryRef<'_>) -> String {
    let uuid = if binary.subtype == BinarySubtype::Uuid { uuid_text(binary.bytes) } else { None };
    uuid.unwrap_or_else(|| BASE64.encode(binary.bytes))
}

/// Returns the binary value that a text stands for.
pub(crate) fn of_text<'a>(text: &str, format: Format, subtype: BinarySubtype) -> Result<Value<'a>> {
    check_uuid(format, subtype)?;
    let invalid = |form: &str| failed("string", "BinData", &format!("the input is not a valid {form} string"));
    let bytes = match format {
        Format::Base64 => BASE64.decode(text).map_err(|_| invalid("base64"))?,
        Format::Base64Url => BASE64_URL.decode(text).map_err(|_| invalid("base64url"))?,
        Format::Utf8 => text.as_bytes().to_vec(),
        Format::Hex => of_hex(text).ok_or_else(|| invalid("hex"))?,
        Format::Uuid => {
            let uuid = if text.len() == UUID_LETTERS { Uuid::parse_str(text).ok() } else { None };
            uuid.ok_or_else(|| invalid("UUID"))?.bytes().to_vec()
        }
    };
    Ok(made(subtype, bytes))
}

/// Returns the bytes of an int, a long or a double; `None` for another number.
pub(crate) fn of_number<'a>(number: Number, order: ByteOrder, subtype: BinarySubtype) -> Option<Value<'a>> {
    let mut bytes = match number {
        Number::Int(value) => value.to_le_bytes().to_vec(),
        Number::Long(value) => value.to_le_bytes().to_vec(),
        Number::Double(value) => value.to_le_bytes().to_vec(),
        Number::Decimal(_) => return None,
    };
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    Some(made(subtype, bytes))
}

/// Returns the whole number of 1, 2, 4 or 8 bytes in two's complement, at most `bytes_max`.
pub(crate) fn to_whole(bytes: &[u8], order: ByteOrder, bytes_max: usize) -> Result<i64> {
    if !matches!(bytes.len(), 1 | 2 | 4 | 8) || bytes.len() > bytes_max {
        return Err(failed("BinData", "number", &format!("there is no number of {} bytes", bytes.len())));
    }
    let is_negative = |most_significant: &u8| most_significant & 0x80 != 0;
    let ordered = in_little_order(bytes, order);
    let fill = if ordered.last().is_some_and(is_negative) { 0xff } else { 0 };
    let mut whole = [fill; 8];
    whole.iter_mut().zip(ordered).for_each(|(byte, given)| *byte = given);
    Ok(i64::from_le_bytes(whole))
}

/// Returns the floating-point number of 4 or 8 bytes.
pub(crate) fn to_double(bytes: &[u8], order: ByteOrder) -> Result<f64> {
    let ordered = in_little_order(bytes, order);
    if let Ok(single) = <[u8; 4]>::try_from(&ordered[..]) {
        return Ok(f64::from(f32::from_le_bytes(single)));
    }
    let double = <[u8; 8]>::try_from(&ordered[..]);
    double.map(f64::from_le_bytes).map_err(|_| {
        failed("BinData", "double", &format!("there is no floating-point number of {} bytes", bytes.len()))
    })
}

fn in_little_order(bytes: &[u8], order: ByteOrder) -> Vec<u8> {
    match order {
        ByteOrder::Little => bytes.to_vec(),
        ByteOrder::Big => bytes.iter().rev().copied().collect(),
    }
}

/// Checks that the UUID format and the subtype of UUIDs are used together.
fn check_uuid(format: Format, subtype: BinarySubtype) -> Result<()> {
    match (format == Format::Uuid, subtype == BinarySubtype::Uuid) {
        (true, false) => {
            Err(failure("Only the UUID subtype (4) is allowed with the UUID format in $convert".to_owned()))
        }
        (false, true) => {
            Err(failure("Only the UUID format is allowed with the UUID subtype (4) in $convert".to_owned()))
        }
        _ => Ok(()),
    }
}

fn uuid_text(bytes: &[u8]) -> Option<String> {
    <[u8; UUID_BYTES]>::try_from(bytes).ok().map(|bytes| Uuid::from_bytes(bytes).to_string())
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|letter| letter.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn failed(source: &str, target: &str, why: &str) -> Error {
    failure(format!("Failed to convert {source} to {target} in $convert with no onError value: {why}"))
}
