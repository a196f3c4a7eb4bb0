//! The plan for the reply to a request.

use std::num::NonZeroU32;

use super::hold::Overtaking;
use super::late::LateRequest;
use super::recorder::RecordedReply;

/// The plan for the reply to a request.
pub(super) struct ReplyPlan {
    pub(super) request_id: i32,
    pub(super) handling: ReplyHandling,
    /// The request is late until it is answered.
    pub(super) late: Option<LateRequest>,
    /// The request overtakes others until it is answered.
    pub(super) overtaking: Option<Overtaking>,
    /// The reply is recorded if the client gets it.
    pub(super) recorded: Option<RecordedReply>,
}

pub(super) enum ReplyHandling {
    Forward,
    Lose,
    Cut,
    /// The connection is silent from this reply on.
    Silence,
    Throttle(NonZeroU32),
}

impl ReplyPlan {
    /// Creates the plan of a reply that is forwarded.
    pub(super) fn forward(request_id: i32) -> Self {
        ReplyPlan { request_id, handling: ReplyHandling::Forward, late: None, overtaking: None, recorded: None }
    }

    /// Returns whether the plan does more than forward the reply.
    pub(super) fn is_needed(&self) -> bool {
        let is_forwarded = matches!(self.handling, ReplyHandling::Forward);
        !is_forwarded || self.late.is_some() || self.overtaking.is_some() || self.recorded.is_some()
    }
}
