//! OP_COMPRESSED: another message's body in compressed form.
//!
//! ```text
//! int32 originalOpcode
//! int32 uncompressedSize    of the body, the header not counted
//! uint8 compressorId        0 noop, 1 snappy (raw block), 2 zlib, 3 zstd
//! bytes
//! ```
//!
//! A few bytes can inflate to very many. The codec therefore compares the announced size with the limit before it
//! allocates; the output buffer has exactly that size, and every decompressor stops at its end; an output that is shorter
//! or longer than announced is an error. A server can reserve the memory beforehand ([`Compressed::plain_bytes`]).

use std::io::Cursor;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::header::frame;
use crate::reader::Reader;
use crate::{Error, HEADER_BYTES, Header, Limits, OpCode, Result};

/// The default level of zstd, the fastest one with a good ratio.
const ZSTD_LEVEL: i32 = 3;

/// The compression of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// A compressor that does nothing, for tests of drivers. It need not be negotiated.
    Noop,
    /// Snappy in its raw block format.
    Snappy,
    /// Zlib (RFC 1950).
    Zlib,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compressor {
    /// The compressors that a handshake can name, the best first.
    pub const NEGOTIABLE: [Compressor; 3] = [Compressor::Zstd, Compressor::Snappy, Compressor::Zlib];

    /// Returns the name in a handshake.
    pub fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }

    /// Returns the compressor with a name in a handshake.
    pub fn by_name(name: &str) -> Option<Self> {
        Compressor::NEGOTIABLE.into_iter().find(|compressor| compressor.name() == name)
    }

    fn id(self) -> u8 {
        match self {
            Compressor::Noop => 0,
            Compressor::Snappy => 1,
            Compressor::Zlib => 2,
            Compressor::Zstd => 3,
        }
    }

    fn by_id(id: u8) -> Result<Self> {
        match id {
            0 => Ok(Compressor::Noop),
            1 => Ok(Compressor::Snappy),
            2 => Ok(Compressor::Zlib),
            3 => Ok(Compressor::Zstd),
            other => Err(Error::Compressor(other)),
        }
    }
}

/// An OP_COMPRESSED message before it is inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed<'a> {
    header: Header,
    original: OpCode,
    uncompressed: usize,
    compressor: Compressor,
    bytes: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Decodes a whole frame and compares the announced size with the limit.
    ///
    /// # Errors
    /// Returns an error for a frame of another opcode, one that wraps OP_COMPRESSED again, and one that announces too many bytes.
    pub fn decode(frame: &'a [u8], limits: &Limits) -> Result<Self> {
        const SIZE: &str = "the uncompressed size of OP_COMPRESSED";
        let header = Header::of_frame(frame)?;
        if header.frame_bytes(limits)? != frame.len() {
            return Err(Error::FrameLength { announced: header.message_length, actual: frame.len() });
        }
        if header.op_code != OpCode::Compressed {
            return Err(Error::OpCode(header.op_code.number()));
        }
        let mut reader = Reader::new(frame);
        reader.take(HEADER_BYTES, "the header")?;
        let original = OpCode::from(reader.i32("the opcode inside OP_COMPRESSED")?);
        if !matches!(original, OpCode::Msg | OpCode::Query | OpCode::Reply) {
            return Err(Error::OpCode(original.number()));
        }
        let announced = reader.i32(SIZE)?;
        let uncompressed = usize::try_from(announced)
            .ok()
            .filter(|size| size.saturating_add(HEADER_BYTES) <= limits.message_bytes_max)
            .ok_or(Error::BadNumber { what: SIZE, value: i64::from(announced) })?;
        let compressor = Compressor::by_id(reader.u8("the compressor of OP_COMPRESSED")?)?;
        let bytes = reader.take(reader.remaining(), "the compressed bytes")?;
        Ok(Compressed { header, original, uncompressed, compressor, bytes })
    }

    /// Returns the compressor of the sender, which the answer should use.
    pub fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// Returns the length of the plain frame with its header, which [`Compressed::inflate`] allocates.
    pub fn plain_bytes(&self) -> usize {
        HEADER_BYTES + self.uncompressed
    }

    /// Returns the plain frame, as the sender would have sent it uncompressed.
    ///
    /// # Errors
    /// [`Error::Inflate`] if the bytes are damaged or do not have the announced size.
    pub fn inflate(&self) -> Result<Vec<u8>> {
        let mut plain = Vec::with_capacity(self.plain_bytes());
        Header {
            message_length: i32::try_from(self.plain_bytes()).unwrap_or(i32::MAX),
            op_code: self.original,
            ..self.header
        }
        .encode(&mut plain);
        match self.compressor {
            Compressor::Noop => plain.extend_from_slice(self.bytes),
            Compressor::Snappy => inflate_snappy(self.bytes, self.uncompressed, &mut plain)?,
            Compressor::Zlib => inflate_zlib(self.bytes, &mut plain)?,
            Compressor::Zstd => inflate_zstd(self.bytes, &mut plain)?,
        }
        if plain.len() != self.plain_bytes() {
            return Err(Error::Inflate(format!(
                "{} bytes came out and {} were announced",
                plain.len().saturating_sub(HEADER_BYTES),
                self.uncompressed
            )));
        }
        Ok(plain)
    }
}

fn inflate_snappy(bytes: &[u8], uncompressed: usize, plain: &mut Vec<u8>) -> Result<()> {
    let failed = |error: snap::Error| Error::Inflate(error.to_string());
    if snap::raw::decompress_len(bytes).map_err(failed)? != uncompressed {
        return Err(Error::Inflate("its own size differs from the announced one".to_owned()));
    }
    plain.resize(HEADER_BYTES + uncompressed, 0);
    let body = plain.get_mut(HEADER_BYTES..).unwrap_or_default();
    snap::raw::Decoder::new().decompress(bytes, body).map_err(failed)?;
    Ok(())
}

/// Decompresses zlib. `plain` has capacity for exactly the announced size, and `decompress_vec` never grows it.
fn inflate_zlib(bytes: &[u8], plain: &mut Vec<u8>) -> Result<()> {
    let mut inflater = Decompress::new(true);
    loop {
        let (read, written) = (inflater.total_in(), plain.len());
        let rest = usize::try_from(read).ok().and_then(|read| bytes.get(read..)).unwrap_or_default();
        let status = inflater
            .decompress_vec(rest, plain, FlushDecompress::Finish)
            .map_err(|error| Error::Inflate(error.to_string()))?;
        if status == Status::StreamEnd {
            break;
        }
        if inflater.total_in() == read && plain.len() == written {
            return Err(Error::Inflate("it is cut off, or larger than announced".to_owned()));
        }
    }
    if usize::try_from(inflater.total_in()).ok() != Some(bytes.len()) {
        return Err(Error::Inflate("bytes follow the end of the compressed stream".to_owned()));
    }
    Ok(())
}

/// Writes after the header in the buffer, which does not grow.
fn inflate_zstd(bytes: &[u8], plain: &mut Vec<u8>) -> Result<()> {
    let mut target = Cursor::new(std::mem::take(plain));
    target.set_position(HEADER_BYTES as u64);
    let mut inflater = zstd::bulk::Decompressor::new().map_err(|error| Error::Inflate(error.to_string()))?;
    inflater.decompress_to_buffer(bytes, &mut target).map_err(|error| Error::Inflate(error.to_string()))?;
    *plain = target.into_inner();
    Ok(())
}

/// Compresses a plain frame. Returns `false` and writes nothing if the frame is malformed or the compressor fails; the caller
/// then sends the plain frame.
pub fn compress(plain: &[u8], compressor: Compressor, out: &mut Vec<u8>) -> bool {
    let Ok(header) = Header::of_frame(plain) else { return false };
    let body = plain.get(HEADER_BYTES..).unwrap_or_default();
    let Ok(uncompressed) = i32::try_from(body.len()) else { return false };
    let Some(bytes) = deflate(body, compressor) else { return false };
    frame(out, header.request_id, header.response_to, OpCode::Compressed, |out| {
        out.extend_from_slice(&header.op_code.number().to_le_bytes());
        out.extend_from_slice(&uncompressed.to_le_bytes());
        out.push(compressor.id());
        out.extend_from_slice(&bytes);
    });
    true
}

fn deflate(body: &[u8], compressor: Compressor) -> Option<Vec<u8>> {
    match compressor {
        Compressor::Noop => Some(body.to_vec()),
        Compressor::Snappy => snap::raw::Encoder::new().compress_vec(body).ok(),
        Compressor::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL).ok(),
        Compressor::Zlib => {
            let mut deflater = Compress::new(Compression::default(), true);
            // Incompressible input grows by 5 bytes per block of 16 KiB and by the frame.
            let mut bytes = Vec::with_capacity(body.len() + body.len() / 1_000 + 64);
            let status = deflater.compress_vec(body, &mut bytes, FlushCompress::Finish).ok()?;
            (status == Status::StreamEnd).then_some(bytes)
        }
    }
}

#[cfg(test)]
mod tests;
