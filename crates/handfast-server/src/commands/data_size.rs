//! `dataSize`: returns the number and the size of the documents of a collection, or of those in a range of an index.
//!
//! ```text
//! {dataSize: "shop.orders"}                                                    all documents
//! {dataSize: "shop.orders", keyPattern: {n: 1}, min: {n: 10}, max: {n: 20}}    those with 10 <= n < 20
//! ```

use bson::raw::RawDocument;
use bson::{RawBsonRef, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{BatchLimit, Find, Hint, Namespace};

use super::{Access, Call, Command, Properties};
use crate::auth::guard::{Needs, Visitor, visit_full_name};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::Request;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "dataSize",
    aliases: &["datasize"],
    help: "returns the number and the size of documents",
    access: Access::Read,
    needs: Needs::Visited(needs),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    visit_full_name(request.subject.as_str().unwrap_or_default(), &[Action::Find], visitor)
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("dataSize");
    let key = arguments.document("keyPattern")?;
    let min = arguments.document("min")?.filter(|bound| !bound.is_empty());
    let max = arguments.document("max")?.filter(|bound| !bound.is_empty());
    let estimate = arguments.lenient_flag("estimate")?.unwrap_or(false);
    arguments.finish()?;
    let RawBsonRef::String(full) = call.request.subject else {
        let kind = handfast_mql::bson_type::type_name(call.request.subject);
        let text = format!("BSON field 'dataSize.dataSize' is the wrong type '{kind}', expected type 'string'");
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let Some((database, collection)) = full.split_once('.') else {
        return Err(CommandError::new(Code::InvalidNamespace, format!("Invalid namespace specified '{full}'")));
    };
    let namespace = Namespace::new(database, collection)?;
    call.refuse_view(&namespace).await?;
    let began = call.shared.now();
    let (count, bytes) = match (min, max) {
        (None, None) => {
            let stats = call.store().collection_stats(&namespace).await?;
            (stats.count, stats.size_bytes)
        }
        (Some(min), Some(max)) => range(call, namespace, key, min, max).await?,
        _ => return Err(CommandError::new(Code::BadValue, "only one of min or max specified")),
    };
    let took = call.shared.now().saturating_sub(began);
    let mut writer = Writer::new();
    // The size is exact even if an estimate would do.
    writer.put("estimate", estimate).put("size", i64::try_from(bytes).unwrap_or(i64::MAX));
    writer.put("numObjects", i64::try_from(count).unwrap_or(i64::MAX));
    writer.put("millis", i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    Ok(writer.into())
}

/// Counts the documents in a range of an index, whose key by default has the fields of `min`, ascending.
async fn range(
    call: &Call<'_>,
    namespace: Namespace,
    key: Option<&RawDocument>,
    min: &RawDocument,
    max: &RawDocument,
) -> CommandResult<(u64, u64)> {
    let key = match key {
        Some(key) => key.to_owned(),
        None => {
            let mut key = RawDocumentBuf::new();
            for element in min {
                key.append(element?.0, 1);
            }
            key
        }
    };
    let mut find = Find::new(namespace, RawDocumentBuf::new());
    find.hint = Some(Hint::Key(key));
    (find.min, find.max) = (Some(min.to_owned()), Some(max.to_owned()));
    let mut cursor = call.store().find(find).await?;
    let (mut count, mut bytes) = (0_u64, 0_u64);
    loop {
        let page = cursor.next_page(BatchLimit { bytes: 1024 * 1024, ..BatchLimit::REPLY }).await?;
        count += page.documents.len() as u64;
        bytes += page.documents.iter().map(|document| document.as_bytes().len() as u64).sum::<u64>();
        if page.exhausted {
            return Ok((count, bytes));
        }
    }
}

#[cfg(test)]
mod tests;
