//! The real program, run as people run it.

mod backup;
mod bank;
mod bench;
mod computation;
mod configuration;
mod damage;
mod directory;
mod full_disk;
mod history;
mod patterns;
mod restore;
mod serve;
mod support;
mod transfer;
mod users;
