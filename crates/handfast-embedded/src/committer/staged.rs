//! The writes of a group of operations that are not applied yet.
//!
//! A group of operations becomes one batch of the engine. An operation sees the staged writes of the operations before it
//! over the state of the engine; if it fails, its own staged writes are rolled back and the others stay.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::engine::{Keyspace, Write};

/// A value to be written; `None` removes the key.
type NewValue = Option<Vec<u8>>;

/// Keys with their new values, per map.
#[derive(Default)]
pub(crate) struct Staged {
    maps: [BTreeMap<Vec<u8>, NewValue>; 4],
    /// The previous staged value of each key that the running operation wrote, newest last.
    undo: Vec<(Keyspace, Vec<u8>, Option<NewValue>)>,
    bytes: usize,
}

/// The staged state of a key.
pub(crate) enum Lookup<'s> {
    Value(&'s [u8]),
    Removed,
    /// The engine has the newest state.
    NotStaged,
}

impl Staged {
    pub(crate) fn get(&self, keyspace: Keyspace, key: &[u8]) -> Lookup<'_> {
        match self.maps[keyspace as usize].get(key) {
            Some(Some(value)) => Lookup::Value(value),
            Some(None) => Lookup::Removed,
            None => Lookup::NotStaged,
        }
    }

    pub(crate) fn write(&mut self, keyspace: Keyspace, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        let before = self.maps[keyspace as usize].insert(key.clone(), value);
        self.undo.push((keyspace, key, before));
    }

    /// Returns the staged keys with a prefix, removed ones included.
    pub(crate) fn with_prefix<'s>(
        &'s self,
        keyspace: Keyspace,
        prefix: &'s [u8],
    ) -> impl Iterator<Item = (&'s [u8], Option<&'s [u8]>)> {
        self.maps[keyspace as usize]
            .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
    }

    /// Keeps the staged writes of the running operation, which succeeded.
    pub(crate) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Rolls back the staged writes of the running operation, which failed.
    pub(crate) fn roll_back(&mut self) {
        while let Some((keyspace, key, before)) = self.undo.pop() {
            let map = &mut self.maps[keyspace as usize];
            match before {
                Some(before) => map.insert(key, before),
                None => map.remove(&key),
            };
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.maps.iter().all(BTreeMap::is_empty)
    }

    /// Returns the bytes staged since the last [`Staged::drain`]; overwritten keys count twice.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes and returns all staged writes, as one batch.
    pub(crate) fn drain(&mut self) -> Vec<Write> {
        self.bytes = 0;
        self.undo.clear();
        let mut writes = Vec::with_capacity(self.maps.iter().map(BTreeMap::len).sum::<usize>() + 1);
        for keyspace in Keyspace::ALL {
            let map = std::mem::take(&mut self.maps[keyspace as usize]);
            writes.extend(map.into_iter().map(|(key, value)| Write { keyspace, key, value }));
        }
        writes
    }
}
