//! The settings of the service, as the arguments give them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use handfast_counters::Kind;
use handfast_http::AccessOptions;
use handfast_http::counters::{BotPolicy, ServiceOptions};

use super::arguments::{OfKind, ServeCountersArguments};
use super::flags::Parsed;
use super::tokens;
use crate::exit::Usage;

/// # Errors
/// The file of tokens cannot be read; an argument is wrong.
pub(super) fn service_options(arguments: &ServeCountersArguments) -> Result<ServiceOptions> {
    let mut visitor_windows = BTreeMap::new();
    for window in &arguments.visitor_windows {
        if visitor_windows.insert(window.kind.clone(), window.time).is_some() {
            return Err(Usage(format!("--visitor-window: {} is there more than once", window.kind)).into());
        }
    }
    let mut pixels = BTreeSet::new();
    for Parsed(kind) in &arguments.pixels {
        if !pixels.insert(kind.clone()) {
            return Err(Usage(format!("--pixel: {kind} is there more than once")).into());
        }
    }
    let (bots, bots_of_kinds) = of_kinds("--bots", &arguments.bots, BotPolicy::from)?;
    let (client_limit, client_limits_of_kinds) =
        of_kinds("--limit-per-client", &arguments.limit_per_client, |limit| limit.0)?;
    let header = arguments.client_address_header.as_ref().map(|name| {
        // Its addresses are within parameters: for=192.0.2.7.
        if name.eq_ignore_ascii_case("Forwarded") {
            let advice = "let the proxy send the address alone, such as in X-Forwarded-For, and name that header";
            return Err(Usage(format!("--client-address-header: {name} cannot be read: {advice}")));
        }
        name.parse().map_err(|_| Usage(format!("--client-address-header: {name:?} is no name of a header")))
    });
    Ok(ServiceOptions {
        access: access(arguments)?,
        visitor_windows,
        bots: bots.unwrap_or_default(),
        bots_of_kinds,
        pixels,
        client_limit,
        client_limits_of_kinds,
        client_address_header: header.transpose()?,
        ..ServiceOptions::default()
    })
}

/// Returns the value for all kinds, and those of some; each may be there once.
fn of_kinds<T: Copy, V>(
    flag: &str,
    values: &[OfKind<T>],
    read: impl Fn(T) -> V,
) -> Result<(Option<V>, BTreeMap<Kind, V>), Usage> {
    let (mut of_all, mut of_kinds) = (None, BTreeMap::new());
    for OfKind { kind, value } in values {
        let value = read(*value);
        let (before, name) = match kind {
            None => (of_all.replace(value), "the value for all kinds"),
            Some(kind) => (of_kinds.insert(kind.clone(), value), kind.as_str()),
        };
        if before.is_some() {
            return Err(Usage(format!("{flag}: {name} is there more than once")));
        }
    }
    Ok((of_all, of_kinds))
}

fn access(arguments: &ServeCountersArguments) -> Result<AccessOptions> {
    let tokens = arguments.tokens.as_deref().map(tokens::read).transpose()?.unwrap_or_default();
    let origins = arguments.allowed_origins.iter().map(|origin| {
        origin.0.parse().map_err(|_| Usage(format!("--allow-origin: {:?} is no origin", origin.0)).into())
    });
    let allowed_origins = origins.collect::<Result<Vec<_>>>()?;
    Ok(AccessOptions { tokens, public_reads: arguments.public_reads, allowed_origins })
}
