//! Reads whole messages from a stream of bytes.

use std::borrow::Cow;
use std::io;

use handfast_wire::compressed::Compressed;
use handfast_wire::{Error, HEADER_BYTES, Header, Limits, OpCode};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The reason why no further message is read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The connection failed, or ended in the middle of a message.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header is none: its length is out of bounds, or its opcode is unknown.
    #[error(transparent)]
    Wire(#[from] handfast_wire::Error),
    /// The first bytes are those of a TLS handshake.
    #[error("the peer speaks TLS")]
    Tls,
    /// The first bytes are not those of a TLS handshake, which is expected.
    #[error("the peer does not speak TLS")]
    NoTls,
}

/// A whole message.
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the bytes of a whole message, not compressed.
pub(crate) fn plain<'a>(frame: &'a [u8], limits: &Limits) -> Result<Cow<'a, [u8]>, Error> {
    Ok(match Header::of_frame(frame)?.op_code {
        OpCode::Compressed => Cow::Owned(Compressed::decode(frame, limits)?.inflate()?),
        _ => Cow::Borrowed(frame),
    })
}

/// The bytes of a message after whose arrival the memory of all of it is reserved. Until then the buffer grows with what arrives, because a peer may announce
/// more than it sends; from then on growing would copy the message, so that it would be in memory twice.
const RESERVING_BYTES_MIN: usize = 1 << 20;

/// The bytes of a message for which there is memory at first.
const FIRST_BYTES: usize = 1024;

/// The memory that a peer gets for each byte that it has sent. With it, the bytes that are copied as the memory grows are few of all.
const GROWTH: usize = 8;

/// Reads the next message. Returns `None` if the stream ends before it. The peer gets no memory by a length that it announces alone.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin), limits: &Limits) -> Result<Option<Frame>, ReadError> {
    let mut head = [0; HEADER_BYTES];
    let first = stream.read(&mut head).await?;
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(head.get_mut(first..).unwrap_or_default()).await?;
    let header = Header::decode(&head);
    if let OpCode::Other(number) = header.op_code {
        // The bytes that it announces are not waited for: nobody may ever send them.
        return Err(if is_tls(&head) { ReadError::Tls } else { Error::OpCode(number).into() });
    }
    let length = header.frame_bytes(limits)?;
    let mut bytes = head.to_vec();
    let mut stream = stream.take(u64::try_from(length - HEADER_BYTES).unwrap_or(u64::MAX));
    while bytes.len() < length {
        if bytes.len() == bytes.capacity() {
            bytes.reserve_exact(memory(bytes.len(), length) - bytes.len());
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(Some(Frame { header, bytes }))
}

/// Returns the memory for a message of which these bytes have arrived. The last step but one ends at an eighth of the message, so that no more is copied into
/// the memory of all of it.
fn memory(arrived: usize, length: usize) -> usize {
    let allowed = (arrived * GROWTH).max(FIRST_BYTES);
    if allowed >= length || arrived >= RESERVING_BYTES_MIN { length } else { allowed.min(length.div_ceil(GROWTH)) }
}

/// Returns whether these are the first bytes of a TLS handshake: a record of type 22 with a version 3.x (RFC 8446, section 5.1).
fn is_tls(head: &[u8; HEADER_BYTES]) -> bool {
    matches!(head, [22, 3, 0..=4, ..])
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use handfast_wire::{Flags, Limits, OpMsg};

    use super::{FIRST_BYTES, GROWTH, RESERVING_BYTES_MIN, ReadError, memory, read};

    /// Each step has more memory than the one before, but not more than the peer has sent a share of, and all copies together are less than the half of the
    /// message.
    #[test]
    fn memory_grows_with_what_arrives() {
        for length in (17..20_000).chain([100_000, 1_000_000, 5_000_000, 48_000_000]) {
            let (mut arrived, mut copied) = (16, 0);
            while arrived < length {
                let next = memory(arrived, length);
                assert!(arrived < next && next <= length, "{arrived} of {length}: {next}");
                let is_earned = next <= (arrived * GROWTH).max(FIRST_BYTES) || arrived >= RESERVING_BYTES_MIN;
                assert!(is_earned, "{arrived} of {length}: {next}");
                copied += arrived;
                arrived = next;
            }
            assert!(copied <= 16 + length / 2, "{copied} of {length}");
        }
    }

    #[tokio::test]
    async fn messages_are_read_whole_or_not_at_all() {
        let mut bytes = Vec::new();
        OpMsg::new(Flags::default(), &rawdoc! { "ping": 1 }).encode(1, 0, &mut bytes);
        let two = [bytes.as_slice(), bytes.as_slice()].concat();
        let mut stream = two.as_slice();
        for _ in 0..2 {
            assert_eq!(read(&mut stream, &Limits::default()).await.unwrap().unwrap().bytes, bytes);
        }
        assert!(read(&mut stream, &Limits::default()).await.unwrap().is_none());
        for length in 1..bytes.len() {
            assert!(read(&mut &bytes[..length], &Limits::default()).await.is_err());
        }
        let huge = [i32::MAX.to_le_bytes().as_slice(), &[0; 12]].concat();
        assert!(read(&mut huge.as_slice(), &Limits::default()).await.is_err());
    }

    /// The stream stays open without further bytes, so that a reader of the announced length would wait for ever.
    #[tokio::test(start_paused = true)]
    async fn bytes_that_are_no_header_are_refused_at_once() {
        let check = async |head: [u8; 16], is_tls: bool| {
            let (mut client, mut server) = tokio::io::duplex(64);
            tokio::io::AsyncWriteExt::write_all(&mut client, &head).await.unwrap();
            let limits = Limits::default();
            let read = tokio::time::timeout(std::time::Duration::from_secs(60), read(&mut server, &limits)).await;
            let error = read.expect("an answer at once").err().unwrap();
            assert_eq!(matches!(error, ReadError::Tls), is_tls, "{error}");
        };
        // A ClientHello of 512 bytes; as a header it announces 33 MB.
        check([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7, 7, 7], true).await;
        check(*b"GET / HTTP/1.1\r\n", false).await;
        check([100, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xd2, 7, 0, 0], false).await;
    }
}
