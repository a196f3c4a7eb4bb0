//! `handfast ping`: whether a server answers, for health checks and for scripts that wait for a server.
//!
//! A server listens before it has opened its data directory, and answers when it has: so an answer means that it is ready.

pub(super) mod arguments;

use std::time::Duration;

use anyhow::anyhow;
use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::Error;
use serde_json::json;

use self::arguments::PingArguments;
use crate::advice::about_login;
use crate::configuration::{ConnectionString, URI_VARIABLE};
use crate::console::Console;
use crate::exit::{Exit, Usage};

/// The server that `handfast serve` is without settings.
const DEFAULT_URI: &str = "mongodb://127.0.0.1:27017";
/// The time between two attempts.
const INTERVAL: Duration = Duration::from_millis(50);

pub(super) async fn run(arguments: &PingArguments) -> anyhow::Result<Exit> {
    let (uri, from) = server(arguments.uri.clone())?;
    uri.check().map_err(|reason| Usage(format!("{from}: {reason}")))?;
    let mut last = None;
    let answer = tokio::time::timeout(arguments.timeout.0, answer(&direct(uri.secret()), &mut last)).await;
    match answer {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let error = anyhow!(error).context(format!("{uri} refused the command"));
            return Err(error);
        }
        Err(_) => {
            let reason = last.map(|error| format!(": {error}")).unwrap_or_default();
            return Err(anyhow!("{uri} gave no answer within {}{reason}", arguments.timeout));
        }
    }
    Console::new(arguments.output).report(|| format!("{uri} answers"), &json!({ "answers": true }))?;
    Ok(Exit::Good)
}

/// Returns the address of the server, and the flag or variable that named it.
fn server(flag: Option<ConnectionString>) -> anyhow::Result<(ConnectionString, &'static str)> {
    match (flag, std::env::var(URI_VARIABLE)) {
        (Some(uri), _) => Ok((uri, "--uri")),
        (None, Ok(uri)) => Ok((uri.parse()?, URI_VARIABLE)),
        (None, Err(_)) => Ok((DEFAULT_URI.parse()?, "--uri")),
    }
}

/// Waits for an answer. `last` is the reason why there was none so far.
///
/// # Errors
/// A refusal, which another attempt would not change.
async fn answer(uri: &str, last: &mut Option<Error>) -> Result<(), Error> {
    loop {
        match handfast_mongodb::run_admin_command(uri, rawdoc! { "ping": 1 }).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Code::BadValue || about_login(&error, URI_VARIABLE).is_some() => {
                return Err(error);
            }
            Err(error) => *last = Some(error),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns the connection string of a single server with an option by which the driver asks this server. Otherwise it would ask the one
/// that the server announces, which may be an address for other machines.
fn direct(uri: &str) -> String {
    const OPTION: &str = "directConnection=true";
    let hosts = uri.split_once("://").map_or(uri, |(_, rest)| rest).split(['/', '?']).next().unwrap_or_default();
    if uri.starts_with("mongodb+srv") || hosts.contains(',') || uri.to_lowercase().contains("directconnection=") {
        return uri.to_owned();
    }
    match (uri.contains('?'), uri.ends_with(hosts)) {
        (true, _) => format!("{uri}&{OPTION}"),
        (false, true) => format!("{uri}/?{OPTION}"),
        (false, false) => format!("{uri}?{OPTION}"),
    }
}

#[cfg(test)]
mod tests {
    use super::direct;

    #[test]
    fn a_single_server_is_asked_itself() {
        let check = |uri: &str, expected: &str| assert_eq!(direct(uri), expected);
        check("mongodb://a:1", "mongodb://a:1/?directConnection=true");
        check("mongodb://u:p@a:1/", "mongodb://u:p@a:1/?directConnection=true");
        check("mongodb://a/?tls=true", "mongodb://a/?tls=true&directConnection=true");
        for unchanged in ["mongodb://a,b/", "mongodb+srv://a", "mongodb://a/?directConnection=false"] {
            check(unchanged, unchanged);
        }
    }
}
