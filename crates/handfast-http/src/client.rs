//! Clients: their addresses, and how many requests each may send.
//!
//! # Addresses
//! A client's address is that of the connection's other end. Behind a proxy that is the proxy's, and the proxy puts the client's into a header, which is
//! believed only if the configuration names it. A client can send such a header as well, and proxies append to it, so the last address counts.
//!
//! # Limits
//! A client is a token, or else an address; of an IPv6 address the first 64 bits, as a client has all addresses that begin with them. Of each client a
//! single time is kept, up to which its requests have used its limit (the generic cell rate algorithm, ITU-T I.371). The limit of clients that are kept
//! bounds the memory: one that is forgotten begins anew.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Extensions, HeaderMap, HeaderName};
use lru::LruCache;

use crate::access::TokenHash;

/// The maximum number of clients whose requests are counted, of about 150 bytes each.
const CLIENTS_MAX: usize = 65_536;

/// The address of the other end of a connection. A program with a server of its own inserts it into the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// The number of requests that a client may send in a time. A client that was silent may send them all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    /// The number of requests, 1 or more.
    pub requests: u32,
    /// The time, longer than zero.
    pub time: Duration,
}

/// A client, as limits tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    Token(TokenHash),
    Address(IpAddr),
    /// The program has not said where the request is from.
    Unknown,
}

/// The requests of all clients.
pub(crate) struct Limiter {
    limit: ClientLimit,
    /// The time up to which the requests of each client have used its limit.
    used_until: Mutex<LruCache<Client, Duration>>,
    clients_max: usize,
}

/// Finds the addresses of clients.
pub(crate) struct ClientAddresses {
    /// The header in which a proxy names the client's address.
    header: Option<HeaderName>,
    /// Whether a warning has told that a request named no address.
    warned: AtomicBool,
}

impl ClientAddresses {
    pub(crate) fn new(header: Option<HeaderName>) -> Self {
        ClientAddresses { header, warned: AtomicBool::new(false) }
    }

    /// Returns the address of a client.
    pub(crate) fn address(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<IpAddr> {
        let named = self.header.as_ref().and_then(|header| self.named(headers, header));
        let address = named.or_else(|| extensions.get::<PeerAddress>().map(|peer| peer.0));
        address.map(|address| address.to_canonical())
    }

    /// Warns, the first time, if a request should name its client and does not: all clients behind a proxy would be one.
    pub(crate) fn check(&self, headers: &HeaderMap) {
        let Some(header) = &self.header else { return };
        if self.named(headers, header).is_none() && !self.warned.swap(true, Ordering::Relaxed) {
            let value = headers.get(header);
            tracing::warn!(
                %header,
                ?value,
                "a request has no address in the header that should name its client: the address of the connection counts, which behind a proxy is \
                 the same for all. Let the proxy set the header, or name the one that it sets. This is said once"
            );
        }
    }

    fn named(&self, headers: &HeaderMap, header: &HeaderName) -> Option<IpAddr> {
        let last = headers.get_all(header).iter().next_back()?.to_str().ok()?;
        read(last.rsplit(',').next()?.trim())
    }
}

/// Reads an address, with or without a port.
fn read(text: &str) -> Option<IpAddr> {
    let without_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(without_port).or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
}

impl Client {
    pub(crate) fn new(token: Option<TokenHash>, address: Option<IpAddr>) -> Self {
        match (token, address) {
            (Some(token), _) => Client::Token(token),
            (None, Some(IpAddr::V6(address))) => {
                let [a, b, c, d, ..] = address.segments();
                Client::Address(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            (None, Some(address)) => Client::Address(address),
            (None, None) => Client::Unknown,
        }
    }
}

impl Limiter {
    pub(crate) fn new(limit: ClientLimit) -> Self {
        Limiter { limit, used_until: Mutex::new(LruCache::unbounded()), clients_max: CLIENTS_MAX }
    }

    /// Counts a request of a client; the error is the time after which it may send the next one.
    pub(crate) fn take(&self, client: Client, now: Duration) -> Result<(), Duration> {
        let ClientLimit { requests, time } = self.limit;
        let mut used_until = self.used_until.lock().unwrap_or_else(PoisonError::into_inner);
        let before = used_until.get(&client).map_or(now, |until| now.max(*until));
        // A limit that is finer than the clock is still one.
        let after = before.saturating_add((time / requests.max(1)).max(Duration::from_nanos(1)));
        let ahead = after.saturating_sub(now);
        if ahead > time {
            return Err(ahead.saturating_sub(time));
        }
        used_until.put(client, after);
        while used_until.len() > self.clients_max {
            used_until.pop_lru();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use axum::http::{Extensions, HeaderMap, HeaderName};

    use super::{Client, ClientAddresses, ClientLimit, Limiter, PeerAddress};
    use crate::access::TokenHash;

    const SECOND: Duration = Duration::from_secs(1);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn client(text: &str) -> Client {
        Client::new(None, Some(ip(text)))
    }

    #[test]
    fn the_last_address_of_the_header_is_the_client() {
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddress(ip("10.0.0.1")));
        let name = HeaderName::from_static("x-forwarded-for");
        let (believed, not_believed) = (ClientAddresses::new(Some(name.clone())), ClientAddresses::new(None));
        for (header, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("198.51.100.1, 192.0.2.7", "192.0.2.7"),
            ("192.0.2.7:4711", "192.0.2.7"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("192.0.2.7, unknown", "10.0.0.1"),
            ("", "10.0.0.1"),
        ] {
            let headers = HeaderMap::from_iter([(name.clone(), header.parse().expect("a header"))]);
            assert_eq!(believed.address(&extensions, &headers), Some(ip(expected)), "{header}");
            let address = not_believed.address(&extensions, &headers);
            assert_eq!(address, Some(ip("10.0.0.1")), "it is not believed: {header}");
        }
        let mut headers = HeaderMap::new();
        headers.append(name.clone(), "198.51.100.1".parse().expect("a header"));
        headers.append(name.clone(), "192.0.2.7".parse().expect("a header"));
        assert_eq!(believed.address(&extensions, &headers), Some(ip("192.0.2.7")));
        assert_eq!(believed.address(&Extensions::new(), &HeaderMap::new()), None);
    }

    #[test]
    fn a_header_without_an_address_is_warned_about_once() {
        use std::sync::atomic::Ordering;

        let name = HeaderName::from_static("x-forwarded-for");
        let with = |value: &str| HeaderMap::from_iter([(name.clone(), value.parse().expect("a header"))]);
        for (headers, warned) in
            [(with("192.0.2.7"), false), (with("for=192.0.2.7"), true), (HeaderMap::new(), true), (with(""), true)]
        {
            let addresses = ClientAddresses::new(Some(name.clone()));
            addresses.check(&headers);
            assert_eq!(addresses.warned.load(Ordering::Relaxed), warned, "{headers:?}");
        }
        let addresses = ClientAddresses::new(None);
        addresses.check(&HeaderMap::new());
        assert!(!addresses.warned.load(Ordering::Relaxed), "no header was named");
    }

    #[test]
    fn a_limit_that_is_finer_than_the_clock_is_one() {
        let limiter = Limiter::new(ClientLimit { requests: u32::MAX, time: Duration::from_nanos(2) });
        let a = client("192.0.2.7");
        assert_eq!((limiter.take(a, SECOND), limiter.take(a, SECOND)), (Ok(()), Ok(())));
        assert!(limiter.take(a, SECOND).is_err());
    }

    #[test]
    fn a_client_gets_its_requests_back_evenly() {
        let limiter = Limiter::new(ClientLimit { requests: 3, time: 6 * SECOND });
        let a = client("192.0.2.7");
        for _ in 0..3 {
            assert_eq!(limiter.take(a, SECOND), Ok(()));
        }
        assert_eq!(limiter.take(a, SECOND), Err(2 * SECOND));
        assert_eq!(limiter.take(client("192.0.2.8"), SECOND), Ok(()), "others have their own");
        assert_eq!(limiter.take(a, 2 * SECOND), Err(SECOND), "what is refused does not count");
        assert_eq!(limiter.take(a, 3 * SECOND), Ok(()));
        assert_eq!(limiter.take(a, 3 * SECOND), Err(2 * SECOND));
        for _ in 0..3 {
            assert_eq!(limiter.take(a, 100 * SECOND), Ok(()), "all at once after a silence, and not more");
        }
        assert_eq!(limiter.take(a, 100 * SECOND), Err(2 * SECOND));
    }

    #[test]
    fn a_client_is_a_token_or_the_network_of_an_address() {
        assert_eq!(client("2001:db8:1:2:3:4:5:6"), client("2001:db8:1:2::1"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        let token = TokenHash::of("a");
        assert_eq!(Client::new(Some(token), Some(ip("192.0.2.7"))), Client::new(Some(token), None));
    }

    #[test]
    fn the_clients_that_are_kept_have_a_limit() {
        let mut limiter = Limiter::new(ClientLimit { requests: 1, time: SECOND });
        limiter.clients_max = 2;
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
            assert_eq!(limiter.take(client(address), SECOND), Ok(()));
        }
        assert_eq!(limiter.used_until.lock().expect("unlocked").len(), 2);
        assert_eq!(limiter.take(client("192.0.2.1"), SECOND), Ok(()), "it was forgotten");
        assert!(limiter.take(client("192.0.2.3"), SECOND).is_err());
    }
}
