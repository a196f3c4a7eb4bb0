//! The comparison of a new import with those of before: the same lines under another name would be added again.
//!
//! An import records the end of its lines, and the ends of their beginnings of 1, 2, 4, 8 lines and so on. So a file is compared with each import in
//! one reading, and without its lines:
//!
//! | the file | what is found |
//! | --- | --- |
//! | begins with all lines of the import | the import ([`EarlierImports::read`]): the lines behind them may be added under its name |
//! | is a beginning of the import, or has other lines behind a common beginning | the longest recorded beginning that both have, if it is more than a quarter of the shorter one ([`EarlierImports::shared_beginning`]): so it is whenever they have a half of it in common |
//! | has other lines from the first quarter on | nothing |
//!
//! A beginning without a figure, such as a header, is that of many files, and is not compared.

use std::collections::BTreeMap;

use bson::{RawDocument, rawdoc};
use handfast_store::{Find, StoreExt as _};

use super::super::unreadable;
use super::{ImportPosition, ImportRecord, LinesHash, position_of, record_of};
use crate::document_name::document_name;
use crate::storage::Storage;
use crate::{Error, Result};

/// The maximum number of earlier imports that a new one is compared with, the newest ones.
const COMPARED_IMPORTS_MAX: u64 = 10_000;

/// A comparison of a file with the imports of before.
#[derive(Debug, Default)]
pub struct EarlierImports {
    /// The imports by the number of their lines.
    by_lines: BTreeMap<u64, Vec<ImportRecord>>,
    /// The shortest import with each recorded beginning.
    by_beginning: BTreeMap<(u64, [u8; 32]), ImportRecord>,
    /// The lines that were read.
    read: LinesHash,
    /// Whether one of them has a figure.
    has_figure: bool,
    /// The beginnings of these lines that are those of imports.
    shared: Vec<SharedBeginning>,
}

/// A beginning that a file and an import have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedBeginning {
    /// The import.
    pub import: ImportRecord,
    /// The number of their first lines that are the same, at least.
    pub lines: u64,
}

impl EarlierImports {
    /// Returns whether there are imports with more lines than were read.
    pub fn any_beyond(&self) -> bool {
        self.by_lines.range(self.read.lines + 1..).next().is_some()
    }

    /// Reads the next line of the file that is not empty, which has a figure or not; returns the import that has added it and all lines before it, and no others.
    pub fn read(&mut self, text: &str, has_figure: bool) -> Option<&ImportRecord> {
        self.read.add(text);
        self.has_figure |= has_figure;
        if self.has_figure
            && let Some(ImportPosition { lines, hash }) = self.read.end_of_beginning()
            && let Some(import) = self.by_beginning.get(&(lines, hash))
        {
            self.shared.push(SharedBeginning { import: import.clone(), lines });
        }
        let ended = self.by_lines.get(&self.read.lines)?;
        let position = self.read.position();
        ended.iter().find(|record| record.position == position)
    }

    /// Returns the beginning that the file has in common with an import, once all its lines are read or no import has more.
    pub fn shared_beginning(&self) -> Option<&SharedBeginning> {
        // A recorded beginning has more than a half of the lines that are the same.
        let is_long = |shared: &&SharedBeginning| {
            let shorter = self.read.lines.min(shared.import.position.lines);
            shorter < shared.lines.saturating_mul(4)
        };
        self.shared.iter().rev().find(is_long)
    }

    fn add(&mut self, document: &RawDocument) -> Result<()> {
        let record = record_of(document)?;
        // A file of which it has added a header alone begins as others do.
        if record.figures == 0 {
            return Ok(());
        }
        for end in beginnings_of(document)? {
            let shortest = self.by_beginning.entry((end.lines, end.hash)).or_insert_with(|| record.clone());
            if record.position.lines < shortest.position.lines {
                *shortest = record.clone();
            }
        }
        self.by_lines.entry(record.position.lines).or_default().push(record);
        Ok(())
    }
}

/// Returns the recorded beginnings of an import.
fn beginnings_of(document: &RawDocument) -> Result<Vec<ImportPosition>> {
    if document.get("beginnings").map_err(unreadable)?.is_none() {
        return Ok(Vec::new());
    }
    let ends = document.get_array("beginnings").map_err(unreadable)?.into_iter();
    let no_end = || Error::damaged(format!("field \"beginnings\" of {} has no positions", document_name(document)));
    ends.map(|end| position_of(end.map_err(unreadable)?.as_document().ok_or_else(no_end)?)).collect()
}

impl Storage {
    /// Returns the imports that were begun, to compare a file with them.
    pub async fn earlier_imports(&self) -> Result<EarlierImports> {
        let (sort, limit) = (rawdoc! { "at": -1 }, Some(COMPARED_IMPORTS_MAX));
        let newest = Find { sort, limit, ..Find::new(self.imports.clone(), rawdoc! {}) };
        let mut imports = EarlierImports::default();
        for document in self.store.find_all(newest).await? {
            imports.add(&document)?;
        }
        Ok(imports)
    }
}
