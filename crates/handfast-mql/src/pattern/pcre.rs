//! Translates patterns from PCRE's dialect, which MongoDB documents, to the engine's.
//!
//! The two dialects agree on nearly everything. Where they differ, the pattern is rewritten:
//!
//! - `\d`, `\w`, `\s` and their negations mean ASCII in PCRE, all of Unicode in the engine; `\h` and `\v` are blanks and
//!   line ends in PCRE, something else or nothing in the engine.
//! - In a class, `[` is a letter like others in PCRE and opens a nested class in the engine; `&&` and `~~` are operators
//!   on sets there; a `-` beside `\d` is a letter; blanks count even in extended mode.
//! - `\<` and `\>` are letters, not the ends of a word.
//! - `\Q..\E` quotes; `\0`, `\cA` and `(*UTF8)` at the beginning exist.
//!
//! Differences remain: `\b` knows the letters of all scripts, where PCRE knows ASCII's, and `\X`, `(?R)`, `(?|..)` are refused.
//! The engine would read `(?R)` as one of its flags.

use std::{borrow::Cow, fmt::Write, iter::Peekable, str::Chars};

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\x09-\x0D\x20";
const BLANK: &str = r"\x09\x20\xA0\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";
const LINE_END: &str = r"\x0A-\x0D\x{85}\x{2028}\x{2029}";

/// The prefixes of a pattern that set options which are always set here.
const VERBS: [&str; 3] = ["(*UTF8)", "(*UTF)", "(*UCP)"];

/// Translates a pattern to the engine's dialect; returns `None` for a recursive pattern (`(?R)`).
pub(super) fn translate(pattern: &str) -> Option<Cow<'_, str>> {
    let mut rest = pattern;
    while let Some(after) = VERBS.iter().find_map(|verb| rest.strip_prefix(verb)) {
        rest = after;
    }
    if !rest.contains(['\\', '[']) && !rest.contains(RECURSION) {
        return Some(Cow::Borrowed(rest));
    }
    let mut translator = Translator { letters: rest.chars().peekable(), out: String::with_capacity(rest.len() + 16) };
    translator.pattern()?;
    Some(Cow::Owned(translator.out))
}

/// A pattern that calls itself.
const RECURSION: &str = "(?R)";

struct Translator<'p> {
    letters: Peekable<Chars<'p>>,
    out: String,
}

/// The previous item of a character class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PreviousItem {
    /// The beginning: `]` is a letter here.
    Nothing,
    Letter,
    /// `\d` and the like: no range starts here.
    Set,
}

impl Translator<'_> {
    fn pattern(&mut self) -> Option<()> {
        while let Some(letter) = self.letters.next() {
            match letter {
                '\\' => self.escape(),
                '[' => self.class(),
                '(' if self.letters.clone().take(3).eq("?R)".chars()) => return None,
                letter => self.out.push(letter),
            }
        }
        Some(())
    }

    fn escape(&mut self) {
        match self.letters.next() {
            None => self.out.push('\\'),
            Some('Q') => self.quotation(),
            Some('E') => {}
            Some('0') => self.octal(),
            Some('c') => self.control(),
            // The beginning and the end of a word in the engine.
            Some(letter @ ('<' | '>')) => self.code(letter as u32),
            Some(letter) => match set(letter) {
                Some((members, negated)) => self.bracketed(members, negated),
                None => self.out.extend(['\\', letter]),
            },
        }
    }

    fn bracketed(&mut self, members: &str, negated: bool) {
        self.out.push_str(if negated { "[^" } else { "[" });
        self.out.push_str(members);
        self.out.push(']');
    }

    /// Translates `\Q..\E`, or up to the end.
    fn quotation(&mut self) {
        while let Some(letter) = self.letters.next() {
            if letter == '\\' && self.letters.peek() == Some(&'E') {
                self.letters.next();
                return;
            }
            self.code(letter as u32);
        }
    }

    /// Translates `\0` and up to two octal digits.
    fn octal(&mut self) {
        let mut code = 0;
        for _ in 0..2 {
            let Some(digit) = self.letters.peek().and_then(|letter| letter.to_digit(8)) else { break };
            self.letters.next();
            code = code * 8 + digit;
        }
        self.code(code);
    }

    /// Translates control letters: `\cA` is 1, up to `\c_`, which is 31.
    fn control(&mut self) {
        match self.letters.next() {
            Some(letter) if letter.is_ascii() => self.code(u32::from(letter.to_ascii_uppercase() as u8 ^ 0x40)),
            // There is no such sequence; the engine refuses it.
            letter => {
                self.out.push_str("\\c");
                self.out.extend(letter);
            }
        }
    }

    /// Writes a letter that has no special meaning anywhere.
    fn code(&mut self, code: u32) {
        // Writing to a string does not fail.
        let _ = write!(self.out, "\\x{{{code:X}}}");
    }

    /// Translates a class after its bracket.
    fn class(&mut self) {
        self.out.push('[');
        if self.letters.peek() == Some(&'^') {
            self.letters.next();
            self.out.push('^');
        }
        let mut last = PreviousItem::Nothing;
        while let Some(letter) = self.letters.next() {
            last = match letter {
                ']' if last != PreviousItem::Nothing => {
                    self.out.push(']');
                    return;
                }
                '[' => self.bracket_in_class(),
                '\\' => self.escape_in_class(),
                // A range needs a letter on both sides.
                '-' if last != PreviousItem::Letter || self.set_follows() => {
                    self.code('-' as u32);
                    PreviousItem::Letter
                }
                '-' => {
                    self.out.push('-');
                    // The `]` after it closes the class.
                    PreviousItem::Letter
                }
                ']' | '&' | '~' | '#' | '^' => {
                    self.code(letter as u32);
                    PreviousItem::Letter
                }
                letter if letter.is_whitespace() => {
                    self.code(letter as u32);
                    PreviousItem::Letter
                }
                letter => {
                    self.out.push(letter);
                    PreviousItem::Letter
                }
            };
        }
    }

    /// Tells whether a set such as `\d` comes next.
    fn set_follows(&self) -> bool {
        let mut ahead = self.letters.clone();
        ahead.next() == Some('\\') && ahead.next().is_some_and(|letter| set(letter).is_some())
    }

    /// Translates `[:alpha:]`, or just the letter.
    fn bracket_in_class(&mut self) -> PreviousItem {
        let mut ahead = self.letters.clone();
        if ahead.next() == Some(':') {
            let name: String = ahead.by_ref().take_while(|letter| *letter != ':').collect();
            if ahead.next() == Some(']') && name.trim_start_matches('^').bytes().all(|byte| byte.is_ascii_lowercase()) {
                let _ = write!(self.out, "[:{name}:]");
                self.letters = ahead;
                return PreviousItem::Set;
            }
        }
        self.code('[' as u32);
        PreviousItem::Letter
    }

    fn escape_in_class(&mut self) -> PreviousItem {
        match self.letters.next() {
            None => self.out.push('\\'),
            Some('Q') => self.quotation(),
            Some('E') => {}
            Some('b') => self.code(8),
            Some('0') => self.octal(),
            Some('c') => self.control(),
            Some(letter) => match set(letter) {
                Some((members, true)) => {
                    self.bracketed(members, true);
                    return PreviousItem::Set;
                }
                Some((members, false)) => {
                    self.out.push_str(members);
                    return PreviousItem::Set;
                }
                None => self.out.extend(['\\', letter]),
            },
        }
        PreviousItem::Letter
    }
}

/// Returns the members of a set such as `\d`, and whether the set is their complement.
fn set(letter: char) -> Option<(&'static str, bool)> {
    let members = match letter.to_ascii_lowercase() {
        'd' => DIGIT,
        'w' => WORD,
        's' => SPACE,
        'h' => BLANK,
        'v' => LINE_END,
        _ => return None,
    };
    Some((members, letter.is_ascii_uppercase()))
}
