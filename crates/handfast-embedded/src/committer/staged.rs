//! Writes that are decided and not yet applied.
//!
//! A group of operations becomes one batch of the engine. An operation sees what the operations before it in the group
//! have staged, over what the engine holds; if it fails, what it staged itself is taken back and the others stay.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::engine::{Keyspace, Write};

/// A value to be written; `None` removes the key.
type NewValue = Option<Vec<u8>>;

/// Keys with their new values, per map.
#[derive(Default)]
pub(crate) struct Staged {
    maps: [BTreeMap<Vec<u8>, NewValue>; 3],
    /// What each key of the operation at work had before, newest last.
    undo: Vec<(Keyspace, Vec<u8>, Option<NewValue>)>,
    bytes: usize,
}

/// What is staged of a key.
pub(crate) enum Lookup<'s> {
    /// Its new value.
    Value(&'s [u8]),
    /// That it is removed.
    Removed,
    /// Nothing: ask the engine.
    Nothing,
}

impl Staged {
    pub(crate) fn get(&self, keyspace: Keyspace, key: &[u8]) -> Lookup<'_> {
        match self.maps[keyspace as usize].get(key) {
            Some(Some(value)) => Lookup::Value(value),
            Some(None) => Lookup::Removed,
            None => Lookup::Nothing,
        }
    }

    pub(crate) fn write(&mut self, keyspace: Keyspace, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        let before = self.maps[keyspace as usize].insert(key.clone(), value);
        self.undo.push((keyspace, key, before));
    }

    /// Staged keys with a prefix, removed ones too.
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

    /// The operation at work is done: what it staged stays.
    pub(crate) fn keep(&mut self) {
        self.undo.clear();
    }

    /// The operation at work has failed: what it staged goes.
    pub(crate) fn take_back(&mut self) {
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

    /// Bytes staged since the last [`Staged::drain`]; keys that were overwritten count twice.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Everything, as one batch.
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
