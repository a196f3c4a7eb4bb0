//! The slots of Redis Cluster: a key belongs to one of them, and each has one server at a time.
//!
//! Source: the Redis Cluster specification ("Key distribution model", "Hash tags") and the answer of `CLUSTER SLOTS`.

use redis::Value;

use super::url::Address;

const SLOTS: u16 = 16_384;
/// The polynomial of CRC-16/XMODEM.
const POLYNOMIAL: u16 = 0x1021;

/// Returns the slot of a key. Of a key with a hash tag, `{..}`, the tag alone decides.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ POLYNOMIAL,
        })
    })
}

/// Which server has which slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// Ranges of slots, first and last, in order.
    ranges: Vec<(u16, u16, Address)>,
}

impl SlotMap {
    /// Reads the answer of `CLUSTER SLOTS`. `asked` is the address of the server that has answered, which may leave out its own host.
    pub(super) fn read(answer: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut ranges = ranges.iter().map(|range| Self::range(range, asked)).collect::<Option<Vec<_>>>()?;
        ranges.sort();
        Some(SlotMap { ranges })
    }

    /// Reads first slot, last slot, and the master as host and port; replicas and names of servers stand behind them.
    fn range(range: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &**parts else { return None };
        let [host, Value::Int(port), ..] = &**master else { return None };
        let host = super::text(host).filter(|host| !matches!(*host, "" | "?")).unwrap_or(&asked.host);
        let address = Address { host: host.to_owned(), port: u16::try_from(*port).ok()? };
        Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, address))
    }

    /// Returns the server that has a slot.
    pub(super) fn server(&self, slot: u16) -> Option<&Address> {
        let at = self.ranges.partition_point(|(_, last, _)| *last < slot);
        self.ranges.get(at).filter(|(first, ..)| *first <= slot).map(|(.., address)| address)
    }

    /// Returns each server once.
    pub(super) fn servers(&self) -> Vec<&Address> {
        let mut servers: Vec<_> = self.ranges.iter().map(|(.., address)| address).collect();
        servers.sort();
        servers.dedup();
        servers
    }

    /// Returns the first slot that no server has.
    pub(super) fn missing(&self) -> Option<u16> {
        let mut next = 0;
        for (first, last, _) in &self.ranges {
            if *first > next {
                break;
            }
            next = next.max(last + 1);
        }
        (next < SLOTS).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{SlotMap, slot};
    use crate::buffer::redis::url::Address;

    /// The slots are those that `CLUSTER KEYSLOT` answers.
    #[test]
    fn a_key_belongs_to_the_slot_of_its_tag() {
        for (key, expected) in [
            ("123456789", 0x31c3),
            ("foo", 12_182),
            ("{foo}", 12_182),
            ("hf:{foo}:item:}x{", 12_182),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("", 0),
        ] {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![host, Value::Int(port), Value::SimpleString("id".to_owned())]);
        let replica = Value::Array(vec![Value::SimpleString("r".to_owned()), Value::Int(1)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    #[test]
    fn a_map_names_the_server_of_each_slot() {
        let named = |name: &str| Value::BulkString(name.into());
        let asked = Address { host: "asked".to_owned(), port: 9 };
        let answer = Value::Array(vec![
            range(10, 20, named("b"), 2),
            range(0, 4, Value::Nil, 1),
            range(30, 16_383, named(""), 3),
        ]);
        let map = SlotMap::read(&answer, &asked).expect("a map");
        let server = |slot| map.server(slot).map(ToString::to_string);
        assert_eq!(
            [0, 4, 5, 9, 10, 20, 29, 16_383].map(server),
            [Some("asked:1"), Some("asked:1"), None, None, Some("b:2"), Some("b:2"), None, Some("asked:3")]
                .map(|name| name.map(str::to_owned))
        );
        assert_eq!(map.servers().len(), 3);
        assert_eq!(map.missing(), Some(5));
        assert_eq!(SlotMap::default().missing(), Some(0));
        let whole = Value::Array(vec![range(100, 16_383, named("b"), 2), range(0, 99, named("a"), 1)]);
        assert_eq!(SlotMap::read(&whole, &asked).expect("a map").missing(), None);
        for damaged in
            [Value::Nil, Value::Array(vec![Value::Int(1)]), Value::Array(vec![range(0, 99_999, Value::Nil, 1)])]
        {
            assert_eq!(SlotMap::read(&damaged, &asked), None);
        }
    }
}
