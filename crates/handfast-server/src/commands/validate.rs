//! `validate`: reads a whole collection.

use handfast_mql::Code;
use handfast_store::{BatchLimit, Find};

use super::{Access, Call, Command};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, Outcome};
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "validate",
    aliases: &[],
    help: "reads a whole collection and says whether it could",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Validate]),
    admin_only: false,
    confidential: false,
    versioned: false,
    run: |call| Box::pin(run(call)),
};

/// Documents that are read at once.
const PAGE: BatchLimit = BatchLimit { documents: 1_000, bytes: 1024 * 1024 };

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("validate");
    arguments.flag("full")?;
    arguments.flag("background")?;
    arguments.flag("checkBSONConformance")?;
    // What drivers of long ago, and some of today, call the same as full.
    arguments.flag("scandata")?;
    arguments.unsupported(&["repair", "metadata"])?;
    arguments.finish()?;
    let store = call.store();
    if !store.collection_stats(&namespace).await?.exists {
        let text = format!("Collection '{namespace}' does not exist to validate.");
        return Err(CommandError::new(Code::NamespaceNotFound, text));
    }
    let indexes = store.list_indexes(&namespace).await?;
    let mut cursor = store.find(Find::new(namespace.clone(), bson::rawdoc! {})).await?;
    let mut records: u64 = 0;
    // A document that does not agree with its checksum ends the walk: how many more there are, nobody knows.
    let error = loop {
        match cursor.next_page(PAGE).await {
            Ok(page) => {
                records += page.documents.len() as u64;
                if page.exhausted || page.documents.is_empty() {
                    break None;
                }
            }
            Err(error) => break Some(error),
        }
    };
    let mut writer = Writer::new();
    writer.put("ns", namespace.to_string()).put("nInvalidDocuments", i32::from(error.is_some()));
    put_count(&mut writer, "nrecords", records);
    writer.put("nIndexes", i32::try_from(indexes.len()).unwrap_or(i32::MAX));
    writer.put("valid", error.is_none()).put("repaired", false);
    writer.array("warnings", std::iter::empty::<&str>());
    writer.array("errors", error.iter().map(handfast_store::Error::message));
    Ok(writer.into())
}
