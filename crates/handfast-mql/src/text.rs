//! Values as MongoDB's messages show them: `{ a: 1, b: "x" }`.
//!
//! Drivers and people compare these texts (`dup key: { a: 1 }`), so their format is part of the protocol as MongoDB's
//! documentation and drivers' tests show it. They are for messages only: long values are cut.

use std::fmt::Write;

use bson::{RawBsonRef, RawDocument};

/// The length to which texts are cut, so that a message fits a screen and a log line.
const TEXT_BYTES_MAX: usize = 2048;

/// Returns the text of a document: `{ a: 1, b: { c: "x" } }`.
pub fn document(document: &RawDocument) -> String {
    let mut out = String::new();
    write_document(&mut out, document);
    cut(out)
}

/// Returns the text of a value.
pub fn value(value: RawBsonRef<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    cut(out)
}

/// Returns the text of a field: `a: 1`.
pub fn field(name: &str, value: RawBsonRef<'_>) -> String {
    let mut out = format!("{name}: ");
    write_value(&mut out, value);
    cut(out)
}

fn cut(mut out: String) -> String {
    if out.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push_str("...");
    }
    out
}

fn write_document(out: &mut String, document: &RawDocument) {
    out.push('{');
    let mut separator = " ";
    for (name, value) in document.iter().flatten() {
        if out.len() > TEXT_BYTES_MAX {
            return;
        }
        out.push_str(separator);
        out.push_str(name.as_str());
        out.push_str(": ");
        write_value(out, value);
        separator = ", ";
    }
    out.push_str(if separator == " " { "}" } else { " }" });
}

fn write_array(out: &mut String, array: &bson::RawArray) {
    out.push('[');
    let mut separator = " ";
    for value in array.into_iter().flatten() {
        if out.len() > TEXT_BYTES_MAX {
            return;
        }
        out.push_str(separator);
        write_value(out, value);
        separator = ", ";
    }
    out.push_str(if separator == " " { "]" } else { " ]" });
}

fn write_value(out: &mut String, value: RawBsonRef<'_>) {
    // Writing to a String cannot fail.
    let _ = match value {
        RawBsonRef::Double(number) => write_double(out, number),
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => write!(out, "{:?}", Cut(text)),
        RawBsonRef::Array(array) => {
            write_array(out, array);
            Ok(())
        }
        RawBsonRef::Document(document) => {
            write_document(out, document);
            Ok(())
        }
        RawBsonRef::Boolean(truth) => write!(out, "{truth}"),
        RawBsonRef::Null => write!(out, "null"),
        RawBsonRef::RegularExpression(regex) => {
            write!(out, "/{}/{}", Cut(regex.pattern.as_str()), regex.options.as_str())
        }
        RawBsonRef::JavaScriptCode(code) => write!(out, "{}", Cut(code)),
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            let written = write!(out, "CodeWScope({}, ", Cut(code.code));
            write_document(out, code.scope);
            out.push(')');
            written
        }
        RawBsonRef::Int32(number) => write!(out, "{number}"),
        RawBsonRef::Int64(number) => write!(out, "{number}"),
        RawBsonRef::Timestamp(time) => write!(out, "Timestamp({}, {})", time.time, time.increment),
        RawBsonRef::Binary(binary) => {
            let mut written = write!(out, "BinData({}, ", u8::from(binary.subtype));
            for byte in binary.bytes.iter().take(TEXT_BYTES_MAX) {
                written = written.and_then(|()| write!(out, "{byte:02X}"));
            }
            out.push(')');
            written
        }
        RawBsonRef::ObjectId(id) => write!(out, "ObjectId('{id}')"),
        RawBsonRef::DateTime(date) => write!(out, "new Date({})", date.timestamp_millis()),
        RawBsonRef::Decimal128(number) => write!(out, "{number}"),
        RawBsonRef::Undefined => write!(out, "undefined"),
        RawBsonRef::MaxKey => write!(out, "MaxKey"),
        RawBsonRef::MinKey => write!(out, "MinKey"),
        RawBsonRef::DbPointer(_) => write!(out, "DBRef"),
    };
}

fn write_double(out: &mut String, number: f64) -> std::fmt::Result {
    if number.is_nan() {
        write!(out, "nan.0")
    } else if number.is_infinite() {
        write!(out, "{}", if number > 0.0 { "inf.0" } else { "-inf.0" })
    } else if number.fract() == 0.0 && number.abs() < 1e15 {
        write!(out, "{number:.1}")
    } else if number.abs() >= 1e15 || number.abs() < 1e-5 {
        let digits = format!("{number:e}");
        out.push_str(&if digits.contains("e-") { digits } else { digits.replace('e', "e+") });
        Ok(())
    } else {
        write!(out, "{number}")
    }
}

/// A text that is cut to the length of a message.
struct Cut<'a>(&'a str);

impl Cut<'_> {
    fn text(&self) -> &str {
        let mut end = self.0.len().min(TEXT_BYTES_MAX);
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        &self.0[..end]
    }
}

impl std::fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl std::fmt::Debug for Cut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.text())
    }
}

#[cfg(test)]
mod tests;
