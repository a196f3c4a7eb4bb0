//! The official Rust driver against the server that `MONGODB_URI` names: each scenario in an empty database, the first
//! failure ends the program with its error.
//!
//! The tests `ext_rust_driver_*` of handfast-cli run it. It is an example so that one build makes it with everything else.

#![allow(clippy::print_stdout, reason = "a program that a test reads")]
#![allow(missing_docs, reason = "a program")]

mod login;
mod repeats;
mod scenarios;
mod scripted;
mod transactions;
mod workload;

use anyhow::Context as _;
use mongodb::Client;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let uri = std::env::var("MONGODB_URI").context("MONGODB_URI names the server")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("login") => {
            login::run(&uri).await.context("login")?;
            println!("ok login");
            return Ok(());
        }
        Some("repeats") => return repeats::run(&uri).await,
        Some("scripted") => return scripted::run(&uri, &arguments[1..]).await,
        Some("workload") => return workload::main(&uri, &arguments[1..]).await,
        _ => {}
    }
    let client = Client::with_uri_str(&uri).await?;
    macro_rules! run {
        ($($module:ident: $($scenario:ident),+;)+) => {$($(
            let database = client.database(concat!("rust_", stringify!($scenario)));
            database.drop().await?;
            $module::$scenario(&uri, &client, &database).await.context(stringify!($scenario))?;
            database.drop().await?;
            println!("ok {}", stringify!($scenario));
        )+)+};
    }
    run!(
        scenarios: single_writes_report_what_they_did,
        typed_documents_are_read_back,
        bulk_inserts_tell_which_failed,
        cursors_fetch_batch_after_batch,
        indexes_and_their_errors,
        aggregation_and_distinct,
        sessions_are_accepted,
        messages_are_compressed,
        large_documents,
        errors_carry_code_and_name,
        concurrent_increments_are_all_counted;
        transactions: bob_pays_joe_7,
        a_transfer_is_all_or_nothing,
        the_second_writer_is_told_at_once,
        a_snapshot_session_reads_one_moment;
    );
    Ok(())
}
