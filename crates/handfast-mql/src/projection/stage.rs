//! `$project`, `$addFields` (`$set`) and `$unset`: the projections that are stages of pipelines.

use bson::{RawBsonRef, RawDocument};

use crate::expression::{Expression, is_operator, path, value};
use crate::{Code, CompileOptions, Error, Result};

use super::tree::{FieldTree, Node};
use super::{Kind, Projection, Syntax, compile};

pub(super) fn project(document: &RawDocument, options: &CompileOptions) -> Result<Projection> {
    if document.is_empty() {
        return Err(Error::new(
            Code(51_272),
            "Invalid $project :: caused by :: projection specification must have at least one field",
        ));
    }
    compile::compile(document, Syntax::Stage, options)
}

pub(super) fn add_fields(stage: &str, document: &RawDocument, options: &CompileOptions) -> Result<Projection> {
    if document.is_empty() {
        return Err(Error::new(
            Code(40_177),
            format!("Invalid {stage} :: caused by :: specification must have at least one field"),
        ));
    }
    let mut root = FieldTree::default();
    insert_computed(&mut root, "", document, options)?;
    Ok(Projection { syntax: Syntax::Stage, kind: Kind::Addition, root })
}

fn insert_computed(root: &mut FieldTree, parent: &str, document: &RawDocument, options: &CompileOptions) -> Result<()> {
    for field in value::fields(document) {
        let (name, value) = field?;
        // Both are checked: the parts of the name, and the depth of the path, as functions recurse for each part.
        path::check(name.as_str())?;
        let path = path::join(parent, name.as_str());
        path::check(&path)?;
        match value {
            RawBsonRef::Document(nested) if !is_operator(nested) && !nested.is_empty() => {
                insert_computed(root, &path, nested, options)?;
            }
            other => root.insert(&path, Node::Compute(Expression::compile(other, options)?))?,
        }
    }
    Ok(())
}

pub(super) fn unset(argument: RawBsonRef<'_>) -> Result<Projection> {
    let mut root = FieldTree::default();
    let mut exclude = |path: &str| {
        path::check(path)?;
        root.insert(path, Node::Exclude)
    };
    match argument {
        RawBsonRef::String(path) => exclude(path)?,
        RawBsonRef::Array(array) => {
            if array.is_empty() {
                return Err(Error::new(
                    Code(31_119),
                    "$unset specification must be a string or an array with at least one field",
                ));
            }
            for path in value::items(array) {
                let RawBsonRef::String(path) = path? else {
                    return Err(Error::new(
                        Code(31_120),
                        "$unset specification must be a string or an array containing only string values",
                    ));
                };
                exclude(path)?;
            }
        }
        _ => return Err(Error::new(Code(31_002), "$unset specification must be a string or an array")),
    }
    Ok(Projection { syntax: Syntax::Stage, kind: Kind::Exclusion, root })
}
