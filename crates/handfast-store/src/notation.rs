//! Formats documents as MongoDB does in its messages: `{ a: 1, b: "x", c: [ 1.0, null ] }`.
//!
//! The text is for people, and for the few messages that drivers and users compare (`dup key: { a: 1 }`). Its length and depth are
//! bounded, because it ends up in logs.

use std::fmt::Write;

use bson::spec::BinarySubtype;
use bson::{RawBsonRef, RawDocument};

pub use handfast_mql::bson_type::type_name;

#[cfg(test)]
mod tests;

/// The number of characters to which a message cuts strings and binaries, as MongoDB does.
pub const MESSAGE_STRING_CHARS_MAX: usize = 150;
/// The number of levels of a document that a message shows; deeper ones are `...`.
pub const MESSAGE_DEPTH_MAX: usize = 20;

/// Formats a document.
pub fn document(document: &RawDocument) -> String {
    let mut text = String::new();
    write_document(&mut text, document, 0);
    text
}

/// Formats a value.
pub fn value(value: RawBsonRef<'_>) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0);
    text
}

fn write_document(text: &mut String, document: &RawDocument, depth: usize) {
    if depth > MESSAGE_DEPTH_MAX {
        return text.push_str("...");
    }
    let mut first = true;
    text.push('{');
    for element in document.iter() {
        text.push_str(if first { " " } else { ", " });
        first = false;
        match element {
            Ok((name, value)) => {
                text.push_str(name.as_str());
                text.push_str(": ");
                write_value(text, value, depth + 1);
            }
            Err(_) => text.push_str("<invalid BSON>"),
        }
    }
    text.push_str(if first { "}" } else { " }" });
}

fn write_value(text: &mut String, value: RawBsonRef<'_>, depth: usize) {
    // Writing to a String cannot fail.
    let _ = match value {
        RawBsonRef::Double(number) => write_double(text, number),
        RawBsonRef::String(string) | RawBsonRef::Symbol(string) => write_string(text, string),
        RawBsonRef::Array(array) => {
            if depth > MESSAGE_DEPTH_MAX {
                return text.push_str("...");
            }
            let mut first = true;
            text.push('[');
            for item in array {
                text.push_str(if first { " " } else { ", " });
                first = false;
                match item {
                    Ok(item) => write_value(text, item, depth + 1),
                    Err(_) => text.push_str("<invalid BSON>"),
                }
            }
            text.push_str(if first { "]" } else { " ]" });
            Ok(())
        }
        RawBsonRef::Document(document) => {
            write_document(text, document, depth);
            Ok(())
        }
        RawBsonRef::Boolean(boolean) => write!(text, "{boolean}"),
        RawBsonRef::Null => write!(text, "null"),
        RawBsonRef::RegularExpression(regex) => {
            write!(text, "/{}/{}", regex.pattern.as_str(), regex.options.as_str())
        }
        RawBsonRef::JavaScriptCode(code) => write_string(text, code),
        RawBsonRef::JavaScriptCodeWithScope(code) => write!(text, "CodeWScope( {}, ", cut(code.code)).map(|()| {
            write_document(text, code.scope, depth + 1);
            text.push(')');
        }),
        RawBsonRef::Int32(number) => write!(text, "{number}"),
        RawBsonRef::Int64(number) => write!(text, "{number}"),
        RawBsonRef::Timestamp(timestamp) => write!(text, "Timestamp({}, {})", timestamp.time, timestamp.increment),
        RawBsonRef::Binary(binary) => write_binary(text, binary.subtype, binary.bytes),
        RawBsonRef::ObjectId(id) => write!(text, "ObjectId('{id}')"),
        RawBsonRef::DateTime(date) => write!(text, "new Date({})", date.timestamp_millis()),
        RawBsonRef::Decimal128(decimal) => write!(text, "{decimal}"),
        RawBsonRef::Undefined => write!(text, "undefined"),
        RawBsonRef::MaxKey => write!(text, "MaxKey"),
        RawBsonRef::MinKey => write!(text, "MinKey"),
        RawBsonRef::DbPointer(_) => write!(text, "DBRef"),
    };
}

/// Writes a double; a whole one keeps its `.0` to differ from an int.
fn write_double(text: &mut String, number: f64) -> std::fmt::Result {
    if number.is_nan() {
        write!(text, "nan.0")
    } else if number.is_infinite() {
        write!(text, "{}inf.0", if number < 0.0 { "-" } else { "" })
    } else {
        write!(text, "{number:?}")
    }
}

fn write_string(text: &mut String, string: &str) -> std::fmt::Result {
    let shown = cut(string);
    write!(text, "\"{shown}{}\"", if shown.len() < string.len() { "..." } else { "" })
}

fn write_binary(text: &mut String, subtype: BinarySubtype, bytes: &[u8]) -> std::fmt::Result {
    write!(text, "BinData({}, ", u8::from(subtype))?;
    for byte in bytes.iter().take(MESSAGE_STRING_CHARS_MAX / 2) {
        write!(text, "{byte:02X}")?;
    }
    text.push_str(if bytes.len() > MESSAGE_STRING_CHARS_MAX / 2 { "...)" } else { ")" });
    Ok(())
}

fn cut(string: &str) -> &str {
    match string.char_indices().nth(MESSAGE_STRING_CHARS_MAX) {
        Some((end, _)) => &string[..end],
        None => string,
    }
}
