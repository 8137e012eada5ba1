//! How every benchmark runs: on one task of a runtime of two threads, as a session's turn does, and not on the thread that
//! waits for it. Interrupted, it ends as after a failure, so that what it made is removed.

use std::error::Error;
use std::future::Future;

use tokio::task::JoinSet;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

pub(crate) fn run(measure: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut tasks = JoinSet::new();
    tasks.spawn_on(measure, runtime.handle());
    runtime.block_on(async {
        tokio::select! {
            done = tasks.join_next() => done.ok_or("the task is gone")??,
            _ = tokio::signal::ctrl_c() => {
                tasks.shutdown().await;
                Err("interrupted".into())
            }
        }
    })
}
