//! What an evaluation needs beside the document: time, chance, and the values of variables.
//!
//! The crate asks nobody for the time or for randomness: both arrive here, so that a run can be repeated from its
//! arguments. One [`Context`] serves one command: `$$NOW` is the same for all of its documents.
//!
//! ```
//! use handfast_mql::{CompileOptions, Context};
//! use bson::{DateTime, Timestamp, rawdoc};
//!
//! let variables = rawdoc! { "limit": 10 };
//! let options = CompileOptions::with_variables(&variables)?;
//! let context = Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 42).with_variables(variables);
//! assert!(options.declares("limit"));
//! assert_eq!(context.variable("limit").and_then(|value| value.as_i32()), Some(10));
//! # Ok::<(), handfast_mql::Error>(())
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};

use crate::Result;

/// What the compilers of filters, updates, projections and pipelines are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// The names of the variables that the command declares (`let`, or `c` of an update statement), without `$$`.
    pub variables: Vec<String>,
}

impl CompileOptions {
    /// Declares the variables that are the fields of `variables`.
    ///
    /// # Errors
    /// `InvalidBSON` (22) if the bytes are no document.
    pub fn with_variables(variables: &RawDocument) -> Result<Self> {
        let mut names = Vec::new();
        for element in variables.iter_elements() {
            names.push(element?.key().as_str().to_owned());
        }
        Ok(CompileOptions { variables: names })
    }

    /// Whether the command declares a variable of this name.
    pub fn declares(&self, name: &str) -> bool {
        self.variables.iter().any(|known| known == name)
    }
}

/// What an evaluation is told.
#[derive(Debug)]
pub struct Context {
    /// `$$NOW`, and what `$currentDate` writes.
    pub now: DateTime,
    /// `$$CLUSTER_TIME`, and what `$currentDate` writes as a timestamp.
    pub cluster_time: Timestamp,
    /// The values of the variables that [`CompileOptions::variables`] declares, already evaluated.
    pub variables: RawDocumentBuf,
    /// Where `$rand` and `$sample` draw from.
    pub random: Random,
}

impl Context {
    /// A context without variables.
    pub fn new(now: DateTime, cluster_time: Timestamp, seed: u64) -> Self {
        Context { now, cluster_time, variables: RawDocumentBuf::new(), random: Random::new(seed) }
    }

    /// Gives the variables their values.
    #[must_use]
    pub fn with_variables(mut self, variables: RawDocumentBuf) -> Self {
        self.variables = variables;
        self
    }

    /// The value of a variable; none if it is not declared.
    pub fn variable(&self, name: &str) -> Option<RawBsonRef<'_>> {
        self.variables.get(name).ok().flatten()
    }
}

/// A repeatable source of chance: SplitMix64 (Steele, Lea, Flood 2014), which is a counter and a hash of it, so that
/// several threads may draw from a shared reference. Not for secrets.
#[derive(Debug)]
pub struct Random(AtomicU64);

/// The step of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        Random(AtomicU64::new(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        let mut bits = self.0.fetch_add(GOLDEN_GAMMA, Ordering::Relaxed).wrapping_add(GOLDEN_GAMMA);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// The next number in `0.0..1.0`, with all 53 bits of a double's precision.
    pub fn next_f64(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The next number in `0..bound`; 0 if `bound` is 0. The bias (at most `bound` in 2^64) is not felt.
    pub fn next_below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests;
