//! `count`: returns how many documents match.

use bson::RawDocumentBuf;
use handfast_mql::collation::with_variable;
use handfast_store::{Count, Explained, Find, Namespace};

use super::{Access, Call, Command, Properties, hint};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "count",
    aliases: &[],
    help: "counts documents",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties { explain: Some(|call| Box::pin(explained(call))), ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("count");
    let count = read(&mut arguments, namespace)?;
    arguments.finish()?;
    let count = call.store().count(count).await?;
    let mut writer = Writer::new();
    put_count(&mut writer, "n", count);
    Ok(writer.into())
}

/// Reads the command for `explain`.
async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let mut arguments = call.arguments("count");
    let count = read(&mut arguments, call.request.namespace()?)?;
    arguments.finish()?;
    let variables = with_variable(RawDocumentBuf::new(), count.collation.as_deref());
    let find = Find {
        skip: count.skip,
        limit: count.limit,
        hint: count.hint,
        variables,
        ..Find::new(count.namespace, count.filter)
    };
    Ok(Explained::Find(find))
}

fn read(arguments: &mut Arguments<'_>, namespace: Namespace) -> CommandResult<Count> {
    let collation = arguments.collation()?;
    // Old clients send the fields of a projection.
    arguments.ignored(&["fields"])?;
    Ok(Count {
        namespace,
        filter: arguments.document_or_empty("query")?,
        skip: arguments.unsigned("skip")?.unwrap_or(0),
        // In MongoDB a negative limit means the same as a positive one here.
        limit: arguments.integer("limit")?.map(i64::unsigned_abs).filter(|limit| *limit > 0),
        hint: hint(arguments)?,
        collation,
    })
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, check, insert, numbered};

    #[tokio::test]
    async fn skip_and_limit_bound_the_count() {
        let mut server = TestServer::checked();
        let mut client = server.connect();
        insert(&mut client, "c", &numbered(10)).await;
        let count = rawdoc! { "count": "c", "query": { "_id": { "$gt": 1 } }, "skip": 3, "limit": -4 };
        check(&mut client, count, rawdoc! { "n": 4 }).await;
    }
}
