//! `getParameter`: returns settings of the server.
//!
//! ```text
//! {getParameter: 1, cursorTimeoutMillis: 1}                               those that are named
//! {getParameter: "*"}                                                     all
//! {getParameter: {allParameters: true, setAt: "runtime"}}                 those that `setParameter` changes
//! {getParameter: {showDetails: true}, cursorTimeoutMillis: 1}             {value: 600000, settableAtRuntime: true, ..}
//! ```

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::parameters::{PARAMETERS, Parameter};
use super::{Access, Call, Command, Properties};
use crate::arguments::{Arguments, GENERIC};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "getParameter",
    aliases: &[],
    help: "returns parameters of the server",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// Whether a parameter is one of those that the request asks for, by the time at which it can be set.
type IsMeant = fn(&Parameter) -> bool;

/// The value of the command's name.
struct Options {
    all: bool,
    details: bool,
    is_meant: IsMeant,
}

impl Options {
    fn read(subject: RawBsonRef<'_>) -> CommandResult<Self> {
        match subject {
            RawBsonRef::Document(document) => {
                let mut arguments = Arguments::of_document("getParameter", document)?;
                let details = arguments.flag("showDetails")?.unwrap_or(false);
                let all = arguments.flag("allParameters")?.unwrap_or(false);
                let is_meant: IsMeant = match arguments.text("setAt")? {
                    None => |_| true,
                    Some("runtime") => |parameter| parameter.set.is_some(),
                    Some("startup") => |parameter| parameter.at_startup,
                    Some(other) => {
                        let text =
                            format!("Enumeration value '{other}' for field 'getParameter.setAt' is not a valid value.");
                        return Err(CommandError::new(Code::BadValue, text));
                    }
                };
                arguments.finish()?;
                Ok(Options { all, details, is_meant })
            }
            other => Ok(Options { all: other.as_str() == Some("*"), details: false, is_meant: |_| true }),
        }
    }
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let options = Options::read(call.request.subject)?;
    let mut writer = Writer::new();
    let mut shown = 0;
    for parameter in PARAMETERS.iter().filter(|parameter| (options.is_meant)(parameter)) {
        if options.all || matches!(call.request.body.get(parameter.name), Ok(Some(_))) {
            if options.details {
                writer.begin_document(parameter.name);
                (parameter.show)(call, &mut writer, "value");
                writer.put("settableAtRuntime", parameter.set.is_some());
                writer.put("settableAtStartup", parameter.at_startup).end();
            } else {
                (parameter.show)(call, &mut writer, parameter.name);
            }
            shown += 1;
        }
    }
    if shown == 0 {
        let asked = call.request.body.iter().skip(1).flatten().map(|(name, _)| name.as_str());
        let asked: Vec<_> = asked.filter(|name| !GENERIC.contains(name)).take(3).collect();
        let text = format!("no option found to get: {}", asked.join(", "));
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    Ok(writer.into())
}

#[cfg(test)]
mod tests;
