//! OP_MSG: one command or reply, its long lists of documents in sections of their own, and an optional checksum.
//!
//! ```text
//! uint32 flagBits
//! sections:  0x00 document                                      the body, exactly one
//!            0x01 int32 size, cstring identifier, document..    a list of documents: size counts itself
//! [uint32 CRC-32C of everything before it, header included]     if flag 0 is set
//! ```
//!
//! A list is an array field of the command that has been moved out of it, so that the size of one document does not limit
//! a batch: `{insert: "c"}` with a sequence `documents` is `{insert: "c", documents: [..]}`.

use bson::RawDocument;

use crate::header::{frame, set_length};
use crate::limits::{SEQUENCES_MAX, WRITE_BATCH_MAX};
use crate::reader::Reader;
use crate::{Error, HEADER_BYTES, Limits, OpCode, Result};

/// The length of the checksum.
const CHECKSUM_BYTES: usize = 4;
/// The length of the flags and the kind of the body's section.
const BODY_BEGINS_BYTES: usize = 5;
/// The flags that a receiver must know or refuse.
const REQUIRED_FLAGS: u32 = 0xffff;
const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;
const EXHAUST_ALLOWED: u32 = 1 << 16;

/// The defined flags of an OP_MSG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The message ends with a CRC-32C; so does the answer to it.
    pub checksum: bool,
    /// The sender of a request wants no answer; after a reply another one follows without a request.
    pub more_to_come: bool,
    /// The sender of a request accepts several replies.
    pub exhaust_allowed: bool,
}

impl Flags {
    /// Decodes flag bits. Refuses an unknown required flag, and ignores other unknown flags.
    fn decode(bits: u32) -> Result<Self> {
        let unknown = bits & REQUIRED_FLAGS & !(CHECKSUM_PRESENT | MORE_TO_COME);
        if unknown != 0 {
            return Err(Error::UnknownFlags(unknown));
        }
        Ok(Flags {
            checksum: bits & CHECKSUM_PRESENT != 0,
            more_to_come: bits & MORE_TO_COME != 0,
            exhaust_allowed: bits & EXHAUST_ALLOWED != 0,
        })
    }

    fn bits(self) -> u32 {
        let mut bits = 0;
        for (set, bit) in [
            (self.checksum, CHECKSUM_PRESENT),
            (self.more_to_come, MORE_TO_COME),
            (self.exhaust_allowed, EXHAUST_ALLOWED),
        ] {
            if set {
                bits |= bit;
            }
        }
        bits
    }
}

/// A list of documents that belongs in an array field of the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence<'a> {
    /// The name of the field.
    pub identifier: &'a str,
    /// The documents of the array.
    pub documents: Vec<&'a RawDocument>,
}

/// An OP_MSG message, borrowed from its frame.
#[derive(Clone, Debug, PartialEq)]
pub struct OpMsg<'a> {
    /// The flags.
    pub flags: Flags,
    /// The command or the reply.
    pub body: &'a RawDocument,
    /// The lists of documents.
    pub sequences: Vec<Sequence<'a>>,
}

impl<'a> OpMsg<'a> {
    /// Creates a message without lists.
    pub fn new(flags: Flags, body: &'a RawDocument) -> Self {
        OpMsg { flags, body, sequences: Vec::new() }
    }

    /// Returns the flags of a frame that may be malformed otherwise: a sender that asked for no answer must not get an error.
    pub fn flags_of_frame(frame: &[u8]) -> Option<Flags> {
        let bits = frame.get(HEADER_BYTES..)?.first_chunk()?;
        let bits = u32::from_le_bytes(*bits);
        Some(Flags {
            checksum: bits & CHECKSUM_PRESENT != 0,
            more_to_come: bits & MORE_TO_COME != 0,
            exhaust_allowed: bits & EXHAUST_ALLOWED != 0,
        })
    }

    /// Decodes a whole frame, whose length the caller has compared with its header.
    pub(crate) fn decode(frame: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut reader = Reader::new(frame);
        reader.take(HEADER_BYTES, "the header")?;
        let flags = Flags::decode(reader.u32("the flags of OP_MSG")?)?;
        let mut sections = Reader::new(sections_of(frame, &mut reader, flags)?);
        let mut bodies = Vec::with_capacity(1);
        let mut sequences: Vec<Sequence<'a>> = Vec::new();
        while !sections.is_empty() {
            match sections.u8("the kind of a section")? {
                0 => bodies.push(sections.document("the body of OP_MSG", limits)?),
                1 if sequences.len() == SEQUENCES_MAX => return Err(Error::TooManySequences),
                1 => sequences.push(Sequence::decode(&mut sections, limits)?),
                kind => return Err(Error::SectionKind(kind)),
            }
        }
        let [body] = bodies[..] else { return Err(Error::Bodies(bodies.len())) };
        check_distinct(body, &sequences)?;
        Ok(OpMsg { flags, body, sequences })
    }

    /// Returns the bytes before the body of a message without lists and checksum, so that the body need not be copied.
    pub fn head(&self, request_id: i32, response_to: i32) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEADER_BYTES + BODY_BEGINS_BYTES);
        frame(&mut head, request_id, response_to, OpCode::Msg, |out| self.begin(out));
        let length = i32::try_from(head.len() + self.body.as_bytes().len()).unwrap_or(i32::MAX);
        if let Some(prefix) = head.first_chunk_mut() {
            *prefix = length.to_le_bytes();
        }
        head
    }

    /// Writes the bytes between the header and the body.
    fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.flags.bits().to_le_bytes());
        out.push(0);
    }

    /// Appends the whole message to `out`, with a checksum if the flag is set.
    pub fn encode(&self, request_id: i32, response_to: i32, out: &mut Vec<u8>) {
        let start = out.len();
        frame(out, request_id, response_to, OpCode::Msg, |out| {
            self.begin(out);
            out.extend_from_slice(self.body.as_bytes());
            for sequence in &self.sequences {
                sequence.encode(out);
            }
            if self.flags.checksum {
                out.extend_from_slice(&[0; CHECKSUM_BYTES]);
            }
        });
        if self.flags.checksum {
            let end = out.len() - CHECKSUM_BYTES;
            let checksum = crc32c::crc32c(out.get(start..end).unwrap_or_default());
            out.truncate(end);
            out.extend_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// Returns the bytes of the sections. Checks the checksum, if the message has one.
fn sections_of<'a>(frame: &'a [u8], reader: &mut Reader<'a>, flags: Flags) -> Result<&'a [u8]> {
    if !flags.checksum {
        return reader.take(reader.remaining(), "the sections");
    }
    let count = reader.remaining().checked_sub(CHECKSUM_BYTES).ok_or(Error::Truncated("the checksum"))?;
    let sections = reader.take(count, "the sections")?;
    let carried = reader.u32("the checksum")?;
    let covered = frame.split_last_chunk::<CHECKSUM_BYTES>().map(|(covered, _)| covered).unwrap_or_default();
    let computed = crc32c::crc32c(covered);
    if computed == carried { Ok(sections) } else { Err(Error::Checksum { computed, carried }) }
}

/// Refuses a field that is given twice, as readers differ in which one they use.
fn check_distinct(body: &RawDocument, sequences: &[Sequence<'_>]) -> Result<()> {
    for (place, sequence) in sequences.iter().enumerate() {
        let earlier = sequences.iter().take(place);
        let in_body = || body.iter_elements().map_while(Result::ok).any(|e| e.key().as_str() == sequence.identifier);
        if earlier.into_iter().any(|other| other.identifier == sequence.identifier) || in_body() {
            return Err(Error::DuplicateSequence(sequence.identifier.to_owned()));
        }
    }
    Ok(())
}

impl<'a> Sequence<'a> {
    /// Decodes the bytes after the kind.
    fn decode(sections: &mut Reader<'a>, limits: &Limits) -> Result<Self> {
        const SIZE: &str = "the size of a document sequence";
        let size = sections.i32(SIZE)?;
        let inside = usize::try_from(size).ok().and_then(|size| size.checked_sub(4));
        let inside = inside.ok_or(Error::BadNumber { what: SIZE, value: i64::from(size) })?;
        let mut reader = Reader::new(sections.take(inside, "a document sequence")?);
        let identifier = reader.text("the identifier of a document sequence")?;
        let mut documents = Vec::new();
        let mut count = 0;
        while !reader.is_empty() {
            let document = reader.document("a document of a sequence", limits)?;
            count += 1;
            // The smallest document has 5 bytes and a reference to it 16: the list must not outgrow its message.
            if count <= WRITE_BATCH_MAX {
                documents.push(document);
            }
        }
        if count > WRITE_BATCH_MAX {
            return Err(Error::BatchTooLarge(count));
        }
        Ok(Sequence { identifier, documents })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend(self.identifier.bytes().filter(|&byte| byte != 0));
        out.push(0);
        for document in &self.documents {
            out.extend_from_slice(document.as_bytes());
        }
        set_length(out, start);
    }
}

#[cfg(test)]
mod tests;
