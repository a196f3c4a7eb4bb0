//! Writes a message at a rate.

use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::time::sleep;

use super::stream::send;

/// The number of parts in which the bytes of a second are sent: the other side sees a slow stream, and not one that stops.
const PARTS_PER_SECOND: u32 = 10;

/// Writes the bytes, each part when its bytes have had their time.
pub(super) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    bytes_per_second: NonZeroU32,
) -> io::Result<()> {
    let rate = u64::from(bytes_per_second.get());
    let part_bytes = bytes_per_second.get().div_ceil(PARTS_PER_SECOND);
    for part in bytes.chunks(usize::try_from(part_bytes).unwrap_or(usize::MAX)) {
        sleep(Duration::from_micros(part.len() as u64 * 1_000_000 / rate)).await;
        send(stream, part).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    use super::write;

    /// The clock stands still, and advances when all tasks wait for it.
    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_at_their_rate() {
        let check = async |count: usize, bytes_per_second: u32, seconds: u32| {
            let (mut client, mut server) = tokio::io::duplex(1 << 20);
            let (sent, rate) = (vec![7; count], NonZeroU32::new(bytes_per_second).unwrap());
            {
                let mut written = Box::pin(write(&mut client, &sent, rate));
                let expected = Duration::from_secs(seconds.into());
                let is_early = timeout(expected.saturating_sub(Duration::from_millis(1)), &mut written).await.is_ok();
                assert_eq!(is_early, seconds == 0, "{count} at {bytes_per_second}");
                if !is_early {
                    // A timer has steps of a millisecond.
                    timeout(expected / 10, written).await.unwrap().unwrap();
                }
            }
            drop(client);
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, sent);
        };
        check(0, 10, 0).await;
        check(1, 1, 1).await;
        check(5, 1, 5).await;
        check(2048, 1024, 2).await;
        check(1_000_000, 500_000, 2).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_bytes_arrive_before_the_last_ones() {
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        let sent = [7; 1000];
        let mut written = Box::pin(write(&mut client, &sent, NonZeroU32::new(100).unwrap()));
        let mut some = [0; 10];
        tokio::select! {
            _ = &mut written => panic!("all bytes were written first"),
            read = server.read_exact(&mut some) => assert_eq!(read.unwrap(), 10),
        }
        written.await.unwrap();
    }
}
