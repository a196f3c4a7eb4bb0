//! Checks the files below the records: FORMAT, the journal, the witness.

use std::path::Path;

use super::{CheckReport, Remedy, Repair};
use crate::chain::BatchNumbers;
use crate::directory::format_file::{self, FormatFile};
use crate::directory::witness::Witness;
use crate::directory::{ENGINE, WITNESS_FILE, exists, find_end_of_chain};
use crate::error::{Error, Result};
use crate::format::FORMAT_VERSION;
use crate::journal::{self, Journals};

/// Repairs of one journal, after which the disk should be examined instead.
const JOURNAL_REPAIRS_MAX: usize = 1000;

/// Checks the files, and repairs them if told to. Returns the last batch that is known to be synced (0 if that is unknown), or
/// `None` if the engine must not be opened.
pub(super) fn look(path: &Path, repair: Repair, report: &mut CheckReport) -> Result<Option<BatchNumbers>> {
    if !check_format(path, repair, report)? {
        return Ok(None);
    }
    let witness = match Witness::open(&path.join(WITNESS_FILE)) {
        Ok(witness) => Some(witness),
        Err(Error::Corrupt(what)) => {
            if !exists(&path.join(ENGINE))? {
                report.add(Remedy::None, format!("{what}; the directory {ENGINE} is missing"));
                return Ok(None);
            }
            let unknown = "it is unknown whether synced batches are missing from the end of the journal";
            report.add(Remedy::WriteWitness, format!("{what}: {unknown}"));
            None
        }
        Err(error) => return Err(error),
    };
    let Some(witness) = witness else {
        return check_without_witness(path, repair, report);
    };
    if !exists(&path.join(ENGINE))? {
        // The store was never written to, or its files are lost: opening it tells which.
        return Ok(Some(witness.synced()));
    }
    check_with_witness(witness, path, repair, report)
}

/// Returns whether the version is known.
fn check_format(path: &Path, repair: Repair, report: &mut CheckReport) -> Result<bool> {
    match format_file::look(path)? {
        FormatFile::Known => Ok(true),
        FormatFile::Newer(found) => Err(format_file::newer(path, found)),
        FormatFile::Damaged { what, is_known: true } => {
            report.add(Remedy::WriteFormat, format!("{what}; by the witness it is version {FORMAT_VERSION}"));
            if repair == Repair::Yes {
                format_file::write(path)?;
                report.repaired.push(format!("wrote the file FORMAT anew, with version {FORMAT_VERSION}"));
            }
            Ok(true)
        }
        FormatFile::Damaged { what, is_known: false } => {
            let text = "the witness, which has the version too, cannot be read either, so the version is unknown";
            report.add(Remedy::None, format!("{what}; {text}"));
            Ok(false)
        }
    }
}

fn check_with_witness(
    mut witness: Witness,
    path: &Path,
    repair: Repair,
    report: &mut CheckReport,
) -> Result<Option<BatchNumbers>> {
    let synced = witness.synced();
    let loss = |journals: &Journals| journals.check_no_synced_loss(synced.number).err();
    let Some(journals) = check_journal(path, synced, &loss, repair, report)? else {
        return Ok(None);
    };
    if journals.last().is_some_and(|batch| batch.last.number >= synced.number) {
        return Ok(Some(synced));
    }
    // The last batch may be in a data file and not in the journal any more.
    let Ok(end) = find_end_of_chain(path, &journals) else {
        // Opening the engine to read it reports the error.
        return Ok(Some(synced));
    };
    let last = end.last.number;
    if last < synced.number {
        let text = format!("batch {} was synced, the last that is there is {last}", synced.number);
        report.add(Remedy::ResetWitness, text);
        if repair == Repair::No {
            return Ok(None);
        }
        witness.reset(end.numbers())?;
        report.repaired.push(format!("accepted that batches {} to {} are lost", last + 1, synced.number));
    }
    Ok(Some(witness.synced()))
}

fn check_without_witness(path: &Path, repair: Repair, report: &mut CheckReport) -> Result<Option<BatchNumbers>> {
    let unknown = BatchNumbers::default();
    let Some(journals) = check_journal(path, unknown, &Journals::problem, repair, report)? else {
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
        "wrote the witness anew: batch {} is the last one that was found; later synced batches may be missing",
        end.last.number
    ));
    Ok(Some(end.numbers()))
}

/// Checks the journal, and repairs it if told to; returns `None` if it is damaged. `problem_of` says what must be repaired.
fn check_journal(
    path: &Path,
    synced: BatchNumbers,
    problem_of: &dyn Fn(&Journals) -> Option<String>,
    repair: Repair,
    report: &mut CheckReport,
) -> Result<Option<Journals>> {
    for _ in 0..JOURNAL_REPAIRS_MAX {
        let journals = match journal::read(&path.join(ENGINE), synced) {
            Ok(journals) => journals,
            Err(Error::Corrupt(what)) => {
                report.add(Remedy::None, what);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(what) = problem_of(&journals) else {
            return Ok(Some(journals));
        };
        report.add(Remedy::MendJournal, what);
        if repair == Repair::No {
            return Ok(None);
        }
        report.repaired.extend(journals.repair()?);
    }
    report.add(Remedy::MendJournal, "there is more damage in the journal");
    Ok(None)
}
