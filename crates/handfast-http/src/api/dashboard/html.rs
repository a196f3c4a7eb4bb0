//! HTML as text, in which every value is escaped.

use std::fmt::{self, Display, Write as _};

/// A part of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Html(String);

/// A value whose characters have no meaning in HTML, in texts and in attributes with quotation marks.
pub(super) struct Escaped<T>(pub(super) T);

/// Appends a template to [`Html`]. Each `{}` stands for a value, which is escaped.
macro_rules! html {
    ($html:expr, $template:literal $(, $value:expr)* $(,)?) => {
        $html.append_format(format_args!($template $(, $crate::api::dashboard::html::Escaped(&$value))*))
    };
}
pub(super) use html;

impl Html {
    pub(super) fn new() -> Self {
        Html::default()
    }

    /// Appends text with escaped values. Call it through [`html!`].
    pub(super) fn append_format(&mut self, text: fmt::Arguments<'_>) {
        // A text grows without errors, and the values are shown without them.
        _ = self.0.write_fmt(text);
    }

    /// Appends a part.
    pub(super) fn push(&mut self, part: &Html) {
        self.0.push_str(&part.0);
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(formatter), "{}", self.0)
    }
}

/// Writes text with its special characters as references.
struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(['&', '<', '>', '"', '\'', '\0']) {
            let reference = match part.chars().next_back() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                Some('\'') => "&#39;",
                // HTML has no such character.
                Some('\0') => "\u{fffd}",
                _ => {
                    self.0.write_str(part)?;
                    continue;
                }
            };
            // Each of them is one byte.
            self.0.write_str(part.get(..part.len() - 1).unwrap_or_default())?;
            self.0.write_str(reference)?;
        }
        Ok(())
    }
}

/// Returns a part of a path or a query, with all other characters than letters, digits and some signs as `%XX`.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::{Html, encoded};

    #[test]
    fn values_are_texts_and_nothing_else() {
        let mut page = Html::new();
        html!(page, "<a href=\"{}\">{}</a>", "\"'", "<script>&amp;\0</script>é");
        let expected = "<a href=\"&quot;&#39;\">&lt;script&gt;&amp;amp;\u{fffd}&lt;/script&gt;é</a>";
        assert_eq!(page.into_string(), expected);
    }

    #[test]
    fn a_part_of_a_path_has_no_separators() {
        assert_eq!(encoded("a/b?c=d&e#é\"-._~"), "a%2Fb%3Fc%3Dd%26e%23%C3%A9%22-._~");
    }
}
