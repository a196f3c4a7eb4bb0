//! The state of one kind's cache and queue, as pure steps. The embedded buffer runs them; the scripts of the Redis buffer are the same
//! steps in Lua, and a test compares the two on random sequences.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::buffer::arrivals::Arrivals;
use crate::buffer::{BATCH_ITEMS_MAX, Fence, IncrementOutcome, Owner, QueueDepth, Stored, Total, UpsertOutcome};
use crate::{Batch, Change, Event, ItemId, Kind, SequenceNumber};

#[cfg(test)]
mod tests;

/// The cache entry of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The stored total as of the acknowledged batches, if it is known.
    stored: Option<u64>,
    /// The views of events that are not acknowledged, from the number `first` on.
    pending: u64,
    /// The number of the first event that `pending` may have. Those before it are of the time before a deletion, or were saved before the entry
    /// was made.
    first: SequenceNumber,
    /// The number of deletions that are not acknowledged.
    open_deletions: u64,
    /// The time of the last use, by the steady clock.
    used: Duration,
}

/// A batch that is not acknowledged.
#[derive(Clone, Debug)]
struct Claimed {
    owner: Owner,
    since: Duration,
    events: Vec<Event>,
}

/// The cache and the queue of one kind.
#[derive(Clone, Debug)]
pub(crate) struct KindState {
    /// The number of the next event.
    next: SequenceNumber,
    epoch: u64,
    entries: HashMap<ItemId, Entry>,
    pending: VecDeque<Event>,
    batches: BTreeMap<SequenceNumber, Claimed>,
    arrivals: Arrivals,
}

impl Entry {
    /// Creates the entry of an item; `first` is the number of the next event.
    fn new(stored: Option<u64>, first: SequenceNumber, used: Duration) -> Self {
        Entry { stored, pending: 0, first, open_deletions: 0, used }
    }

    /// Returns whether the entry has what the store may not have. An event before `first` that is not acknowledged needs no entry: it is of
    /// the time before a deletion that was saved, and the store drops it.
    fn is_needed(&self) -> bool {
        self.pending > 0 || self.open_deletions > 0
    }

    fn total(&self) -> Total {
        Total { views: self.stored.unwrap_or(0) + self.pending, partial: self.stored.is_none() }
    }
}

impl KindState {
    /// Creates an empty queue whose first event gets the number `next`. The epoch should not be one that an earlier state of the same queue had.
    pub(crate) fn new(next: SequenceNumber, epoch: u64) -> Self {
        KindState {
            next,
            epoch,
            entries: HashMap::new(),
            pending: VecDeque::new(),
            batches: BTreeMap::new(),
            arrivals: Arrivals::default(),
        }
    }

    /// Returns the number that the next event gets.
    pub(crate) fn next_number(&self) -> SequenceNumber {
        self.next
    }

    /// Returns whether the item has an entry.
    pub(crate) fn has(&self, id: &ItemId) -> bool {
        self.entries.contains_key(id)
    }

    /// Marks the entry of an item as used; returns whether it has one.
    pub(crate) fn touch(&mut self, id: &ItemId, now: Duration) -> bool {
        self.entries.get_mut(id).map(|entry| entry.used = now).is_some()
    }

    /// Returns the events of a batch that is not acknowledged.
    pub(crate) fn events_of(&self, batch: SequenceNumber) -> &[Event] {
        self.batches.get(&batch).map_or(&[], |claimed| &claimed.events)
    }

    /// Returns the number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether a stored total for an item without an entry is right.
    pub(crate) fn is_current(&self, fence: Fence) -> bool {
        self.epoch == fence.0
    }

    /// Returns the state of the queue.
    pub(crate) fn fence(&self) -> Fence {
        Fence(self.epoch)
    }

    /// Returns the total of an item that has an entry.
    pub(crate) fn total(&self, id: &ItemId) -> Option<Total> {
        self.entries.get(id).map(Entry::total)
    }

    /// Counts views of an item that has an entry.
    pub(crate) fn increment_if_exists(&mut self, id: &ItemId, change: Change, now: Duration) -> IncrementOutcome {
        if !self.has(id) {
            return IncrementOutcome::Absent;
        }
        let number = self.next;
        IncrementOutcome::Counted(self.push(Event { number, id: id.clone(), change }, None, now))
    }

    /// Counts views, and makes an entry if there is none.
    pub(crate) fn upsert(
        &mut self,
        id: &ItemId,
        change: Change,
        stored: Option<Stored>,
        now: Duration,
    ) -> UpsertOutcome {
        if !self.has(id) && stored.is_some_and(|stored| !self.is_current(stored.fence)) {
            return UpsertOutcome::Outdated;
        }
        let number = self.next;
        let stored = stored.map(|stored| stored.total);
        UpsertOutcome::Counted(self.push(Event { number, id: id.clone(), change }, stored, now))
    }

    /// Makes an entry with a stored total, or completes a partial one, and returns the total; `None` if the stored total was not taken.
    pub(crate) fn fill(&mut self, id: &ItemId, stored: Stored, now: Duration) -> Option<Total> {
        if !self.is_current(stored.fence) {
            return None;
        }
        match self.entries.get_mut(id) {
            None => {
                self.entries.insert(id.clone(), Entry::new(Some(stored.total), self.next, now));
            }
            Some(entry) if entry.stored.is_none() && self.batches.is_empty() => entry.stored = Some(stored.total),
            Some(_) => return None,
        }
        self.total(id)
    }

    /// Sets the stored totals of items that have entries, as [`Buffer::refresh`](crate::Buffer::refresh) describes; returns whether they were taken.
    pub(crate) fn refresh(&mut self, totals: &[(ItemId, u64)], fence: Fence) -> bool {
        if !self.is_current(fence) || !self.batches.is_empty() {
            return false;
        }
        self.epoch += 1;
        for (id, total) in totals {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            if entry.open_deletions > 0 || entry.stored == Some(*total) {
                continue;
            }
            if entry.is_needed() {
                entry.stored = Some(*total);
            } else {
                self.entries.remove(id);
            }
        }
        true
    }

    /// Lets entries stay as long as new ones.
    pub(crate) fn renew(&mut self, ids: &[ItemId], now: Duration) {
        for id in ids {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.used = now;
            }
        }
    }

    /// Deletes an item; the event is kept until a batch has it.
    pub(crate) fn delete(&mut self, id: &ItemId, now: Duration) {
        self.push(Event { number: self.next, id: id.clone(), change: Change::Delete }, None, now);
    }

    /// Appends an event and returns the item's total. If it has no entry, it gets one with this stored total. The event may have a number above the next one;
    /// one that is read back from a store may have one below, if a later event was saved first.
    pub(crate) fn push(&mut self, event: Event, stored: Option<u64>, now: Duration) -> Total {
        debug_assert!(self.pending.back().is_none_or(|last| last.number < event.number), "numbers ascend");
        self.next = self.next.max(event.number + 1);
        self.arrivals.note(event.number, now);
        let entry = self.entries.entry(event.id.clone()).or_insert_with(|| Entry::new(stored, event.number, now));
        entry.used = now;
        match event.change {
            Change::Views { views, .. } => entry.pending += u64::from(views),
            Change::Delete => {
                (entry.stored, entry.pending, entry.first) = (Some(0), 0, event.number + 1);
                entry.open_deletions += 1;
                self.epoch += 1;
            }
        }
        let total = entry.total();
        self.pending.push_back(event);
        total
    }

    /// Returns the batch of this owner, or a new one.
    pub(crate) fn claim(&mut self, kind: &Kind, owner: &Owner, events_max: usize, now: Duration) -> Option<Batch> {
        if let Some(claimed) = self.batches.values().find(|claimed| claimed.owner == *owner) {
            return Some(Batch { kind: kind.clone(), events: claimed.events.clone() });
        }
        let in_batches = self.batches.values().flat_map(|claimed| &claimed.events);
        let deleting: HashSet<&ItemId> =
            in_batches.filter(|event| event.change == Change::Delete).map(|event| &event.id).collect();
        // Saved before its item's deletion, an event would be dropped with it.
        let free = self.pending.iter().take_while(|event| !deleting.contains(&event.id));
        let mut items = HashSet::new();
        let has_room = |event: &&Event| {
            items.contains(&event.id) || (items.len() < BATCH_ITEMS_MAX && items.insert(event.id.clone()))
        };
        let count = free.take(events_max).take_while(has_room).count();
        let events: Vec<Event> = self.pending.drain(..count).collect();
        let batch = Batch { kind: kind.clone(), events };
        if batch.events.is_empty() {
            return None;
        }
        let claimed = Claimed { owner: owner.clone(), since: now, events: batch.events.clone() };
        self.batches.insert(batch.number(), claimed);
        self.epoch += 1;
        Some(batch)
    }

    /// Gives the owner a batch that was claimed longer than `idle` ago; returns whether there was one.
    pub(crate) fn take_over(&mut self, owner: &Owner, idle: Duration, now: Duration) -> bool {
        if self.batches.values().any(|claimed| claimed.owner == *owner) {
            return false;
        }
        match self.batches.values_mut().find(|claimed| now.saturating_sub(claimed.since) >= idle) {
            None => false,
            Some(claimed) => {
                (claimed.owner, claimed.since) = (owner.clone(), now);
                true
            }
        }
    }

    /// Removes a batch that was saved, and returns its events.
    pub(crate) fn acknowledge(&mut self, batch: SequenceNumber) -> Vec<Event> {
        let Some(claimed) = self.batches.remove(&batch) else { return Vec::new() };
        self.epoch += 1;
        for event in &claimed.events {
            let Some(entry) = self.entries.get_mut(&event.id) else { continue };
            match event.change {
                Change::Delete => entry.open_deletions -= 1,
                Change::Views { views, .. } if event.number >= entry.first => {
                    entry.pending -= u64::from(views);
                    entry.stored = entry.stored.map(|stored| stored + u64::from(views));
                }
                Change::Views { .. } => {}
            }
            // Without the stored total there is nothing left to keep.
            if !entry.is_needed() && entry.stored.is_none() {
                self.entries.remove(&event.id);
            }
        }
        self.arrivals.forget(self.oldest());
        claimed.events
    }

    /// Removes the entries that were not used for `unused`, but none that has what the store may not have.
    pub(crate) fn evict(&mut self, unused: Duration, now: Duration) {
        self.entries.retain(|_, entry| entry.is_needed() || now.saturating_sub(entry.used) < unused);
    }

    /// Returns the number of the oldest event that is not acknowledged; if there is none, the next number.
    fn oldest(&self) -> SequenceNumber {
        let claimed = self.batches.values().filter_map(|claimed| claimed.events.first()).map(|event| event.number);
        let pending = self.pending.front().map(|event| event.number);
        claimed.chain(pending).min().unwrap_or(self.next)
    }

    /// Returns the contents of the queue.
    pub(crate) fn depth(&self, now: Duration) -> QueueDepth {
        let oldest = self.oldest();
        QueueDepth {
            pending: self.pending.len() as u64,
            batches: self.batches.len() as u64,
            oldest,
            next: self.next,
            oldest_age: self.arrivals.age(oldest, now).filter(|_| self.events() > 0),
        }
    }

    /// Returns the number of events that no batch has claimed, and of those in batches.
    pub(crate) fn events(&self) -> usize {
        self.pending.len() + self.batches.values().map(|claimed| claimed.events.len()).sum::<usize>()
    }
}
