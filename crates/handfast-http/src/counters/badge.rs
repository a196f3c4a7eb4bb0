//! The total of an item as an SVG picture: a label and a number.

use std::fmt::Write as _;

use handfast_counters::Total;

use crate::problem::Problem;

/// The maximum length of a label, in characters.
pub(super) const LABEL_CHARACTERS_MAX: usize = 32;
/// The width of a character, in pixels: that of a digit in Verdana 11; wider letters are squeezed by `textLength`.
const CHARACTER_WIDTH: usize = 7;
/// The space before and behind a text, in pixels.
const MARGIN: usize = 6;

/// A text that can be put into XML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    escaped: String,
    characters: usize,
}

impl Label {
    /// Checks and escapes a label.
    pub(super) fn new(text: &str) -> Result<Self, Problem> {
        let characters = text.chars().count();
        if !(1..=LABEL_CHARACTERS_MAX).contains(&characters) {
            let found = if characters == 0 { "none".to_owned() } else { characters.to_string() };
            return Err(Problem::invalid(format!(
                "the query parameter label must be 1 to {LABEL_CHARACTERS_MAX} characters, and has {found}"
            )));
        }
        if let Some(control) = text.chars().find(|character| character.is_control()) {
            return Err(Problem::invalid(format!(
                "the query parameter label must have no control characters, and has {control:?}: others are allowed, up to \
                 {LABEL_CHARACTERS_MAX}"
            )));
        }
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars() {
            match character {
                '&' => escaped.push_str("&amp;"),
                '<' => escaped.push_str("&lt;"),
                '>' => escaped.push_str("&gt;"),
                '"' => escaped.push_str("&quot;"),
                // Characters that XML cannot have (XML 1.0, section 2.2).
                '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
                other => escaped.push(other),
            }
        }
        Ok(Label { escaped, characters })
    }
}

/// Returns the picture. A total that is only a part is shown with a `+`.
pub(super) fn svg(label: &Label, total: Total) -> String {
    let number = grouped(total);
    let Label { escaped: label, characters } = label;
    let (label_text, number_text) = (characters * CHARACTER_WIDTH, number.len() * CHARACTER_WIDTH);
    let (label_width, number_width) = (label_text + 2 * MARGIN, number_text + 2 * MARGIN);
    let width = label_width + number_width;
    let (label_middle, number_middle) = (label_width / 2, label_width + number_width / 2);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {number}"><title>{label}: {number}</title><rect width="{width}" height="20" rx="3" fill="#555"/><path d="M{label_width} 0h{rest}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{rest}z" fill="#0969da"/><g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11"><text x="{label_middle}" y="14" textLength="{label_text}">{label}</text><text x="{number_middle}" y="14" textLength="{number_text}">{number}</text></g></svg>"##,
        rest = number_width - 3,
    )
}

/// Returns a total with a comma before each three digits.
fn grouped(total: Total) -> String {
    let digits = total.views.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let separator = if index > 0 && (digits.len() - index).is_multiple_of(3) { "," } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{digit}");
    }
    if total.partial {
        text.push('+');
    }
    text
}

#[cfg(test)]
mod tests {
    use handfast_counters::Total;

    use super::{LABEL_CHARACTERS_MAX, Label, grouped, svg};

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let check = |views, partial, expected: &str| assert_eq!(grouped(Total { views, partial }), expected);
        check(0, false, "0");
        check(999, false, "999");
        check(1_000, false, "1,000");
        check(1_234_567, false, "1,234,567");
        check(12, true, "12+");
    }

    #[test]
    fn a_label_cannot_leave_its_place() {
        let label = Label::new(r#"<a href="x">&"#).expect("a label");
        let svg = svg(&label, Total { views: 7, partial: false });
        assert!(svg.contains("<title>&lt;a href=&quot;x&quot;&gt;&amp;: 7</title>"), "{svg}");
        assert!(!svg.contains("<a"), "{svg}");
        for wrong in ["", "a\nb", &"x".repeat(LABEL_CHARACTERS_MAX + 1)] {
            assert!(Label::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
