//! `handfastInsertSynced`: inserts a document that names main documents, with copies of their fields.

use bson::{Document, rawdoc};
use handfast_patterns::SyncFlag;
use handfast_patterns::sync_flag::{Copied, Inserted};
use handfast_store::{Namespace, StoreExt};

use super::super::pattern_steps::{IN_TRANSACTION, command, made_before, owned, put_value, required_text};
use super::super::{Call, Command};
use super::missing;
use crate::arguments::Arguments;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command =
    command("handfastInsertSynced", "inserts a document with copies of fields", IN_TRANSACTION, |call| {
        Box::pin(run(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastInsertSynced");
    let target = Namespace::new(call.request.database, required_text(&mut arguments, "collection")?)?;
    let given = arguments.document("document")?;
    let given = arguments.required("document", given)?;
    arguments.finish()?;
    let mut fields = Arguments::of_document("handfastInsertSynced.document", given)?;
    let raw_id = fields.any_or_null("_id")?;
    let raw_id = fields.required("_id", raw_id)?;
    let (id, document) = (owned(raw_id)?, Document::try_from(given)?);
    let flag: SyncFlag = patterns::outside(call).await?;
    let (id, synced) = if call.transaction_number().is_some() {
        match flag.within(patterns::store_of_call(call)).insert_copy(&target, document).await? {
            Inserted::Flagged { .. } => {}
            Inserted::MainMissing { main } => return Err(missing("main document", &main)),
        }
        let there = patterns::durable_store(call).find_one(&target, rawdoc! { "_id": raw_id }).await?;
        if there.is_some() {
            return Err(made_before("document", &id));
        }
        (id, false)
    } else {
        match flag.insert_copy(&target, document).await? {
            Copied::Settled { id } => (id, true),
            // The log has the error, and the sweep compares the copy.
            Copied::Later { id, .. } => (id, false),
            Copied::MainMissing { main } => return Err(missing("main document", &main)),
        }
    };
    let mut writer = Writer::new();
    put_value(&mut writer, "_id", &id)?;
    writer.put("synced", synced);
    Ok(writer.into())
}
