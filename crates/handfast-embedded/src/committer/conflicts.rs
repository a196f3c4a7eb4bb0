//! Documents that are gone, remembered for as long as a snapshot may still have them.
//!
//! "The first committer wins" needs the timestamp of a document's last change. A document carries its own; a deleted
//! one has nowhere to. So the committer remembers deletions that are younger than the oldest snapshot in use. If they
//! become too many, the oldest are forgotten, and a batch made from a snapshot older than that is refused when it
//! touches a document that is not there: a conflict too many, never one too few.

use std::collections::{HashMap, VecDeque};

use handfast_store::{CommitTimestamp, Namespace};

pub(crate) struct Deletions {
    by_key: HashMap<Vec<u8>, CommitTimestamp>,
    by_age: VecDeque<Deletion>,
    deletions_max: usize,
    /// Deletions up to here may be forgotten.
    floor: CommitTimestamp,
    /// Collections that were dropped, or got another name: all documents under a name came or went away at once.
    namespaces: HashMap<Namespace, CommitTimestamp>,
    /// Drops and renames up to here may be forgotten.
    namespaces_floor: CommitTimestamp,
}

struct Deletion {
    timestamp: CommitTimestamp,
    key: Vec<u8>,
    /// The deletion of the same key before this one, should this one be taken back.
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

    pub(crate) fn note(&mut self, key: &[u8], timestamp: CommitTimestamp) {
        let earlier = self.by_key.insert(key.to_vec(), timestamp);
        self.by_age.push_back(Deletion { timestamp, key: key.to_vec(), earlier });
        if self.by_age.len() > self.deletions_max {
            self.forget_oldest();
        }
    }

    /// Whether a document that is not there now may have been there after a snapshot.
    pub(crate) fn since(&self, key: &[u8], snapshot: CommitTimestamp) -> bool {
        match self.by_key.get(key) {
            Some(&deleted) => deleted > snapshot,
            None => snapshot < self.floor,
        }
    }

    /// Notes that no document that was under this name is there any more. If the operation is taken back the note stays: a
    /// conflict too many.
    pub(crate) fn note_namespace(&mut self, namespace: &Namespace, timestamp: CommitTimestamp) {
        self.namespaces.insert(namespace.clone(), timestamp);
    }

    /// Whether the collection of this name became another after a snapshot, or none, whatever is there now.
    pub(crate) fn namespace_since(&self, namespace: &Namespace, snapshot: CommitTimestamp) -> bool {
        self.namespaces.get(namespace).map_or(snapshot < self.namespaces_floor, |&gone| gone > snapshot)
    }

    /// Forgets what no snapshot can still need.
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

    /// The operation at work has failed: takes back its deletions.
    pub(crate) fn take_back(&mut self, before: CommitTimestamp) {
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
