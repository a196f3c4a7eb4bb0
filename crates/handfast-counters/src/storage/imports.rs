//! Figures from elsewhere that are added once, however often an import is killed and run again.
//!
//! # The idea
//! An import has a name and is a sequence of lines. It adds them in batches, each in one transaction, which also records the *position* under the
//! name of the import: the number of lines, and a hash of them.
//!
//! | collection | document |
//! | --- | --- |
//! | `imports` | `{_id: name, lines, hash, beginnings: [{lines, hash}, ..], figures, views, at}` |
//!
//! ```text
//!   line 1: ads,7,..   ─┐
//!   line 2: ads,8,..   ─┴─ batch, and {_id: "may", lines: 2, hash: H(1, 2)}
//!   line 3: ads,7,..   ─┐
//!   - killed -          │
//!   begin("may")        │  2 lines, H(1, 2)
//!   line 1, line 2      │  known, and the hash is H(1, 2): it is the same file
//!   line 3, line 4     ─┴─ batch, and {_id: "may", lines: 4, hash: H(1, .., 4)}
//! ```
//!
//! A batch goes on from the recorded position alone. So of two processes with the same import, or of one and its own late request, each batch is
//! added by one. A file whose first lines are others than those that were added has another hash and is refused. A file that has grown goes on
//! where it was.
//!
//! A new import, whose name is not that of an earlier one, is compared with the earlier ones: see [`earlier`].
//!
//! Empty lines are none: they are neither counted nor hashed, so a file stays the same file when an editor adds one.

mod earlier;

use std::collections::{BTreeMap, BTreeSet};

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{Applied, StoreExt as _, UpdateSpec, UpdateStatement};
use handfast_txn::Transaction;
use jiff::civil::Date;
use sha2::{Digest as _, Sha256};

use super::changes::{DAYS, Month};
use super::{Storage, int, key, month_id, number, total_id, unreadable};
use crate::document_name::document_name;
use crate::{Error, Item, Result, hex};

pub use earlier::{EarlierImports, SharedBeginning};

/// The largest total of an item: the largest number that all readers of JSON keep exact (RFC 8259, section 6). The store has room for many views above.
pub const TOTAL_MAX: u64 = (1 << 53) - 1;
/// The maximum length of the name of an import, in bytes.
pub const IMPORT_NAME_BYTES_MAX: usize = 128;
/// The maximum number of figures that one transaction adds. Each may change two documents.
pub const IMPORT_FIGURES_MAX: usize = 10_000;
/// How often a batch is sent again whose answer was lost.
const SAVE_ATTEMPTS: usize = 3;

/// Views of an item: those of a day, or those without a day, which are a part of the base of its total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The item.
    pub item: Item,
    /// The day.
    pub day: Option<Date>,
    /// The number of views, [`TOTAL_MAX`] at most.
    pub views: u64,
}

/// The name of an import, under which its lines are added once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImportName(Box<str>);

/// The end of the lines that an import has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportPosition {
    /// The number of the lines. Empty ones are not counted, so this is not the number of a line in its file.
    pub lines: u64,
    /// The SHA-256 hash of them, as [`LinesHash`] computes it.
    pub hash: [u8; 32],
}

/// The record of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRecord {
    /// Its name.
    pub name: ImportName,
    /// The end of the lines that were added.
    pub position: ImportPosition,
    /// The number of figures that were added.
    pub figures: u64,
    /// The sum of their views.
    pub views: u64,
}

/// The number and the hash of the lines of a file. They depend neither on line ends nor on empty lines, which are not added.
#[derive(Clone, Debug, Default)]
pub struct LinesHash {
    lines: u64,
    hash: Sha256,
}

/// Whether a line of an import was added before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineState {
    /// It was added before: the items that it is about go to [`Import::add_known`].
    Known,
    /// It is new: what it says is to be added.
    New,
    /// It or a line before it is another one than the line that was added.
    Changed,
}

/// The result of [`Counters::save_import`](crate::Counters::save_import).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportSaved {
    /// The batch was added.
    Added,
    /// Nothing was added: another process adds lines under the same name at the same time.
    Elsewhere,
    /// Nothing was added: with this figure of the batch, counted from 0, the total of its item would be above [`TOTAL_MAX`].
    TooLarge {
        /// The index of the figure.
        figure: usize,
    },
}

/// An import that reads its lines one after the other and adds their figures in batches.
pub struct Import {
    storage: Storage,
    name: ImportName,
    /// The position that is recorded.
    recorded: Option<ImportPosition>,
    /// The number of figures and the sum of their views that are recorded.
    sums: (u64, u64),
    /// The lines that were read.
    read: LinesHash,
    /// The ends of the beginnings of these lines that are recorded.
    beginnings: Vec<ImportPosition>,
    figures: Vec<Figure>,
    /// The items of figures that were added, by this process or an earlier one, and whose totals in caches may be those of before.
    items: BTreeSet<Item>,
}

/// The result of a batch in its transaction.
enum Attempt {
    Added,
    /// The batch was added by an earlier attempt.
    Before,
    Elsewhere,
    TooLarge(usize),
}

impl ImportName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is empty, too long, or has other than visible ASCII characters.
    pub fn new(name: &str) -> Result<Self> {
        if (1..=IMPORT_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(ImportName(name.into()));
        }
        Err(Error::invalid(format!(
            "the name {name:?} of an import must be 1 to {IMPORT_NAME_BYTES_MAX} visible ASCII characters"
        )))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl LinesHash {
    /// Adds a line that is not empty, without its end.
    pub fn add(&mut self, line: &str) {
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.lines += 1;
    }

    /// Returns the position behind the lines so far if it is that of a beginning which is recorded: of 1, 2, 4, 8 lines and so on.
    fn end_of_beginning(&self) -> Option<ImportPosition> {
        self.lines.is_power_of_two().then(|| self.position())
    }

    /// Returns the position behind the lines so far.
    pub fn position(&self) -> ImportPosition {
        ImportPosition { lines: self.lines, hash: self.hash.clone().finalize().into() }
    }
}

impl Import {
    /// Returns the name.
    pub fn name(&self) -> &ImportName {
        &self.name
    }

    /// Returns the end of the lines that were added, by this process or an earlier one.
    pub fn position(&self) -> Option<ImportPosition> {
        self.recorded
    }

    /// Returns the number of figures that were added, by this process or an earlier one: that of the lines, without those that have none, as a header.
    pub fn added_figures(&self) -> u64 {
        self.sums.0
    }

    /// Returns whether all lines were read that had been added before.
    pub fn has_caught_up(&self) -> bool {
        self.recorded.is_none_or(|recorded| self.read.lines >= recorded.lines)
    }

    /// Reads the next line of the file that is not empty.
    pub fn read(&mut self, text: &str) -> LineState {
        let caught_up = self.has_caught_up();
        self.read.add(text);
        self.beginnings.extend(self.read.end_of_beginning());
        match self.recorded {
            Some(recorded) if !caught_up => match self.has_caught_up() && self.read.position() != recorded {
                true => LineState::Changed,
                false => LineState::Known,
            },
            _ => LineState::New,
        }
    }

    /// Adds a figure of the line that was read last to the batch. A line has several or none.
    pub fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Adds the item of a figure of the line that was read last and that was added before: the process that has added it may have died before
    /// the cached total followed.
    pub fn add_known(&mut self, item: Item) {
        self.items.insert(item);
    }

    /// Returns the number of figures in the batch and of items that were added before: what the next save works on.
    pub fn batch_len(&self) -> usize {
        self.figures.len() + self.items.len()
    }

    /// Returns the items of the batch.
    pub(crate) fn batch_items(&self) -> BTreeSet<Item> {
        self.figures.iter().map(|figure| figure.item.clone()).collect()
    }

    /// Returns the items whose totals in caches may be those of before.
    pub(crate) fn items(&self) -> &BTreeSet<Item> {
        &self.items
    }

    /// Forgets these items, as the caches have followed.
    pub(crate) fn forget_items(&mut self) {
        self.items.clear();
    }

    /// Adds the batch to the totals and days, and records the line that was read last. Caches do not follow.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Invalid`] for a batch of more than [`IMPORT_FIGURES_MAX`] figures. The batch is kept: it may be saved
    /// again, which adds it once in all.
    pub(crate) async fn save(&mut self) -> Result<ImportSaved> {
        if self.figures.len() > IMPORT_FIGURES_MAX {
            let text =
                format!("{} figures are more than {IMPORT_FIGURES_MAX}, the limit of a batch", self.figures.len());
            return Err(Error::invalid(text));
        }
        let end = self.read.position();
        if !self.has_caught_up() || self.recorded == Some(end) {
            return Ok(ImportSaved::Added);
        }
        let mut attempts = SAVE_ATTEMPTS;
        let attempt = loop {
            attempts -= 1;
            match self.save_once(end).await {
                Err(error) if error.applied() == Applied::Maybe && attempts > 0 => {
                    tracing::debug!(%error, "a batch of an import is sent again");
                }
                other => break other?,
            }
        };
        Ok(match attempt {
            Attempt::Elsewhere => ImportSaved::Elsewhere,
            Attempt::TooLarge(figure) => ImportSaved::TooLarge { figure },
            Attempt::Added | Attempt::Before => {
                self.sums = self.sums_after();
                self.recorded = Some(end);
                self.items.extend(self.figures.drain(..).map(|figure| figure.item));
                ImportSaved::Added
            }
        })
    }

    /// Returns the number of figures and the sum of their views once the batch is added.
    fn sums_after(&self) -> (u64, u64) {
        let (figures, views) = self.sums;
        let added = self.figures.iter().fold(views, |sum, figure| sum.saturating_add(figure.views));
        (figures + self.figures.len() as u64, added)
    }

    async fn save_once(&self, end: ImportPosition) -> Result<Attempt> {
        let database = self.storage.transactions("an import")?;
        let at = database.sources().clock.now();
        database.transaction(|transaction| async move { self.save_in(&transaction, end, at).await }).await
    }

    async fn save_in(&self, transaction: &Transaction, end: ImportPosition, at: bson::DateTime) -> Result<Attempt> {
        let storage = &self.storage;
        let by_name = rawdoc! { "_id": self.name.as_str() };
        let found = transaction.find_one(&storage.imports, by_name.clone()).await?;
        let position = found.as_deref().map(position_of).transpose()?;
        if position == Some(end) {
            return Ok(Attempt::Before);
        }
        if position != self.recorded {
            return Ok(Attempt::Elsewhere);
        }
        if let Some(figure) = storage.add_figures(transaction, &self.figures).await? {
            return Ok(Attempt::TooLarge(figure));
        }
        let (figures, views) = self.sums_after();
        let ends =
            self.beginnings.iter().map(|end| rawdoc! { "lines": int(end.lines), "hash": hex::encode(&end.hash) });
        let beginnings: RawArrayBuf = ends.collect();
        let record = rawdoc! {
            "lines": int(end.lines),
            "hash": hex::encode(&end.hash),
            "beginnings": beginnings,
            "figures": int(figures),
            "views": int(views),
            "at": at,
        };
        transaction.upsert_one(&storage.imports, by_name, rawdoc! { "$set": record }).await?;
        Ok(Attempt::Added)
    }
}

impl Storage {
    /// Begins an import, or goes on with the one of this name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a storage without transactions; [`Error::Store`].
    pub async fn begin_import(&self, name: ImportName) -> Result<Import> {
        self.transactions("an import")?;
        let found = self.store.find_one(&self.imports, rawdoc! { "_id": name.as_str() }).await?;
        let record = found.as_deref().map(record_of).transpose()?;
        let recorded = record.as_ref().map(|record| record.position);
        let sums = record.map_or((0, 0), |record| (record.figures, record.views));
        let (read, beginnings, figures, items) = Default::default();
        Ok(Import { storage: self.clone(), name, recorded, sums, read, beginnings, figures, items })
    }

    /// Adds figures to totals, bases and days; or nothing, and returns the index of the figure with which a total would be too large.
    async fn add_figures(&self, transaction: &Transaction, figures: &[Figure]) -> Result<Option<usize>> {
        let figures = || figures.iter().enumerate().filter(|(_, figure)| figure.views > 0);
        let ids = figures().map(|(_, figure)| (&figure.item, total_id(&figure.item.kind, &figure.item.id)));
        let ids: BTreeMap<&Item, RawDocumentBuf> = ids.collect();
        let stored = self.documents_of(transaction, &self.totals, ids.values().cloned()).await?;
        let mut totals: BTreeMap<&Item, u64> = BTreeMap::new();
        for (item, id) in &ids {
            totals.insert(item, stored.get(&key(id)).map_or(Ok(0), |document| number(document, "total"))?);
        }
        // The views that are added to a total and to its base.
        let mut added: BTreeMap<&Item, (u64, u64)> = BTreeMap::new();
        let mut months: BTreeMap<(&Item, Month), [u64; DAYS]> = BTreeMap::new();
        for (index, Figure { item, day, views }) in figures() {
            let total = totals.entry(item).or_default();
            match total.checked_add(*views).filter(|sum| *sum <= TOTAL_MAX) {
                Some(sum) => *total = sum,
                None => return Ok(Some(index)),
            }
            let (of_total, of_base) = added.entry(item).or_default();
            *of_total += views;
            match day {
                None => *of_base += views,
                Some(day) => {
                    let month = months.entry((item, Month::of(*day))).or_insert([0; DAYS]);
                    if let Some(of_day) = usize::try_from(day.day() - 1).ok().and_then(|day| month.get_mut(day)) {
                        *of_day += views;
                    }
                }
            }
        }
        let statements = added.iter().map(|(item, (of_total, of_base))| {
            let id = total_id(&item.kind, &item.id);
            let increments = match of_base {
                0 => rawdoc! { "total": int(*of_total) },
                _ => rawdoc! { "total": int(*of_total), "base": int(*of_base) },
            };
            let change = UpdateSpec::Document(rawdoc! { "$inc": increments });
            UpdateStatement { upsert: true, ..UpdateStatement::one(rawdoc! { "_id": id }, change) }
        });
        self.update(transaction, &self.totals, statements.collect()).await?;
        let months = months.iter().map(|((item, month), days)| (month_id(&item.kind, &item.id, month), days));
        self.add_days(transaction, months).await?;
        Ok(None)
    }
}

fn position_of(document: &RawDocument) -> Result<ImportPosition> {
    let hash = document.get_str("hash").map_err(unreadable)?;
    let damaged = || Error::damaged(format!("field \"hash\" of {} is not a SHA-256 hash", document_name(document)));
    Ok(ImportPosition { lines: number(document, "lines")?, hash: hex::decode(hash).ok_or_else(damaged)? })
}

fn record_of(document: &RawDocument) -> Result<ImportRecord> {
    let name = ImportName::new(document.get_str("_id").map_err(unreadable)?)?;
    let (figures, views) = (number(document, "figures")?, number(document, "views")?);
    Ok(ImportRecord { name, position: position_of(document)?, figures, views })
}

#[cfg(test)]
mod tests {
    use super::{IMPORT_NAME_BYTES_MAX, ImportName, LinesHash};

    #[test]
    fn names_are_checked() {
        for good in ["may", "sha256:0f", &"n".repeat(IMPORT_NAME_BYTES_MAX)] {
            assert_eq!(ImportName::new(good).expect("valid").as_str(), good);
        }
        for bad in ["", "a b", "ä", "\n", &"n".repeat(IMPORT_NAME_BYTES_MAX + 1)] {
            assert!(ImportName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lines_that_are_cut_elsewhere_are_other_lines() {
        let (mut one, mut two) = (LinesHash::default(), LinesHash::default());
        one.add("ab");
        two.add("a");
        two.add("b");
        assert_ne!(one.position().hash, two.position().hash);
    }
}
