//! `saslStart` and `saslContinue`: log in, with two or three messages.
//!
//! ```text
//! {saslStart: 1, mechanism: "SCRAM-SHA-256", payload: <n,,n=ann,r=..>, options: {skipEmptyExchange: true}}
//! {saslContinue: 1, conversationId: 1, payload: <c=biws,r=..,p=..>}
//! ```

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::login::{self, Start, Step};
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::{Bytes, Writer};

/// A connection has one conversation at a time.
const CONVERSATION: i32 = 1;

pub(crate) const START: Command = Command {
    name: "saslStart",
    aliases: &[],
    help: "begins a login",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: true,
    versioned: false,
    properties: Properties { external_database: true, ..Properties::DEFAULT },
    run: |call| Box::pin(run_start(call)),
};

pub(crate) const CONTINUE: Command = Command {
    name: "saslContinue",
    aliases: &[],
    help: "goes on with a login",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: true,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run_continue(call)),
};

async fn run_start(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("saslStart");
    let start = read_start(&mut arguments, call.request.database)?;
    arguments.finish()?;
    let step = login::start(call.shared, call.client, start).await?;
    Ok(answer(&step).into())
}

async fn run_continue(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("saslContinue");
    let conversation = arguments.integer("conversationId")?;
    let conversation = arguments.required("conversationId", conversation)?;
    let payload = payload(&mut arguments)?;
    arguments.finish()?;
    if conversation != i64::from(CONVERSATION) {
        return Err(CommandError::new(Code::ProtocolError, "sasl: Mismatched conversation id"));
    }
    let step = login::continue_login(call.shared, call.client, payload)?;
    Ok(answer(&step).into())
}

/// Reads the fields of `saslStart`, or of the document that a `hello` carries.
pub(super) fn read_start<'a>(arguments: &mut Arguments<'a>, database: &'a str) -> CommandResult<Start<'a>> {
    let mechanism = arguments.text("mechanism")?;
    let mechanism = arguments.required("mechanism", mechanism)?;
    let payload = payload(arguments)?;
    let mut skip_empty = false;
    if let Some(options) = arguments.document("options")? {
        let mut options = Arguments::of_document("saslStart.options", options)?;
        skip_empty = options.flag("skipEmptyExchange")?.unwrap_or(false);
        options.finish()?;
    }
    // The behaviour that autoAuthorize once selected is the only one.
    arguments.ignored(&["autoAuthorize"])?;
    Ok(Start { database, mechanism, payload, skip_empty })
}

fn payload<'a>(arguments: &mut Arguments<'a>) -> CommandResult<&'a [u8]> {
    let payload = arguments.any("payload")?;
    match arguments.required("payload", payload)? {
        RawBsonRef::Binary(binary) => Ok(binary.bytes),
        _ => Err(CommandError::new(Code::TypeMismatch, "BSON field 'payload' must be binary data")),
    }
}

/// Returns `{conversationId, done, payload}`.
pub(super) fn answer(step: &Step) -> Writer {
    let mut writer = Writer::new();
    writer.put("conversationId", CONVERSATION).put("done", step.done).put("payload", Bytes(step.payload.as_bytes()));
    writer
}
