use bson::rawdoc;
use proptest::prelude::*;

use super::{Compressed, Compressor, compress, deflate, inflate_zlib, inflate_zstd};
use crate::header::frame;
use crate::{Error, Flags, HEADER_BYTES, Header, Limits, Message, OpCode, OpMsg, Recovery, Result};

const ALL: [Compressor; 4] = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

fn inflate(frame: &[u8], limits: &Limits) -> Result<Vec<u8>> {
    Compressed::decode(frame, limits)?.inflate()
}

/// Returns a frame that announces `announced` bytes and holds `bytes` in the form `compressor`.
fn forged(announced: i32, original: i32, compressor: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, 3, 0, OpCode::Compressed, |out| {
        out.extend_from_slice(&original.to_le_bytes());
        out.extend_from_slice(&announced.to_le_bytes());
        out.push(compressor);
        out.extend_from_slice(bytes);
    });
    out
}

#[test]
fn a_message_survives_each_compressor() {
    let body = rawdoc! { "find": "c", "filter": { "name": "a".repeat(1_000) } };
    let mut plain = Vec::new();
    OpMsg::new(Flags::default(), &body).encode(42, 41, &mut plain);
    for compressor in ALL {
        let mut out = Vec::new();
        assert!(compress(&plain, compressor, &mut out));
        assert!(compressor == Compressor::Noop || out.len() < plain.len() / 2, "{compressor:?} does not compress");
        let header = Header::of_frame(&out).unwrap();
        assert_eq!((header.request_id, header.response_to, header.op_code), (42, 41, OpCode::Compressed));
        assert_eq!(Compressed::decode(&out, &Limits::default()).unwrap().compressor(), compressor);
        let inflated = inflate(&out, &Limits::default()).unwrap();
        assert_eq!(inflated, plain);
        assert!(Message::decode(&inflated, &Limits::default()).is_ok());
    }
}

#[test]
fn the_announced_size_is_bounded_before_anything_is_allocated() {
    let limits = Limits { message_bytes_max: 1_000, ..Limits::default() };
    for announced in [-1, i32::MIN, i32::MAX, 985] {
        let error = inflate(&forged(announced, 2013, 3, &[]), &limits).unwrap_err();
        assert!(matches!(error, Error::BadNumber { .. }), "{announced}: {error}");
    }
    assert!(Compressed::decode(&forged(984, 2013, 3, &[]), &limits).is_ok());
}

#[test]
fn a_decompression_bomb_stops_at_the_announced_size() {
    let zeros = vec![0; 1_000_000];
    for compressor in ALL {
        let bomb = deflate(&zeros, compressor).unwrap();
        for announced in [0, 10, 999_999, 1_000_001] {
            let frame = forged(announced, 2013, compressor.id(), &bomb);
            let compressed = Compressed::decode(&frame, &Limits::default()).unwrap();
            assert_eq!(compressed.plain_bytes(), HEADER_BYTES + usize::try_from(announced).unwrap());
            let error = compressed.inflate().unwrap_err();
            assert!(matches!(error, Error::Inflate(_)), "{compressor:?} {announced}: {error}");
            assert_eq!(error.recovery(), Recovery::AnswerAndClose);
        }
        assert!(inflate(&forged(1_000_000, 2013, compressor.id(), &bomb), &Limits::default()).is_ok());
    }
}

#[test]
fn a_decompression_bomb_does_not_grow_the_buffer() {
    let zeros = vec![0; 4_000_000];
    for compressor in [Compressor::Zlib, Compressor::Zstd] {
        let bomb = deflate(&zeros, compressor).unwrap();
        let mut plain = Vec::with_capacity(HEADER_BYTES + 100);
        let capacity = plain.capacity();
        plain.extend_from_slice(&[0; HEADER_BYTES]);
        let result = match compressor {
            Compressor::Zlib => inflate_zlib(&bomb, &mut plain),
            _ => inflate_zstd(&bomb, &mut plain),
        };
        assert!(result.is_err());
        assert!(plain.capacity() <= capacity, "{compressor:?}");
    }
}

#[test]
fn invalid_wrapped_messages_are_refused() {
    for (original, compressor, expected) in [
        (2012, 0, Error::OpCode(2012)),
        (2002, 0, Error::OpCode(2002)),
        (2013, 4, Error::Compressor(4)),
        (2013, 255, Error::Compressor(255)),
    ] {
        assert_eq!(inflate(&forged(0, original, compressor, &[]), &Limits::default()), Err(expected));
    }
}

#[test]
fn compressors_are_found_by_name() {
    for compressor in Compressor::NEGOTIABLE {
        assert_eq!(Compressor::by_name(compressor.name()), Some(compressor));
    }
    assert_eq!(Compressor::by_name("noop"), None);
    assert_eq!(Compressor::by_name("lz4"), None);
}

proptest! {
    #[test]
    fn any_body_survives(body in proptest::collection::vec(any::<u8>(), 0..3_000), repeat in 1..20usize, which in 0..4usize) {
        let body = body.repeat(repeat);
        let mut plain = Vec::new();
        frame(&mut plain, 1, 2, OpCode::Msg, |out| out.extend_from_slice(&body));
        let mut out = Vec::new();
        prop_assert!(compress(&plain, ALL[which], &mut out));
        prop_assert_eq!(inflate(&out, &Limits::default()).unwrap(), plain);
    }

    #[test]
    fn damaged_bytes_give_a_value_or_an_error(
        body in proptest::collection::vec(any::<u8>(), 0..500), which in 0..4usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut plain = Vec::new();
        frame(&mut plain, 1, 2, OpCode::Msg, |out| out.extend_from_slice(&body));
        let mut out = Vec::new();
        prop_assert!(compress(&plain, ALL[which], &mut out));
        for (place, byte) in damage {
            let place = place.index(out.len());
            out[place] = byte;
        }
        let _ = inflate(&out, &Limits::default());
        let _ = Message::decode(&out, &Limits::default());
    }

    #[test]
    fn noise_gives_a_value_or_an_error(announced in 0..10_000i32, compressor in 0..5u8, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = inflate(&forged(announced, 2013, compressor, &bytes), &Limits::default());
    }
}
