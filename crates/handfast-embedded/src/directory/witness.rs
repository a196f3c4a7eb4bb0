//! A second memory of how far the store has come: the number of the last synced batch, in a file of its own.
//!
//! ```text
//! slot 0, slot 1, written in turn:   "HFWITNES" | batch number u64 | crc32 of both
//! ```
//!
//! It is written after each sync of the journal, and not synced itself: a second sync would double the price of every
//! commit. A torn write spoils one slot; the other still has the number before.
//!
//! What it shows: synced batches that are missing from the end of the journal, or from data files, in every case but
//! one. As it is written after the journal's sync, it never says more than was synced, so it never cries wolf.
//!
//! What it cannot show: after a *loss of power* the number may be some seconds old, so damage to the last seconds of
//! the journal at the same time goes unseen; nor a directory that was replaced, as a whole, by an older copy.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"HFWITNES";
const SLOT_BYTES: usize = 20;

/// The open witness.
pub(crate) struct Witness {
    path: PathBuf,
    file: File,
    number: u64,
    next_slot: u64,
}

impl Witness {
    /// Reads the file; one that is not there says 0.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("opening {}", path.display()), error);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let slots = [read_slot(&mut file, 0).map_err(failed)?, read_slot(&mut file, 1).map_err(failed)?];
        let number = slots.iter().flatten().copied().max().unwrap_or(0);
        // The next write goes where the newest number is not.
        let next_slot = u64::from(slots[0] == Some(number));
        Ok(Witness { path: path.to_owned(), file, number, next_slot })
    }

    /// The last batch known to be synced.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notes that everything up to a batch is synced.
    pub(crate) fn note(&mut self, number: u64) -> Result<()> {
        if number <= self.number {
            return Ok(());
        }
        self.write(number)
    }

    /// Takes back what was noted: only a repair may, which has said what is gone.
    pub(crate) fn reset(&mut self, number: u64) -> Result<()> {
        self.write(number)?;
        self.write(number)?;
        self.sync()
    }

    fn write(&mut self, number: u64) -> Result<()> {
        let failed = |error| Error::io(format!("writing {}", self.path.display()), error);
        let mut write = || {
            self.file.seek(SeekFrom::Start(self.next_slot * SLOT_BYTES as u64))?;
            self.file.write_all(&encode(number))
        };
        write().map_err(failed)?;
        self.number = number;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }

    /// Makes it durable: when a store is closed in order.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io(format!("syncing {}", self.path.display()), error))
    }
}

fn encode(number: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..16].copy_from_slice(&number.to_le_bytes());
    let sum = crc32fast::hash(&slot[..16]);
    slot[16..].copy_from_slice(&sum.to_le_bytes());
    slot
}

fn read_slot(file: &mut File, slot: u64) -> std::io::Result<Option<u64>> {
    let mut bytes = [0; SLOT_BYTES];
    file.seek(SeekFrom::Start(slot * SLOT_BYTES as u64))?;
    match file.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[8..16]);
    let number = u64::from_le_bytes(number);
    Ok((bytes == encode(number)).then_some(number))
}
