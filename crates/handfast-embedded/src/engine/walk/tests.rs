//! A walk through a file of four blocks, of which any may be damaged, in one go and in pieces.

use std::ops::RangeBounds as _;

use super::*;
use crate::engine::holes::Gathering;
use crate::error::Result;

const BLOCKS: u8 = 4;
const ROWS: u8 = 3;

/// A file as the engine reads it: it looks into the block behind a range that ends with the last row of a block, and it reads
/// a row ahead, which it loses when that fails.
struct File {
    damaged: Vec<u8>,
}

fn rows(block: u8) -> impl Iterator<Item = Vec<u8>> {
    (0..ROWS).map(move |row| vec![1 + block * ROWS + row])
}

fn broken() -> Error {
    Error::Corrupt("broken".to_owned())
}

impl View for File {
    fn get(&self, _: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let block = (key[0] - 1) / ROWS;
        if self.damaged.contains(&block) { Err(broken()) } else { Ok(Some(key.into())) }
    }

    fn range(&self, _: Keyspace, range: Range, _: Direction) -> Rows {
        let mut read: Vec<Result<(Bytes, Bytes)>> = Vec::new();
        for block in 0..BLOCKS {
            let last = rows(block).last().unwrap();
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
            let within = rows(block).filter(|key| range.contains(key));
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
        let own = (Bound::Included(vec![1]), Bound::Included(vec![BLOCKS * ROWS]));
        let range = crate::engine::holes::intersection(&range, &own).unwrap();
        let mut gathering = Gathering::new(range.clone());
        let mut holes = Vec::new();
        for block in 0..BLOCKS {
            let within: Vec<_> = rows(block).filter(|key| range.contains(key)).collect();
            if self.damaged.contains(&block) && !within.is_empty() {
                gathering.failure("broken".to_owned());
            } else {
                holes.extend(within.iter().filter_map(|key| gathering.row(key)));
            }
        }
        holes.extend(gathering.end());
        holes
    }
}

/// What is met: rows by their number, holes by the rows around them.
#[derive(Debug, PartialEq)]
enum Seen {
    Row(u8),
    Hole(Option<u8>, Option<u8>),
}

fn walk(file: &File, pieces_of: usize) -> Vec<Seen> {
    let mut rest = Rest::new(Keyspace::Documents, (Bound::Unbounded, Bound::Unbounded));
    let mut seen = Vec::new();
    loop {
        let mut walk = Walk::new(file, rest);
        for _ in 0..pieces_of {
            match walk.next() {
                Some(Met::Row(key, _)) => seen.push(Seen::Row(key[0])),
                Some(Met::Hole(Unreadable { after, before, causes })) => {
                    assert_eq!(causes, ["broken"]);
                    seen.push(Seen::Hole(after.map(|key| key[0]), before.map(|key| key[0])));
                }
                None => return seen,
            }
        }
        rest = walk.into_rest();
    }
}

fn expected(damaged: &[u8]) -> Vec<Seen> {
    let (mut seen, mut last, mut hole) = (Vec::new(), None, false);
    for block in 0..BLOCKS {
        if damaged.contains(&block) {
            hole = true;
            continue;
        }
        for key in rows(block) {
            if std::mem::take(&mut hole) {
                seen.push(Seen::Hole(last, Some(key[0])));
            }
            last = Some(key[0]);
            seen.push(Seen::Row(key[0]));
        }
    }
    if hole {
        seen.push(Seen::Hole(last, None));
    }
    seen
}

#[test]
fn every_row_outside_of_damaged_blocks_is_met_once_and_in_its_order() {
    for pattern in 0..1_u8 << BLOCKS {
        let damaged: Vec<u8> = (0..BLOCKS).filter(|block| pattern >> block & 1 == 1).collect();
        let file = File { damaged: damaged.clone() };
        for pieces_of in [usize::MAX, 1, 2, 5] {
            assert_eq!(walk(&file, pieces_of), expected(&damaged), "{damaged:?} in pieces of {pieces_of}");
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
    let silent = Silent(File { damaged: vec![2] });
    let range = (Bound::Unbounded, Bound::Unbounded);
    let met: Vec<Met> = Walk::new(&silent, Rest::new(Keyspace::Documents, range)).collect();
    assert_eq!(met.len(), 6);
    assert!(matches!(met.last(), Some(Met::Hole(Unreadable { after: Some(_), before: None, .. }))));
}
