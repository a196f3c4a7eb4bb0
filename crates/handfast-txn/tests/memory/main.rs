//! The memory that transactions take, measured by an allocator that counts.

mod allocations;
mod write_budget;
