//! `find`: opens a cursor over the documents that match, and returns its first batch.

use handfast_mql::Code;
use handfast_mql::collation::with_variable;
use handfast_store::{Explained, Find, Namespace};

use super::get_more::{Opening, first_batch};
use super::{Access, Call, Command, Counter, InTransaction, Properties, SnapshotSupport, hint, natural_order};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::dispatch;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "find",
    aliases: &[],
    help: "finds documents",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties {
        counter: Counter::Query,
        in_transaction: InTransaction::Allowed,
        snapshots: SnapshotSupport::Allowed,
        explain: Some(|call| Box::pin(explained(call))),
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("find");
    let find = read(call, &mut arguments, namespace).await?;
    let opening = Opening {
        namespace: dispatch::namespace(call.request),
        batch_size: arguments.unsigned("batchSize")?,
        single_batch: arguments.flag("singleBatch")?.unwrap_or(false),
        no_timeout: arguments.flag("noCursorTimeout")?.unwrap_or(false),
    };
    arguments.finish()?;
    let cursor = call.store().find(find).await?;
    first_batch(call, cursor, opening, call.operation.since()).await
}

/// Reads the command for `explain`.
async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let mut arguments = call.arguments("find");
    let find = read(call, &mut arguments, call.request.namespace()?).await?;
    arguments.ignored(&["batchSize", "singleBatch", "noCursorTimeout"])?;
    arguments.finish()?;
    Ok(Explained::Find(find))
}

/// Reads the arguments of the search, without those of the cursor.
async fn read(call: &Call<'_>, arguments: &mut Arguments<'_>, namespace: Namespace) -> CommandResult<Find> {
    arguments.unsupported(&["tailable", "awaitData", "oplogReplay", "resumeAfter", "$_requestResumeToken"])?;
    let collation = arguments.collation()?;
    arguments.flag("allowPartialResults")?;
    let allow_disk_use = arguments.flag("allowDiskUse")?.unwrap_or(true);
    let (sort, hint) = natural_order(arguments.document_or_empty("sort")?, hint(arguments)?)?;
    let find = Find {
        namespace,
        allow_disk_use,
        filter: arguments.document_or_empty("filter")?,
        projection: arguments.document_or_empty("projection")?,
        sort,
        skip: arguments.unsigned("skip")?.unwrap_or(0),
        limit: arguments.unsigned("limit")?.filter(|limit| *limit > 0),
        hint,
        min: arguments.document("min")?.filter(|min| !min.is_empty()).map(ToOwned::to_owned),
        max: arguments.document("max")?.filter(|max| !max.is_empty()).map(ToOwned::to_owned),
        return_key: arguments.flag("returnKey")?.unwrap_or(false),
        show_record_id: arguments.flag("showRecordId")?.unwrap_or(false),
        variables: with_variable(call.variables(arguments).await?, collation.as_deref()),
    };
    if (find.min.is_some() || find.max.is_some()) && find.hint.is_none() {
        return Err(CommandError::new(
            MIN_MAX_WITHOUT_HINT,
            "When using min()/max() a hint of which index to use must be provided",
        ));
    }
    Ok(find)
}

const MIN_MAX_WITHOUT_HINT: Code = Code(51_173);

#[cfg(test)]
mod tests;
