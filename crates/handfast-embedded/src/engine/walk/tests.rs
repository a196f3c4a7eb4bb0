//! A walk through a file of four blocks, of which any may be damaged, in one go and in pieces.

use std::ops::RangeBounds as _;

use super::*;
use crate::engine::holes::Gathering;
use crate::error::Result;

const BLOCKS: u8 = 4;

/// A file as the engine reads it: it looks into the block behind a range that ends with the last row of a block, and it reads
/// a row ahead, which it loses when that fails.
struct File {
    rows_of_a_block: u8,
    damaged: Vec<u8>,
    /// Rows that are also elsewhere.
    elsewhere: Vec<u8>,
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

    fn holes(&self, _: Keyspace, range: Range) -> Vec<Hole> {
        let own = (Bound::Included(vec![1]), Bound::Included(vec![BLOCKS * self.rows_of_a_block]));
        let range = crate::engine::holes::intersection(&range, &own).unwrap();
        let mut gathering = Gathering::new(range.clone());
        let mut holes = Vec::new();
        for block in 0..BLOCKS {
            let within: Vec<_> = self.rows(block).filter(|key| range.contains(key)).collect();
            if self.damaged.contains(&block) && !within.is_empty() {
                gathering.failure("broken".to_owned());
            } else {
                holes.extend(within.iter().filter_map(|key| gathering.row(key)));
            }
        }
        holes.extend(gathering.end());
        for hole in &mut holes {
            let known = self.elsewhere.iter().filter(|&&key| hole.range.contains(&vec![key]));
            hole.rows.extend(known.map(|&key| ([key].into(), [key].into())));
        }
        holes
    }
}

/// What is met: rows by their number, holes by the rows around them and how many within them are known.
#[derive(Debug, PartialEq)]
enum Seen {
    Row(u8),
    Hole(Option<u8>, Option<u8>, u64),
}

fn walk(file: &File, pieces_of: usize) -> Vec<Seen> {
    let mut rest = Rest::new(Keyspace::Documents, (Bound::Unbounded, Bound::Unbounded));
    let mut seen = Vec::new();
    loop {
        let mut walk = Walk::new(file, rest);
        for _ in 0..pieces_of {
            match walk.next() {
                Some(Met::Row(key, _)) => seen.push(Seen::Row(key[0])),
                Some(Met::Hole(Unreadable { after, before, causes, elsewhere })) => {
                    assert_eq!(causes, ["broken"]);
                    seen.push(Seen::Hole(after.map(|key| key[0]), before.map(|key| key[0]), elsewhere));
                }
                None => return seen,
            }
        }
        rest = walk.into_rest();
    }
}

fn expected(file: &File) -> Vec<Seen> {
    let File { damaged, elsewhere, .. } = file;
    let (mut seen, mut last, mut hole) = (Vec::new(), None, None);
    for block in 0..BLOCKS {
        for key in file.rows(block).map(|key| key[0]) {
            if damaged.contains(&block) {
                let (_, known) = hole.get_or_insert((last, 0));
                if elsewhere.contains(&key) {
                    *known += 1;
                    seen.push(Seen::Row(key));
                }
                continue;
            }
            if let Some((after, known)) = hole.take() {
                seen.push(Seen::Hole(after, Some(key), known));
            }
            last = Some(key);
            seen.push(Seen::Row(key));
        }
    }
    seen.extend(hole.map(|(after, known)| Seen::Hole(after, None, known)));
    seen
}

#[test]
fn every_row_that_is_known_is_met_once_and_in_its_order() {
    // With one row between two damaged blocks, and with several.
    for (pattern, rows_of_a_block) in (0..1_u8 << BLOCKS).flat_map(|pattern| [(pattern, 1), (pattern, 3)]) {
        let damaged: Vec<u8> = (0..BLOCKS).filter(|block| pattern >> block & 1 == 1).collect();
        // None, the last of a block, the first of one, and all.
        for elsewhere in [vec![], vec![3, 5, 9], vec![1, 4, 5, 10], (1..=BLOCKS * rows_of_a_block).collect()] {
            let file = File { rows_of_a_block, damaged: damaged.clone(), elsewhere };
            for pieces_of in [usize::MAX, 1, 2, 5] {
                let what = (&file.damaged, &file.elsewhere, pieces_of, rows_of_a_block);
                assert_eq!(walk(&file, pieces_of), expected(&file), "{what:?}");
            }
        }
    }
}

/// A file whose damage nobody finds.
struct Silent(File);

impl View for Silent {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.get(keyspace, key)
    }

    fn range(&self, keyspace: Keyspace, range: Range, direction: Direction) -> Rows {
        self.0.range(keyspace, range, direction)
    }

    fn holes(&self, _: Keyspace, _: Range) -> Vec<Hole> {
        Vec::new()
    }
}

#[test]
fn damage_that_no_block_explains_ends_the_walk_with_a_hole() {
    let silent = Silent(File { rows_of_a_block: 3, damaged: vec![2], elsewhere: Vec::new() });
    let range = (Bound::Unbounded, Bound::Unbounded);
    let met: Vec<Met> = Walk::new(&silent, Rest::new(Keyspace::Documents, range)).collect();
    assert_eq!(met.len(), 6);
    assert!(matches!(met.last(), Some(Met::Hole(Unreadable { after: Some(_), before: None, .. }))));
}
