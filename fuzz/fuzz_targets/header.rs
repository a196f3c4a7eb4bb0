//! Parses any sixteen bytes as a header: an accepted length is within the limits.
#![no_main]

use handfast_wire::{HEADER_BYTES, Header, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(header);
        if let Ok(length) = header.frame_bytes(&limits) {
            assert!(length >= HEADER_BYTES && length <= limits.message_bytes_max);
        }
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, bytes[..HEADER_BYTES]);
    }
});
