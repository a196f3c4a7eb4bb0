//! Tests of the program `handfast`, which run it as a user does.

mod backup;
mod bank;
mod bench;
mod blackpipe;
mod blackpipe_connections;
mod blackpipe_rules;
mod computation;
mod configuration;
mod counters;
mod counters_data;
mod damage;
mod directory;
mod fronts;
mod full_disk;
mod health;
mod history;
mod http_api;
mod http_limits;
mod http_statements;
mod http_tokens;
mod kills;
mod lifetime;
mod limits;
mod log_retention;
mod outage;
mod patterns;
mod restore;
mod serve;
#[path = "../shared/server_process.rs"]
mod server_process;
mod slow_log;
mod stores;
mod support;
mod transactions;
mod transfer;
mod users;
