//! SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it knows a password, and the server that it has the user's credentials.
//! The password is not sent.
//!
//! ```text
//! client  n,,n=user,r=rOprNGfwEbeRWgbNEkqO                     user name and nonce
//! server  r=rOprNGfwEbeRWgbNEkqO%hvYDp..,s=W22ZaJ0S..,i=4096   both nonces, salt, rounds
//! client  c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDp..,p=dHzbZapW..   a proof over all messages
//! server  v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=       the server's proof
//! ```
//!
//! The stored credentials cannot be used as a password: `StoredKey` checks a proof but cannot make one. Salts and nonces are
//! arguments.
//!
//! The exchange for a user that does not exist looks the same: its salt is derived from a secret of the server and the name, so that
//! it is the same each time, and no proof is accepted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// MongoDB's name of the mechanism.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// The number of times that a password is hashed (MongoDB's `scramSHA256IterationCount`). Each guess costs as much.
pub const ITERATIONS: u32 = 15_000;
/// The size of a salt in bytes, as in MongoDB: with the four bytes of the block counter it has the size of a hash.
pub const SALT_BYTES: usize = 28;
/// The size of the server's half of a nonce in bytes.
pub const NONCE_BYTES: usize = 24;
/// The largest message of a client in bytes; it has a name, a nonce and a proof.
const MESSAGE_BYTES_MAX: usize = 4096;
/// The size of a SHA-256 in bytes.
const KEY_BYTES: usize = 32;

/// A SHA-256.
pub type Key = [u8; KEY_BYTES];

/// The credentials that are stored instead of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The number of times that the password was hashed.
    pub iterations: u32,
    /// The salt that was hashed with it.
    pub salt: Vec<u8>,
    /// The key that checks proofs of the client.
    pub stored_key: Key,
    /// The key that makes proofs of the server.
    pub server_key: Key,
}

impl std::fmt::Debug for Credentials {
    /// Leaves the keys out, because they must not get into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// The reason why a text cannot be a password. SASLprep (RFC 4013) does not allow some characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// It is empty, or has only characters that SASLprep removes.
    #[error("the password must not be empty")]
    Empty,
    /// It holds a character that SASLprep does not allow.
    #[error("the password holds a character that SASLprep (RFC 4013) does not allow, such as a control character")]
    Forbidden,
}

impl Credentials {
    /// Hashes a password, which takes some milliseconds.
    ///
    /// # Errors
    /// Fails if the text cannot be a password.
    pub fn derive(password: &str, salt: Vec<u8>, iterations: u32) -> Result<Self, Unsuitable> {
        let prepared = stringprep::saslprep(password).map_err(|_| Unsuitable::Forbidden)?;
        if prepared.is_empty() {
            return Err(Unsuitable::Empty);
        }
        let salted: Key = pbkdf2::pbkdf2_hmac_array::<Sha256, KEY_BYTES>(prepared.as_bytes(), &salt, iterations);
        let client_key = hmac(&salted, &[b"Client Key"]);
        let server_key = hmac(&salted, &[b"Server Key"]);
        Ok(Credentials { iterations, salt, stored_key: hash(&client_key), server_key })
    }

    /// Returns whether this is the key that checks proofs, in constant time.
    pub(crate) fn has_stored_key(&self, key: &Key) -> bool {
        self.stored_key.ct_eq(key).into()
    }

    /// Returns credentials for a user that does not exist. No proof matches them, and no client can tell them from real ones.
    pub fn of_unknown_user(secret: &Key, user: &str) -> Self {
        let part = |label: &[u8]| hmac(secret, &[label, b"\0", user.as_bytes()]);
        let mut salt = part(b"salt").to_vec();
        salt.truncate(SALT_BYTES);
        Credentials { iterations: ITERATIONS, salt, stored_key: part(b"stored key"), server_key: part(b"server key") }
    }
}

/// The first message of a client.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    /// The user name that the client claims.
    pub user: String,
    /// The header about channel binding and identity, which the client repeats in its proof.
    header: &'a str,
    /// The message without that header.
    bare: &'a str,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Parses the message. Returns `None` if it is malformed, or asks for channel binding, another identity or an extension.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        if message.len() > MESSAGE_BYTES_MAX {
            return None;
        }
        let message = std::str::from_utf8(message).ok()?;
        let bare = message.strip_prefix("n,,").or_else(|| message.strip_prefix("y,,"))?;
        let header = message.get(..3)?;
        let mut parts = bare.split(',');
        let user = unescape(parts.next()?.strip_prefix("n=")?)?;
        let nonce = parts.next()?.strip_prefix("r=")?;
        let usable = !user.is_empty() && is_nonce(nonce) && parts.next().is_none();
        usable.then_some(ClientFirst { user, header, bare, nonce })
    }
}

/// The server's state between the two messages of a client.
pub struct Exchange {
    credentials: Credentials,
    /// The encoded header, which the client has to repeat.
    header: String,
    /// Both nonces.
    nonce: String,
    /// The messages so far, which the proofs sign.
    said: String,
}

impl Exchange {
    /// Returns the state of the exchange and the reply to the first message.
    pub fn begin(
        first: &ClientFirst<'_>,
        credentials: Credentials,
        server_nonce: &[u8; NONCE_BYTES],
    ) -> (Self, String) {
        Exchange::begin_with(first, credentials, &BASE64.encode(server_nonce))
    }

    fn begin_with(first: &ClientFirst<'_>, credentials: Credentials, server_nonce: &str) -> (Self, String) {
        let nonce = format!("{}{server_nonce}", first.nonce);
        let answer = format!("r={nonce},s={},i={}", BASE64.encode(&credentials.salt), credentials.iterations);
        let said = format!("{},{answer}", first.bare);
        (Exchange { credentials, header: BASE64.encode(first.header), nonce, said }, answer)
    }

    /// Checks the proof, and returns the server's proof, or `None` if the client's is wrong.
    pub fn finish(self, message: &[u8]) -> Option<String> {
        if message.len() > MESSAGE_BYTES_MAX {
            return None;
        }
        let message = std::str::from_utf8(message).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let (header, nonce) = without_proof.strip_prefix("c=")?.split_once(",r=")?;
        if header != self.header || nonce != self.nonce {
            return None;
        }
        let proof: Key = BASE64.decode(proof).ok()?.try_into().ok()?;
        let said = [self.said.as_bytes(), b",", without_proof.as_bytes()];
        let signature = hmac(&self.credentials.stored_key, &said);
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(byte, other)| *byte ^= other);
        let proved: bool = hash(&client_key).ct_eq(&self.credentials.stored_key).into();
        proved.then(|| format!("v={}", BASE64.encode(hmac(&self.credentials.server_key, &said))))
    }
}

/// Replaces `=2C` by a comma and `=3D` by an equals sign. Returns `None` for another escape.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut unescaped = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            (None, None) => return None,
        };
        unescaped.push(sign);
        unescaped.push_str(rest);
    }
    Some(unescaped)
}

/// Returns whether a text is printable ASCII without a comma.
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn hash(bytes: &[u8]) -> Key {
    Sha256::digest(bytes).into()
}

/// Returns the HMAC-SHA-256 of the concatenated parts.
fn hmac(key: &Key, parts: &[&[u8]]) -> Key {
    // HMAC pads a shorter key with zeros. A key of a whole block is always accepted.
    let mut block = [0; 64];
    block[..KEY_BYTES].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
pub(crate) mod client;
#[cfg(test)]
mod tests;
