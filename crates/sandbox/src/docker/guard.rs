//! Holds a container, and with it what it is made of, what was handed over to its user, and its place. All go with it, in
//! this order.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_guest::protocol::{InForce, Welcome};
use futures_util::future::BoxFuture;

use super::attach::Complaints;
use super::first_process::{FirstProcess, Memory};
use super::held::{Held, Keeper};
use super::meant::Meant;
use super::meeting::StreamWay;
use crate::connector::{Follower, SandboxGuard};
use crate::error::SandboxError;
use crate::isolation::{Boundary, Isolation};
use crate::jail::{HandedOver, Lent};
use crate::places::Shelves;
use crate::provision::Provider;
use crate::transfer::Transfer;

/// How long the last complaints of a guest that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct ContainerGuard {
    keeper: Arc<Keeper>,
    complaints: Complaints,
    isolation: Isolation,
    /// What must travel through the guest, until that was asked for.
    transfer: Option<Transfer>,
    /// How it ended, once that was seen.
    how: Option<String>,
    stream: StreamWay,
    /// `None`: only the engine knows of its end.
    first_process: Option<FirstProcess>,
    greeted: Greeted,
    watch: Watch,
    /// `None` once all of it was given back.
    remains: Option<Remains>,
}

/// Who wants to know of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Whoever speaks to the guest, for as long as that goes on.
    Open,
    /// Whoever has seen the stream's end, or closed it.
    Over,
}

/// Whether the guest has greeted, and with that shown that it is the process that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeted {
    NotYet,
    Yes,
}

/// How long an engine that cannot be asked is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// What a container leaves when it has ended.
pub(super) struct Remains {
    pub(super) held: Held,
    /// Taken back when nothing runs any more.
    pub(super) handed_over: HandedOver,
    /// The workspace's path on the host, where the engine has the host's folders.
    pub(super) workspace: Option<String>,
    /// What of it nobody else hands over in the meantime.
    pub(super) lent: Lent,
    /// The folders that it must have.
    pub(super) meant: Meant,
    /// `None`: they are not on this machine.
    pub(super) shelves: Option<Shelves>,
    /// Where the engine has none of the host's folders: what the container is made of, which must outlive it.
    pub(super) stock: Option<Held>,
    /// What it was made of, which must be there for as long.
    pub(super) _premises: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remains").field("container", &self.held.name()).finish_non_exhaustive()
    }
}

impl Remains {
    /// Gives back what others may have next. Nothing may run in the container any more.
    async fn give_back(&mut self) {
        self.handed_over.take_back().await;
        self.lent = Lent::default();
    }

    /// Removes the container, and then the rest.
    pub(super) async fn clear(&mut self) {
        if let Err(error) = self.held.remove_patiently().await {
            // Dropping it tries again; commands may run for as long.
            tracing::warn!(%error, container = self.held.name(), "a container could not be removed yet");
        }
        if let Some(stock) = &mut self.stock
            && let Err(error) = stock.remove_patiently().await
        {
            tracing::warn!(%error, container = stock.name(), "what a container was made of could not be removed yet");
        }
        self.give_back().await;
        let Some(shelves) = self.shelves.clone() else { return };
        let removed = tokio::task::spawn_blocking(move || shelves.remove()).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "a container's folder is left to be swept");
        }
    }
}

impl ContainerGuard {
    pub(super) fn new(
        remains: Remains,
        complaints: Complaints,
        isolation: Isolation,
        transfer: Option<Transfer>,
        stream: StreamWay,
        first_process: Option<FirstProcess>,
    ) -> Self {
        let keeper = Arc::clone(remains.held.keeper());
        let (how, greeted, watch, remains) = (None, Greeted::NotYet, Watch::Open, Some(remains));
        Self { keeper, complaints, isolation, transfer, how, stream, first_process, greeted, watch, remains }
    }

    /// The first process, where its end is the container's for certain. Before the guest has greeted it is not; and whoever is told of
    /// an end by then is waiting for nothing but its reason.
    fn watched(&self) -> Option<&FirstProcess> {
        self.first_process.as_ref().filter(|_| self.greeted == Greeted::Yes)
    }

    /// Waits until nothing runs in the container, and says how it ended: in the engine's words, where they may be others than
    /// that it did.
    async fn how_it_ended(&self, name: &str, watch: Watch) -> String {
        let told = self.as_told(name, watch);
        tokio::pin!(told);
        if let Some(first) = self.watched() {
            tokio::select! {
                biased;
                how = &mut told => return how,
                () = first.ended() => match first.memory() {
                    Memory::Sufficed => return self.in_its_words("its first process ended".to_owned()),
                    Memory::Unknown => {}
                }
            }
        }
        told.await
    }

    /// The same, when the engine says so, and in its words.
    async fn as_told(&self, name: &str, watch: Watch) -> String {
        let how = self.watch(name, watch).await;
        // They may come another way than the news of its end.
        let _ = tokio::time::timeout(LAST_WORDS, self.complaints.heard()).await;
        self.in_its_words(how)
    }

    fn in_its_words(&self, how: String) -> String {
        match self.complaints.text().as_str() {
            "" => how,
            complaint => format!("{how}: {complaint}"),
        }
    }

    /// Waits until the container does not run, and says how it ended.
    async fn watch(&self, name: &str, watch: Watch) -> String {
        loop {
            match self.keeper.engine.ended(name).await {
                Ok(()) => return self.describe(name).await,
                // An engine that is gone has ended nothing: what runs goes on, and its stream tells its end.
                Err(error) if self.stream == StreamWay::Socket && watch == Watch::Open => {
                    tracing::debug!(%error, container = name, "an engine does not tell of a container");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    /// How a container that does not run any more has ended.
    async fn describe(&self, name: &str) -> String {
        let state = match self.keeper.engine.inspect(name).await {
            Ok(Some(found)) => found.state.unwrap_or_default(),
            Ok(None) => return "its container was removed by somebody else".to_owned(),
            Err(error) => return format!("how it ended cannot be told: {error}"),
        };
        if let Some(error) = state.error.filter(|error| !error.is_empty()) {
            return error;
        }
        match (state.oom_killed, state.exit_code.unwrap_or_default()) {
            (Some(true), 137) => "the kernel killed it, because memory ran out".to_owned(),
            (_, code @ 129..=192) => format!("killed by signal {}", code - 128),
            (_, code) => format!("exit code {code}"),
        }
    }
}

impl SandboxGuard for ContainerGuard {
    fn greeted(&mut self, welcome: &Welcome) -> Isolation {
        self.greeted = Greeted::Yes;
        let syscalls = Boundary::enforced_if(welcome.rules.syscalls == InForce::Yes);
        let files = Boundary::enforced_if(welcome.rules.files == InForce::Yes);
        // Nothing else keeps commands from the folder of the output that was cut, which is the host's disk.
        let disk = if files == Boundary::Enforced { self.isolation.disk } else { Boundary::Open };
        Isolation { syscalls, files, disk, ..self.isolation }
    }

    fn admit(&self, welcome: &Welcome) -> Result<(), SandboxError> {
        self.remains.as_ref().map_or(Ok(()), |remains| remains.meant.check(&welcome.roots))
    }

    fn provider(&self) -> Option<Arc<dyn Provider>> {
        let remains = self.remains.as_ref()?;
        Some(Arc::new(remains.shelves.clone()?))
    }

    fn follower(&self) -> Option<Arc<dyn Follower>> {
        let remains = self.remains.as_ref()?;
        Some(remains.handed_over.follower(remains.workspace.as_deref()?))
    }

    fn transfer(&mut self) -> Option<Transfer> {
        self.transfer.take()
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async {
            if let Some(how) = &self.how {
                return how.clone();
            }
            let Some(name) = self.remains.as_ref().map(|remains| remains.held.name().to_owned()) else {
                return "it was ended".to_owned();
            };
            let watch = std::mem::replace(&mut self.watch, Watch::Over);
            let how = self.how_it_ended(&name, watch).await;
            self.how = Some(how.clone());
            how
        })
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(remains) = &mut self.remains
                && let Err(error) = remains.held.remove().await
            {
                tracing::warn!(%error, "a container could not be killed yet");
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let is_over = self.watched().is_some_and(FirstProcess::has_ended);
            match &mut self.remains {
                Some(remains) if is_over => remains.give_back().await,
                _ => self.clear().await,
            }
        })
    }

    fn clear(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(remains) = &mut self.remains {
                remains.clear().await;
            }
            self.remains = None;
        })
    }
}

impl Drop for ContainerGuard {
    /// Where nobody waits for the end any more.
    fn drop(&mut self) {
        if let Some(mut remains) = self.remains.take() {
            self.keeper.run(async move { remains.clear().await });
        }
    }
}
