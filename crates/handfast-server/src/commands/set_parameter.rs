//! `setParameter`: changes parameters until the server stops, all that the command names or none.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::parameters::{PARAMETERS, Parameter};
use super::{Access, Call, Command, Properties};
use crate::arguments::GENERIC;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "setParameter",
    aliases: &[],
    help: "changes parameters of the server while it runs",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut given: Vec<(&Parameter, RawBsonRef<'_>)> = Vec::new();
    for element in call.request.body.iter().skip(1) {
        let (name, value) = element?;
        let name = name.as_str();
        if GENERIC.contains(&name) {
            continue;
        }
        let Some(parameter) = PARAMETERS.iter().find(|parameter| parameter.name == name) else {
            let text = format!("attempted to set unrecognized parameter [{name}], use help:true to see options ");
            return Err(CommandError::new(Code::InvalidOptions, text));
        };
        if parameter.set.is_none() {
            let text = format!("not allowed to change [{name}] at runtime");
            return Err(CommandError::new(Code::IllegalOperation, text));
        }
        if given.iter().any(|(other, _)| other.name == name) {
            let text = format!("attempted to set parameter [{name}] twice in the same setParameter command");
            return Err(CommandError::new(Code::InvalidOptions, text));
        }
        given.push((parameter, value));
    }
    let Some((first, _)) = given.first() else {
        let text = "no option found to set, use help:true to see options ";
        return Err(CommandError::new(Code::InvalidOptions, text));
    };
    let mut writer = Writer::new();
    // As in MongoDB, the reply has the previous value of the first one.
    (first.show)(call, &mut writer, "was");
    let mut values = Vec::new();
    for (parameter, value) in given {
        if let Some(set) = parameter.set {
            values.push(set(value).map_err(|reason| {
                let text = format!("Invalid value for parameter {}: {reason}", parameter.name);
                CommandError::new(Code::BadValue, text)
            })?);
        }
    }
    values.into_iter().for_each(|value| value.set(call));
    Ok(writer.into())
}

#[cfg(test)]
mod tests;
