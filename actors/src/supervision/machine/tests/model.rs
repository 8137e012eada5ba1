//! What supervision comes to when nothing happens at the same time, written as plainly as it can be: restarts are
//! counted by looking at all of them, and every stop and start is over at once.

use std::time::Duration;

use crate::supervision::machine::ChildrenKind;
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::policy::{
    AutoShutdown, Intensity, IntensityScope, OnLimit, Restart, Strategy,
};

#[derive(Debug, Clone)]
pub(super) struct Modelled {
    pub(super) id: usize,
    restart: Restart,
    pub(super) status: Being,
    pub(super) spawned: u64,
    restarts_at: Vec<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Being {
    Up,
    Finished,
    Quarantined,
}

pub(super) struct Model {
    children_kind: ChildrenKind,
    intensity: Intensity,
    pub(super) children: Vec<Modelled>,
    restarts_at: Vec<Duration>,
    pub(super) is_down: bool,
}

impl Model {
    pub(super) fn new(children_kind: ChildrenKind, intensity: Intensity) -> Self {
        Self { children_kind, intensity, children: Vec::new(), restarts_at: Vec::new(), is_down: false }
    }

    pub(super) fn start(&mut self, id: usize, restart: Restart) {
        let is_known = self.children.iter().any(|child| child.id == id);
        let is_full = matches!(self.children_kind, ChildrenKind::Dynamic { capacity, .. } if self.children.len() >= capacity);
        if !self.is_down && !is_known && !is_full {
            self.children.push(Modelled {
                id,
                restart,
                status: Being::Up,
                spawned: 1,
                restarts_at: Vec::new(),
            });
        }
    }

    pub(super) fn terminate(&mut self, id: usize) {
        self.children.retain(|child| child.id != id);
    }

    /// A child ends, and its next `bad` restarts do not get through their start.
    pub(super) fn fail(&mut self, now: Duration, id: usize, exit: ExitClass, bad: u32) {
        let Some(place) = self.children.iter().position(|child| child.id == id && child.status == Being::Up)
        else {
            return;
        };
        if self.is_down {
            return;
        }
        if !self.children[place].restart.wants(exit) {
            return self.done(place);
        }
        for attempt in 0..=bad {
            // Temporary ones before it may have gone with its group.
            let Some(place) = self.children.iter().position(|child| child.id == id) else { return };
            let is_abnormal_start = attempt > 0;
            if is_abnormal_start && !self.children[place].restart.wants(ExitClass::StartFailed) {
                return self.done(place);
            }
            if let ChildrenKind::Dynamic { quarantine_after: Some(limit), .. } = self.children_kind
                && attempt >= limit.get()
            {
                self.give_up(place);
                return;
            }
            if !self.is_bearable(now, place) {
                return;
            }
            self.restart_group(place, attempt);
        }
    }

    fn is_bearable(&mut self, now: Duration, place: usize) -> bool {
        let is_alone = matches!(
            self.children_kind,
            ChildrenKind::Dynamic { intensity_scope: IntensityScope::PerChild, .. }
        );
        let times = if is_alone { &mut self.children[place].restarts_at } else { &mut self.restarts_at };
        times.push(now);
        let recent = times.iter().filter(|at| now - **at <= self.intensity.period()).count();
        let is_bearable = recent <= usize::try_from(self.intensity.restarts()).unwrap();
        match (is_bearable, is_alone) {
            (true, _) => {}
            (false, true) => self.give_up(place),
            (false, false) => self.is_down = true,
        }
        is_bearable
    }

    fn give_up(&mut self, place: usize) {
        match self.children_kind {
            ChildrenKind::Dynamic { on_limit: OnLimit::Remove, .. } => drop(self.children.remove(place)),
            _ => self.children[place].status = Being::Quarantined,
        }
    }

    fn restart_group(&mut self, place: usize, attempt: u32) {
        let id = self.children[place].id;
        let from = match self.children_kind {
            ChildrenKind::Ordered { strategy: Strategy::OneForAll, .. } => 0,
            ChildrenKind::Ordered { strategy: Strategy::RestForOne, .. } => place + 1,
            _ => self.children.len(),
        };
        for (other, child) in self.children.iter_mut().enumerate() {
            let is_up_again = other < place || attempt == 0;
            if other == place || (other >= from && !child.restart.is_temporary() && is_up_again) {
                child.spawned += 1;
                child.status = Being::Up;
            }
        }
        let mut place = 0;
        self.children.retain(|child| {
            place += 1;
            child.id == id || place - 1 < from || !child.restart.is_temporary()
        });
    }

    fn done(&mut self, place: usize) {
        let restart = self.children[place].restart;
        self.children[place].status = Being::Finished;
        if restart.is_temporary() || matches!(self.children_kind, ChildrenKind::Dynamic { .. }) {
            self.children.remove(place);
        }
        let is_significant = |restart: Restart| restart.is_significant();
        if let ChildrenKind::Ordered { auto_shutdown, .. } = self.children_kind
            && is_significant(restart)
        {
            let others =
                self.children.iter().any(|child| is_significant(child.restart) && child.status == Being::Up);
            self.is_down = match auto_shutdown {
                AutoShutdown::Never => false,
                AutoShutdown::AnySignificant => true,
                AutoShutdown::AllSignificant => !others,
            };
        }
    }
}
