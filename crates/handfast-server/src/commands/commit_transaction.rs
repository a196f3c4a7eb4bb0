//! `commitTransaction`: makes the writes of a transaction visible, all at once.

use super::{Access, Call, Command, InTransaction, Properties};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
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
    properties: Properties { in_transaction: InTransaction::Commit, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    end::read(call, COMMAND.name)?;
    end::commit(call).await?;
    Ok(Answer::done())
}
