//! The inputs of an evaluation besides the document: time, chance, and the values of variables.
//!
//! The crate reads no clock and no source of randomness: both arrive here, so that a run can be repeated from its
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

mod memory;

use std::sync::{
    Arc,
    atomic::{AtomicI32, AtomicU64, Ordering},
};

use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};

use crate::{Code, Collation, Error, Result, collation};

pub use memory::{MemoryReservation, QueryMemory, STAGE_BYTES_MAX, STAGE_TOTAL_BYTES_MAX, StageTotal};

/// The options for compiling filters, updates, projections and pipelines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// The names of the variables that the command declares (`let`, or `c` of an update statement), without `$$`.
    pub variables: Vec<String>,
    /// The collation of the command; `None` compares strings by their bytes.
    pub collation: Option<Collation>,
}

impl CompileOptions {
    /// Declares the variables that are the fields of `variables`.
    ///
    /// # Errors
    /// `InvalidBSON` (22) if the bytes are no document; the errors of [`Collation::among`].
    pub fn with_variables(variables: &RawDocument) -> Result<Self> {
        let mut names = Vec::new();
        for element in variables.iter_elements() {
            let name = element?.key();
            if name != collation::VARIABLE {
                names.push(name.as_str().to_owned());
            }
        }
        Ok(CompileOptions { variables: names, collation: Collation::among(variables)? })
    }

    /// Tells whether the command declares a variable of this name.
    pub fn declares(&self, name: &str) -> bool {
        self.variables.iter().any(|known| known == name)
    }
}

/// The inputs of an evaluation besides the document.
#[derive(Debug)]
pub struct Context {
    /// The value of `$$NOW` and of `$currentDate`.
    pub now: DateTime,
    /// The value of `$$CLUSTER_TIME` and of `$currentDate` as a timestamp.
    pub cluster_time: Timestamp,
    /// The values of the variables that [`CompileOptions::variables`] declares, already evaluated.
    pub variables: RawDocumentBuf,
    /// The collation among the variables.
    collation: Option<Collation>,
    /// The random numbers for `$rand` and `$sample`.
    pub random: Random,
    /// The switch that ends the evaluation from outside.
    pub interrupt: Interrupt,
    /// The memory limits of the stages of queries.
    pub memory: QueryMemory,
    /// The bytes of large values that the current evaluation has made.
    made_bytes: AtomicU64,
    steps_left: AtomicU64,
}

impl Context {
    /// Creates a context without variables.
    pub fn new(now: DateTime, cluster_time: Timestamp, seed: u64) -> Self {
        Context {
            now,
            cluster_time,
            variables: RawDocumentBuf::new(),
            collation: None,
            random: Random::new(seed),
            interrupt: Interrupt::default(),
            memory: QueryMemory::default(),
            made_bytes: AtomicU64::new(0),
            steps_left: AtomicU64::new(u64::MAX),
        }
    }

    /// Creates a context for work inside this one's, with variables of its own: the same times, collation, interrupt and bounds,
    /// and chance that depends on this one's.
    pub fn nested(&self, variables: RawDocumentBuf) -> Self {
        let mut nested = Context::new(self.now, self.cluster_time, self.random.next_u64());
        nested.variables = variables;
        nested.collation.clone_from(&self.collation);
        nested.interrupt = self.interrupt.clone();
        nested.memory = self.memory.clone();
        nested
    }

    /// Sets the memory limits of the stages of queries.
    #[must_use]
    pub fn with_memory(mut self, memory: QueryMemory) -> Self {
        self.memory = memory;
        self
    }

    /// Sets whether stages may write to files what exceeds their memory (`allowDiskUse`).
    #[must_use]
    pub fn with_disk_use(mut self, allowed: bool) -> Self {
        self.memory.spill = self.memory.spill.filter(|_| allowed);
        self
    }

    /// Returns whether stages may write to files what exceeds their memory.
    pub fn allows_disk_use(&self) -> bool {
        self.memory.spill.is_some()
    }

    /// Sets the switch that ends the evaluation from outside.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Limits the steps that all evaluations together take from now on, for a caller that holds up other work. A step
    /// is an item of a loop in an expression, a condition on one value or element, a path of an update, or the reading of
    /// a kilobyte to find them: some tens of nanoseconds, mostly. `u64::MAX` removes the limit. Returns the steps that were
    /// left: 0 after an evaluation that needed more.
    pub fn bound_steps(&self, steps_max: u64) -> u64 {
        self.steps_left.swap(steps_max, Ordering::Relaxed)
    }

    /// Counts one step of the evaluation.
    ///
    /// # Errors
    /// Returns the errors of [`Context::steps`].
    pub(crate) fn step(&self) -> Result<()> {
        self.steps(1)
    }

    /// Counts work that takes as long as `count` steps.
    ///
    /// # Errors
    /// Returns the code of the interrupt; `OperationFailed` (96) for more steps than [`Context::bound_steps`] allows.
    pub(crate) fn steps(&self, count: u64) -> Result<()> {
        self.interrupt.check()?;
        // One thread runs an evaluation: nothing is lost between load and store.
        let left = self.steps_left.load(Ordering::Relaxed);
        if left == u64::MAX {
            return Ok(());
        }
        let rest = left.checked_sub(count);
        self.steps_left.store(rest.unwrap_or(0), Ordering::Relaxed);
        rest.map(|_| ()).ok_or_else(|| {
            Error::new(
                Code::OperationFailed,
                "the filter and the change of a document take more steps than a write may while other writes wait for \
                 it: match fewer elements, or compute the value with an aggregation and write the result",
            )
        })
    }

    /// Counts the reading of `bytes` bytes.
    ///
    /// # Errors
    /// Returns the errors of [`Context::steps`].
    pub(crate) fn read(&self, bytes: usize) -> Result<()> {
        self.steps((bytes / STEP_BYTES) as u64)
    }

    /// Resets the count of made bytes for a new evaluation.
    pub(crate) fn begin_evaluation(&self) {
        self.made_bytes.store(0, Ordering::Relaxed);
    }

    /// Counts a large value that an evaluation made.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146) if they are too many.
    pub(crate) fn count_made(&self, bytes: usize) -> Result<()> {
        let made = self.made_bytes.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64);
        if made <= MADE_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(
            Code::ExceededMemoryLimit,
            format!("an expression made more than {MADE_BYTES_MAX} bytes of large values for one document"),
        ))
    }

    /// Gives the variables their values, with the collation among them. One that is not valid counts as none:
    /// [`CompileOptions::with_variables`] refuses it.
    #[must_use]
    pub fn with_variables(mut self, variables: RawDocumentBuf) -> Self {
        self.collation = Collation::among(&variables).ok().flatten();
        self.variables = variables;
        self
    }

    /// Returns the collation by which strings are compared; `None` compares their bytes.
    pub fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// Returns the variables of a request inside this one that has no variables: only the collation.
    pub fn only_collation(&self) -> RawDocumentBuf {
        let named = self.variable(collation::VARIABLE.as_str()).and_then(RawBsonRef::as_document);
        collation::with_variable(RawDocumentBuf::new(), named)
    }

    /// Returns the value of a variable; none if it is not declared.
    pub fn variable(&self, name: &str) -> Option<RawBsonRef<'_>> {
        self.variables.get(name).ok().flatten()
    }
}

/// The bytes that are read in the time of one step, some tens of nanoseconds, where names are compared and lengths added.
const STEP_BYTES: usize = 1024;

/// The most bytes of large values that the evaluation of one expression may make, in all: 1 GB. Fewer live at once,
/// but making values takes time as well.
const MADE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// A switch that ends evaluations: for a time limit, or a client that is gone. Copies are one switch.
///
/// An expression of a few bytes can take years (`$map` in `$map` over `$range`). This crate has no clock; a caller with one turns the
/// switch, and the evaluation ends with the given code at its next item or document.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicI32>);

impl Interrupt {
    /// Ends all work under this switch with a code, such as `MaxTimeMSExpired` (50).
    pub fn stop(&self, code: Code) {
        self.0.store(code.0, Ordering::Relaxed);
    }

    /// Returns an error if the switch was turned.
    ///
    /// # Errors
    /// Returns the code given to [`Interrupt::stop`].
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            code if code == Code::MaxTimeMSExpired.0 => {
                Err(Error::new(Code::MaxTimeMSExpired, "operation exceeded time limit"))
            }
            code => Err(Error::new(Code(code), "operation was interrupted")),
        }
    }
}

/// Turns a switch when it is dropped: the caller no longer waits for the work.
#[derive(Debug)]
#[must_use]
pub struct StopOnDrop(Interrupt);

impl Interrupt {
    /// Returns a guard that ends the work under this switch, as `Interrupted` (11601), when it is dropped.
    pub fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(Code::Interrupted);
    }
}

/// A repeatable source of chance: SplitMix64 (Steele, Lea, Flood 2014), which is a counter and a hash of it, so that
/// several threads may draw from a shared reference. Not for secrets.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    state: AtomicU64,
}

/// The step of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Creates the sequence that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        Random { seed, state: AtomicU64::new(seed) }
    }

    /// Begins the sequence that belongs to the seed and to `salt`, so that what is drawn for a document can be drawn again.
    pub fn restart(&self, salt: u64) {
        self.state.store(self.seed ^ salt, Ordering::Relaxed);
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&self) -> u64 {
        let mut bits = self.state.fetch_add(GOLDEN_GAMMA, Ordering::Relaxed).wrapping_add(GOLDEN_GAMMA);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns the next number in `0.0..1.0`, with all 53 bits of a double's precision.
    pub fn next_f64(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the next number in `0..bound`; 0 if `bound` is 0. The bias (at most `bound` in 2^64) is not felt.
    pub fn next_below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first outputs for seed 1234567 as the reference implementation in C prints them.
    #[test]
    fn random_numbers_are_those_of_splitmix64() {
        let random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn random_numbers_stay_in_their_range() {
        let random = Random::new(7);
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&random.next_f64()));
            assert!(random.next_below(3) < 3);
        }
        assert_eq!(random.next_below(0), 0);
    }
}
