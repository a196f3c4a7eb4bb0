//! `$redact`: an expression that decides for each level of a document whether it is kept.

use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::{
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{Expression, value},
};

/// A compiled `$redact`.
#[derive(Debug)]
pub struct Redact {
    expression: Expression,
}

const DECISIONS: &[&str] = &["KEEP", "PRUNE", "DESCEND"];

impl Redact {
    /// Compiles the expression, which sees `$$KEEP`, `$$PRUNE` and `$$DESCEND`.
    ///
    /// # Errors
    /// Fails if the operand is no valid expression.
    pub fn compile(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Redact> {
        Ok(Redact { expression: Expression::compile_for_levels(argument, options, DECISIONS)? })
    }

    /// Returns the part of a document that `$redact` keeps, if any.
    ///
    /// # Errors
    /// 17053 if the value of the expression is not a decision.
    pub fn apply(&self, document: &RawDocument, context: &Context) -> Result<Option<RawDocumentBuf>> {
        self.level(document, document, context)
    }

    fn level(&self, level: &RawDocument, root: &RawDocument, context: &Context) -> Result<Option<RawDocumentBuf>> {
        let decision = self.expression.evaluate_at(level, root, context)?;
        match decision.as_str().and_then(|text| text.strip_prefix('\0')) {
            Some("KEEP") => Ok(Some(level.to_owned())),
            Some("PRUNE") => Ok(None),
            Some("DESCEND") => {
                let mut out = RawDocumentBuf::new();
                for field in value::fields(level) {
                    let (key, item) = field?;
                    match item {
                        RawBsonRef::Document(inner) => {
                            if let Some(inner) = self.level(inner, root, context)? {
                                out.append(key, inner);
                            }
                        }
                        RawBsonRef::Array(array) => out.append(key, self.items(array, root, context)?),
                        other => out.append(key, other),
                    }
                }
                Ok(Some(out))
            }
            _ => Err(Error::new(
                Code(17_053),
                format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and \
                     $$PRUNE, but returned {}",
                    decision.show()
                ),
            )),
        }
    }

    fn items(&self, array: &RawArray, root: &RawDocument, context: &Context) -> Result<RawArrayBuf> {
        let mut out = RawArrayBuf::new();
        for item in value::items(array) {
            match item? {
                RawBsonRef::Document(inner) => {
                    if let Some(inner) = self.level(inner, root, context)? {
                        out.push(inner);
                    }
                }
                RawBsonRef::Array(inner) => out.push(self.items(inner, root, context)?),
                other => out.push(other),
            }
        }
        Ok(out)
    }
}
