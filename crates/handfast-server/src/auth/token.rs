//! Tokens of users: secrets that stand for the name and the password of a user, until they expire or are revoked.
//!
//! ```text
//! hft_9f86d081884c7d65_2c26b46b68ffc68f..   the text, which is shown once
//!     id, 16 digits    secret, 64 digits
//! {_id: "9f86d081884c7d65", hash: "..", name: "reports", createdAt, expiresAt}   in the document of the user
//! ```
//!
//! The secret is random, so one SHA-256 of the text is enough: there is nothing to guess, as there is with a password. A token has the roles of its user, and
//! goes with the user.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{Error, Result};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::users::random;
use crate::writer::Writer;

/// The number of tokens of one user.
pub const TOKENS_MAX: usize = 100;
/// The largest name of a token, in bytes.
pub const TOKEN_NAME_BYTES_MAX: usize = 256;

/// The beginning of all tokens, by which programs that look for lost secrets know them.
const PREFIX: &str = "hft_";

/// A token of a user, without its secret.
#[derive(Clone)]
pub struct UserToken {
    /// The id, by which it is revoked.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// When it was made.
    pub created_at: DateTime,
    /// From when on it is refused; `None` for one that does not expire.
    pub expires_at: Option<DateTime>,
    hash: [u8; 32],
}

/// A token that was made now.
pub struct NewUserToken {
    /// The token.
    pub token: UserToken,
    /// The text, which nobody can find out afterwards.
    pub text: String,
}

impl std::fmt::Debug for UserToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserToken({})", self.id)
    }
}

impl std::fmt::Debug for NewUserToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.token.fmt(f)
    }
}

impl UserToken {
    /// Makes a token.
    ///
    /// # Errors
    /// `BadValue` (2) for a name that is empty or too long, and for a time that is over.
    pub(super) fn make(name: &str, now: DateTime, expires_at: Option<DateTime>) -> Result<NewUserToken> {
        let refused = |text: String| Err(Error::command(Code::BadValue, text));
        if name.is_empty() || name.len() > TOKEN_NAME_BYTES_MAX || name.contains('\0') {
            return refused(format!(
                "the name of a token must have from 1 to {TOKEN_NAME_BYTES_MAX} bytes, and no null character"
            ));
        }
        if expires_at.is_some_and(|at| at <= now) {
            return refused("the time at which a token expires must be in the future".to_owned());
        }
        let (id, secret) = (hexadecimal(&random::<8>()?), hexadecimal(&random::<32>()?));
        let text = format!("{PREFIX}{id}_{secret}");
        let token = UserToken { hash: hash(&text), id, name: name.to_owned(), created_at: now, expires_at };
        Ok(NewUserToken { token, text })
    }

    /// Returns the id of a token by its text; `None` for a text that is no token.
    pub(super) fn id_of(text: &str) -> Option<&str> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hexadecimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        (id.len() == 16 && secret.len() == 64 && is_hexadecimal(id) && is_hexadecimal(secret)).then_some(id)
    }

    /// Returns whether this is the text of the token.
    pub(super) fn is_of(&self, text: &str) -> bool {
        self.hash.ct_eq(&hash(text)).into()
    }

    /// Returns whether the token is refused at a time.
    pub fn has_expired(&self, now: DateTime) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns the part of the document of its user.
    pub(super) fn to_document(&self) -> RawDocumentBuf {
        let mut writer = Writer::new();
        writer.put("_id", &*self.id).put("hash", BASE64.encode(self.hash)).put("name", &*self.name);
        writer.put("createdAt", self.created_at).put_some("expiresAt", self.expires_at);
        writer.finish()
    }

    /// Reads the tokens of a document of a user; `None` if one cannot be read.
    pub(super) fn all_of(document: &RawDocument) -> Option<Vec<UserToken>> {
        let Ok(tokens) = document.get_array("tokens") else { return Some(Vec::new()) };
        let mut read = Vec::new();
        for token in tokens {
            let RawBsonRef::Document(token) = token.ok()? else { return None };
            read.push(UserToken {
                id: token.get_str("_id").ok()?.to_owned(),
                name: token.get_str("name").ok()?.to_owned(),
                created_at: token.get_datetime("createdAt").ok()?,
                expires_at: match token.get("expiresAt").ok()? {
                    None => None,
                    Some(RawBsonRef::DateTime(at)) => Some(at),
                    // It must not become a token that never expires.
                    Some(_) => return None,
                },
                hash: BASE64.decode(token.get_str("hash").ok()?).ok()?.try_into().ok()?,
            });
        }
        Some(read)
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
