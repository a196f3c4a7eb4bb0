//! `dropIndexes`: drops indexes by name, by names, by key, or all of them.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_store::{DropIndexes, IndexSelector};

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "dropIndexes",
    aliases: &["deleteIndexes"],
    help: "drops indexes",
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
    let mut arguments = call.arguments("dropIndexes");
    let selector = match arguments.any("index")? {
        None => return Err(arguments.missing("index")),
        Some(RawBsonRef::String("*")) => IndexSelector::All,
        Some(RawBsonRef::String(name)) => IndexSelector::Names(vec![name.to_owned()]),
        Some(RawBsonRef::Document(key)) => IndexSelector::Key(key.to_owned()),
        Some(RawBsonRef::Array(names)) => {
            let names = names.into_iter().map(|name| match name? {
                RawBsonRef::String(name) => Ok(name.to_owned()),
                _ => Err(mismatch()),
            });
            IndexSelector::Names(names.collect::<CommandResult<_>>()?)
        }
        Some(_) => return Err(mismatch()),
    };
    arguments.finish()?;
    let all = matches!(selector, IndexSelector::All);
    let _alone = call.shared.patterns.may_drop_indexes().await;
    let name = namespace.to_string();
    let before = call.store().drop_indexes(DropIndexes { namespace, selector }).await?;
    call.shared.patterns.forget();
    call.shared.metrics.forget_plans(&name, call.shared.sources.clock.now());
    let mut writer = Writer::new();
    writer.put("nIndexesWas", i32::try_from(before).unwrap_or(i32::MAX));
    if all {
        writer.put("msg", "non-_id indexes dropped for collection");
    }
    Ok(writer.into())
}

fn mismatch() -> CommandError {
    let text = "BSON field 'dropIndexes.index' is the wrong type, expected types '[string, object, array]'";
    CommandError::new(Code::TypeMismatch, text)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, check, named};

    #[tokio::test]
    async fn one_index_or_all_are_dropped() {
        let mut server = TestServer::checked();
        let mut client = server.connect();
        let index = |field: &str| {
            rawdoc! { "key": named(field, 1), "name": format!("{field}_1") }
        };
        client.run("d", rawdoc! { "createIndexes": "c", "indexes": [index("a"), index("t")] }).await;
        check(&mut client, rawdoc! { "dropIndexes": "c", "index": "t_1" }, rawdoc! { "nIndexesWas": 3 }).await;
        let expected = rawdoc! { "nIndexesWas": 2, "msg": "non-_id indexes dropped for collection" };
        check(&mut client, rawdoc! { "dropIndexes": "c", "index": "*" }, expected).await;
        assert_eq!(client.refused("d", rawdoc! { "dropIndexes": "c", "index": "none" }).await.0, 27);
    }
}
