//! `explain`: how a command would be carried out, or was.

use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::{Explain, Explained, Find, Verbosity};

use super::{Access, Call, Command, aggregate, count, distinct, find, hint};
use crate::arguments::Arguments;
use crate::auth::guard::{Needs, Visitor, visit};
use crate::error::{CommandError, Outcome};
use crate::reply::Answer;
use crate::request::Request;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "explain",
    aliases: &[],
    help: "shows how a command is carried out",
    access: Access::Read,
    needs: Needs::Visited(needs),
    admin_only: false,
    confidential: false,
    versioned: true,
    run: |call| Box::pin(run(call)),
};

/// What the command needs that is explained.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> Outcome<()> {
    let RawBsonRef::Document(inner) = request.subject else { return Ok(()) };
    let inner = Request::new(inner, request.sequences, Some(request.database), false)?;
    match super::find(inner.name) {
        Some(command) if command.name != COMMAND.name => visit(command, &inner, visitor),
        _ => Ok(()),
    }
}

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    let mut arguments = call.arguments("explain")?;
    let verbosity = match arguments.text("verbosity")? {
        Some("queryPlanner") => Verbosity::QueryPlanner,
        None | Some("executionStats" | "allPlansExecution") => Verbosity::ExecutionStats,
        Some(other) => {
            let text = format!("Enumeration value '{other}' for field 'explain.verbosity' is not a valid value.");
            return Err(CommandError::new(Code::BadValue, text));
        }
    };
    arguments.finish()?;
    let RawBsonRef::Document(inner) = call.request.subject else {
        let text = "BSON field 'explain.explain' is the wrong type, expected type 'object'";
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let request = Request::new(inner, call.request.sequences, Some(call.request.database), false)?;
    let inner = Call { request: &request, ..*call };
    let explained = explained(&inner).await?;
    answer(call, Explain { explained, verbosity }).await
}

/// The store's document, and who made it.
pub(super) async fn answer(call: &Call<'_>, request: Explain) -> Outcome<Answer> {
    let document = call.store().explain(request).await?;
    let mut writer = Writer::new();
    writer.put_all(&document);
    writer.put("command", call.request.body);
    writer.begin_document("serverInfo");
    writer.put("host", &*super::host_info::host_name()).put("version", super::build_info::MONGODB_VERSION);
    writer.put("handfast", super::build_info::VERSION).end();
    Ok(writer.into())
}

async fn explained(call: &Call<'_>) -> Outcome<Explained> {
    let name = call.request.name;
    match name {
        "find" => {
            let mut arguments = call.arguments("find")?;
            let find = find::read(call, &mut arguments, call.request.namespace()?).await?;
            arguments.ignored(&["batchSize", "singleBatch", "noCursorTimeout"])?;
            arguments.finish()?;
            Ok(Explained::Find(find))
        }
        "aggregate" => {
            let mut arguments = call.arguments("aggregate")?;
            let aggregate = aggregate::read(call, &mut arguments).await?;
            arguments.ignored(&["cursor", "explain"])?;
            arguments.finish()?;
            Ok(Explained::Aggregate(aggregate))
        }
        "count" => {
            let mut arguments = call.arguments("count")?;
            let count = count::read(&mut arguments, call.request.namespace()?)?;
            arguments.finish()?;
            let find = Find {
                skip: count.skip,
                limit: count.limit,
                hint: count.hint,
                ..Find::new(count.namespace, count.filter)
            };
            Ok(Explained::Find(find))
        }
        "distinct" => {
            let mut arguments = call.arguments("distinct")?;
            let distinct = distinct::read(&mut arguments, call.request.namespace()?)?;
            arguments.finish()?;
            Ok(Explained::Find(Find { hint: distinct.hint, ..Find::new(distinct.namespace, distinct.filter) }))
        }
        "update" => statement(call, "update", "updates"),
        "delete" => statement(call, "delete", "deletes"),
        "findAndModify" | "findandmodify" => {
            let mut arguments = call.arguments("findAndModify")?;
            let mut find = Find::new(call.request.namespace()?, arguments.document_or_empty("query")?);
            find.sort = arguments.document_or_empty("sort")?;
            find.hint = hint(&mut arguments)?;
            find.limit = Some(1);
            Ok(Explained::Find(find))
        }
        other => {
            let text = format!("Explain failed due to unknown command: {other}");
            Err(CommandError::new(Code::CommandNotFound, text))
        }
    }
}

/// What the one statement of a write command looks for.
fn statement(call: &Call<'_>, path: &'static str, field: &str) -> Outcome<Explained> {
    let mut arguments = call.arguments(path)?;
    let statements = arguments.documents(field)?;
    let statements: Vec<&RawDocument> = arguments.required(field, statements)?;
    let [statement] = statements[..] else {
        return Err(CommandError::new(Code::InvalidLength, "explained write batches must be of size 1"));
    };
    let mut arguments = Arguments::of_document(path, statement)?;
    let filter = arguments.document("q")?;
    let filter = arguments.required("q", filter)?.to_owned();
    let many = arguments.flag("multi")?.unwrap_or(false) || arguments.integer("limit")? == Some(0);
    let mut find = Find::new(call.request.namespace()?, filter);
    find.hint = hint(&mut arguments)?;
    find.sort = arguments.document_or_empty("sort")?;
    find.limit = (!many).then_some(1);
    Ok(Explained::Find(find))
}
