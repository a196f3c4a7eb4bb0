//! `$getField`, `$setField`, `$unsetField`: fields by name, also such with dots and dollars in them.

use bson::{RawBsonRef, RawDocumentBuf};

use crate::{
    error::{Code, Error, Result},
    expression::{
        compile::{Compiler, NamedErrors},
        limits,
        node::{LazyOperator, Node, Scope},
        path::{Base, FieldPath, field},
        value::{self, Value},
    },
};

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$getField" => get_field(compiler, argument)?,
        "$setField" => {
            let errors = NamedErrors { no_object: Code(4_161_100), unknown: Code(4_161_101) };
            let [name, input, value] = compiler.named("$setField", argument, ["field", "input", "value"], &errors)?;
            let value =
                value.ok_or_else(|| Error::new(Code(4_161_103), "$setField requires 'value' to be specified"))?;
            set_field(compiler, "$setField", name, input, value)?
        }
        "$unsetField" => {
            let errors = NamedErrors { no_object: Code(4_161_110), unknown: Code(4_161_111) };
            let [name, input] = compiler.named("$unsetField", argument, ["field", "input"], &errors)?;
            set_field(compiler, "$unsetField", name, input, Node::Constant(None))?
        }
        _ => return Ok(None),
    }))
}

#[derive(Debug)]
struct GetField {
    name: Node,
    input: Node,
}

fn get_field(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let is_named = match argument {
        RawBsonRef::Document(document) => {
            document.iter().flatten().next().is_some_and(|(key, _)| !key.as_str().starts_with('$'))
        }
        _ => false,
    };
    if !is_named {
        // The short form takes the field from $$CURRENT.
        let name = compiler.expression(argument)?;
        let input = compiler.path("$$CURRENT")?;
        return get_field_node(name, input);
    }
    let errors = NamedErrors { no_object: Code(3_041_701), unknown: Code(3_041_701) };
    let [name, input] = compiler.named("$getField", argument, ["field", "input"], &errors)?;
    let name = name.ok_or_else(|| Error::new(Code(3_041_702), "$getField requires 'field' to be specified"))?;
    let input = input.ok_or_else(|| Error::new(Code(3_041_703), "$getField requires 'input' to be specified"))?;
    get_field_node(name, input)
}

fn get_field_node(name: Node, input: Node) -> Result<Node> {
    if let Some(constant) = name.constant()
        && !matches!(constant, RawBsonRef::String(_))
    {
        return Err(Error::new(
            Code(5_654_602),
            format!("$getField requires 'field' to evaluate to type String, but got {}", value::type_name(constant)),
        ));
    }
    Ok(Node::lazy(GetField { name, input }))
}

impl LazyOperator for GetField {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let name = self.name.evaluate(scope)?;
        let Some(name) = name.as_str() else {
            return Err(Error::new(
                Code(3_041_704),
                format!("$getField requires 'field' to evaluate to type String, but got {}", name.type_name()),
            ));
        };
        let input = self.input.evaluate(scope)?;
        if input.is_nullish() && !input.is_missing() {
            return Ok(Value::NULL);
        }
        input.narrow(|value| match value {
            RawBsonRef::Document(document) => field(document, name),
            _ => Ok(None),
        })
    }
}

#[derive(Debug)]
struct SetField {
    operator: &'static str,
    name: String,
    input: Node,
    /// The new value; a missing one removes the field.
    value: Node,
}

fn set_field(
    compiler: &Compiler<'_>,
    operator: &'static str,
    name: Option<Node>,
    input: Option<Node>,
    value: Node,
) -> Result<Node> {
    let name =
        name.ok_or_else(|| Error::new(Code(4_161_102), format!("{operator} requires 'field' to be specified")))?;
    let Some(RawBsonRef::String(text)) = name.constant() else {
        let code =
            if matches!(name, Node::Path(FieldPath { base: Base::Current, .. })) { 4_161_108 } else { 4_161_106 };
        return Err(Error::new(
            Code(code),
            format!("{operator} requires 'field' to evaluate to a constant of type String"),
        ));
    };
    let name = text.to_owned();
    value::key_of(&name)?;
    let input = match input {
        Some(input) => input,
        None if operator == "$unsetField" => compiler.path("$$CURRENT")?,
        None => return Err(Error::new(Code(4_161_109), format!("{operator} requires 'input' to be specified"))),
    };
    Ok(Node::lazy(SetField { operator, name, input, value }))
}

impl LazyOperator for SetField {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        if input.is_nullish() {
            return Ok(Value::NULL);
        }
        let Some(document) = input.as_document() else {
            return Err(Error::new(
                Code(4_161_105),
                format!("{} requires 'input' to evaluate to type Object", self.operator),
            ));
        };
        let new = self.value.evaluate(scope)?;
        let mut result = RawDocumentBuf::new();
        let mut placed = false;
        for item in value::fields(document) {
            let (key, old) = item?;
            if key.as_str() != self.name {
                result.append(key, old);
            } else if let Some(new) = new.get() {
                result.append(key, new);
                placed = true;
            }
        }
        if let Some(new) = new.get().filter(|_| !placed) {
            value::append(&mut result, &self.name, new)?;
        }
        limits::check_bytes(result.as_bytes().len())?;
        Ok(result.into())
    }
}
