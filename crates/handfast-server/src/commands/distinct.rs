//! `distinct`: returns the different values of a field.

use bson::RawDocumentBuf;
use handfast_mql::Code;
use handfast_mql::collation::with_variable;
use handfast_store::{Distinct, Explained, Find, Namespace};
use handfast_wire::limits::DOCUMENT_BYTES_MAX;

use super::{Access, Call, Command, InTransaction, Properties, SnapshotSupport, hint};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::{Writer, decimal};

pub(crate) const COMMAND: Command = Command {
    name: "distinct",
    aliases: &[],
    help: "lists the different values of a field",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties {
        in_transaction: InTransaction::Allowed,
        snapshots: SnapshotSupport::Allowed,
        explain: Some(|call| Box::pin(explained(call))),
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("distinct");
    let distinct = read(&mut arguments, namespace)?;
    arguments.finish()?;
    let values = call.store().distinct(distinct).await?;
    let mut writer = Writer::new();
    writer.begin_array("values");
    let mut digits = [0; 20];
    for (place, value) in values.iter().enumerate() {
        writer.put_any(decimal(place, &mut digits), value.as_raw_bson_ref());
        if writer.len() > DOCUMENT_BYTES_MAX {
            let text = "distinct too big, 16mb cap";
            return Err(CommandError::new(DISTINCT_TOO_BIG, text));
        }
    }
    writer.end().put_some("atClusterTime", call.snapshot_at());
    Ok(writer.into())
}

/// Reads the command for `explain`.
async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let mut arguments = call.arguments("distinct");
    let distinct = read(&mut arguments, call.request.namespace()?)?;
    arguments.finish()?;
    let variables = with_variable(RawDocumentBuf::new(), distinct.collation.as_deref());
    Ok(Explained::Find(Find { hint: distinct.hint, variables, ..Find::new(distinct.namespace, distinct.filter) }))
}

fn read(arguments: &mut Arguments<'_>, namespace: Namespace) -> CommandResult<Distinct> {
    let collation = arguments.collation()?;
    let key = arguments.text("key")?;
    Ok(Distinct {
        namespace,
        key: arguments.required("key", key)?.to_owned(),
        filter: arguments.document_or_empty("query")?,
        hint: hint(arguments)?,
        collation,
    })
}

const DISTINCT_TOO_BIG: Code = Code(17_217);

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, check, insert, numbered};

    #[tokio::test]
    async fn the_values_of_the_matching_documents_are_returned() {
        let mut server = TestServer::checked();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(10)).await;
        let distinct = rawdoc! { "distinct": "c", "key": "_id", "query": { "_id": { "$lt": 2 } } };
        check(&mut client, distinct, rawdoc! { "values": [0, 1] }).await;
    }
}
