//! `$regex`, and regular expressions in the place of values.

use bson::RawBsonRef;

use crate::{Code, Context, Error, Result, pattern::Pattern};

/// A regular expression to match strings with.
#[derive(Clone, Debug)]
pub struct RegexTest {
    source: String,
    options: String,
    pattern: Pattern,
}

impl RegexTest {
    pub(crate) fn compile(source: &str, options: &str) -> Result<Self> {
        if source.contains('\0') {
            return Err(Error::new(Code::BadValue, "Regular expression cannot contain an embedded null byte"));
        }
        let pattern = Pattern::compile(source, options)?;
        Ok(RegexTest { source: source.to_owned(), options: options.to_owned(), pattern })
    }

    /// Compiles the operands of `$regex` and `$options`.
    pub(super) fn compile_operands(regex: RawBsonRef<'_>, options: Option<RawBsonRef<'_>>) -> Result<Self> {
        let bad = |message| Err(Error::new(Code::BadValue, message));
        let given = match options {
            None => None,
            Some(RawBsonRef::String(options)) => Some(options),
            Some(_) => return bad("$options has to be a string"),
        };
        match regex {
            RawBsonRef::String(source) => Self::compile(source, given.unwrap_or_default()),
            RawBsonRef::RegularExpression(regex) => {
                let own = regex.options.as_str();
                if given.is_some() && !own.is_empty() {
                    return Err(Error::new(Code(51_075), "options set in both $regex and $options"));
                }
                Self::compile(regex.pattern.as_str(), given.unwrap_or(own))
            }
            _ => bad("$regex has to be a string"),
        }
    }

    /// Returns the pattern as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the options as they were written.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Returns the text that every matching string begins with: the literal text behind a leading `^`. `None` if the pattern has no such text,
    /// or if case does not matter. For index bounds; a regular expression stored as a value is found only by itself.
    pub fn prefix(&self) -> Option<String> {
        // `m` lets ^ match inside the text, `x` ignores blanks, `i` matches several texts.
        if self.options.contains(['i', 'm', 'x']) || self.source.contains('|') {
            return None;
        }
        let rest = self.source.strip_prefix('^').or_else(|| self.source.strip_prefix("\\A"))?;
        let mut prefix = String::new();
        let mut letters = rest.chars().peekable();
        while let Some(letter) = letters.next() {
            let literal = match letter {
                '\\' => match letters.next() {
                    Some(escaped) if escaped.is_ascii_punctuation() => escaped,
                    _ => break,
                },
                '.' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | '{' => break,
                letter => letter,
            };
            // A letter that may be repeated or left out is no part of the prefix.
            if matches!(letters.peek(), Some('*' | '+' | '?' | '{')) {
                break;
            }
            prefix.push(literal);
        }
        (!prefix.is_empty()).then_some(prefix)
    }

    pub(crate) fn accepts(&self, value: RawBsonRef<'_>, context: &Context) -> Result<bool> {
        match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => {
                context.steps(self.pattern.steps(text))?;
                self.pattern.matches(text)
            }
            RawBsonRef::RegularExpression(regex) => {
                Ok(regex.pattern.as_str() == self.source && regex.options.as_str() == self.options)
            }
            _ => Ok(false),
        }
    }
}
