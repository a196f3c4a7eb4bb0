//! Decorators: stores that wrap another store and add one thing to its operations.
//!
//! | decorator | effect | for |
//! | --- | --- | --- |
//! | [`Faulty`] | loses, delays, repeats or freezes chosen operations | tests of code that uses a store |
//! | [`Checked`] | checks whether each result keeps the contract | tests, and the program `handfast` in a debug build |
//! | [`Metered`] | counts operations and measures their latency | operators |
//! | [`Resilient`] | retries requests after a network failure where that is safe | stores on a network |
//! | [`WithDurability`] | changes the durability of writes | patterns that need not wait for syncs |
//! | [`DelegatingStore`] | delegates every operation that is not overridden | decorators of your own, such as stores of tests with one defect |

mod checked;
mod delegating;
mod durability;
mod faulty;
mod metered;
mod operation;
pub mod resilient;

pub use checked::Checked;
pub use delegating::DelegatingStore;
pub use durability::WithDurability;
pub use faulty::{
    Address, Exploration, ExplorationError, Explored, Fault, Faulty, InjectedFault, Pair, PairOutcome, Plan,
};
pub use metered::{Latency, Metered, OperationReport};
pub use operation::Operation;
pub use resilient::Resilient;
