//! Parses any frame, compressed or not, as a message: an accepted one is written as it was read.
#![no_main]

use handfast_wire::compressed::Compressed;
use handfast_wire::{Limits, Message, OpMsg};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    if let Ok(compressed) = Compressed::decode(bytes, &limits) {
        if let Ok(plain) = compressed.inflate() {
            let _ = Message::decode(&plain, &limits);
        }
    }
    if let Ok((header, Message::Msg(message))) = Message::decode(bytes, &limits) {
        let mut again = Vec::new();
        message.encode(header.request_id, header.response_to, &mut again);
        let (_, second) = Message::decode(&again, &limits).expect("what we wrote we can read");
        let Message::Msg(second) = second else { panic!("another kind of message") };
        assert_eq!(message.body.as_bytes(), second.body.as_bytes());
        let _: &OpMsg<'_> = &second;
    }
});
