//! What lies beneath the records: the file FORMAT, the journal, the witness.

use std::path::Path;

use super::{CheckReport, Remedy, Repair};
use crate::chain::BatchNumbers;
use crate::directory::format_file::{self, FormatFile};
use crate::directory::journal::{self, Journals};
use crate::directory::witness::Witness;
use crate::directory::{ENGINE, WITNESS_FILE, find_end_of_chain, is_there};
use crate::error::{Error, Result};
use crate::format::FORMAT_VERSION;

/// Numbers that are put right in one journal before somebody should look at the disk instead.
const JOURNAL_REPAIRS_MAX: usize = 1000;

/// Looks at the files, and mends them if told to. Returns the last batch that is known to be synced, as far as that is
/// known; `None` if the engine must not be opened.
pub(super) fn look(path: &Path, repair: Repair, report: &mut CheckReport) -> Result<Option<BatchNumbers>> {
    if !look_at_format(path, repair, report)? {
        return Ok(None);
    }
    let witness = match Witness::open(&path.join(WITNESS_FILE)) {
        Ok(witness) => Some(witness),
        Err(Error::Corrupt(what)) => {
            if !is_there(&path.join(ENGINE))? {
                report.find(Remedy::None, format!("{what}; the directory {ENGINE} is missing"));
                return Ok(None);
            }
            let unknown = "nobody can tell whether synced batches are missing from the end of the journal";
            report.find(Remedy::WriteWitness, format!("{what}: {unknown}"));
            None
        }
        Err(error) => return Err(error),
    };
    let Some(witness) = witness else {
        return look_without_witness(path, repair, report);
    };
    if !is_there(&path.join(ENGINE))? {
        // A store that was never written to, or whose files are gone: opening tells them apart.
        return Ok(Some(witness.synced()));
    }
    look_with(witness, path, repair, report)
}

/// Whether the version is known.
fn look_at_format(path: &Path, repair: Repair, report: &mut CheckReport) -> Result<bool> {
    match format_file::look(path)? {
        FormatFile::Known => Ok(true),
        FormatFile::Newer(found) => Err(format_file::newer(path, found)),
        FormatFile::Damaged { what, is_known: true } => {
            report.find(Remedy::WriteFormat, format!("{what}; by the witness it is version {FORMAT_VERSION}"));
            if repair == Repair::Yes {
                format_file::write(path)?;
                report.repaired.push(format!("wrote the file FORMAT anew, with version {FORMAT_VERSION}"));
            }
            Ok(true)
        }
        FormatFile::Damaged { what, is_known: false } => {
            let text =
                "the witness, which has the version too, does not tell it either, so nobody knows how to read this";
            report.find(Remedy::None, format!("{what}; {text}"));
            Ok(false)
        }
    }
}

fn look_with(
    mut witness: Witness,
    path: &Path,
    repair: Repair,
    report: &mut CheckReport,
) -> Result<Option<BatchNumbers>> {
    let synced = witness.synced();
    let judge = |journals: &Journals| journals.judge(synced.number).err();
    let Some(journals) = look_at_journal(path, synced, &judge, repair, report)? else {
        return Ok(None);
    };
    if journals.last().is_some_and(|batch| batch.last.number >= synced.number) {
        return Ok(Some(synced));
    }
    // The last batch may be in a data file and not in the journal any more.
    let Ok(end) = find_end_of_chain(path, &journals) else {
        // Why not is told when it is opened to be read.
        return Ok(Some(synced));
    };
    let last = end.last.number;
    if last < synced.number {
        let text = format!("batch {} was synced, the last that is there is {last}", synced.number);
        report.find(Remedy::ResetWitness, text);
        if repair == Repair::No {
            return Ok(None);
        }
        witness.reset(end.numbers())?;
        report.repaired.push(format!("accepted that batches {} to {} are gone", last + 1, synced.number));
    }
    Ok(Some(witness.synced()))
}

fn look_without_witness(path: &Path, repair: Repair, report: &mut CheckReport) -> Result<Option<BatchNumbers>> {
    let unknown = BatchNumbers::default();
    let Some(journals) = look_at_journal(path, unknown, &Journals::problem, repair, report)? else {
        return Ok(None);
    };
    if repair == Repair::No {
        return Ok(Some(unknown));
    }
    let Ok(end) = find_end_of_chain(path, &journals) else {
        return Ok(Some(unknown));
    };
    Witness::replace(&path.join(WITNESS_FILE), end.numbers())?;
    report.repaired.push(format!(
        "wrote the witness anew: batch {} is the last that is there; whether synced ones were behind it nobody can tell",
        end.last.number
    ));
    Ok(Some(end.numbers()))
}

/// Looks at the journal, and mends it if told to; `None` if it is damaged.
fn look_at_journal(
    path: &Path,
    synced: BatchNumbers,
    judge: &dyn Fn(&Journals) -> Option<String>,
    repair: Repair,
    report: &mut CheckReport,
) -> Result<Option<Journals>> {
    for _ in 0..JOURNAL_REPAIRS_MAX {
        let journals = match journal::read(&path.join(ENGINE), synced) {
            Ok(journals) => journals,
            Err(Error::Corrupt(what)) => {
                report.find(Remedy::None, what);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(what) = judge(&journals) else {
            return Ok(Some(journals));
        };
        report.find(Remedy::MendJournal, what);
        if repair == Repair::No {
            return Ok(None);
        }
        report.repaired.extend(journals.repair()?);
    }
    report.find(Remedy::MendJournal, "there is more of that in the journal");
    Ok(None)
}
