//! Regular expressions as MongoDB has them: PCRE's syntax with the options `i`, `m`, `s`, `x` (and `u`, which is always on).
//!
//! The engine is `fancy-regex`. It runs most patterns with a finite automaton in linear time, and look-around and back-references
//! with a limited number of backtracking steps, so that a hostile pattern ends in an error.

mod pcre;

use fancy_regex::{Regex, RegexBuilder};

use crate::error::{Code, Error, Result};

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// The pattern has a `$` that means the end of the text: in PCRE also before a newline that ends the text.
    before_last_newline: bool,
    /// Whether the pattern may have look-around or a back-reference, which need backtracking.
    may_backtrack: bool,
}

/// MongoDB's bound for a pattern: 32764 bytes.
const PATTERN_BYTES_MAX: usize = 32_764;

/// The largest number of backtracking steps of a search: some tens of milliseconds.
const BACKTRACKS_MAX: usize = 1_000_000;

/// The cost of a search with backtracking, in steps of an evaluation: it may take [`BACKTRACKS_MAX`].
const BACKTRACKING_STEPS: u64 = 10_000;

/// The bytes of a text that an automaton reads in the time of one step.
const STEP_BYTES: usize = 64;

/// The most bytes of a compiled automaton, 10 MB: `(a{1000}){1000}` is refused.
const COMPILED_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The byte ranges of a match and of its groups. The first is the whole match; a group that took no part has none.
pub(crate) type Captures = Vec<Option<(usize, usize)>>;

impl Pattern {
    /// Compiles a pattern with its options.
    ///
    /// # Errors
    /// 51091 for a pattern that is too long or no pattern, 51108 for an unknown option.
    pub(crate) fn compile(pattern: &str, options: &str) -> Result<Pattern> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(Error::new(Code(51_091), "Regular expression is too long"));
        }
        let translated = pcre::translate(pattern).ok_or_else(|| {
            Error::new(Code(51_091), "Regular expression is invalid: recursion by (?R) is not supported")
        })?;
        let mut builder = RegexBuilder::new(&translated);
        builder.backtrack_limit(BACKTRACKS_MAX).delegate_size_limit(COMPILED_BYTES_MAX);
        for option in options.chars() {
            match option {
                'i' => builder.case_insensitive(true),
                'm' => builder.multi_line(true),
                's' => builder.dot_matches_new_line(true),
                'x' => builder.verbose_mode(true),
                'u' => &mut builder,
                other => {
                    return Err(Error::new(Code(51_108), format!("invalid flag in regex options: {other}")));
                }
            };
        }
        let regex = builder
            .build()
            .map_err(|error| Error::new(Code(51_091), format!("Regular expression is invalid: {error}")))?;
        Ok(Pattern {
            regex,
            before_last_newline: pattern.contains('$') && !options.contains('m'),
            may_backtrack: may_backtrack(&translated),
        })
    }

    /// Returns the cost of a search in the text, in steps of an evaluation.
    pub(crate) fn steps(&self, text: &str) -> u64 {
        let automaton = (text.len() / STEP_BYTES) as u64;
        if self.may_backtrack { BACKTRACKING_STEPS.saturating_add(automaton) } else { automaton }
    }

    /// Tells whether the pattern matches anywhere in the text.
    ///
    /// # Errors
    /// 51156 if the search takes too many steps.
    pub(crate) fn matches(&self, text: &str) -> Result<bool> {
        Ok(self.regex.is_match(text).map_err(too_hard)?
            || match self.without_last_newline(text) {
                Some(text) => self.regex.is_match(text).map_err(too_hard)?,
                None => false,
            })
    }

    /// Returns the first match at or after a byte: the byte ranges of the whole match and of its groups.
    ///
    /// # Errors
    /// 51156 if the search takes too many steps.
    pub(crate) fn captures_at(&self, text: &str, from: usize) -> Result<Option<Captures>> {
        let mut captures = self.regex.captures_from_pos(text, from).map_err(too_hard)?;
        if captures.is_none()
            && let Some(text) = self.without_last_newline(text).filter(|text| from <= text.len())
        {
            captures = self.regex.captures_from_pos(text, from).map_err(too_hard)?;
        }
        let Some(captures) = captures else { return Ok(None) };
        let range = |index| captures.get(index).map(|group| (group.start(), group.end()));
        Ok(Some((0..captures.len()).map(range).collect()))
    }
}

impl Pattern {
    /// Returns the text up to a newline at its end, if `$` may match before it.
    fn without_last_newline<'t>(&self, text: &'t str) -> Option<&'t str> {
        if self.before_last_newline { text.strip_suffix('\n') } else { None }
    }
}

/// Tells whether a pattern has syntax that needs backtracking, or text that looks like it.
fn may_backtrack(pattern: &str) -> bool {
    const SIGNS: [&str; 12] = ["(?=", "(?!", "(?<", "(?>", "(?(", "\\k", "\\g", "\\G", "\\K", "*+", "++", "?+"];
    let escaped_digit = |pair: &[u8]| matches!(pair, [b'\\', b'1'..=b'9']);
    SIGNS.iter().any(|sign| pattern.contains(sign)) || pattern.as_bytes().windows(2).any(escaped_digit)
}

fn too_hard(error: fancy_regex::Error) -> Error {
    Error::new(Code(51_156), format!("Error occurred while executing the regular expression: {error}"))
}

#[cfg(test)]
mod tests;
