//! Sets a value at a dotted path, for the stages that put results into a document.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, spec::ElementType};

use crate::{element::elements, error::Result, expression::limits, raw_writer::RawWriter};

/// Returns the document with the value at a dotted path set, or removed if there is none. A value that is no document on
/// the way is replaced by one.
///
/// # Errors
/// `ExceededMemoryLimit` (146) if a new field makes the document larger than a value of an expression may be.
pub(crate) fn with_path(
    document: &RawDocument,
    path: &[String],
    new: Option<RawBsonRef<'_>>,
) -> Result<RawDocumentBuf> {
    let mut bytes = Vec::with_capacity(document.as_bytes().len());
    let mut writer = RawWriter::new(&mut bytes);
    write(Some(document), path, new, &mut writer)?;
    writer.finish()?;
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

fn write(
    document: Option<&RawDocument>,
    path: &[String],
    new: Option<RawBsonRef<'_>>,
    writer: &mut RawWriter<'_>,
) -> Result<()> {
    let mut pending = path.split_first();
    for element in document.into_iter().flat_map(elements) {
        let element = element?;
        let Some((name, rest)) = pending.filter(|(name, _)| element.name() == *name) else {
            writer.copy(element);
            continue;
        };
        pending = None;
        if rest.is_empty() {
            if let Some(new) = new {
                writer.append(name, new);
            }
        } else if let inner = element.as_document()?
            && (inner.is_some() || new.is_some())
        {
            let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
            write(inner, rest, new, &mut nested)?;
            nested.finish()?;
        } else {
            writer.copy(element);
        }
    }
    let (Some((name, rest)), Some(new)) = (pending, new) else { return Ok(()) };
    if rest.is_empty() {
        writer.append(name, new);
    } else {
        let mut nested = writer.nested(ElementType::EmbeddedDocument, name);
        write(None, rest, Some(new), &mut nested)?;
        nested.finish()?;
    }
    limits::check_bytes(writer.document_bytes())
}
