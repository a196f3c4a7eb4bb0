//! Who may send a request: the bearers of tokens, and web pages of allowed origins.
//!
//! # Tokens
//! A token is a secret of the caller (`Authorization: Bearer ..`). The service knows its SHA-256 hash only, so a configuration that is read by
//! somebody else gives no access. A token must therefore be random and long, not a word: `openssl rand -hex 32` makes one.
//!
//! # Origins
//! A web page may send some requests to any server without asking it, also to one on the reader's own machine, and browsers then name
//! the page's origin. So a request that writes and names an origin that is not allowed is refused, token or not. A form of the
//! service's own pages is taken from these pages alone: browsers say which page has sent a form.

use std::fmt;
use std::str::FromStr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::problem::{Problem, ProblemKind};

/// The header by which a browser says whose page has sent a request (Fetch Metadata Request Headers, W3C).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The SHA-256 hash of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

/// The error of a text that is no [`TokenHash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTokenHash;

/// The rules of access to the routes.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// The hashes of the tokens that may read and write. Without any, everybody may, who can reach the service.
    pub tokens: Vec<TokenHash>,
    /// Whether reading needs no token.
    pub public_reads: bool,
    /// The origins (`https://example.org`) of web pages that may send requests from browsers.
    pub allowed_origins: Vec<HeaderValue>,
}

/// The kind of access that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// It tells nothing about items: no token is needed.
    Open,
    Read,
    Write,
    /// It writes, and pages of the service itself may send it alone.
    PageWrite,
    /// It writes, and pages of all origins may send it without a token, as far as the handler allows it.
    PublicWrite,
}

impl RouteAccess {
    /// Returns whether a request may change something.
    pub(crate) fn writes(self) -> bool {
        matches!(self, RouteAccess::Write | RouteAccess::PageWrite | RouteAccess::PublicWrite)
    }
}

impl TokenHash {
    /// Returns the hash of a token.
    pub fn of(token: &str) -> Self {
        TokenHash(Sha256::digest(token.as_bytes()).into())
    }
}

impl FromStr for TokenHash {
    type Err = InvalidTokenHash;

    /// Reads 64 hexadecimal digits, as `sha256sum` prints them.
    fn from_str(text: &str) -> Result<Self, InvalidTokenHash> {
        let mut hash = [0; 32];
        let digits = text.as_bytes().chunks_exact(2);
        if text.len() != 2 * hash.len() || !digits.remainder().is_empty() {
            return Err(InvalidTokenHash);
        }
        for (byte, digits) in hash.iter_mut().zip(digits) {
            let digit = |digit: &u8| char::from(*digit).to_digit(16).ok_or(InvalidTokenHash);
            let [high, low] = digits else { return Err(InvalidTokenHash) };
            *byte = u8::try_from(digit(high)? * 16 + digit(low)?).map_err(|_| InvalidTokenHash)?;
        }
        Ok(TokenHash(hash))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash(..)")
    }
}

impl fmt::Display for InvalidTokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the hash of a token has 64 hexadecimal digits, as `sha256sum` prints them")
    }
}

impl std::error::Error for InvalidTokenHash {}

impl AccessOptions {
    /// Checks whether a request may be sent.
    pub(crate) fn check(&self, access: RouteAccess, headers: &HeaderMap) -> Result<(), Problem> {
        // A proxy before the service may have looked at the other one of two.
        for name in [AUTHORIZATION, ORIGIN] {
            if headers.get_all(&name).iter().nth(1).is_some() {
                return Err(Problem::invalid(format!("the header {name} is there more than once")));
            }
        }
        let needs_token = match access {
            RouteAccess::Open | RouteAccess::PublicWrite => false,
            RouteAccess::Read => !self.public_reads,
            RouteAccess::Write | RouteAccess::PageWrite => true,
        };
        if access == RouteAccess::Write {
            self.check_origin(headers)?;
        }
        if access == RouteAccess::PageWrite {
            check_own_page(headers)?;
        }
        if needs_token && !self.tokens.is_empty() {
            self.check_token(headers)?;
        }
        Ok(())
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match headers.get(ORIGIN) {
            Some(origin) if !self.allowed_origins.contains(origin) => {
                let origin = String::from_utf8_lossy(origin.as_bytes());
                let detail = format!("pages of {origin:?} may not write: it is none of the allowed origins");
                Err(Problem::new(ProblemKind::OriginRefused, detail))
            }
            _ => Ok(()),
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let unauthorized = |detail| Problem::new(ProblemKind::Unauthorized, detail);
        let header = headers.get(AUTHORIZATION);
        let header = header.ok_or_else(|| unauthorized("send the header Authorization: Bearer TOKEN"))?;
        let token = bearer(header).ok_or_else(|| unauthorized("the header Authorization must be Bearer TOKEN"))?;
        if self.knows(TokenHash::of(token)) {
            return Ok(());
        }
        // The token of somebody who has put the token itself into the list, where its hash belongs, and which looks like a hash.
        if token.parse().is_ok_and(|as_hash| self.knows(as_hash)) {
            tracing::warn!("a token is refused: the list has the token itself, and not its SHA-256 hash");
        }
        Err(unauthorized("the token is unknown"))
    }

    /// Returns whether this is the hash of a token. All are compared, each in constant time.
    fn knows(&self, hash: TokenHash) -> bool {
        self.tokens.iter().fold(0, |found, known| found | known.0.ct_eq(&hash.0).unwrap_u8()) == 1
    }

    /// Returns the hash of the request's token, if it has a known one.
    pub(crate) fn token(&self, headers: &HeaderMap) -> Option<TokenHash> {
        let hash = TokenHash::of(bearer(headers.get(AUTHORIZATION)?)?);
        self.knows(hash).then_some(hash)
    }
}

/// Checks that a page of the service itself has sent a form. Browsers log in by themselves, also for the pages of others.
fn check_own_page(headers: &HeaderMap) -> Result<(), Problem> {
    let is_own = match headers.get(SEC_FETCH_SITE) {
        // It knows the origin that the browser asked, which a proxy may change for the service.
        Some(site) => site == "same-origin",
        // Browsers leave it out without encryption, except on this machine.
        None => {
            let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
            let own = text(&ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
            own.is_some() && own == text(&HOST)
        }
    };
    if is_own {
        return Ok(());
    }
    let detail = "a form of the dashboard was sent by another page, or by a program: programs use the API";
    Err(Problem::new(ProblemKind::OriginRefused, detail))
}

/// Refuses a request that a page of another site has sent. It is for reads that take time.
pub(crate) fn refuse_other_sites(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(SEC_FETCH_SITE).is_none_or(|site| site != "cross-site") {
        return Ok(());
    }
    let detail = "a page of another site has sent this request: open the dashboard, and ask there";
    Err(Problem::new(ProblemKind::OriginRefused, detail))
}

/// Returns the token of a header `Bearer TOKEN`.
pub(crate) fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
