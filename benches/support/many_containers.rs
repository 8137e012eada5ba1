//! Sixteen containers, a caller for each, as fast as they can.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_sandbox::Sandbox;
use tokio::task::JoinSet;

use crate::containers::Containers;
use crate::engine::{client, docker};
use crate::exec::{self, exec};
use crate::harness::Result;
use crate::{PROGRAM, call, open, static_program};

const CONTAINERS: usize = 16;

/// How often each side has its turn, and for how long.
const TURNS: usize = 5;
const TURN: Duration = Duration::from_secs(2);

pub(crate) async fn measure(containers: &Containers) -> Result<()> {
    let connector = containers.connector();
    let mut opened = Vec::new();
    for _ in 0..CONTAINERS {
        let one = open(&connector).await?;
        static_program::make(one.workspace.path())?;
        opened.push(one);
    }
    let engine = client(&docker()).await?;
    let names = exec::names(&engine, containers).await?;
    let mut workspaces = Vec::new();
    let sandboxes: Vec<Arc<Sandbox>> = opened
        .into_iter()
        .map(|one| {
            workspaces.push(one.workspace);
            Arc::new(one.sandbox)
        })
        .collect();
    let programs = [("docker16-image-vs-exec16", PROGRAM), ("docker16-vs-exec16", static_program::INSIDE)];
    for (case, program) in programs {
        let [mut ours, mut others] = [Rate::default(); 2];
        // The first turn fills caches.
        for turn in 0..=TURNS {
            let called = per_second(&sandboxes, move |sandbox| {
                Box::pin(async move { call(&sandbox, program).await.map(drop) })
            });
            let called = called.await?;
            let callers: Vec<_> = names.iter().map(|name| (engine.clone(), name.clone())).collect();
            let executed = per_second(&callers, move |(engine, name)| {
                Box::pin(async move { exec(&engine, &name, program).await.map(drop) })
            });
            let executed = executed.await?;
            if turn > 0 {
                ours.add(called);
                others.add(executed);
            }
        }
        let (ours, other) = (ours.per_second(), others.per_second());
        let ratio = ours / other;
        println!(
            "RESULT goal=tool_call case={case} ours={ours:.0} other={other:.0} unit=calls/s ratio={ratio:.1}"
        );
    }
    for sandbox in &sandboxes {
        conjure_sandbox::Executor::cleanup(&**sandbox).await;
    }
    Ok(())
}

/// How often something was done, and in how long.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    count: u32,
    took: Duration,
}

impl Rate {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.took += other.took;
    }

    fn per_second(self) -> f64 {
        f64::from(self.count) / self.took.as_secs_f64()
    }
}

type Doing = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One turn: all callers at once, each one call after the other, until the last has ended.
async fn per_second<T: Clone + Send + 'static>(
    callers: &[T],
    act: impl Fn(T) -> Doing + Clone + Send + Sync + 'static,
) -> Result<Rate> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in callers {
        let (caller, act) = (caller.clone(), act.clone());
        tasks.spawn(async move {
            let mut count = 0;
            while started.elapsed() < TURN {
                act(caller.clone()).await?;
                count += 1;
            }
            Result::Ok(count)
        });
    }
    let mut count = 0;
    while let Some(done) = tasks.join_next().await {
        count += done??;
    }
    Ok(Rate { count, took: started.elapsed() })
}
