//! The counters over real stores: what they count, and what is left of it when operations fail, answers get lost and processes die.

mod crash;
mod service;
mod world;
