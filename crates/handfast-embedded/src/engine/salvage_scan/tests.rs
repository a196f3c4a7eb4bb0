//! A salvage scan of a file of four blocks, of which any may be damaged, in one go and in pieces.

use std::ops::{Bound, RangeBounds as _};

use super::{Remaining, SalvageItem, SalvageScan, UnreadableKeys};
use crate::engine::damaged_ranges::FileScan;
use crate::engine::{Bytes, DamagedRange, Direction, Keyspace, Range, Rows, View};
use crate::error::{Error, Result};

const BLOCKS: u8 = 4;

/// A file with the engine's reads: a range that ends with the last row of a block also reads the next block, and the engine
/// reads a row ahead, which it loses if the read fails.
struct File {
    rows_of_a_block: u8,
    damaged: Vec<u8>,
    /// Rows that are recovered from other files.
    recovered: Vec<u8>,
}

impl File {
    fn rows(&self, block: u8) -> impl Iterator<Item = Vec<u8>> + use<> {
        let rows = self.rows_of_a_block;
        (0..rows).map(move |row| vec![1 + block * rows + row])
    }
}

fn broken() -> Error {
    Error::Corrupt("broken".to_owned())
}

impl View for File {
    fn get(&self, _: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let block = (key[0] - 1) / self.rows_of_a_block;
        if self.damaged.contains(&block) { Err(broken()) } else { Ok(Some(key.into())) }
    }

    fn range(&self, _: Keyspace, range: Range, _: Direction) -> Rows {
        let mut read: Vec<Result<(Bytes, Bytes)>> = Vec::new();
        for block in 0..BLOCKS {
            let last = self.rows(block).last().unwrap();
            let is_before = match &range.0 {
                Bound::Included(start) | Bound::Excluded(start) => last < *start,
                Bound::Unbounded => false,
            };
            if is_before {
                continue;
            }
            if self.damaged.contains(&block) {
                read.pop();
                read.push(Err(broken()));
                break;
            }
            let within = self.rows(block).filter(|key| range.contains(key));
            read.extend(within.map(|key| Ok((key.clone().into(), key.into()))));
            if let Bound::Included(end) | Bound::Excluded(end) = &range.1
                && *end < last
            {
                break;
            }
        }
        Box::new(read.into_iter())
    }

    fn damaged_ranges(&self, _: Keyspace, range: Range) -> Vec<DamagedRange> {
        let own = (Bound::Included(vec![1]), Bound::Included(vec![BLOCKS * self.rows_of_a_block]));
        let range = crate::engine::damaged_ranges::intersection(&range, &own).unwrap();
        let mut scan = FileScan::new(range.clone());
        let mut damaged = Vec::new();
        for block in 0..BLOCKS {
            let within: Vec<_> = self.rows(block).filter(|key| range.contains(key)).collect();
            if self.damaged.contains(&block) && !within.is_empty() {
                scan.failure("broken".to_owned());
            } else {
                damaged.extend(within.iter().filter_map(|key| scan.row(key)));
            }
        }
        damaged.extend(scan.end());
        for range in &mut damaged {
            let known = self.recovered.iter().filter(|&&key| range.range.contains(&vec![key]));
            range.rows.extend(known.map(|&key| ([key].into(), [key].into())));
        }
        damaged
    }
}

/// An item in short: a row by its number, unreadable keys by the rows around them and the number of recovered rows.
#[derive(Debug, PartialEq)]
enum Item {
    Row(u8),
    Unreadable(Option<u8>, Option<u8>, u64),
}

fn scan(file: &File, pieces_of: usize) -> Vec<Item> {
    let mut remaining = Remaining::new(Keyspace::Documents, (Bound::Unbounded, Bound::Unbounded));
    let mut items = Vec::new();
    loop {
        let mut scan = SalvageScan::new(file, remaining);
        for _ in 0..pieces_of {
            match scan.next() {
                Some(SalvageItem::Row(key, _)) => items.push(Item::Row(key[0])),
                Some(SalvageItem::Unreadable(UnreadableKeys { after, before, causes, recovered })) => {
                    assert_eq!(causes, ["broken"]);
                    items.push(Item::Unreadable(after.map(|key| key[0]), before.map(|key| key[0]), recovered));
                }
                None => return items,
            }
        }
        remaining = scan.into_remaining();
    }
}

fn expected(file: &File) -> Vec<Item> {
    let File { damaged, recovered, .. } = file;
    let (mut items, mut last, mut unreadable) = (Vec::new(), None, None);
    for block in 0..BLOCKS {
        for key in file.rows(block).map(|key| key[0]) {
            if damaged.contains(&block) {
                let (_, known) = unreadable.get_or_insert((last, 0));
                if recovered.contains(&key) {
                    *known += 1;
                    items.push(Item::Row(key));
                }
                continue;
            }
            if let Some((after, known)) = unreadable.take() {
                items.push(Item::Unreadable(after, Some(key), known));
            }
            last = Some(key);
            items.push(Item::Row(key));
        }
    }
    items.extend(unreadable.map(|(after, known)| Item::Unreadable(after, None, known)));
    items
}

#[test]
fn every_row_that_can_be_read_is_returned_once_and_in_order() {
    // Blocks have one row or several, so that one or several rows are between two damaged blocks.
    for (pattern, rows_of_a_block) in (0..1_u8 << BLOCKS).flat_map(|pattern| [(pattern, 1), (pattern, 3)]) {
        let damaged: Vec<u8> = (0..BLOCKS).filter(|block| pattern >> block & 1 == 1).collect();
        // The recovered rows are none, the last of a block, the first of one, or all.
        for recovered in [vec![], vec![3, 5, 9], vec![1, 4, 5, 10], (1..=BLOCKS * rows_of_a_block).collect()] {
            let file = File { rows_of_a_block, damaged: damaged.clone(), recovered };
            for pieces_of in [usize::MAX, 1, 2, 5] {
                let what = (&file.damaged, &file.recovered, pieces_of, rows_of_a_block);
                assert_eq!(scan(&file, pieces_of), expected(&file), "{what:?}");
            }
        }
    }
}

/// A file whose damaged ranges are not found.
struct Silent(File);

impl View for Silent {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.get(keyspace, key)
    }

    fn range(&self, keyspace: Keyspace, range: Range, direction: Direction) -> Rows {
        self.0.range(keyspace, range, direction)
    }

    fn damaged_ranges(&self, _: Keyspace, _: Range) -> Vec<DamagedRange> {
        Vec::new()
    }
}

#[test]
fn damage_that_no_block_explains_ends_the_scan_with_unreadable_keys() {
    let silent = Silent(File { rows_of_a_block: 3, damaged: vec![2], recovered: Vec::new() });
    let range = (Bound::Unbounded, Bound::Unbounded);
    let items: Vec<SalvageItem> = SalvageScan::new(&silent, Remaining::new(Keyspace::Documents, range)).collect();
    assert_eq!(items.len(), 6);
    assert!(matches!(items.last(), Some(SalvageItem::Unreadable(UnreadableKeys { after: Some(_), before: None, .. }))));
}
