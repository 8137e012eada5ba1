//! Requests of callers: to start, restart or terminate a child.

use super::child::{AfterExit, FinalState, Phase, StartCause, StartRequester, StopRequested, Successor};
use super::step::Machine;
use super::types::{ChildKey, ChildPolicy, ChildrenKind, RequestId, RequestReply, Uptime};
use crate::supervision::specs::id::ChildId;

impl Machine {
    pub(super) fn start(&mut self, request: RequestId, id: ChildId, policy: ChildPolicy) {
        if self.is_stopping() {
            return self.reply(request, RequestReply::ShuttingDown);
        }
        if let Some(key) = self.keys.get(&id).copied() {
            return self.start_existing(request, key, policy);
        }
        if let ChildrenKind::Dynamic { capacity, .. } = self.policy.children_kind
            && self.children.len() >= capacity
        {
            return self.reply(request, RequestReply::Full { capacity });
        }
        let key = self.insert(id, policy, StartCause::StartRequest, Some(request));
        self.await_start(key, request, StartRequester::First);
        if self.is_dynamic() {
            self.spawn(key);
        }
    }

    /// Handles a start request for an id that is taken. If the child with this id is departing, the request waits until
    /// it is gone.
    fn start_existing(&mut self, request: RequestId, key: ChildKey, policy: ChildPolicy) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if child.is_departing() {
            match &mut child.successor {
                Some(successor) => successor.start_callers.push((request, StartRequester::Later)),
                None => {
                    child.successor =
                        Some(Successor { policy, start_callers: vec![(request, StartRequester::First)] })
                }
            }
            return;
        }
        match child.phase {
            Phase::Waiting | Phase::Starting if child.start_cause.is_some() => {
                self.await_start(key, request, StartRequester::Later);
            }
            Phase::Final(FinalState::Quarantined)
            | Phase::Leaving { after_exit: AfterExit::Finish(FinalState::Quarantined), .. } => {
                self.reply(request, RequestReply::Quarantined { key });
            }
            _ => self.reply(request, RequestReply::AlreadyStarted { key }),
        }
    }

    pub(super) fn restart(&mut self, request: RequestId, id: &ChildId) {
        if self.is_stopping() {
            return self.reply(request, RequestReply::ShuttingDown);
        }
        let Some((key, child)) = self.keys.get(id).and_then(|key| Some((*key, self.children.get_mut(key)?)))
        else {
            return self.reply(request, RequestReply::NotFound);
        };
        let final_state = match child.phase {
            Phase::Final(final_state) => final_state,
            // Another caller has requested its start, which has not ended.
            Phase::Waiting | Phase::Starting if child.start_cause.is_some() => {
                return self.await_start(key, request, StartRequester::Later);
            }
            _ => return self.reply(request, RequestReply::AlreadyStarted { key }),
        };
        child.clear_failures();
        child.start_cause = Some(StartCause::RestartRequest(final_state));
        self.await_start(key, request, StartRequester::First);
        self.enter(key, Phase::Waiting);
        if self.is_dynamic() {
            self.spawn(key);
        }
    }

    pub(super) fn terminate(&mut self, now: Uptime, request: RequestId, id: &ChildId) {
        let Some((key, child)) = self.keys.get(id).and_then(|key| Some((*key, self.children.get_mut(key)?)))
        else {
            return self.reply(request, RequestReply::NotFound);
        };
        child.stop_callers.push(request);
        let superseded = child.successor.take();
        if child.planned_stop.is_some() {
            // It is stopped when its turn in the stop order comes, and is then removed.
            child.planned_stop = Some(AfterExit::Remove);
        } else if child.is_living() {
            self.stop_child(now, key, AfterExit::Remove);
        } else if let Phase::Leaving { .. } = child.phase {
            child.phase =
                Phase::Leaving { stop_requested: StopRequested::Yes, after_exit: AfterExit::Remove };
        } else {
            // It does not run. A pending restart is cancelled with it.
            self.remove(key, RequestReply::Cancelled);
        }
        for (request, _) in superseded.into_iter().flat_map(|successor| successor.start_callers) {
            self.reply(request, RequestReply::Cancelled);
        }
    }

    fn await_start(&mut self, key: ChildKey, request: RequestId, requester: StartRequester) {
        if let Some(child) = self.children.get_mut(&key) {
            child.start_callers.push((request, requester));
        }
    }
}
