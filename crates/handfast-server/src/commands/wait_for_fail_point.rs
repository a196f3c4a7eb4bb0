//! `waitForFailPoint`: waits until a fail point has been entered `timesEntered` times. It needs `--test-commands`.

use handfast_mql::Code;

use super::configure_fail_point::{name, points};
use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "waitForFailPoint",
    aliases: &[],
    help: "waits until a fail point has been entered a number of times, for tests",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let name = name(call)?;
    let mut arguments = call.arguments("waitForFailPoint");
    let times = arguments.unsigned("timesEntered")?;
    let times = arguments.required("timesEntered", times)?;
    arguments.finish()?;
    if call.request.max_time.is_none() {
        let text = "BSON field 'waitForFailPoint.maxTimeMS' is missing but a required field";
        return Err(CommandError::new(Code(40_414), text));
    }
    let mut entered = points(call)?.entered(name)?;
    // The channel closes only when the server ends.
    let gone = |_| CommandError::new(Code::ShutdownInProgress, "the server is shutting down");
    entered.wait_for(|entered| *entered >= times).await.map_err(gone)?;
    Ok(Answer::done())
}
