//! The idempotency keys that are remembered, each until its time is over. There is a maximum, at which none is forgotten early: a request that is sent again
//! with a forgotten key would be counted twice. Requests with new keys are refused instead.
//!
//! All keys are remembered for the same time, so those that were set first end first, and no look at the others is needed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// The bytes of a hash: two of 2^43 keys have the same one with a probability of 2^-42.
const HASH_BYTES: usize = 16;

/// A hash in the place of a key, so that each takes the same memory.
type KeyHash = [u8; HASH_BYTES];

/// Keys with the times until which they are remembered.
pub(super) struct Keys {
    until: HashMap<KeyHash, Duration>,
    /// The keys in the order in which they were set. One that was set again is there twice.
    order: VecDeque<(KeyHash, Duration)>,
    keys_max: usize,
}

impl Keys {
    pub(super) fn new(keys_max: usize) -> Self {
        Keys { until: HashMap::new(), order: VecDeque::new(), keys_max }
    }

    /// Returns whether a key is remembered now.
    pub(super) fn has(&self, key: &str, now: Duration) -> bool {
        self.until.get(&hash(key)).is_some_and(|until| *until > now)
    }

    /// Remembers a key, also beyond the maximum: its request was counted.
    pub(super) fn set(&mut self, key: &str, until: Duration) {
        let key = hash(key);
        self.until.insert(key, until);
        self.order.push_back((key, until));
    }

    /// Forgets keys whose time is over, `keys_max` at most.
    pub(super) fn trim(&mut self, now: Duration, keys_max: usize) {
        for _ in 0..keys_max {
            let Some((key, until)) = self.order.pop_front_if(|(_, until)| *until <= now) else { return };
            if self.until.get(&key) == Some(&until) {
                self.until.remove(&key);
            }
        }
    }

    /// Returns how many further keys can be remembered.
    pub(super) fn places(&self) -> usize {
        self.keys_max.saturating_sub(self.until.len())
    }

    /// Returns the time at which the first of the keys is over; `None` if there are none.
    pub(super) fn oldest_end(&self) -> Option<Duration> {
        let mut current = self.order.iter().filter(|(key, until)| self.until.get(key) == Some(until));
        current.next().map(|(_, until)| *until)
    }

    /// Returns the number of keys, some of which may be over, and the maximum.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.until.len(), self.keys_max)
    }
}

fn hash(key: &str) -> KeyHash {
    let mut hash = KeyHash::default();
    for (byte, hashed) in hash.iter_mut().zip(Sha256::digest(key)) {
        *byte = hashed;
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Keys;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn keys_end_in_their_order_and_a_look_is_bounded() {
        let mut keys = Keys::new(3);
        keys.set("a", MINUTE);
        keys.set("b", MINUTE);
        keys.set("a", 2 * MINUTE);
        keys.set("c", 3 * MINUTE);
        assert_eq!((keys.places(), keys.count()), (0, (3, 3)));
        assert!(!keys.has("b", MINUTE) && keys.has("a", MINUTE), "the second time counts");
        assert_eq!((keys.oldest_end(), Keys::new(3).oldest_end()), (Some(MINUTE), None), "that of b");
        keys.trim(2 * MINUTE, 2);
        assert_eq!(keys.count(), (2, 3), "one look is at the first entry of a key that was set again");
        keys.trim(2 * MINUTE, 2);
        assert_eq!(keys.count(), (1, 3));
        assert_eq!(keys.oldest_end(), Some(3 * MINUTE));
        assert!(keys.has("c", 2 * MINUTE) && !keys.has("c", 3 * MINUTE));
        let mut again = Keys::new(3);
        again.set("a", MINUTE);
        again.set("a", 2 * MINUTE);
        assert_eq!(again.oldest_end(), Some(2 * MINUTE), "the second time counts");
    }

    #[test]
    fn no_key_is_forgotten_at_the_maximum() {
        let mut keys = Keys::new(2);
        for key in ["a", "b", "c"] {
            keys.set(key, MINUTE);
        }
        assert!(["a", "b", "c"].iter().all(|key| keys.has(key, Duration::ZERO)));
        assert_eq!(keys.places(), 0);
    }
}
