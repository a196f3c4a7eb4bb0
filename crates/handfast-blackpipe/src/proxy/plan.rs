//! The plans for the replies to requests.
//!
//! A driver sends its next request when it has the reply to the one before. Other clients may send several at once (pipelining): the replies arrive in
//! the order of the requests, so that the plans are a queue.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::hold::Overtaking;
use super::late::LateRequest;
use super::recorder::RecordedReply;

/// The requests of a connection whose replies may be due at the same time. Further ones wait: a driver has one.
const DUE_MAX: usize = 1_000;

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
    fn is_needed(&self) -> bool {
        let is_forwarded = matches!(self.handling, ReplyHandling::Forward);
        !is_forwarded || self.late.is_some() || self.overtaking.is_some() || self.recorded.is_some()
    }
}

/// The plans for the replies that are due on a connection, in the order of their requests.
#[derive(Default)]
pub(super) struct ReplyPlans {
    plans: Mutex<VecDeque<ReplyPlan>>,
    /// Wakes the one who waits for replies.
    taken: Notify,
}

impl ReplyPlans {
    /// Adds the plan of a request that is forwarded next.
    pub(super) fn push(&self, plan: ReplyPlan) {
        self.plans().push_back(plan);
    }

    /// Takes the plan for a reply: that of the request which it names, or else the oldest one, as replies arrive in the order of the requests. `last_reply` is the
    /// number of the reply before, which a further reply to the same request names (OP_MSG, `exhaustAllowed`); returns `None` for such a reply, and for one that nobody asked for.
    pub(super) fn take(&self, response_to: i32, last_reply: Option<i32>) -> Option<ReplyPlan> {
        let mut plans = self.plans();
        let named = plans.iter().position(|plan| plan.request_id == response_to);
        let index = named.or((last_reply != Some(response_to)).then_some(0))?;
        let plan = plans.remove(index);
        self.taken.notify_one();
        plan
    }

    /// Returns whether a plan does more than forward its reply.
    pub(super) fn is_any_needed(&self) -> bool {
        self.plans().iter().any(ReplyPlan::is_needed)
    }

    /// Waits until all replies have arrived.
    pub(super) async fn all_taken(&self) {
        self.fewer_than(1).await;
    }

    /// Waits until there is a place for one more.
    pub(super) async fn place(&self) {
        self.fewer_than(DUE_MAX).await;
    }

    async fn fewer_than(&self, count: usize) {
        while self.plans().len() >= count {
            self.taken.notified().await;
        }
    }

    fn plans(&self) -> MutexGuard<'_, VecDeque<ReplyPlan>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::{DUE_MAX, ReplyPlan, ReplyPlans};

    #[test]
    fn a_request_waits_for_a_place_and_for_the_replies_before_it() {
        let plans = ReplyPlans::default();
        let has_place = || pin!(plans.place()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        let are_all_taken = || pin!(plans.all_taken()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(has_place() && are_all_taken());
        let ids = 1..=i32::try_from(DUE_MAX).unwrap();
        ids.clone().for_each(|id| plans.push(ReplyPlan::forward(id)));
        assert!(!has_place() && !are_all_taken());
        assert!(plans.take(7, None).is_some());
        assert!(has_place() && !are_all_taken());
        ids.filter(|id| *id != 7).for_each(|id| assert!(plans.take(id, None).is_some()));
        assert!(are_all_taken());
    }

    #[test]
    fn a_reply_that_names_no_request_is_that_of_the_oldest_one() {
        let plans = ReplyPlans::default();
        [1, 2, 3].into_iter().for_each(|id| plans.push(ReplyPlan::forward(id)));
        let taken = |response_to, last_reply| plans.take(response_to, last_reply).map(|plan| plan.request_id);
        assert_eq!(taken(2, Some(70)), Some(2));
        assert_eq!(taken(71, Some(71)), None, "a further reply to the same request");
        assert_eq!([taken(0, Some(72)), taken(9, None), taken(9, None)], [Some(1), Some(3), None]);
    }
}
