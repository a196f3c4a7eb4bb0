//! The cluster time, which a replica set puts into each reply, and which its clients send to the other servers.
//!
//! ```text
//! operationTime: Timestamp(1763750000, 7)          what was visible at this moment, a read has seen, and a write is part of it
//! $clusterTime: {clusterTime: Timestamp(..), ..}   the newest moment that this server knows
//! ```
//!
//! A client that reads its own writes asks for a state that is not older than such a moment. There is one copy of the data here, so a
//! read always sees all earlier writes. The two times differ while a log of changes gives moments to changes that are not visible yet:
//! a change stream from the `operationTime` of a read shows each change that the read has not seen. The time is a counter: each write increments it, and it is set to
//! the clock's second once a second. So reading it is a single atomic load.

use std::sync::Arc;

use bson::{DateTime, Timestamp};
use handfast_store::ClusterClock;
use handfast_store::source::cluster_clock::bits;

use crate::writer::Writer;

/// The cluster time of a server, which its store shares: a log of changes advances it, too.
pub(crate) struct ClusterTime(Arc<ClusterClock>);

impl ClusterTime {
    pub(crate) fn new(clock: Arc<ClusterClock>) -> Self {
        ClusterTime(clock)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// Returns a moment of which all changes are visible, and none of later ones.
    pub(crate) fn settled(&self) -> Timestamp {
        self.0.settled()
    }

    /// Increments the time, unless it was incremented since this moment: the commit of a logged change does so itself, and the reply
    /// names the moment of the change.
    pub(crate) fn advance_from(&self, moment: Timestamp) {
        if self.now() == moment {
            self.advance();
        }
    }

    /// Increments the time, after a write or for a snapshot, and returns it.
    pub(crate) fn advance(&self) -> Timestamp {
        self.0.advance()
    }

    /// Raises the time to the clock's second, if it is lower.
    pub(crate) fn reach(&self, now: DateTime) {
        self.0.reach(now);
    }

    /// Writes `operationTime`, which is now or when a read began, and `$clusterTime`.
    pub(crate) fn put(&self, writer: &mut Writer, read_at: Option<Timestamp>) {
        let moments = [(OPERATION_TIME_AT, read_at.unwrap_or_else(|| self.settled())), (CLUSTER_TIME_AT, self.now())];
        let mut fields = FIELDS;
        for (at, moment) in moments {
            let moment = bits(moment).to_le_bytes();
            if let Some(value) = fields.get_mut(at..at + moment.len()) {
                value.copy_from_slice(&moment);
            }
        }
        writer.put_fields(&fields);
    }
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
    use bson::{Binary, DateTime, Timestamp, rawdoc};
    use handfast_store::ClusterClock;

    use super::ClusterTime;
    use crate::options::{Options, Topology};
    use crate::testing::TestServer;
    use crate::writer::Writer;

    fn at(millis: i64) -> ClusterTime {
        ClusterTime::new(std::sync::Arc::new(ClusterClock::new(DateTime::from_millis(millis))))
    }

    fn fields(time: &ClusterTime) -> bson::RawDocumentBuf {
        let mut writer = Writer::new();
        time.put(&mut writer, None);
        writer.finish()
    }

    #[test]
    fn the_fields_are_what_bson_writes() {
        let time = at(1_763_750_000_999);
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
        let time = at(5_000);
        let now = |time: &ClusterTime| fields(time).get_timestamp("operationTime").unwrap();
        for _ in 0..3 {
            time.advance();
        }
        time.reach(DateTime::from_millis(4_000));
        assert_eq!(now(&time), Timestamp { time: 5, increment: 4 });
        time.reach(DateTime::from_millis(6_000));
        assert_eq!(now(&time), Timestamp { time: 6, increment: 1 });
    }

    /// The operation time is one of which everything is visible, also while the moments of two changes are given and they are not visible.
    #[test]
    fn changes_that_are_not_visible_are_later_than_the_time_of_a_reply() {
        let clock = std::sync::Arc::new(ClusterClock::new(DateTime::from_millis(5_000)));
        let time = ClusterTime::new(std::sync::Arc::clone(&clock));
        let of = |name| {
            let fields = fields(&time);
            let document = if name == "clusterTime" { fields.get_document("$clusterTime").unwrap() } else { &fields };
            document.get_timestamp(name).unwrap().increment
        };
        assert_eq!([clock.advance_held().increment, clock.advance_held().increment], [2, 3]);
        assert_eq!((of("operationTime"), of("clusterTime")), (1, 3));
        clock.release();
        assert_eq!(of("operationTime"), 3);
        let mut writer = Writer::new();
        time.put(&mut writer, Some(Timestamp { time: 5, increment: 2 }));
        assert_eq!(writer.finish().get_timestamp("operationTime").unwrap().increment, 2, "a read began then");
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
            assert!(gossip >= now, "{gossip:?} before {now:?}");
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
