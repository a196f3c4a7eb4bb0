//! `$unwind`: one document per item of an array.

use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{
    operator::{Flow, Operator},
    set_path::with_path,
};
use crate::{
    error::{Code, Error, Result},
    expression::{
        path::{field, split},
        value::{self, show, type_name},
    },
};

/// A compiled `$unwind`.
#[derive(Debug)]
pub struct Unwind {
    path: Vec<String>,
    index: Option<Vec<String>>,
    preserve: bool,
}

impl Unwind {
    /// Compiles `"$path"` or `{path, includeArrayIndex, preserveNullAndEmptyArrays}`.
    ///
    /// # Errors
    /// 15981, 28808 to 28812, 28818, 28822.
    pub fn compile(argument: RawBsonRef<'_>) -> Result<Unwind> {
        let mut path = None;
        let mut index = None;
        let mut preserve = false;
        match argument {
            RawBsonRef::String(text) => path = Some(text),
            RawBsonRef::Document(document) => {
                for item in value::fields(document) {
                    let (key, item) = item?;
                    match (key.as_str(), item) {
                        ("path", RawBsonRef::String(text)) => path = Some(text),
                        ("path", other) => {
                            return Err(Error::new(
                                Code(28_808),
                                format!("expected a string as the path for $unwind stage, got {}", type_name(other)),
                            ));
                        }
                        ("preserveNullAndEmptyArrays", RawBsonRef::Boolean(yes)) => preserve = yes,
                        ("preserveNullAndEmptyArrays", other) => {
                            return Err(Error::new(
                                Code(28_809),
                                format!(
                                    "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {}",
                                    type_name(other)
                                ),
                            ));
                        }
                        ("includeArrayIndex", RawBsonRef::String(text)) if !text.is_empty() => {
                            if text.starts_with('$') {
                                return Err(Error::new(
                                    Code(28_822),
                                    format!(
                                        "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {text}"
                                    ),
                                ));
                            }
                            index = Some(split(text)?);
                        }
                        ("includeArrayIndex", other) => {
                            return Err(Error::new(
                                Code(28_810),
                                format!(
                                    "expected a non-empty string for the includeArrayIndex option to $unwind stage, got {}",
                                    type_name(other)
                                ),
                            ));
                        }
                        (other, _) => {
                            return Err(Error::new(
                                Code(28_811),
                                format!("unrecognized option to $unwind stage: {other}"),
                            ));
                        }
                    }
                }
            }
            other => {
                return Err(Error::new(
                    Code(15_981),
                    format!(
                        "expected either a string or an object as specification for $unwind stage, got {}",
                        type_name(other)
                    ),
                ));
            }
        }
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return Err(Error::new(Code(28_812), "no path specified to $unwind stage"));
        };
        let Some(path) = path.strip_prefix('$') else {
            return Err(Error::new(
                Code(28_818),
                format!(
                    "path option to $unwind stage should be prefixed with a '$': {}",
                    show(RawBsonRef::String(path))
                ),
            ));
        };
        Ok(Unwind { path: split(path)?, index, preserve })
    }

    fn with_index(&self, document: RawDocumentBuf, index: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
        match &self.index {
            Some(path) => with_path(&document, path, Some(index)),
            None => Ok(document),
        }
    }

    pub(crate) fn operator(&self) -> Box<dyn Operator + '_> {
        Box::new(Unwinding { stage: self, current: None })
    }
}

/// Returns the value at the path; arrays on the path are not entered.
fn value_at<'a>(document: &'a RawDocument, path: &[String]) -> Result<Option<RawBsonRef<'a>>> {
    let mut current = Some(RawBsonRef::Document(document));
    for part in path {
        current = match current {
            Some(RawBsonRef::Document(inner)) => field(inner, part)?,
            _ => return Ok(None),
        };
    }
    Ok(current)
}

struct Unwinding<'p> {
    stage: &'p Unwind,
    /// The document whose array is unwound.
    current: Option<UnwoundArray>,
}

struct UnwoundArray {
    /// The document around the array, as the outputs share it: the array's place holds null.
    frame: RawDocumentBuf,
    items: std::vec::IntoIter<RawBson>,
    index: i64,
}

/// The bytes of one portion of output, which is limited because a large array in a large document makes far more bytes than both.
const PORTION_BYTES: usize = 1024 * 1024;

impl Operator for Unwinding<'_> {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let stage = self.stage;
        match value_at(&document, &stage.path)? {
            Some(RawBsonRef::Array(array)) if !array.is_empty() => {
                let items = value::items(array).map(|item| item.map(value::to_owned)).collect::<Result<Vec<_>>>()?;
                let frame = with_path(&document, &stage.path, Some(RawBsonRef::Null))?;
                self.current = Some(UnwoundArray { frame, items: items.into_iter(), index: 0 });
                return self.resume(out);
            }
            Some(RawBsonRef::Array(_)) => {
                if stage.preserve {
                    let document = with_path(&document, &stage.path, None)?;
                    out.push(stage.with_index(document, RawBsonRef::Null)?);
                }
            }
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) if !stage.preserve => {}
            _ => out.push(stage.with_index(document, RawBsonRef::Null)?),
        }
        Ok(Flow::Continue)
    }

    fn resume(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let Some(current) = &mut self.current else { return Ok(Flow::Continue) };
        let mut made_bytes = 0;
        for item in current.items.by_ref() {
            let document = with_path(&current.frame, &self.stage.path, Some(item.as_raw_bson_ref()))?;
            let document = self.stage.with_index(document, RawBsonRef::Int64(current.index))?;
            current.index += 1;
            made_bytes += document.as_bytes().len();
            out.push(document);
            if made_bytes >= PORTION_BYTES {
                return Ok(Flow::More);
            }
        }
        self.current = None;
        Ok(Flow::Continue)
    }
}
