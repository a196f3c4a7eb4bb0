//! `$and` and `$or` stop at the first argument that decides; `$not` negates one.

use bson::RawBsonRef;

use super::{
    compile::Compiler,
    node::{LazyOperator, Node, Scope},
    value::Value,
};
use crate::error::Result;

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$and" => Node::lazy(AndOr { arguments: compiler.arguments(argument)?, decides: false }),
        "$or" => Node::lazy(AndOr { arguments: compiler.arguments(argument)?, decides: true }),
        "$not" => {
            let [argument] = compiler.exactly::<1>("$not", argument)?;
            Node::lazy(Not { argument })
        }
        _ => return Ok(None),
    }))
}

/// `$and` is decided by the first false, `$or` by the first true.
#[derive(Debug)]
struct AndOr {
    arguments: Vec<Node>,
    decides: bool,
}

impl LazyOperator for AndOr {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        for argument in &self.arguments {
            if argument.evaluate(scope)?.is_true() == self.decides {
                return Ok(self.decides.into());
            }
        }
        Ok((!self.decides).into())
    }

    fn conjuncts(&self) -> &[Node] {
        if self.decides { &[] } else { &self.arguments }
    }
}

#[derive(Debug)]
struct Not {
    argument: Node,
}

impl LazyOperator for Not {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        Ok((!self.argument.evaluate(scope)?.is_true()).into())
    }
}
