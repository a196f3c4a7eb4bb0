//! `handfastAuditSynced`: compares all copies with their main documents, and changes nothing.

use bson::RawDocumentBuf;
use handfast_mql::depth::ANSWER_BYTES_MAX;
use handfast_patterns::SyncFlag;
use handfast_patterns::sync_flag::StaleCopy;

use super::super::pattern_steps::{command, count, put_value};
use super::super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::patterns;
use crate::reply::Answer;
use crate::writer::{Writer, decimal, put_count};

/// Copies that are read at a time.
const PAGE: u32 = 500;
/// The bytes of a reply beside its findings.
const ENVELOPE_BYTES_MAX: usize = 1024;

pub(crate) const COMMAND: Command = Command {
    access: Access::Read,
    needs: Needs::Collection(&[Action::Find]),
    ..command("handfastAuditSynced", "lists copies that are out of date", Properties::DEFAULT, |call| {
        Box::pin(run(call))
    })
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("handfastAuditSynced");
    let shown_max = usize::try_from(count(&mut arguments)?).unwrap_or(usize::MAX);
    arguments.finish()?;
    let flag: SyncFlag = patterns::to_read(call).await?;
    let mut shown = Vec::new();
    let audit = flag
        .drift(PAGE, |stale| {
            if shown.len() < shown_max {
                shown.push(stale);
            }
        })
        .await?;
    let mut writer = Writer::new();
    put_count(&mut writer, "copies", audit.copies);
    put_count(&mut writer, "inFlight", audit.in_flight);
    put_count(&mut writer, "stale", audit.stale);
    writer.begin_array("findings");
    for (place, stale) in shown.iter().enumerate() {
        let finding = described(stale)?;
        if writer.len() + finding.as_bytes().len() + ENVELOPE_BYTES_MAX > ANSWER_BYTES_MAX {
            break;
        }
        writer.put(decimal(place, &mut [0; 20]), finding);
    }
    writer.end();
    Ok(writer.into())
}

fn described(stale: &StaleCopy) -> CommandResult<RawDocumentBuf> {
    let StaleCopy { target, id, main, why, found, expected } = stale;
    let mut writer = Writer::new();
    writer.put("collection", target.collection());
    put_value(&mut writer, "_id", id)?;
    put_value(&mut writer, "main", main)?;
    writer.put("why", why.to_string().as_str());
    writer.put("found", RawDocumentBuf::try_from(found)?).put("expected", RawDocumentBuf::try_from(expected)?);
    Ok(writer.finish())
}
