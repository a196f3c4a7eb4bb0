//! `abortTransaction`: rolls back a transaction.

use super::{Access, Call, Command};
use crate::auth::guard::Needs;
use crate::error::Outcome;
use crate::reply::Answer;
use crate::transactions::end;

pub(crate) const COMMAND: Command = Command {
    name: "abortTransaction",
    aliases: &[],
    help: "rolls back a transaction",
    access: Access::Write,
    needs: Needs::Login,
    admin_only: true,
    confidential: false,
    versioned: true,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    let mut arguments = call.arguments("abortTransaction");
    // What a router told the client, so that any router could end the transaction.
    arguments.ignored(&["recoveryToken"])?;
    arguments.finish()?;
    end::abort(call).await?;
    Ok(Answer::done())
}
