//! A source of real sandboxes that writes down what is asked of it, and fails or waits where a test says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use conjure_actors::executors::{ConnectorSource, ExecutorSource};
use conjure_base::Deadline;
use conjure_sandbox::{Executor, Isolation, Layout, SandboxError, SandboxErrorKind};
use futures_util::future::{BoxFuture, pending};
use tokio::sync::{Semaphore, watch};

use crate::processes::bearing;

/// What is done when a sandbox is asked for.
pub(crate) enum Plan {
    Fail,
    Hang,
    /// Goes on when the semaphore has a permit.
    Wait(Arc<Semaphore>),
}

#[derive(Debug)]
pub(crate) struct Source {
    inner: ConnectorSource,
    /// What the processes of its sandboxes bear.
    mark: String,
    plans: Mutex<VecDeque<Plan>>,
    /// How often a sandbox was asked for.
    pub(crate) calls: watch::Sender<usize>,
    /// Processes of the sandbox before that ran when the next one was asked for.
    pub(crate) overlaps: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fail => "Fail",
            Self::Hang => "Hang",
            Self::Wait(_) => "Wait",
        })
    }
}

impl Source {
    pub(crate) fn new(inner: ConnectorSource, mark: &str) -> Self {
        Self {
            inner,
            mark: mark.to_owned(),
            plans: Mutex::default(),
            calls: watch::Sender::new(0),
            overlaps: Mutex::default(),
        }
    }

    pub(crate) fn plan(&self, plan: impl IntoIterator<Item = Plan>) {
        self.plans.lock().unwrap().extend(plan);
    }

    /// Waits until a sandbox was asked for so often.
    pub(crate) async fn until_asked(&self, times: usize) {
        self.calls.subscribe().wait_for(|calls| *calls >= times).await.unwrap();
    }
}

impl ExecutorSource for Source {
    fn layout(&self) -> &Layout {
        self.inner.layout()
    }

    fn isolation(&self) -> Isolation {
        self.inner.isolation()
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        let before = bearing(&self.mark).into_iter().map(|process| process.arguments);
        self.overlaps.lock().unwrap().extend(before);
        let plan = self.plans.lock().unwrap().pop_front();
        self.calls.send_modify(|calls| *calls += 1);
        Box::pin(async move {
            match plan {
                None => {}
                Some(Plan::Fail) => {
                    let message = "there is no room on this machine";
                    return Err(SandboxError::new(SandboxErrorKind::Exhausted, message));
                }
                Some(Plan::Hang) => pending().await,
                Some(Plan::Wait(gate)) => gate.acquire().await.unwrap().forget(),
            }
            self.inner.create(deadline).await
        })
    }
}
