//! Stores around stores: each does one thing to every operation and hands it on.
//!
//! | decorator | what it does | for |
//! | --- | --- | --- |
//! | [`Faulty`] | loses, delays, repeats or freezes chosen operations | tests of what stands on a store |
//! | [`Metered`] | counts operations and measures how long they take | operators |

mod faulty;
mod metered;
mod operation;

pub use faulty::{Fault, Faulty, InjectedFault, Plan};
pub use metered::{Latency, Metered, OperationReport};
pub use operation::Operation;
