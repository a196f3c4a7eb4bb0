//! `$regexMatch`, `$regexFind`, `$regexFindAll`.

use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf, raw::cstr};

use super::{
    compile::{Compiler, NamedErrors},
    node::{LazyOperator, Node, Scope},
    string::count_value,
    value::{self, Value},
};
use crate::{
    error::{Code, Error, Result},
    pattern::{Captures, Pattern},
};

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    let (operator, output) = match name {
        "$regexMatch" => ("$regexMatch", RegexOutput::IsMatch),
        "$regexFind" => ("$regexFind", RegexOutput::First),
        "$regexFindAll" => ("$regexFindAll", RegexOutput::All),
        _ => return Ok(None),
    };
    let errors = NamedErrors { no_object: Code(51_103), unknown: Code(51_031) };
    let [input, regex, options] = compiler.named(operator, argument, ["input", "regex", "options"], &errors)?;
    let input = input.ok_or_else(|| Error::new(Code(51_022), format!("{operator} requires 'input' parameter")))?;
    let regex = regex.ok_or_else(|| Error::new(Code(51_023), format!("{operator} requires 'regex' parameter")))?;
    // A pattern that does not depend on the document is compiled once.
    let fixed_options = options.as_ref().is_none_or(|options| options.constant().is_some());
    let fixed = match (regex.constant(), fixed_options) {
        (Some(pattern), true) => {
            let options = options.as_ref().and_then(Node::constant);
            Some(pattern_of(operator, &Value::Ref(pattern), &options.into())?)
        }
        _ => None,
    };
    Ok(Some(Node::lazy(RegexSearch { operator, output, input, regex, options, fixed })))
}

#[derive(Clone, Copy, Debug)]
enum RegexOutput {
    IsMatch,
    First,
    All,
}

#[derive(Debug)]
struct RegexSearch {
    operator: &'static str,
    output: RegexOutput,
    input: Node,
    regex: Node,
    options: Option<Node>,
    /// The compiled pattern, if it is a literal; `Some(None)` is a pattern that is null.
    fixed: Option<Option<Pattern>>,
}

/// Returns the pattern of the arguments `regex` and `options`, none if the regex is null.
fn pattern_of(operator: &str, regex: &Value<'_>, options: &Value<'_>) -> Result<Option<Pattern>> {
    if let Some(value) = options.get()
        && !options.is_nullish()
        && !matches!(value, RawBsonRef::String(_))
    {
        return Err(Error::new(Code(51_106), format!("{operator} needs 'options' to be of type string")));
    }
    let (pattern, own) = match regex.get() {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(None),
        Some(RawBsonRef::String(pattern)) => (pattern, ""),
        Some(RawBsonRef::RegularExpression(regex)) => (regex.pattern.as_str(), regex.options.as_str()),
        Some(_) => {
            return Err(Error::new(Code(51_105), format!("{operator} needs 'regex' to be of type string or regex")));
        }
    };
    let options = match (own, options.as_str()) {
        ("", given) => given.unwrap_or(""),
        (own, None | Some("")) => own,
        (_, Some(_)) => {
            return Err(Error::new(
                Code(51_107),
                format!("{operator}: found regex option(s) specified in both 'regex' and 'option' fields"),
            ));
        }
    };
    if pattern.contains('\0') {
        return Err(Error::new(
            Code(51_109),
            format!("{operator}: regular expression cannot contain an embedded null byte"),
        ));
    }
    if let Some(bad) = options.chars().find(|option| !"imsxu".contains(*option)) {
        return Err(Error::new(Code(51_108), format!("{operator} invalid flag in regex options: {bad}")));
    }
    Pattern::compile(pattern, options)
        .map(Some)
        .map_err(|error| Error::new(Code(51_111), format!("Invalid Regex in {operator}: {}", error.message())))
}

impl LazyOperator for RegexSearch {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let made;
        let pattern = match &self.fixed {
            Some(pattern) => pattern.as_ref(),
            None => {
                let regex = self.regex.evaluate(scope)?;
                let options = self.options.as_ref().map_or(Ok(Value::Missing), |node| node.evaluate(scope))?;
                made = pattern_of(self.operator, &regex, &options)?;
                made.as_ref()
            }
        };
        let text = match input.as_str() {
            Some(text) => Some(text),
            None if input.is_nullish() => None,
            None => {
                return Err(Error::new(Code(51_104), format!("{} needs 'input' to be of type string", self.operator)));
            }
        };
        match (text, pattern, self.output) {
            (Some(text), Some(pattern), RegexOutput::IsMatch) => Ok(pattern.matches(text)?.into()),
            (Some(text), Some(pattern), RegexOutput::First) => match pattern.captures_at(text, 0)? {
                Some(found) => Ok(description(text, &found, &mut CodePointCounter::default())?.into()),
                None => Ok(Value::NULL),
            },
            (Some(text), Some(pattern), RegexOutput::All) => all(text, pattern),
            (_, _, RegexOutput::IsMatch) => Ok(false.into()),
            (_, _, RegexOutput::First) => Ok(Value::NULL),
            (_, _, RegexOutput::All) => Ok(RawArrayBuf::new().into()),
        }
    }
}

fn all<'a>(text: &str, pattern: &Pattern) -> Result<Value<'a>> {
    let mut found = RawArrayBuf::new();
    let mut counter = CodePointCounter::default();
    let mut from = 0;
    while from <= text.len() {
        let Some(captures) = pattern.captures_at(text, from)? else { break };
        let Some(Some((start, end))) = captures.first().copied() else { break };
        value::push(&mut found, RawBsonRef::Document(&description(text, &captures, &mut counter)?))?;
        // An empty match moves on by one character.
        from = if end > start { end } else { end + text[end..].chars().next().map_or(1, char::len_utf8) };
    }
    Ok(found.into())
}

/// A count of code points up to a byte, which continues from the last byte.
#[derive(Default)]
struct CodePointCounter {
    byte: usize,
    code_points: usize,
}

impl CodePointCounter {
    fn count_up_to(&mut self, text: &str, byte: usize) -> usize {
        self.code_points += text.get(self.byte..byte).map_or(0, |part| part.chars().count());
        self.byte = byte;
        self.code_points
    }
}

/// Returns `{match, idx, captures}`.
fn description(text: &str, captures: &Captures, counter: &mut CodePointCounter) -> Result<RawDocumentBuf> {
    let part = |group: &Option<(usize, usize)>| match group {
        Some((start, end)) => text.get(*start..*end).map_or(RawBsonRef::Null, RawBsonRef::String),
        None => RawBsonRef::Null,
    };
    let mut description = RawDocumentBuf::new();
    let [whole, groups @ ..] = &captures[..] else { return Ok(description) };
    description.append(cstr!("match"), part(whole));
    let start = whole.map_or(0, |(start, _)| start);
    description.append(cstr!("idx"), count_value(counter.count_up_to(text, start)).or_null());
    description.append(cstr!("captures"), groups.iter().map(part).collect::<RawArrayBuf>());
    Ok(description)
}
