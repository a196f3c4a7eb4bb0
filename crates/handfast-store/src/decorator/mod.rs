//! Stores around stores: each does one thing to every operation and hands it on.
//!
//! | decorator | what it does | for |
//! | --- | --- | --- |
//! | [`Faulty`] | loses, delays, repeats or freezes chosen operations | tests of what stands on a store |
//! | [`Checked`] | looks whether each answer keeps the contract | tests, and the program `handfast` in a debug build |
//! | [`Metered`] | counts operations and measures how long they take | operators |
//! | [`Resilient`] | tries once more what failed on the network and does no harm twice | stores on a network |
//! | [`WithDurability`] | acknowledges writes at another moment than they ask for | patterns that need not wait for syncs |
//! | [`DelegatingStore`] | hands everything on, but for what it is told to do otherwise | stores of tests that misbehave in one way |

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
pub use faulty::{Fault, Faulty, InjectedFault, Plan};
pub use metered::{Latency, Metered, OperationReport};
pub use operation::Operation;
pub use resilient::Resilient;
