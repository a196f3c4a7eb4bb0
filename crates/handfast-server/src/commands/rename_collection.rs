//! `renameCollection`: gives a collection another name, also in another database.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_store::{Namespace, RenameCollection};

use super::{Access, Call, Command, Properties};
use crate::auth::guard::{Needs, Visitor, visit_full_name};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::{Request, check_written};

pub(crate) const COMMAND: Command = Command {
    name: "renameCollection",
    aliases: &[],
    help: "renames a collection",
    access: Access::Write,
    needs: Needs::Visited(needs),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// Visits both collections. A rename to another database reads the documents of one and writes them to the other.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let from = request.subject.as_str().unwrap_or_default();
    let to = request.body.get_str("to").unwrap_or_default();
    let same = from.split('.').next() == to.split('.').next();
    let (reading, writing): (&[Action], &[Action]) = match same {
        true => (&[Action::Structure], &[Action::Structure]),
        false => (&[Action::Find, Action::Structure], &[Action::Write, Action::Structure]),
    };
    visit_full_name(from, reading, visitor)?;
    visit_full_name(to, writing, visitor)
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("renameCollection");
    let RawBsonRef::String(from) = call.request.subject else {
        return Err(CommandError::new(Code::TypeMismatch, "'renameCollection' must be of type String"));
    };
    let to = arguments.text("to")?;
    let to = arguments.required("to", to)?;
    let drop_target = arguments.lenient_flag("dropTarget")?.unwrap_or(false);
    arguments.flag("stayTemp")?;
    arguments.finish()?;
    let (from, to) = (parse(from)?, parse(to)?);
    check_written(&to)?;
    if from == to {
        // MongoDB says so whether the collection exists or not.
        return Err(CommandError::new(Code::IllegalOperation, "Can't rename a collection to itself"));
    }
    let _alone = call.shared.patterns.may_drop_indexes().await;
    let names = [from.to_string(), to.to_string()];
    call.store().rename_collection(RenameCollection { from, to, drop_target }).await?;
    call.shared.patterns.forget();
    names.iter().for_each(|name| call.shared.metrics.forget_plans(name, call.shared.sources.clock.now()));
    Ok(Answer::done())
}

fn parse(full: &str) -> CommandResult<Namespace> {
    match full.split_once('.') {
        Some((database, collection)) => Ok(Namespace::new(database, collection)?),
        None => {
            let text = format!("Invalid namespace specified '{full}'");
            Err(CommandError::new(Code::InvalidNamespace, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, batch};

    #[tokio::test]
    async fn a_collection_has_its_new_name() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        client.run("d", rawdoc! { "create": "c" }).await;
        let reply = client.run("admin", rawdoc! { "renameCollection": "d.c", "to": "d.e" }).await;
        assert_eq!(reply, rawdoc! { "ok": 1.0 });
        for collection in ["d.e", "d.none"] {
            let itself = rawdoc! { "renameCollection": collection, "to": collection };
            assert_eq!(client.refused("admin", itself).await.0, 20, "{collection}");
        }
        let names = batch(&client.run("d", rawdoc! { "listCollections": 1, "nameOnly": true }).await);
        assert_eq!(names, [rawdoc! { "name": "e", "type": "collection" }]);
    }
}
