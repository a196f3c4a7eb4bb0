//! The other side, for tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::Sha256;

use super::{KEY_BYTES, hash, hmac};

/// Returns the last message of a client, which answers the server's first; `first` is the client's first message.
pub(crate) fn prove(password: &str, first: &str, server_first: &str) -> String {
    let part = |prefix: &str| server_first.split(',').find_map(|part| part.strip_prefix(prefix)).unwrap();
    let salt = BASE64.decode(part("s=")).unwrap();
    let rounds = part("i=").parse().unwrap();
    let salted = pbkdf2::pbkdf2_hmac_array::<Sha256, KEY_BYTES>(password.as_bytes(), &salt, rounds);
    let client_key = hmac(&salted, &[b"Client Key"]);
    let bare = first.strip_prefix("n,,").unwrap();
    let without_proof = format!("c=biws,r={}", part("r="));
    let said = format!("{bare},{server_first},{without_proof}");
    let signature = hmac(&hash(&client_key), &[said.as_bytes()]);
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(one, other)| one ^ other).collect();
    format!("{without_proof},p={}", BASE64.encode(proof))
}
