//! `setQuerySettings` and `removeQuerySettings`: refused, because settings of query shapes would change the plans of requests. The stage
//! `$querySettings` lists none.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_mql::bson_type::type_name;

use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const SET: Command = Command {
    name: "setQuerySettings",
    aliases: &[],
    help: "refuses settings of query shapes: hints choose indexes",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(set(call)),
};

pub(crate) const REMOVE: Command = Command {
    name: "removeQuerySettings",
    help: "refuses to remove settings of query shapes, of which there are none",
    run: |call| Box::pin(remove(call)),
    ..SET
};

async fn set(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("setQuerySettings");
    arguments.document("settings")?;
    arguments.finish()?;
    Err(refused("give the index as 'hint' with each request"))
}

async fn remove(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("removeQuerySettings").finish()?;
    Err(refused("there are none to remove"))
}

fn refused(advice: &str) -> CommandError {
    let text = format!("settings of query shapes are not supported: {advice}");
    CommandError::new(Code::CommandNotSupported, text)
}

/// Checks the options of the stage `$querySettings`, which returns no documents.
pub(super) fn check_stage(options: RawBsonRef<'_>) -> CommandResult<()> {
    let RawBsonRef::Document(options) = options else {
        let text = format!("$querySettings value must be an object. Found: {}", type_name(options));
        return Err(CommandError::new(Code::FailedToParse, text));
    };
    let mut arguments = Arguments::of_document("$querySettings", options)?;
    arguments.flag("showDebugQueryShape")?;
    arguments.finish()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, batch};

    #[tokio::test]
    async fn settings_of_query_shapes_are_refused() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        let shape = || rawdoc! { "find": "c", "filter": { "a": 1 }, "$db": "d" };
        for (database, command, code) in [
            ("admin", rawdoc! { "setQuerySettings": shape(), "settings": { "reject": true } }, 115),
            ("admin", rawdoc! { "setQuerySettings": shape(), "settings": 1 }, 14),
            ("admin", rawdoc! { "removeQuerySettings": shape() }, 115),
            ("admin", rawdoc! { "removeQuerySettings": shape(), "x": 1 }, 40_415),
            ("d", rawdoc! { "removeQuerySettings": shape() }, 13),
        ] {
            assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
        }
    }

    #[tokio::test]
    async fn the_stage_lists_none() {
        let mut server = TestServer::checked();
        let mut client = server.connect();
        let stage = |options: bson::RawBson| {
            rawdoc! { "aggregate": 1, "pipeline": bson::rawbson!([{ "$querySettings": options }]), "cursor": {} }
        };
        for options in [bson::rawbson!({}), bson::rawbson!({ "showDebugQueryShape": true })] {
            assert!(batch(&client.run("admin", stage(options)).await).is_empty());
        }
        for (database, options, code) in [
            ("d", bson::rawbson!({}), 73),
            ("admin", bson::rawbson!(1), 9),
            ("admin", bson::rawbson!({ "showDebugQueryShape": 1 }), 14),
            ("admin", bson::rawbson!({ "x": 1 }), 40_415),
        ] {
            let command = stage(options);
            assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
        }
    }
}
