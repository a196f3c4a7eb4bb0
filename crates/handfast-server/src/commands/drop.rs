//! `drop`: removes a collection with its indexes.

use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "drop",
    aliases: &[],
    help: "drops a collection",
    access: Access::Write,
    needs: Needs::Collection(&[Action::Structure]),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    call.arguments("drop").finish()?;
    let store = call.store();
    let indexes = match store.list_indexes(&namespace).await {
        Ok(indexes) => Some(indexes.len()),
        Err(error) if matches!(error.code(), Code::NamespaceNotFound | Code::CommandNotSupportedOnView) => None,
        Err(error) => return Err(error.into()),
    };
    let mut writer = Writer::new();
    let _alone = call.shared.patterns.may_drop_indexes().await;
    // As in MongoDB since 7.0, a collection that does not exist is no error.
    let dropped = store.drop_collection(&namespace).await?;
    call.shared.patterns.forget();
    if dropped {
        call.shared.metrics.forget_plans(&namespace.to_string(), call.shared.sources.clock.now());
        // A view has no indexes.
        writer.put_some("nIndexesWas", indexes.map(|indexes| i32::try_from(indexes).unwrap_or(i32::MAX)));
        writer.put("ns", namespace.to_string());
    }
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn a_collection_that_is_not_there_is_no_error() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        client.run("d", rawdoc! { "create": "e" }).await;
        let reply = client.run("d", rawdoc! { "drop": "e" }).await;
        assert_eq!(reply, rawdoc! { "nIndexesWas": 1, "ns": "d.e", "ok": 1.0 });
        assert_eq!(client.run("d", rawdoc! { "drop": "e" }).await, rawdoc! { "ok": 1.0 });
    }
}
