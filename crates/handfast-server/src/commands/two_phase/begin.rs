//! `handfastBeginTwoPhase`: stores a two-phase transaction, which is then carried out by `handfastAdvanceTwoPhase`.

use bson::{Bson, RawDocument};
use handfast_patterns::two_phase::Plan;
use handfast_patterns::{Participant, Transfer, TwoPhase};
use handfast_store::Namespace;

use super::super::pattern_steps::{
    IN_TRANSACTION, command, invalid, made_before, missing, optional_document, required_document, required_id,
    required_text, required_value,
};
use super::super::{Call, Command};
use super::answer;
use crate::arguments::Arguments;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    command("handfastBeginTwoPhase", "stores a two-phase transaction", IN_TRANSACTION, |call| Box::pin(run(call)));

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastBeginTwoPhase");
    let transaction = arguments.document("transaction")?;
    let (id, plan) = read(arguments.required("transaction", transaction)?, call.request.database)?;
    arguments.finish()?;
    let two_phase: TwoPhase = patterns::of(call).await?;
    two_phase.begin(id.clone(), plan).await?;
    if call.transaction_number().is_some() {
        let outside: TwoPhase = patterns::outside(call).await?;
        if outside.show(id.clone()).await?.is_some() {
            return Err(made_before("two-phase transaction", &id));
        }
    }
    match two_phase.show(id.clone()).await? {
        Some(record) => answer(&id, record.state),
        // Another program has removed it since.
        None => Err(missing("transaction", &id)),
    }
}

fn read(transaction: &RawDocument, database: &str) -> CommandResult<(Bson, Plan)> {
    let mut arguments = Arguments::of_document("handfastBeginTwoPhase.transaction", transaction)?;
    let id = required_id(&mut arguments)?;
    let plan = match arguments.documents("participants")? {
        Some(participants) => {
            if ["source", "destination", "value"]
                .into_iter()
                .any(|name| transaction.get(name).is_ok_and(|value| value.is_some()))
            {
                return Err(invalid(
                    "participants exclude source, destination and value: a transaction is a transfer, or has a plan",
                ));
            }
            let participants = participants.into_iter().map(|participant| self::participant(participant, database));
            Plan::General(participants.collect::<CommandResult<_>>()?)
        }
        None => {
            let source = required_value(&mut arguments, "source")?;
            let destination = required_value(&mut arguments, "destination")?;
            let value = arguments.exact_integer("value")?;
            Plan::Transfer(Transfer::new(source, destination, arguments.required("value", value)?))
        }
    };
    arguments.finish()?;
    Ok((id, plan))
}

fn participant(participant: &RawDocument, database: &str) -> CommandResult<Participant> {
    let mut arguments = Arguments::of_document("handfastBeginTwoPhase.transaction.participants", participant)?;
    let namespace = Namespace::new(database, required_text(&mut arguments, "collection")?)?;
    let id = required_id(&mut arguments)?;
    let apply = required_document(&mut arguments, "apply")?;
    let inverse = required_document(&mut arguments, "inverse")?;
    let mut participant = Participant::new(namespace, id, apply, inverse);
    if let Some(guard) = optional_document(&mut arguments, "guard")? {
        participant = participant.guarded(guard);
    }
    if let Some(finish) = optional_document(&mut arguments, "finish")? {
        participant = participant.finished_by(finish);
    }
    arguments.finish()?;
    Ok(participant)
}
