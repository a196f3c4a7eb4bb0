//! Parses any bytes as messages of a login: an exchange without the right proof fails.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scram::{ClientFirst, Credentials, Exchange, NONCE_BYTES};

// Only this file is compiled, as the whole server would take minutes to build.
#[allow(dead_code, reason = "the server uses the rest")]
#[rustfmt::skip] // it would look for the modules of the file, here
#[path = "../../crates/handfast-server/src/auth/scram.rs"]
mod scram;

const SECRET: scram::Key = [7; 32];

fuzz_target!(|bytes: &[u8]| {
    // The input is the first message, a zero byte, and the last message or its proof.
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (first, last) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Some(first) = ClientFirst::parse(first) else { return };
    assert!(!first.user.is_empty());
    let begin = || Exchange::begin(&first, Credentials::of_unknown_user(&SECRET, &first.user), &[1; NONCE_BYTES]);
    let (exchange, answer) = begin();
    assert!(exchange.finish(last).is_none());
    let (nonce, _) = answer.split_once(',').expect("a nonce, a salt, the rounds");
    let header = if bytes.starts_with(b"n") { "c=biws" } else { "c=eSws" };
    let whole = [format!("{header},{nonce},p=").as_bytes(), last].concat();
    assert!(begin().0.finish(&whole).is_none());
});
