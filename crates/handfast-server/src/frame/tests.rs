use std::time::Duration;

use handfast_wire::{Flags, OpMsg};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn times() -> ConnectionLimits {
    ConnectionLimits {
        idle_timeout: 100 * SECOND,
        stall_timeout: 10 * SECOND,
        message_timeout: 30 * SECOND,
        ..ConnectionLimits::default()
    }
}

fn reader(stream: DuplexStream) -> FrameReader<DuplexStream> {
    FrameReader::new(stream, Limits::default(), times())
}

fn message(text: &str) -> Vec<u8> {
    let body = bson::rawdoc! { "text": text };
    let mut out = Vec::new();
    OpMsg::new(Flags::default(), &body).encode(1, 0, &mut out);
    out
}

#[tokio::test(start_paused = true)]
async fn frames_are_read_from_parts_of_any_size() {
    let (mut client, server) = duplex(64 * 1024);
    let (one, two) = (message("a"), message("bb"));
    let bytes = [one.clone(), two.clone()].concat();
    let mut frames = reader(server);
    let budget = MemoryBudget::new(1 << 20);
    for size in [1, 7, bytes.len()] {
        for part in bytes.chunks(size) {
            client.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        for expected in [&one, &two] {
            let frame = frames.next(&budget).await.unwrap().unwrap();
            assert_eq!(&frame.bytes[..], &expected[..]);
            frames.recycle(frame.bytes);
        }
        assert!(frames.is_idle());
    }
    drop(client);
    assert!(frames.next(&budget).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn no_byte_is_lost_when_a_read_is_cancelled() {
    let (mut client, server) = duplex(64 * 1024);
    let bytes = message("hello");
    let mut frames = reader(server);
    let budget = MemoryBudget::new(1 << 20);
    for byte in &bytes {
        let early = tokio::time::timeout(Duration::from_millis(1), frames.next(&budget)).await;
        assert!(early.is_err(), "a frame before its last byte");
        client.write_all(&[*byte]).await.unwrap();
    }
    assert_eq!(&frames.next(&budget).await.unwrap().unwrap().bytes[..], &bytes[..]);
}

#[tokio::test(start_paused = true)]
async fn idle_and_stalled_connections_have_different_time_outs() {
    let budget = MemoryBudget::new(1 << 20);
    let (_client, server) = duplex(1024);
    assert!(matches!(reader(server).next(&budget).await, Err(ReadError::Idle(_))));

    let (mut client, server) = duplex(1024);
    client.write_all(&message("x")[..20]).await.unwrap();
    assert!(matches!(reader(server).next(&budget).await, Err(ReadError::Stalled(_))));

    let (mut client, server) = duplex(1024);
    client.write_all(&message("x")[..20]).await.unwrap();
    drop(client);
    assert!(matches!(reader(server).next(&budget).await, Err(ReadError::Truncated)));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_takes_too_long_as_a_whole_is_an_error() {
    let (mut client, server) = duplex(1024);
    let bytes = message(&"x".repeat(100));
    let trickle = tokio::spawn(async move {
        let mut sent = 0;
        for byte in bytes {
            if client.write_all(&[byte]).await.is_err() {
                break;
            }
            sent += 1;
            tokio::time::sleep(SECOND).await;
        }
        sent
    });
    let began = timer_now();
    let mut frames = reader(server);
    assert!(matches!(frames.next(&MemoryBudget::new(1 << 20)).await, Err(ReadError::TooSlow(_))));
    assert!(began.elapsed() <= 31 * SECOND);
    drop(frames);
    assert!(trickle.await.unwrap() <= 32);
}

#[tokio::test(start_paused = true)]
async fn an_announced_length_reserves_no_memory() {
    let (mut client, server) = duplex(1024 * 1024);
    let header = [48_000_000_i32, 1, 0, 2013].map(i32::to_le_bytes).concat();
    client.write_all(&header).await.unwrap();
    let mut frames = reader(server);
    let budget = MemoryBudget::new(100 << 20);
    let all = budget.reserve(100 << 20).await;
    let wait = tokio::time::timeout(SECOND, frames.next(&budget));
    assert!(wait.await.is_err());
    assert!(frames.buffer.capacity() <= 64 * 1024, "{}", frames.buffer.capacity());
    // After 64 KiB it waits for a reservation, and reads no more bytes meanwhile.
    client.write_all(&vec![0; 300 * 1024]).await.unwrap();
    assert!(tokio::time::timeout(SECOND, frames.next(&budget)).await.is_err());
    assert!(frames.buffer.capacity() <= 256 * 1024, "{}", frames.buffer.capacity());
    assert!(frames.reserved.is_none());
    drop(all);
    assert!(tokio::time::timeout(SECOND, frames.next(&budget)).await.is_err());
    assert!(frames.reserved.is_some());
    assert!(frames.buffer.capacity() < 2_000_000, "{}", frames.buffer.capacity());
}

#[tokio::test(start_paused = true)]
async fn an_invalid_length_is_an_error() {
    for length in [-1_i32, 0, 15, 48_000_001, i32::MAX, i32::from_le_bytes(*b"GET ")] {
        let (mut client, server) = duplex(1024);
        client.write_all(&[length, 1, 0, 2013].map(i32::to_le_bytes).concat()).await.unwrap();
        let result = reader(server).next(&MemoryBudget::new(1 << 20)).await;
        assert!(matches!(result, Err(ReadError::Wire(handfast_wire::Error::MessageLength { .. }))), "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_is_noticed_and_bytes_that_arrive_meanwhile_are_kept() {
    let (mut client, server) = duplex(1024);
    let mut frames = reader(server);
    let bytes = message("early");
    client.write_all(&bytes).await.unwrap();
    assert!(tokio::time::timeout(SECOND, frames.peer_gone()).await.is_err());
    drop(client);
    frames.peer_gone().await;
    let budget = MemoryBudget::new(1 << 20);
    assert_eq!(&frames.next(&budget).await.unwrap().unwrap().bytes[..], &bytes[..]);
    assert!(frames.next(&budget).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_message_in_two_buffers_is_written_whole() {
    for room in [1, 7, 1024] {
        let (mut client, mut server) = duplex(room);
        let (head, body) = (b"head", [7; 500]);
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            client.read_to_end(&mut read).await.unwrap();
            read
        });
        write_all(&mut server, Buf::chain(head.as_slice(), &body[..]), &times()).await.unwrap();
        drop(server);
        assert_eq!(reading.await.unwrap(), [&head[..], &body].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_to_a_client_that_reads_nothing_times_out() {
    let (_client, mut server) = duplex(1024);
    let result = write_all(&mut server, &[0; 10_000][..], &times()).await;
    assert!(matches!(result, Err(ReadError::Stalled(_))));
}

#[tokio::test(start_paused = true)]
async fn a_write_to_a_client_that_reads_too_slowly_times_out() {
    let (mut client, mut server) = duplex(16);
    let reading = tokio::spawn(async move {
        let mut byte = [0];
        while matches!(client.read(&mut byte).await, Ok(1)) {
            tokio::time::sleep(SECOND).await;
        }
    });
    let result = write_all(&mut server, &[0; 10_000][..], &times()).await;
    assert!(matches!(result, Err(ReadError::TooSlow(_))));
    drop(server);
    reading.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_wait_has_its_own_deadline() {
    let (mut client, server) = duplex(64 * 1024);
    let bytes = message("hello");
    let mut frames = reader(server);
    let budget = MemoryBudget::new(1 << 20);
    let begun = timer_now();
    tokio::spawn(async move {
        // The pause is longer than the stall time-out and shorter than the idle one; the next stall ends in time.
        for (pause, part) in [(90, &bytes[..]), (90, &bytes[..1]), (9, &bytes[1..])] {
            tokio::time::sleep(pause * SECOND).await;
            client.write_all(part).await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    for expected in [90, 189] {
        assert!(frames.next(&budget).await.unwrap().is_some());
        assert_eq!(begun.elapsed().as_secs(), expected);
    }
    assert!(matches!(frames.next(&budget).await, Err(ReadError::Idle(_))));
    assert_eq!(begun.elapsed().as_secs(), 289);
}
