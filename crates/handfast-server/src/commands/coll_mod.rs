//! `collMod`: changes the lifetime of a TTL index, hides an index from the planner or shows it, and changes the validator, or the definition
//! of a view.

use handfast_mql::Code;
use handfast_store::{IndexSelector, ModifyCollection, ModifyIndex};

use super::create::{read_validator, read_view, visit_view};
use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::{Needs, Target, Visitor};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::Request;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "collMod",
    aliases: &[],
    help: "changes an index, or the validator, of a collection, or the definition of a view",
    access: Access::Write,
    needs: Needs::Visited(visit),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// A change of the validator needs the right to write without it.
fn visit(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let target = Target { database: request.database, collection: request.subject.as_str().unwrap_or("") };
    visitor(Action::Structure, target)?;
    visit_view(request, visitor)?;
    let names = ["validator", "validationLevel", "validationAction"];
    match request.body.iter().flatten().any(|(name, _)| names.contains(&name.as_str())) {
        true => visitor(Action::BypassValidation, target),
        false => Ok(()),
    }
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("collMod");
    let index = arguments.document("index")?;
    let view = read_view(&mut arguments, &namespace)?;
    // Who changes a view needs the right to read all that it reads, so the request has to name all of it.
    if call.shared.options.authentication && view.on.is_some() != view.pipeline.is_some() {
        let text = "Must specify both 'viewOn' and 'pipeline' when modifying a view and auth is enabled";
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    // As in `create`, these come first so that the message names the main option.
    arguments.unsupported(&["timeseries", "expireAfterSeconds"])?;
    arguments.unsupported(&["cappedSize", "cappedMax"])?;
    let validator = read_validator(&mut arguments, &namespace)?;
    arguments.unsupported(&["changeStreamPreAndPostImages", "dryRun"])?;
    arguments.finish()?;
    let index = index.map(read_index).transpose()?;
    let document = call.store().modify_collection(ModifyCollection { namespace, index, validator, view }).await?;
    let mut writer = Writer::new();
    writer.put_all(&document);
    Ok(writer.into())
}

fn read_index(document: &bson::RawDocument) -> CommandResult<ModifyIndex> {
    let mut arguments = Arguments::of_document("collMod.index", document)?;
    let refused = |text: &str| Err(CommandError::new(Code::InvalidOptions, text));
    let selector = match (arguments.text("name")?, arguments.document("keyPattern")?) {
        (Some(name), None) => IndexSelector::Names(vec![name.to_owned()]),
        (None, Some(key)) => IndexSelector::Key(key.to_owned()),
        (Some(_), Some(_)) => return refused("Cannot specify both key pattern and name."),
        (None, None) => return refused("Must specify either index name or key pattern."),
    };
    let expire_after_seconds = arguments.integer("expireAfterSeconds")?;
    let hidden = arguments.lenient_flag("hidden")?;
    arguments.unsupported(&["unique", "prepareUnique"])?;
    arguments.finish()?;
    if expire_after_seconds.is_none() && hidden.is_none() {
        return refused("no expireAfterSeconds or hidden field");
    }
    Ok(ModifyIndex { selector, expire_after_seconds, hidden })
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{ReplyFields, TestServer, batch};

    #[tokio::test]
    async fn unsupported_options_are_refused_by_name() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        client.run("d", rawdoc! { "create": "c" }).await;
        for (command, option) in [(rawdoc! { "collMod": "c", "cappedMax": 1, "cappedSize": 1 }, "cappedSize")] {
            let expected =
                (238, "NotImplemented".to_owned(), format!("the option 'collMod.{option}' is not supported"));
            assert_eq!(client.refused("d", command).await, expected);
        }
    }

    #[tokio::test]
    async fn the_lifetime_of_the_documents_of_an_index_changes() {
        let mut server = TestServer::checked();
        let mut client = server.connect();
        let index = rawdoc! { "key": { "t": 1 }, "name": "t_1", "expireAfterSeconds": 60 };
        client.run("d", rawdoc! { "createIndexes": "c", "indexes": [index] }).await;
        let modify = rawdoc! { "collMod": "c", "index": { "name": "t_1", "expireAfterSeconds": 90 } };
        assert_eq!(client.run("d", modify).await.double("ok"), 1.0);
        let indexes = batch(&client.run("d", rawdoc! { "listIndexes": "c" }).await);
        assert_eq!(indexes[1].get("expireAfterSeconds").unwrap(), Some(bson::RawBsonRef::Int32(90)));
        assert_eq!(client.refused("d", rawdoc! { "collMod": "none" }).await.0, 26);
    }
}
