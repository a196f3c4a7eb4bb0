//! Stores around stores: each does one thing to every operation and hands it on.
//!
//! | decorator | what it does | for |
//! | --- | --- | --- |
//! | [`Faulty`] | loses, delays, repeats or freezes chosen operations | tests of what stands on a store |
//! | [`Checked`] | looks whether each answer keeps the contract | tests and debug builds |
//! | [`Metered`] | counts operations and measures how long they take | operators |

mod checked;
mod faulty;
mod metered;
mod operation;

pub use checked::Checked;
pub use faulty::{Fault, Faulty, InjectedFault, Plan};
pub use metered::{Latency, Metered, OperationReport};
pub use operation::Operation;
