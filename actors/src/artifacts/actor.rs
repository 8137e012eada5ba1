//! The actor that does the slow work for a session's artifacts, and has the session's actor record the results.
//!
//! Each request is a tracked task. The task ends when its caller stops waiting, at its deadline, or with the actor. The exception
//! is a registration that is being recorded: its task continues until the outcome is known.
//!
//! State: the names of registrations in progress, so that no file is read for a name that is about to be taken.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use conjure_artifact::{
    ArtifactError, ArtifactUri, OutputContent, Registration, RegistrationSource, ResolvedReference,
};
use conjure_base::{Clock as _, Deadline, SystemClock, TimedOut, lock, with_deadline};
use conjure_conversation::{Artifact, ArtifactName, CommandKind, Rejection};
use tokio_util::sync::CancellationToken;

use super::pinning::ContentPinning;
use super::request::ArtifactRequest;
use super::services::ArtifactServices;
use crate::session::{ActorMessage, ReplyTo, ReturnableRequest, SessionEntry, SessionError, SessionRequest};
use crate::supervision::{Address, Context, Failure, Flow, Job, Reply, SendError, Worker};

/// How many requests may run at a time.
const MAX_REQUESTS: usize = 32;

/// The services of the registry.
#[derive(Clone)]
pub(crate) struct RegistryDeps {
    pub(crate) services: ArtifactServices,
    pub(crate) entry: Arc<SessionEntry>,
    pub(crate) pinning: Arc<ContentPinning>,
    /// The session's actor, which records the results.
    pub(crate) session: Address<ActorMessage>,
}

pub(crate) struct ArtifactRegistryActor {
    deps: RegistryDeps,
    reserved_names: Arc<Mutex<BTreeSet<ArtifactName>>>,
    jobs: Vec<Job>,
}

impl ArtifactRegistryActor {
    pub(crate) fn new(deps: RegistryDeps) -> Self {
        Self { deps, reserved_names: Arc::default(), jobs: Vec::new() }
    }

    fn run(&mut self, work: impl Future<Output = ()> + Send + 'static, context: &Context<ArtifactRequest>) {
        self.jobs.push(context.spawn(work));
    }
}

impl Worker for ArtifactRegistryActor {
    type Message = ArtifactRequest;

    async fn handle(
        &mut self,
        request: ArtifactRequest,
        context: &Context<ArtifactRequest>,
    ) -> Result<Flow, Failure> {
        self.jobs.retain(|job| !job.is_finished());
        if self.jobs.len() >= MAX_REQUESTS {
            request.reject(SessionError::overloaded("the session's artifact registry"));
            return Ok(Flow::Continue);
        }
        let deps = self.deps.clone();
        match request {
            ArtifactRequest::Register { registration, reply } => {
                let name = registration.name.clone();
                let Some(reserved_names) = NameReservation::new(&self.reserved_names, &name) else {
                    reply.send(Err(ArtifactError::Exists { name }.into()));
                    return Ok(Flow::Continue);
                };
                let registering = async move {
                    let _until_settled = reserved_names;
                    deps.register(*registration, reply).await;
                };
                self.run(registering, context);
            }
            ArtifactRequest::Resolve { uri, reply } => {
                let work = |deadline| async move { deps.resolve(&uri, deadline).await };
                self.run(run_and_reply(reply, work), context);
            }
            ArtifactRequest::Open { uri, reply } => {
                let work = |deadline| async move { deps.open(&uri, deadline).await };
                self.run(run_and_reply(reply, work), context);
            }
            ArtifactRequest::Store { file, content, reply } => {
                let work = |_| async move {
                    let ArtifactServices { resolver, quota, .. } = &deps.services;
                    let (store, max) = (resolver.store().clone(), resolver.options().max_file_size);
                    // An unknown size counts as the largest allowed one.
                    let _reservation = quota.reserve(content.size.map_or(max, |size| size.min(max))).await?;
                    let stored = content.store(&store, max).await?;
                    Ok(RegistrationSource::stored(&store, stored.digest, file.content_type))
                };
                self.run(run_and_reply(reply, work), context);
            }
        }
        Ok(Flow::Continue)
    }
}

/// Runs the work and answers the caller, unless the caller stops waiting first.
async fn run_and_reply<T, F, W>(reply: ReplyTo<T>, work: F)
where
    T: Send + 'static,
    F: FnOnce(Deadline) -> W,
    W: Future<Output = Result<T, SessionError>>,
{
    let deadline = reply.deadline();
    if let Some((reply, done)) = until_abandoned(reply, work(deadline)).await {
        reply.send(Ok(done));
    }
}

/// Runs the work until the caller stops waiting or the deadline passes. Returns the result, or sends the error to the caller.
async fn until_abandoned<T: Send + 'static, D>(
    mut reply: ReplyTo<T>,
    work: impl Future<Output = Result<D, SessionError>>,
) -> Option<(ReplyTo<T>, D)> {
    let deadline = reply.deadline();
    let outcome = tokio::select! {
        biased;
        outcome = work => outcome,
        () = reply.abandoned() => return None,
        () = SystemClock.sleep_until(deadline) => Err(SessionError::DeadlinePassed),
    };
    match outcome {
        Ok(done) => Some((reply, done)),
        Err(error) => {
            reply.send(Err(error));
            None
        }
    }
}

/// Sends the result to the caller, or an error at the deadline. The work itself runs to its end, because a sent message cannot be
/// recalled.
async fn to_result<T: Send + 'static>(
    reply: ReplyTo<T>,
    work: impl Future<Output = Result<T, SessionError>>,
) {
    tokio::pin!(work);
    match with_deadline(&SystemClock, reply.deadline(), &mut work).await {
        Ok(outcome) => reply.send(outcome),
        Err(TimedOut) => {
            reply.send(Err(SessionError::DeadlinePassed));
            let _ = work.await;
        }
    }
}

impl RegistryDeps {
    /// Registers an artifact: ingests its content if there is room, pins it, and has it recorded. The temporary pin is released
    /// when the outcome is known.
    async fn register(&self, registration: Registration, reply: ReplyTo<Artifact>) {
        let deadline = reply.deadline();
        let holding = async {
            let artifact = self.ingest(registration).await?;
            let pin = match &artifact.content {
                Some(content) => Some(self.pinning.pin(content.clone()).await?),
                None => None,
            };
            Ok((artifact, pin))
        };
        let Some((reply, (artifact, _pin))) = until_abandoned(reply, holding).await else { return };
        let recording = async {
            let command = CommandKind::RegisterArtifact { artifact: Box::new(artifact.clone()) };
            self.record(command, deadline).await?;
            let artifacts = self.entry.artifacts(&self.services);
            let recorded = artifacts.iter().find(|recorded| recorded.name == artifact.name).cloned();
            // The artifact may have been unregistered since.
            Ok(recorded.map_or(artifact, Arc::unwrap_or_clone))
        };
        to_result(reply, recording).await;
    }

    async fn ingest(&self, registration: Registration) -> Result<Artifact, SessionError> {
        let Self { services, entry, .. } = self;
        let name = registration.name.clone();
        // If the name is taken, nothing is read.
        if entry.artifacts(services).iter().any(|artifact| artifact.name == name) {
            return Err(ArtifactError::Exists { name }.into());
        }
        if let RegistrationSource::Stored { store, .. } = &registration.source
            && store.root() != services.resolver.store().root()
        {
            let reason = "the content lies in another store than that of the session's tenant".to_owned();
            return Err(ArtifactError::Unsupported(reason).into());
        }
        // Nothing cancels this token: dropping the future ends the work.
        let cancel = CancellationToken::new();
        let opened = services.ingestor.open(registration, services.resolver.store(), &cancel).await?;
        let _reservation = match opened.is_stored() {
            true => Some(services.quota.reserve(opened.size()).await?),
            false => None,
        };
        Ok(opened.ingest(&cancel).await?)
    }

    async fn resolve(
        &self,
        uri: &ArtifactUri,
        deadline: Deadline,
    ) -> Result<ResolvedReference, SessionError> {
        let Self { services, entry, .. } = self;
        let artifacts = entry.artifacts(services);
        let cancel = CancellationToken::new();
        let resolved = services.resolver.resolve(uri, &artifacts, deadline, &cancel).await?;
        if let Some(fetched) = &resolved.newly_fetched {
            let command = CommandKind::FetchArtifact { fetched: Box::new(fetched.clone()) };
            match self.record(command, deadline).await {
                // The artifact was unregistered meanwhile.
                Ok(()) | Err(SessionError::Rejected(Rejection::NoArtifact { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(resolved)
    }

    async fn open(&self, uri: &ArtifactUri, deadline: Deadline) -> Result<OutputContent, SessionError> {
        let resolved = self.resolve(uri, deadline).await?;
        Ok(self.services.resolver.open(&resolved).await?)
    }

    /// Has the session's actor record a change. Returns when the outcome is known; by then no attempt is on its way.
    async fn record(&self, command: CommandKind, deadline: Deadline) -> Result<(), SessionError> {
        let (reply, answer) = Reply::new(deadline);
        tokio::pin!(answer);
        let mut message = SessionRequest::Submit { command, reply };
        loop {
            let (request, returned) = ReturnableRequest::new(message);
            match self.session.send_with_deadline(ActorMessage::Request(request), deadline).await {
                Ok(()) => {}
                Err(SendError::DeadlinePassed(_)) => return Err(SessionError::DeadlinePassed),
                // The session's actor is ending, and this actor with it.
                Err(_) => return Err(SessionError::Lost),
            }
            message = tokio::select! {
                biased;
                // The message came back, undelivered or unhandled, because its turn has just ended. It is sent again.
                Ok(message) = returned => message,
                answer = &mut answer => return answer.unwrap_or(Err(SessionError::Lost)),
            };
        }
    }
}

/// Reserves a name for a registration until it is dropped.
struct NameReservation {
    name: ArtifactName,
    names: Arc<Mutex<BTreeSet<ArtifactName>>>,
}

impl NameReservation {
    fn new(names: &Arc<Mutex<BTreeSet<ArtifactName>>>, name: &ArtifactName) -> Option<Self> {
        let is_free = lock(names).insert(name.clone());
        is_free.then(|| Self { name: name.clone(), names: Arc::clone(names) })
    }
}

impl Drop for NameReservation {
    fn drop(&mut self) {
        lock(&self.names).remove(&self.name);
    }
}
