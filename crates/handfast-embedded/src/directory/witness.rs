//! The witness: the number of the last synced batch, in a file apart from the journal.
//!
//! ```text
//! two pages of 4096 bytes, written in turn     "HFWITNES" | format u32 | batch u64 | the engine's number of it u64
//!                                              | crc32 of all that | zeros
//! ```
//!
//! The file is created with the store, with both pages valid, before the file FORMAT marks the directory as a store. From then
//! on pages are only overwritten in place, so a torn write damages one of them and the other still has the previous number. A
//! witness that is missing, too short, or without a valid page was damaged: then it is unknown whether synced batches are
//! missing, and the store is not opened until a repair accepts the existing data.
//!
//! A page is written after each sync of the journal, and not synced itself: a second sync would double the price of a commit.
//!
//! The witness shows synced batches that are missing from the end of the journal, or from data files. As it is written after
//! the journal's sync, its number is never greater than that of the last synced batch, so there are no false alarms.
//!
//! It does not show damage to the last seconds of the journal together with a *loss of power*, after which its number may be
//! some seconds old; nor a directory that was replaced, as a whole, by an older copy.
//!
//! It has the version of the format too, which distinguishes a damaged file FORMAT from a newer one.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::{write_atomically, writing};
use crate::chain::BatchNumbers;
use crate::error::{Error, Result};
use crate::format::FORMAT_VERSION;

const MAGIC: &[u8; 8] = b"HFWITNES";
/// Each slot has a page to itself, so that no sector of a disk holds both.
const PAGE_BYTES: usize = 4096;
const SLOTS: usize = 2;
const FILE_BYTES: usize = SLOTS * PAGE_BYTES;
const CHECKED_BYTES: usize = 28;
const SLOT_BYTES: usize = CHECKED_BYTES + 4;

pub(crate) struct Witness {
    path: PathBuf,
    file: File,
    synced: BatchNumbers,
    next_slot: usize,
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The version of the format.
    pub(super) format: u32,
    pub(super) synced: BatchNumbers,
}

impl Witness {
    /// Creates and syncs the file of a store without batches; the caller syncs the directory.
    pub(super) fn create(path: &Path) -> Result<()> {
        let create = || {
            let mut file = File::create(path)?;
            file.write_all(&encode_file(BatchNumbers::default()))?;
            file.sync_all()
        };
        create().map_err(|error| writing(path, error))
    }

    /// Replaces a damaged file: only for a repair, which reports that lost batches are unknown.
    pub(crate) fn replace(path: &Path, synced: BatchNumbers) -> Result<()> {
        write_atomically(path, &encode_file(synced))
    }

    /// Opens the file of a store.
    ///
    /// # Errors
    /// `Corrupt` if the file is missing, too short, or has no valid slot.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let slots = read(path)?;
        let Some(Slot { synced, .. }) = newest(&slots) else {
            return Err(damaged(path, "has no page that is as it was written"));
        };
        let file = OpenOptions::new().write(true).open(path);
        let file = file.map_err(|error| Error::io(format!("opening {}", path.display()), error))?;
        // The next write must not overwrite the newest number.
        let next_slot = usize::from(slots[0].is_some_and(|slot| slot.synced == synced));
        Ok(Witness { path: path.to_owned(), file, synced, next_slot })
    }

    /// Returns the last batch known to be synced.
    pub(crate) fn synced(&self) -> BatchNumbers {
        self.synced
    }

    /// Records that everything up to a batch is synced.
    pub(crate) fn record(&mut self, synced: BatchNumbers) -> Result<()> {
        if synced.number <= self.synced.number {
            return Ok(());
        }
        self.write(synced)
    }

    /// Resets the number to an earlier batch: only for a repair, which has reported the lost batches.
    pub(crate) fn reset(&mut self, synced: BatchNumbers) -> Result<()> {
        self.write(synced)?;
        self.write(synced)?;
        self.sync()
    }

    fn write(&mut self, synced: BatchNumbers) -> Result<()> {
        let mut write = || {
            self.file.seek(SeekFrom::Start((self.next_slot * PAGE_BYTES) as u64))?;
            self.file.write_all(&Slot { format: FORMAT_VERSION, synced }.encode())
        };
        write().map_err(|error| writing(&self.path, error))?;
        self.synced = synced;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }

    /// Syncs the file, when the store is closed.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io(format!("syncing {}", self.path.display()), error))
    }
}

/// Returns the newest slot of a file without opening it for writing; `None` if the file is missing or damaged.
pub(super) fn look(path: &Path) -> Result<Option<Slot>> {
    match read(path) {
        Ok(slots) => Ok(newest(&slots)),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn newest(slots: &[Option<Slot>; SLOTS]) -> Option<Slot> {
    slots.iter().flatten().max_by_key(|slot| slot.synced.number).copied()
}

/// Reads the slots; `None` for an invalid one.
fn read(path: &Path) -> Result<[Option<Slot>; SLOTS]> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(FILE_BYTES as u64).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(damaged(path, "is missing")),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(super::reading(path, error)),
        Err(error) => return Err(damaged(path, &format!("cannot be read ({error})"))),
    }
    if bytes.len() < FILE_BYTES {
        return Err(damaged(path, &format!("has {} bytes of {FILE_BYTES}", bytes.len())));
    }
    Ok([Slot::decode(&bytes), Slot::decode(&bytes[PAGE_BYTES..])])
}

fn damaged(path: &Path, what: &str) -> Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Error::Corrupt(format!("the file {name}, which knows the last synced batch, {what}"))
}

impl Slot {
    fn encode(self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(MAGIC);
        slot[8..12].copy_from_slice(&self.format.to_le_bytes());
        slot[12..20].copy_from_slice(&self.synced.number.to_le_bytes());
        slot[20..CHECKED_BYTES].copy_from_slice(&self.synced.sequence.to_le_bytes());
        let sum = crc32fast::hash(&slot[..CHECKED_BYTES]);
        slot[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        slot
    }

    /// Decodes the slot at the beginning of these bytes, if it is valid.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let slot = bytes.first_chunk::<SLOT_BYTES>()?;
        let number = |at: usize| slot[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let format = u32::from_le_bytes(*slot[8..].first_chunk()?);
        let decoded = Slot { format, synced: BatchNumbers { number: number(12)?, sequence: number(20)? } };
        (decoded.encode() == *slot).then_some(decoded)
    }
}

/// Returns the content of a file with two equal slots.
fn encode_file(synced: BatchNumbers) -> Vec<u8> {
    let mut page = Slot { format: FORMAT_VERSION, synced }.encode().to_vec();
    page.resize(PAGE_BYTES, 0);
    page.repeat(SLOTS)
}
