//! Scripted servers that are the members of one replica set, for tests of elections.
//!
//! ```text
//! client                    member 0 (primary)          member 1
//!   | -- insert ------------> |                           |         1. insert at member 0
//!   |                         | == election of member 1 ==|         its answer begins with the election
//!   | <-- hello: secondary -- |                           |         to connections by which drivers monitor a member, at once
//!   | <-- hello: primary --------------------------------  |
//!   | <-- interrupted ------- |                           |         the rest of the answer
//!   | -- insert, repeated --------------------------------> |       2. insert at member 1
//! ```
//!
//! The members follow one script. A request that needs the primary and arrives at another member is refused, as by a real member, unless the script
//! expects it there.

mod state;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

pub(super) use self::state::SetState;
use super::identity::Identity;
use super::server::{Task, bind};
use super::shared::{Autoresponder, SharedScript};
use super::{Answer, Matcher, ReceivedRequest, Script};
use crate::{Error, Result};

/// Servers on free ports of 127.0.0.1 that are one replica set, and follow one script. They end when this is dropped.
///
/// Members are named by their numbers, from 0. The first one is the primary until an election.
#[must_use = "finish() says whether the script was followed"]
pub struct ScriptedReplicaSet {
    state: Arc<watch::Sender<SetState>>,
    addresses: Vec<SocketAddr>,
    script: SharedScript,
    _tasks: Vec<Task>,
}

impl ScriptedReplicaSet {
    /// Starts a set with this name and number of members on the runtime of the caller.
    ///
    /// # Errors
    /// The system has no free port; there are no members; the script names a member that the set does not have; or an [`Answer::Exhaust`] is empty.
    pub async fn start(name: &str, members: usize, script: Script) -> Result<Self> {
        if members == 0 {
            return Err(Error::Member { member: 0, count: 0 });
        }
        script.check(members)?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..members {
            let (listener, address) = bind().await?;
            listeners.push(listener);
            addresses.push(address);
        }
        let state = SetState::new(name, addresses.iter().map(SocketAddr::to_string).collect());
        let (state, script) = (Arc::new(watch::Sender::new(state)), SharedScript::new(script));
        let tasks = listeners.into_iter().enumerate().map(|(index, listener)| {
            Task::start(listener, Identity::Member { index, set: Arc::clone(&state) }, script.clone())
        });
        Ok(ScriptedReplicaSet { _tasks: tasks.collect(), state, addresses, script })
    }

    /// Returns the addresses of the members.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the connection string of the set, which names all members.
    pub fn uri(&self) -> String {
        let state = self.state.borrow();
        format!("mongodb://{}/?replicaSet={}", state.addresses().join(","), state.name())
    }

    /// Returns the number of the primary, if there is one.
    pub fn primary(&self) -> Option<usize> {
        self.state.borrow().primary()
    }

    /// Makes a member the primary, and tells it to drivers at once. The primary of before is a secondary then.
    ///
    /// # Errors
    /// [`Error::Member`] if the set does not have this member.
    pub fn elect(&self, member: usize) -> Result<()> {
        super::check_member(member, self.addresses.len())?;
        self.state.send_modify(|state| state.set_primary(Some(member)));
        Ok(())
    }

    /// Makes the primary a secondary, and tells it to drivers at once. There is no primary until an election.
    pub fn step_down(&self) {
        self.state.send_modify(|state| state.set_primary(None));
    }

    /// Answers each request that matches and meets no expectation, however often it arrives, from now on. Such requests are no part of the script.
    /// If several autoresponders match, the one that was added last answers.
    ///
    /// # Errors
    /// [`Error::Member`] if the set does not have a member that is named, and [`Error::EmptyExhaust`] if an [`Answer::Exhaust`] is empty.
    pub fn autorespond(&self, matcher: Matcher, answer: impl Into<Answer>) -> Result<Autoresponder> {
        let answer = answer.into();
        super::check(&matcher, &answer, self.addresses.len())?;
        Ok(self.script.autorespond(matcher, answer))
    }

    /// Ends the members. Returns the requests that arrived, without those that were answered without the script.
    ///
    /// # Errors
    /// [`Error::Script`] with the script and the requests, if a request was not expected or did not arrive.
    pub fn finish(self) -> Result<Vec<ReceivedRequest>> {
        self.script.finish()
    }
}
