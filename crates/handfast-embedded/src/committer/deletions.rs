//! The timestamps of deletions, kept while a snapshot may still contain the deleted documents.
//!
//! "The first committer wins" needs the timestamp of a document's last change. A stored document carries it; a deleted one
//! cannot. So the committer keeps the deletions that are younger than the oldest snapshot in use. If they are too many, the
//! oldest are forgotten, and a batch from an older snapshot conflicts when it writes a document that does not exist. Such a
//! conflict may be unnecessary; none is missed.

use std::collections::{HashMap, VecDeque};

use handfast_store::{CommitTimestamp, Namespace};

pub(crate) struct Deletions {
    by_key: HashMap<Vec<u8>, CommitTimestamp>,
    by_age: VecDeque<Deletion>,
    deletions_max: usize,
    /// Deletions up to here may be forgotten.
    floor: CommitTimestamp,
    /// Collections that were dropped or renamed: all documents under a name appeared or disappeared at once.
    namespaces: HashMap<Namespace, CommitTimestamp>,
    /// Drops and renames up to here may be forgotten.
    namespaces_floor: CommitTimestamp,
}

struct Deletion {
    timestamp: CommitTimestamp,
    key: Vec<u8>,
    /// The deletion of the same key before this one, to restore if this one is rolled back.
    earlier: Option<CommitTimestamp>,
}

impl Deletions {
    pub(crate) fn new(floor: CommitTimestamp, deletions_max: usize) -> Self {
        Deletions {
            by_key: HashMap::new(),
            by_age: VecDeque::new(),
            deletions_max,
            floor,
            namespaces: HashMap::new(),
            namespaces_floor: floor,
        }
    }

    pub(crate) fn record(&mut self, key: &[u8], timestamp: CommitTimestamp) {
        let earlier = self.by_key.insert(key.to_vec(), timestamp);
        self.by_age.push_back(Deletion { timestamp, key: key.to_vec(), earlier });
        if self.by_age.len() > self.deletions_max {
            self.forget_oldest();
        }
    }

    /// Returns whether a document that does not exist now may have been deleted after a snapshot.
    pub(crate) fn since(&self, key: &[u8], snapshot: CommitTimestamp) -> bool {
        match self.by_key.get(key) {
            Some(&deleted) => deleted > snapshot,
            None => snapshot < self.floor,
        }
    }

    /// Records that all documents under a name changed. The record stays if the operation is rolled back, which may cause an
    /// unnecessary conflict.
    pub(crate) fn record_namespace(&mut self, namespace: &Namespace, timestamp: CommitTimestamp) {
        self.namespaces.insert(namespace.clone(), timestamp);
    }

    /// Returns whether the collection of this name was replaced or removed after a snapshot.
    pub(crate) fn namespace_since(&self, namespace: &Namespace, snapshot: CommitTimestamp) -> bool {
        self.namespaces.get(namespace).map_or(snapshot < self.namespaces_floor, |&gone| gone > snapshot)
    }

    /// Forgets the deletions that no snapshot needs.
    pub(crate) fn forget_before(&mut self, oldest: CommitTimestamp) {
        self.namespaces.retain(|_, gone| {
            let needed = *gone > oldest;
            if !needed {
                self.namespaces_floor = self.namespaces_floor.max(*gone);
            }
            needed
        });
        while self.by_age.front().is_some_and(|deletion| deletion.timestamp <= oldest) {
            self.forget_oldest();
        }
    }

    /// Rolls back the deletions of the running operation, which failed.
    pub(crate) fn roll_back(&mut self, before: CommitTimestamp) {
        while let Some(deletion) = self.by_age.pop_back_if(|deletion| deletion.timestamp > before) {
            match deletion.earlier.filter(|&earlier| earlier > self.floor) {
                Some(earlier) => self.by_key.insert(deletion.key, earlier),
                None => self.by_key.remove(&deletion.key),
            };
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(deletion) = self.by_age.pop_front() {
            self.floor = self.floor.max(deletion.timestamp);
            if self.by_key.get(&deletion.key) == Some(&deletion.timestamp) {
                self.by_key.remove(&deletion.key);
            }
        }
    }
}
