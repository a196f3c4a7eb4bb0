//! The cluster time, which a replica set puts into each reply, and which its clients send to the other servers.
//!
//! ```text
//! operationTime: Timestamp(1763750000, 7)          the moment that the command read, or wrote at
//! $clusterTime: {clusterTime: Timestamp(..), ..}   the newest moment that this server knows
//! ```
//!
//! A client that reads its own writes asks for a state that is not older than such a moment. There is one copy of the data here, so a
//! read always sees all earlier writes, and the two times are equal. The time is a counter: each write increments it, and it is set to
//! the clock's second once a second. So reading it is a single atomic load.

use std::sync::atomic::{AtomicU64, Ordering};

use bson::{DateTime, Timestamp};

use crate::writer::Writer;

/// The position of the seconds in a timestamp's 64 bits.
const SECOND_SHIFT: u32 = 32;

/// The cluster time of a server.
pub(crate) struct ClusterTime(AtomicU64);

impl ClusterTime {
    pub(crate) fn new(now: DateTime) -> Self {
        ClusterTime(AtomicU64::new(second(now)))
    }

    /// Increments the time, after a write or for a snapshot, and returns it.
    pub(crate) fn advance(&self) -> Timestamp {
        let [time, increment] = halves(self.0.fetch_add(1, Ordering::AcqRel) + 1);
        Timestamp { time, increment }
    }

    /// Raises the time to the clock's second, if it is lower.
    pub(crate) fn reach(&self, now: DateTime) {
        self.0.fetch_max(second(now), Ordering::AcqRel);
    }

    /// Writes `operationTime` and `$clusterTime`.
    pub(crate) fn put(&self, writer: &mut Writer) {
        let now = self.0.load(Ordering::Acquire).to_le_bytes();
        let mut fields = FIELDS;
        for place in [OPERATION_TIME_AT, CLUSTER_TIME_AT] {
            if let Some(value) = fields.get_mut(place..place + now.len()) {
                value.copy_from_slice(&now);
            }
        }
        writer.put_fields(&fields);
    }
}

/// Returns the seconds and the increment of a timestamp.
fn halves(bits: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// Returns the first moment of the clock's second.
fn second(now: DateTime) -> u64 {
    let seconds = u64::try_from(now.timestamp_millis() / 1_000).unwrap_or(0);
    (seconds << SECOND_SHIFT) | 1
}

/// The fields with empty timestamps. The server does not sign them, so hash and key are zero, as in MongoDB without logins.
const FIELDS: [u8; 125] = *b"\
    \x11operationTime\0\0\0\0\0\0\0\0\0\
    \x03$clusterTime\0\x58\0\0\0\
    \x11clusterTime\0\0\0\0\0\0\0\0\0\
    \x03signature\0\x33\0\0\0\
    \x05hash\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x12keyId\0\0\0\0\0\0\0\0\0\
    \0\0";
const OPERATION_TIME_AT: usize = 15;
const CLUSTER_TIME_AT: usize = 54;

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, rawdoc};

    use super::*;
    use crate::options::{Options, Topology};
    use crate::testing::TestServer;

    fn fields(time: &ClusterTime) -> bson::RawDocumentBuf {
        let mut writer = Writer::new();
        time.put(&mut writer);
        writer.finish()
    }

    #[test]
    fn the_fields_are_what_bson_writes() {
        let time = ClusterTime::new(DateTime::from_millis(1_763_750_000_999));
        let now = Timestamp { time: 1_763_750_000, increment: 2 };
        assert_eq!(time.advance(), now);
        let hash = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] };
        let expected = rawdoc! {
            "operationTime": now,
            "$clusterTime": { "clusterTime": now, "signature": { "hash": hash, "keyId": 0_i64 } },
        };
        assert_eq!(fields(&time), expected);
    }

    #[test]
    fn the_time_never_decreases() {
        let time = ClusterTime::new(DateTime::from_millis(5_000));
        let now = |time: &ClusterTime| fields(time).get_timestamp("operationTime").unwrap();
        for _ in 0..3 {
            time.advance();
        }
        time.reach(DateTime::from_millis(4_000));
        assert_eq!(now(&time), Timestamp { time: 5, increment: 4 });
        time.reach(DateTime::from_millis(6_000));
        assert_eq!(now(&time), Timestamp { time: 6, increment: 1 });
    }

    /// Each reply of a replica set has the cluster time; a standalone server has none.
    #[tokio::test]
    async fn the_cluster_time_advances_with_each_write() {
        let mut server = TestServer::transactional();
        let mut client = server.connect();
        let mut latest = (0, 0);
        for (command, writes) in [
            (rawdoc! { "hello": 1 }, false),
            (rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }, true),
            (rawdoc! { "find": "c" }, false),
            (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] }, true),
            (rawdoc! { "find": "c", "nonsense": 1 }, false),
            (
                rawdoc! { "find": "c", "readConcern": { "level": "majority", "afterClusterTime": bson::Timestamp { time: u32::MAX, increment: 1 } } },
                false,
            ),
        ] {
            client.send(handfast_wire::Flags::default(), "d", command.clone(), &[]).await;
            let (.., reply) = client.receive_all().await.unwrap();
            let now = reply.get_timestamp("operationTime").unwrap();
            let gossip = reply.get_document("$clusterTime").unwrap().get_timestamp("clusterTime").unwrap();
            assert_eq!(gossip, now);
            let now = (now.time, now.increment);
            assert!(if writes { now > latest } else { now >= latest }, "{command:?}: {now:?} after {latest:?}");
            latest = now;
        }
        assert_eq!(client.refused("d", rawdoc! { "find": "c", "readConcern": { "afterClusterTime": 1 } }).await.0, 14);
        let mut server = TestServer::in_memory(Options { topology: Topology::Standalone, ..Options::default() });
        let mut client = server.connect();
        client.send(handfast_wire::Flags::default(), "d", rawdoc! { "ping": 1 }, &[]).await;
        assert_eq!(client.receive_all().await.unwrap().2, rawdoc! { "ok": 1.0 });
    }
}
