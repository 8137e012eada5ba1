//! What callers ask for: a child started, started again, or ended.

use super::child::{Asked, Asker, Debut, Fate, Phase, Rest, Successor};
use super::step::Machine;
use super::types::{Answer, Key, Moment, Policy, Shape, Ticket};
use crate::supervision::id::ChildId;

impl Machine {
    pub(super) fn start(&mut self, ticket: Ticket, id: ChildId, policy: Policy) {
        if self.is_stopping() {
            return self.answer(ticket, Answer::ShuttingDown);
        }
        if let Some(key) = self.keys.get(&id).copied() {
            return self.start_beside(ticket, key, policy);
        }
        if let Shape::Dynamic { capacity, .. } = self.plan.shape
            && self.children.len() >= capacity
        {
            return self.answer(ticket, Answer::Full { capacity });
        }
        let key = self.insert(id, policy, Debut::Caller, Some(ticket));
        self.await_start(key, ticket, Asker::First);
        if self.is_dynamic() {
            self.spawn(key);
        }
    }

    /// The id is taken: by one that runs, or by one that goes, whose place is then waited for.
    fn start_beside(&mut self, ticket: Ticket, key: Key, policy: Policy) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if child.is_departing() {
            match &mut child.successor {
                Some(successor) => successor.starters.push((ticket, Asker::Later)),
                None => child.successor = Some(Successor { policy, starters: vec![(ticket, Asker::First)] }),
            }
            return;
        }
        match child.phase {
            Phase::Waiting | Phase::Starting if child.debut.is_some() => {
                self.await_start(key, ticket, Asker::Later);
            }
            Phase::Resting(Rest::Quarantined)
            | Phase::Leaving { fate: Fate::Rest(Rest::Quarantined), .. } => {
                self.answer(ticket, Answer::Quarantined { key });
            }
            _ => self.answer(ticket, Answer::AlreadyStarted { key }),
        }
    }

    pub(super) fn restart(&mut self, ticket: Ticket, id: &ChildId) {
        if self.is_stopping() {
            return self.answer(ticket, Answer::ShuttingDown);
        }
        let Some((key, child)) = self.keys.get(id).and_then(|key| Some((*key, self.children.get_mut(key)?)))
        else {
            return self.answer(ticket, Answer::NotFound);
        };
        let rest = match child.phase {
            Phase::Resting(rest) => rest,
            // Somebody else wants it, too, and its start is not over.
            Phase::Waiting | Phase::Starting if child.debut.is_some() => {
                return self.await_start(key, ticket, Asker::Later);
            }
            _ => return self.answer(ticket, Answer::AlreadyStarted { key }),
        };
        child.absolve();
        child.debut = Some(Debut::Again(rest));
        self.await_start(key, ticket, Asker::First);
        self.enter(key, Phase::Waiting);
        if self.is_dynamic() {
            self.spawn(key);
        }
    }

    pub(super) fn terminate(&mut self, now: Moment, ticket: Ticket, id: &ChildId) {
        let Some((key, child)) = self.keys.get(id).and_then(|key| Some((*key, self.children.get_mut(key)?)))
        else {
            return self.answer(ticket, Answer::NotFound);
        };
        child.enders.push(ticket);
        let superseded = child.successor.take();
        if child.marked.is_some() {
            // Its turn to stop comes, in order; after that it is not started again.
            child.marked = Some(Fate::Forget);
        } else if child.is_living() {
            self.stop_child(now, key, Fate::Forget);
        } else if let Phase::Leaving { .. } = child.phase {
            child.phase = Phase::Leaving { asked: Asked::Yes, fate: Fate::Forget };
        } else {
            // It does not run: a restart that was pending is cancelled with it.
            self.forget(key, Answer::Cancelled);
        }
        for (ticket, _) in superseded.into_iter().flat_map(|successor| successor.starters) {
            self.answer(ticket, Answer::Cancelled);
        }
    }

    fn await_start(&mut self, key: Key, ticket: Ticket, asker: Asker) {
        if let Some(child) = self.children.get_mut(&key) {
            child.starters.push((ticket, asker));
        }
    }
}
