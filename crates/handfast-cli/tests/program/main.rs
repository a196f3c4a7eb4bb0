//! The real program, run as people run it.

mod configuration;
mod support;
