//! The cluster time: what a replica set puts into each reply, and its clients carry from server to server.
//!
//! ```text
//! operationTime: Timestamp(1763750000, 7)          when what the command saw or wrote was there
//! $clusterTime: {clusterTime: Timestamp(..), ..}   the newest moment that this server knows
//! ```
//!
//! A client that reads its own writes asks for a state no older than such a moment. There is one copy of the data here,
//! so each moment that anybody has heard of is over, and the two are the same. The time is a count that each write moves
//! on by one, and that is set to the clock's second once a second: to take it costs a read no more than a load.

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

    /// A write has been carried out, or something else that needs a moment of its own: this one.
    pub(crate) fn advance(&self) -> Timestamp {
        let [time, increment] = halves(self.0.fetch_add(1, Ordering::AcqRel) + 1);
        Timestamp { time, increment }
    }

    /// It is now this late, at least.
    pub(crate) fn reach(&self, now: DateTime) {
        self.0.fetch_max(second(now), Ordering::AcqRel);
    }

    /// Writes the fields of a reply.
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

/// The two numbers of a timestamp.
fn halves(bits: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// The first moment of the clock's second.
fn second(now: DateTime) -> u64 {
    let seconds = u64::try_from(now.timestamp_millis() / 1_000).unwrap_or(0);
    (seconds << SECOND_SHIFT) | 1
}

/// The fields with empty timestamps. The server does not sign them: hash and key are zero, as MongoDB has them without logins.
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
    fn it_never_goes_back() {
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
}
