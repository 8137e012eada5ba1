//! A source of real sandboxes that writes down what is asked of it, and fails or waits where a test says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use conjure_actors::executors::{ConnectorSource, ExecutorSource};
use conjure_base::Deadline;
use conjure_sandbox::{Executor, Isolation, Layout, SandboxError, SandboxErrorKind};
use futures_util::future::{BoxFuture, pending};
use tokio::sync::{Semaphore, watch};

use crate::processes::bearing;

/// The result of the next open.
pub(crate) enum Plan {
    Fail,
    Hang,
    /// Goes on when the semaphore has a permit.
    Wait(Arc<Semaphore>),
}

#[derive(Debug)]
pub(crate) struct Source {
    inner: ConnectorSource,
    /// The marker in the arguments of its sandboxes' processes.
    mark: String,
    plans: Mutex<VecDeque<Plan>>,
    /// The number of opens.
    pub(crate) calls: watch::Sender<usize>,
    /// Processes of the previous sandbox that still ran at the next open.
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

    /// Waits until this many opens.
    pub(crate) async fn until_calls(&self, times: usize) {
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
