//! Values as people read them, and documents as they edit them.

use bson::{Bson, DateTime, Document};
use serde_json::{Map, Value, json};

use super::html::{Html, encoded, html};
use crate::id::{extended_json, shown};

/// The characters of a value that a cell of a table shows.
const CELL_CHARACTERS_MAX: usize = 120;

/// Returns a number with its digits in groups of three.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        text.push('\u{2212}');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Returns a size in the unit that leaves one to three digits before the point.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn size(bytes: i64) -> String {
    let (mut left, mut unit) = (bytes as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if left < 1_000.0 {
            break;
        }
        (left, unit) = (left / 1_024.0, larger);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{left:.1} {unit}") }
}

/// Returns a time in its two largest units.
pub(super) fn span(millis: i64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        ..1 => format!("{millis} ms"),
        1..10 => format!("{}.{} s", seconds, millis % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns a date as its day and its time in UTC.
pub(super) fn date(date: DateTime) -> String {
    let text = date.try_to_rfc3339_string().unwrap_or_else(|_| format!("{} ms", date.timestamp_millis()));
    let text = text.trim_end_matches('Z').replacen('T', " ", 1);
    text.split_once('.').map_or(text.as_str(), |(seconds, _)| seconds).to_owned()
}

/// Returns the content of a cell with a value.
pub(super) fn cell(value: Option<&Bson>) -> Html {
    let mut html = Html::new();
    match value {
        None => html!(html, "<span class=\"quiet\">–</span>"),
        Some(Bson::DateTime(found)) => {
            html!(
                html,
                "<time datetime=\"{}\">{}</time>",
                found.try_to_rfc3339_string().unwrap_or_default(),
                date(*found)
            );
        }
        Some(Bson::String(text)) => html!(html, "{}", cut(text)),
        Some(Bson::ObjectId(id)) => html!(html, "<code>{}</code>", id),
        Some(Bson::Null) => html!(html, "<span class=\"quiet\">null</span>"),
        Some(other) => html!(html, "<code>{}</code>", cut(&extended_json(other).to_string())),
    }
    html
}

/// Returns the beginning of a text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns an id as a part of a path.
pub(super) fn id_in_path(id: &Bson) -> String {
    encoded(&shown(id))
}

/// Returns a document as Extended JSON that is read back as the same document, and that is otherwise as short as it can be.
pub(super) fn editable(document: &Document) -> Value {
    editable_value(&Bson::Document(document.clone()))
}

fn editable_value(value: &Bson) -> Value {
    match value {
        // It would be read back as an integer of 32 bits.
        Bson::Int64(number) if i32::try_from(*number).is_ok() => json!({ "$numberLong": number.to_string() }),
        Bson::Document(document) => {
            document.iter().map(|(name, value)| (name.clone(), editable_value(value))).collect::<Map<_, _>>().into()
        }
        Bson::Array(values) => values.iter().map(editable_value).collect(),
        other => extended_json(other),
    }
}

/// Returns a document as indented text.
pub(super) fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, oid::ObjectId};

    use super::{editable, grouped, size, span};

    #[test]
    fn numbers_have_groups_and_units() {
        assert_eq!(grouped(-1_234_567), "\u{2212}1\u{202f}234\u{202f}567");
        assert_eq!(["0", "999"], [grouped(0), grouped(999)]);
        assert_eq!([size(999), size(1_536), size(5 << 30)], ["999 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([span(7), span(7_250), span(67_000), span(90_000_000)], ["7 ms", "7.2 s", "1 min 7 s", "1 d 1 h"]);
    }

    #[test]
    fn an_edited_document_keeps_the_types_of_its_values() {
        let document = doc! {
            "_id": ObjectId::from_bytes([7; 12]), "int": 5, "long": 5_i64, "large": 1_i64 << 40, "double": 5.0, "nan": f64::NAN,
            "date": bson::DateTime::from_millis(1_700_000_000_123), "nested": [{ "long": [7_i64] }], "null": null, "text": "$x",
            "timestamp": bson::Timestamp { time: 1, increment: 2 }, "doubles": [1e22, -1e16, 9_223_372_036_854_775_808.0, f64::MAX, f64::INFINITY, -0.0],
            "dates": [bson::DateTime::from_millis(253_402_300_800_000), bson::DateTime::MAX, bson::DateTime::MIN],
        };
        let back = Bson::try_from(editable(&document)).unwrap();
        assert_eq!(format!("{back:?}"), format!("{:?}", Bson::Document(document)));
    }
}
