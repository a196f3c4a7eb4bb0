//! The state of a scripted replica set, as its members tell it in their handshakes.

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};

use super::super::role::member_hello;

/// The members of a set, and which of them is the primary.
#[derive(Debug)]
pub(in crate::script) struct SetState {
    name: String,
    addresses: Vec<String>,
    primary: Option<usize>,
    /// The number of elections so far, the first one included.
    term: u32,
    /// The number of changes so far, by which drivers tell an old reply from a new one.
    version: i64,
}

impl SetState {
    /// Creates a set whose first member is the primary.
    pub(super) fn new(name: &str, addresses: Vec<String>) -> Self {
        SetState { name: name.to_owned(), addresses, primary: Some(0), term: 1, version: 1 }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub(in crate::script) fn primary(&self) -> Option<usize> {
        self.primary
    }

    /// Makes another member the primary, or none. Each call is a change, also if the same member is elected again.
    pub(in crate::script) fn set_primary(&mut self, primary: Option<usize>) {
        self.primary = primary;
        self.term += u32::from(primary.is_some());
        self.version += 1;
    }

    /// Returns the `topologyVersion` of a member. It is that of another process for each member.
    pub(in crate::script) fn topology_version(&self, member: usize) -> RawDocumentBuf {
        rawdoc! { "processId": process_id(member), "counter": self.version }
    }

    /// Returns whether a client knows the state of a member: whether this is its `topologyVersion`.
    pub(in crate::script) fn is_known(&self, member: usize, process: ObjectId, counter: i64) -> bool {
        process == process_id(member) && counter == self.version
    }

    /// Returns the reply of a member to a handshake.
    pub(in crate::script) fn hello(&self, member: usize) -> RawDocumentBuf {
        let address = |index: usize| self.addresses.get(index).map(String::as_str);
        let hosts = self.addresses.iter().map(String::as_str);
        let primary = self.primary.and_then(address);
        let mut hello = member_hello(&self.name, hosts, address(member).unwrap_or_default(), primary);
        if self.primary == Some(member) {
            // A primary with a greater one is the newer one: "Server Discovery and Monitoring", electionId.
            hello.append(cstr!("electionId"), object_id(self.term));
        }
        hello.append(cstr!("topologyVersion"), self.topology_version(member));
        hello
    }
}

fn process_id(member: usize) -> ObjectId {
    object_id(u32::try_from(member).unwrap_or(u32::MAX))
}

/// Returns an id whose order is that of the numbers.
fn object_id(number: u32) -> ObjectId {
    let [a, b, c, d] = number.to_be_bytes();
    // The first bytes of the election ids of MongoDB.
    ObjectId::from_bytes([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::SetState;

    #[test]
    fn each_change_is_a_newer_state() {
        let mut state = SetState::new("rs", vec!["a:1".to_owned(), "b:2".to_owned()]);
        let shown = |state: &SetState| {
            [0, 1].map(|member| {
                let hello = state.hello(member);
                let election = hello.get_object_id("electionId").ok();
                let version = hello.get_document("topologyVersion").unwrap();
                let known = (version.get_object_id("processId").unwrap(), version.get_i64("counter").unwrap());
                assert!(state.is_known(member, known.0, known.1));
                assert!(!state.is_known(member, known.0, known.1 - 1) && !state.is_known(1 - member, known.0, known.1));
                let primary = hello.get_str("primary").ok().map(str::to_owned);
                (hello.get_bool("isWritablePrimary").unwrap(), primary, election, known.1)
            })
        };
        let [first, second] = shown(&state);
        assert_eq!(
            (first.0, first.1.as_deref(), second.0, second.1.as_deref()),
            (true, Some("a:1"), false, Some("a:1"))
        );
        assert!(first.2.is_some() && second.2.is_none(), "the primary alone tells its election");

        state.set_primary(None);
        let [stepped_down, other] = shown(&state);
        assert_eq!((stepped_down.0, stepped_down.1, other.0, other.1), (false, None, false, None));
        assert!(stepped_down.3 > first.3 && other.3 > second.3);

        state.set_primary(Some(1));
        let [_, elected] = shown(&state);
        assert_eq!((elected.0, elected.1.as_deref()), (true, Some("b:2")));
        assert!(elected.2 > first.2 && elected.3 > other.3);
    }
}
