//! String operators with named arguments: `$trim`, `$replaceOne` and the like.

use bson::RawBsonRef;

use crate::{
    error::{Code, Error, Result},
    expression::{
        compile::{Compiler, NamedErrors},
        limits,
        node::{LazyOperator, Node, Scope},
        value::Value,
    },
};

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$trim" => trim(compiler, "$trim", argument, TrimSides { left: true, right: true })?,
        "$ltrim" => trim(compiler, "$ltrim", argument, TrimSides { left: true, right: false })?,
        "$rtrim" => trim(compiler, "$rtrim", argument, TrimSides { left: false, right: true })?,
        "$replaceOne" => replace(compiler, "$replaceOne", argument, Occurrences::First)?,
        "$replaceAll" => replace(compiler, "$replaceAll", argument, Occurrences::All)?,
        _ => return Ok(None),
    }))
}

#[derive(Clone, Copy, Debug)]
struct TrimSides {
    left: bool,
    right: bool,
}

#[derive(Debug)]
struct Trim {
    operator: &'static str,
    ends: TrimSides,
    input: Node,
    chars: Option<Node>,
}

fn trim(
    compiler: &mut Compiler<'_>,
    operator: &'static str,
    argument: RawBsonRef<'_>,
    ends: TrimSides,
) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(50_696), unknown: Code(50_694) };
    let [input, chars] = compiler.named(operator, argument, ["input", "chars"], &errors)?;
    let input = input.ok_or_else(|| Error::new(Code(50_695), format!("{operator} requires an 'input' field")))?;
    Ok(Node::lazy(Trim { operator, ends, input, chars }))
}

impl LazyOperator for Trim {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        if input.is_nullish() {
            return Ok(Value::NULL);
        }
        let text = self.text(&input, "its input", 50_699)?;
        let trimmed = match &self.chars {
            None => cut(text, self.ends, is_whitespace),
            Some(chars) => {
                let chars = chars.evaluate(scope)?;
                if chars.is_nullish() {
                    return Ok(Value::NULL);
                }
                let chars = self.text(&chars, "'chars'", 50_700)?;
                cut(text, self.ends, |c| chars.contains(c))
            }
        };
        Ok(trimmed.to_owned().into())
    }
}

impl Trim {
    fn text<'v>(&self, value: &'v Value<'_>, what: &str, code: i32) -> Result<&'v str> {
        value.as_str().ok_or_else(|| {
            let (operator, shown, kind) = (self.operator, value.show(), value.type_name());
            Error::new(
                Code(code),
                format!("{operator} requires {what} to be a string, got {shown} (of type {kind}) instead."),
            )
        })
    }
}

fn cut(text: &str, ends: TrimSides, matches: impl Fn(char) -> bool) -> &str {
    let text = if ends.left { text.trim_start_matches(&matches) } else { text };
    if ends.right { text.trim_end_matches(&matches) } else { text }
}

/// Tells whether `$trim` takes a character for whitespace, as MongoDB's documentation lists it.
fn is_whitespace(c: char) -> bool {
    matches!(c, '\0' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}')
}

#[derive(Clone, Copy, Debug)]
enum Occurrences {
    First,
    All,
}

#[derive(Debug)]
struct Replace {
    operator: &'static str,
    occurrences: Occurrences,
    input: Node,
    find: Node,
    replacement: Node,
}

fn replace(
    compiler: &mut Compiler<'_>,
    operator: &'static str,
    argument: RawBsonRef<'_>,
    occurrences: Occurrences,
) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(51_751), unknown: Code(51_750) };
    let [input, find, replacement] = compiler.named(operator, argument, ["input", "find", "replacement"], &errors)?;
    let needed = |node: Option<Node>, what: &str, code: i32| {
        node.ok_or_else(|| Error::new(Code(code), format!("{operator} requires '{what}' to be specified")))
    };
    Ok(Node::lazy(Replace {
        operator,
        occurrences,
        input: needed(input, "input", 51_749)?,
        find: needed(find, "find", 51_748)?,
        replacement: needed(replacement, "replacement", 51_747)?,
    }))
}

impl LazyOperator for Replace {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let find = self.find.evaluate(scope)?;
        let replacement = self.replacement.evaluate(scope)?;
        let input_text = self.text(&input, "input", 51_746)?;
        let find_text = self.text(&find, "find", 51_745)?;
        let replacement_text = self.text(&replacement, "replacement", 51_744)?;
        let (Some(input), Some(find), Some(replacement)) = (input_text, find_text, replacement_text) else {
            return Ok(Value::NULL);
        };
        let count = match self.occurrences {
            Occurrences::First => 1,
            Occurrences::All => input.matches(find).count(),
        };
        limits::check_bytes(input.len().saturating_add(count.saturating_mul(replacement.len())))?;
        Ok(input.replacen(find, replacement, count).into())
    }
}

impl Replace {
    /// Returns the text, `None` for null, else an error.
    fn text<'v>(&self, value: &'v Value<'_>, what: &str, code: i32) -> Result<Option<&'v str>> {
        if value.is_nullish() {
            return Ok(None);
        }
        value.as_str().map(Some).ok_or_else(|| {
            let operator = self.operator;
            Error::new(Code(code), format!("{operator} requires that '{what}' be a string, found: {}", value.show()))
        })
    }
}
