//! The operations that a rule hits: by command and collection, by their numbers, and by chance.

use std::fmt;
use std::num::NonZeroU32;

use crate::operation::{Operation, OperationNumber};
use crate::{Error, Result};

/// The operations that meet a fault. The default is every operation.
///
/// An operation *matches* if it has the command and the collection. The matching operations are counted from 1; those from `first` to
/// `last` meet the fault with the probability, until `times` of them have met it.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The command, such as `update`; any one if there is none.
    pub command: Option<String>,
    /// The collection, such as `accounts`, or with its database, such as `bank.accounts`; any one if there is none.
    pub collection: Option<String>,
    /// The number of the first matching operation that may meet the fault.
    pub first: NonZeroU32,
    /// The number of the last one.
    pub last: Option<NonZeroU32>,
    /// The number of operations that meet the fault.
    pub times: Option<NonZeroU32>,
    /// The probability with which an operation meets the fault.
    pub probability: Probability,
}

impl Default for Condition {
    fn default() -> Self {
        Condition {
            command: None,
            collection: None,
            first: NonZeroU32::MIN,
            last: None,
            times: None,
            probability: Probability::CERTAIN,
        }
    }
}

impl Condition {
    /// Returns the condition of an operation and the next ones of its command, `count` in all.
    pub fn of_operations(operation: OperationNumber, count: NonZeroU32) -> Self {
        Condition {
            command: Some(operation.command),
            first: operation.number,
            last: Some(operation.number.saturating_add(count.get() - 1)),
            ..Condition::default()
        }
    }

    /// Returns whether the operation has the command and the collection.
    pub(super) fn matches(&self, operation: &Operation<'_>) -> bool {
        let is_command = self.command.as_ref().is_none_or(|command| command == operation.command);
        is_command && self.collection.as_ref().is_none_or(|collection| operation.is_on(collection))
    }

    /// Returns whether the matching operation with this number meets the fault, of which `injected` have met it before.
    pub(super) fn holds(&self, seed: u64, rule: usize, number: u32, injected: u32) -> bool {
        self.first.get() <= number
            && self.last.is_none_or(|last| number <= last.get())
            && self.times.is_none_or(|times| injected < times.get())
            && self.probability.is_drawn(seed, rule, number)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command.as_deref().unwrap_or("all"))?;
        if let Some(collection) = &self.collection {
            write!(f, " on {collection}")?;
        }
        match (self.first.get(), self.last.map(NonZeroU32::get)) {
            (1, None) => {}
            (first, None) => write!(f, ", from match {first} on")?,
            (first, Some(last)) if first == last => write!(f, ", match {first}")?,
            (first, Some(last)) => write!(f, ", matches {first} to {last}")?,
        }
        match self.times.map(NonZeroU32::get) {
            None => {}
            Some(1) => f.write_str(", once")?,
            Some(times) => write!(f, ", {times} times")?,
        }
        if self.probability != Probability::CERTAIN {
            write!(f, ", with probability {}", self.probability.get())?;
        }
        Ok(())
    }
}

/// A probability between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probability(f64);

impl Probability {
    /// The probability 1.
    pub const CERTAIN: Probability = Probability(1.0);

    /// Creates a probability.
    ///
    /// # Errors
    /// Fails if the number is not between 0 and 1.
    pub fn new(number: f64) -> Result<Self> {
        match (0.0..=1.0).contains(&number) {
            true => Ok(Probability(number)),
            false => Err(Error::Probability(number)),
        }
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Draws by chance, with a number of 53 bits that depends on the arguments alone.
    fn is_drawn(self, seed: u64, rule: usize, number: u32) -> bool {
        let rule = mixed(seed ^ mixed(rule as u64));
        let bits = mixed(rule ^ u64::from(number)) >> 11;
        // Both are exact: a float has 53 bits.
        (bits as f64) < self.0 * (1_u64 << 53) as f64
    }
}

/// Mixes the bits of a number: a step of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::{Condition, Probability};

    #[test]
    fn a_condition_is_shown_in_words() {
        let number = NonZeroU32::new;
        let check = |condition: Condition, expected: &str| assert_eq!(condition.to_string(), expected);
        check(Condition::default(), "all");
        let third = Condition { first: number(3).unwrap(), last: number(3), ..Condition::default() };
        check(Condition { collection: Some("a.b".to_owned()), ..third.clone() }, "all on a.b, match 3");
        check(Condition { last: number(5), times: number(1), ..third.clone() }, "all, matches 3 to 5, once");
        let probability = Probability::new(0.1).unwrap();
        let rare = Condition { command: Some("find".to_owned()), last: None, times: number(2), probability, ..third };
        check(rare, "find, from match 3 on, 2 times, with probability 0.1");
    }

    #[test]
    fn a_probability_is_between_0_and_1() {
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(Probability::new(wrong).unwrap_err().to_string().contains("between 0 and 1"));
        }
        assert_eq!(Probability::new(1.0).unwrap(), Probability::CERTAIN);
    }

    #[test]
    fn draws_are_as_frequent_as_their_probability() {
        let drawn = |probability, seed, rule| {
            let probability = Probability::new(probability).unwrap();
            (1..=10_000).filter(|&number| probability.is_drawn(seed, rule, number)).count()
        };
        assert_eq!((drawn(0.0, 1, 0), drawn(1.0, 1, 0)), (0, 10_000));
        for (seed, rule) in [(0, 0), (1, 0), (1, 1), (u64::MAX, 7)] {
            // The bounds are five standard deviations around the mean.
            assert!((850..=1150).contains(&drawn(0.1, seed, rule)), "{seed} {rule}: {}", drawn(0.1, seed, rule));
        }
    }

    #[test]
    fn seeds_and_rules_draw_differently() {
        let half = Probability::new(0.5).unwrap();
        let drawn = |seed, rule| (1..=64).map(|number| half.is_drawn(seed, rule, number)).collect::<Vec<_>>();
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(2, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
    }
}
