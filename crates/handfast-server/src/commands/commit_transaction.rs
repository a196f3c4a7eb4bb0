//! `commitTransaction`: makes the writes of a transaction visible, all at once.

use super::{Access, Call, Command};
use crate::auth::guard::Needs;
use crate::error::Outcome;
use crate::reply::Answer;
use crate::transactions::end;

pub(crate) const COMMAND: Command = Command {
    name: "commitTransaction",
    aliases: &[],
    help: "commits a transaction",
    access: Access::Write,
    needs: Needs::Login,
    admin_only: true,
    confidential: false,
    versioned: true,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    let mut arguments = call.arguments("commitTransaction");
    // What a router told the client, so that any router could end the transaction.
    arguments.ignored(&["recoveryToken"])?;
    arguments.finish()?;
    end::commit(call).await?;
    Ok(Answer::done())
}
