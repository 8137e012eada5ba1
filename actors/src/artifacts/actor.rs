//! The actor that does for a session's artifacts what takes long, and has the session's actor record what came of it.
//!
//! Each request is a tracked task of its own: it ends when nobody waits for it any more, at its deadline, and with the actor. Only a
//! registration that is being recorded goes on until it is known what came of it. State: which names are being taken in, so that no file
//! is read for a name that somebody else is about to have.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use conjure_artifact::{ArtifactError, ArtifactUri, OutputContent, Registration, Resolved, Source};
use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_conversation::{Artifact, ArtifactChange, ArtifactName, Rejection};
use tokio_util::sync::CancellationToken;

use super::keeping::Keeping;
use super::parts::ArtifactParts;
use super::request::ArtifactRequest;
use crate::session::{Answer, Mail, Parcel, SessionError, SessionMessage, Shared, lock};
use crate::supervision::{Address, Context, Failure, Flow, Job, Reply, SendError, Worker};

/// How many requests may be under way.
const MOST: usize = 32;

/// What it is made of.
#[derive(Clone)]
pub(crate) struct Makings {
    pub(crate) parts: ArtifactParts,
    pub(crate) shared: Arc<Shared>,
    pub(crate) keeping: Arc<Keeping>,
    /// Who records.
    pub(crate) session: Address<Mail>,
}

pub(crate) struct ArtifactRegistryActor {
    makings: Makings,
    taking_in: Arc<Mutex<BTreeSet<ArtifactName>>>,
    under_way: Vec<Job>,
}

impl ArtifactRegistryActor {
    pub(crate) fn new(makings: Makings) -> Self {
        Self { makings, taking_in: Arc::default(), under_way: Vec::new() }
    }

    fn run(&mut self, work: impl Future<Output = ()> + Send + 'static, context: &Context<ArtifactRequest>) {
        self.under_way.push(context.spawn(work));
    }
}

impl Worker for ArtifactRegistryActor {
    type Message = ArtifactRequest;

    async fn handle(
        &mut self,
        request: ArtifactRequest,
        context: &Context<ArtifactRequest>,
    ) -> Result<Flow, Failure> {
        self.under_way.retain(|job| !job.is_finished());
        if self.under_way.len() >= MOST {
            request.refuse(SessionError::overloaded("what works with the session's artifacts"));
            return Ok(Flow::Continue);
        }
        let makings = self.makings.clone();
        match request {
            ArtifactRequest::Register { registration, reply } => {
                let name = registration.name.clone();
                let Some(taking_in) = TakingIn::begin(&self.taking_in, &name) else {
                    reply.send(Err(ArtifactError::Exists { name }.into()));
                    return Ok(Flow::Continue);
                };
                let registering = async move {
                    let _until_settled = taking_in;
                    makings.register(*registration, reply).await;
                };
                self.run(registering, context);
            }
            ArtifactRequest::Resolve { uri, reply } => {
                let work = |until| async move { makings.resolve(&uri, until).await };
                self.run(answered(reply, work), context);
            }
            ArtifactRequest::Open { uri, reply } => {
                let work = |until| async move { makings.open(&uri, until).await };
                self.run(answered(reply, work), context);
            }
            ArtifactRequest::Store { file, content, reply } => {
                let work = |_| async move {
                    let ArtifactParts { resolver, room, .. } = &makings.parts;
                    let (store, most) = (resolver.store().clone(), resolver.options().max_file_size);
                    // Where nobody knows how much it is, it may be as much as it may be.
                    let _room = room.set_aside(content.size.map_or(most, |size| size.min(most))).await?;
                    let stored = content.store(&store, most).await?;
                    Ok(Source::stored(&store, stored.digest, file.content_type))
                };
                self.run(answered(reply, work), context);
            }
        }
        Ok(Flow::Continue)
    }
}

/// Does the work until nobody wants it any more, and answers.
async fn answered<T, F, W>(reply: Answer<T>, work: F)
where
    T: Send + 'static,
    F: FnOnce(Deadline) -> W,
    W: Future<Output = Result<T, SessionError>>,
{
    let until = reply.deadline();
    if let Some((reply, done)) = while_wanted(reply, work(until)).await {
        reply.send(Ok(done));
    }
}

/// Does the work until nobody wants it any more. Where it is not done, whoever waits is told why.
async fn while_wanted<T: Send + 'static, D>(
    mut reply: Answer<T>,
    work: impl Future<Output = Result<D, SessionError>>,
) -> Option<(Answer<T>, D)> {
    let until = reply.deadline();
    let outcome = tokio::select! {
        biased;
        outcome = work => outcome,
        () = reply.abandoned() => return None,
        () = SystemClock.sleep_until(until) => Err(SessionError::DeadlinePassed),
    };
    match outcome {
        Ok(done) => Some((reply, done)),
        Err(error) => {
            reply.send(Err(error));
            None
        }
    }
}

/// Answers with what comes of it, in time. It comes to its end even so, as what is on its way cannot be called back.
async fn settled<T: Send + 'static>(reply: Answer<T>, work: impl Future<Output = Result<T, SessionError>>) {
    tokio::pin!(work);
    let outcome = tokio::select! {
        biased;
        outcome = &mut work => outcome,
        () = SystemClock.sleep_until(reply.deadline()) => {
            reply.send(Err(SessionError::DeadlinePassed));
            let _ = work.await;
            return;
        }
    };
    reply.send(outcome);
}

impl Makings {
    /// Takes it in, where there is room, holds its content, has it recorded, in this order. What is held is let go when it is known what was
    /// recorded.
    async fn register(&self, registration: Registration, reply: Answer<Artifact>) {
        let until = reply.deadline();
        let holding = async {
            let artifact = self.take_in(registration).await?;
            let held = match &artifact.content {
                Some(content) => Some(self.keeping.hold(content.clone()).await?),
                None => None,
            };
            Ok((artifact, held))
        };
        let Some((reply, (artifact, _held))) = while_wanted(reply, holding).await else { return };
        let recording = async {
            let change = ArtifactChange::Register(Box::new(artifact.clone()));
            self.record(change, until).await?;
            let artifacts = self.shared.artifacts(&self.parts);
            let recorded = artifacts.iter().find(|recorded| recorded.name == artifact.name).cloned();
            // It may have been unregistered since.
            Ok(recorded.map_or(artifact, Arc::unwrap_or_clone))
        };
        settled(reply, recording).await;
    }

    async fn take_in(&self, registration: Registration) -> Result<Artifact, SessionError> {
        let Self { parts, shared, .. } = self;
        let name = registration.name.clone();
        // Nothing is read for a name that is taken.
        if shared.artifacts(parts).iter().any(|artifact| artifact.name == name) {
            return Err(ArtifactError::Exists { name }.into());
        }
        if let Source::Stored { store, .. } = &registration.source
            && store.root() != parts.resolver.store().root()
        {
            let reason = "the content lies in another store than that of the session's tenant".to_owned();
            return Err(ArtifactError::Unsupported(reason).into());
        }
        // Dropping the future ends the work.
        let cancel = CancellationToken::new();
        let opened = parts.intake.open(registration, parts.resolver.store(), &cancel).await?;
        let _room = match opened.is_stored() {
            true => Some(parts.room.set_aside(opened.size()).await?),
            false => None,
        };
        Ok(opened.take_in(&cancel).await?)
    }

    async fn resolve(&self, uri: &ArtifactUri, until: Deadline) -> Result<Resolved, SessionError> {
        let Self { parts, shared, .. } = self;
        let artifacts = shared.artifacts(parts);
        let cancel = CancellationToken::new();
        let resolved = parts.resolver.resolve(uri, &artifacts, until, &cancel).await?;
        if let Some(fetched) = &resolved.fetched {
            match self.record(ArtifactChange::Fetch(Box::new(fetched.clone())), until).await {
                // It was unregistered meanwhile.
                Ok(()) | Err(SessionError::Rejected(Rejection::NoArtifact { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(resolved)
    }

    async fn open(&self, uri: &ArtifactUri, until: Deadline) -> Result<OutputContent, SessionError> {
        let resolved = self.resolve(uri, until).await?;
        Ok(self.parts.resolver.open(&resolved).await?)
    }

    /// Returns when it is known whether the session has recorded it: by then, it is not sent any more.
    async fn record(&self, change: ArtifactChange, until: Deadline) -> Result<(), SessionError> {
        let (reply, answer) = Reply::new(until);
        tokio::pin!(answer);
        let mut message = SessionMessage::ChangeArtifacts { change, reply };
        loop {
            let (parcel, returned) = Parcel::new(message);
            match self.session.send_by(Mail::Said(parcel), until).await {
                Ok(()) => {}
                Err(SendError::DeadlinePassed(_)) => return Err(SessionError::DeadlinePassed),
                // It ends, and this with it.
                Err(_) => return Err(SessionError::Lost),
            }
            message = tokio::select! {
                biased;
                // Nobody opened it, or nobody took it up: the turn that it was for has just ended.
                Ok(message) = returned => message,
                answer = &mut answer => return answer.unwrap_or(Err(SessionError::Lost)),
            };
        }
    }
}

/// A name that is being taken in, until this is dropped.
struct TakingIn {
    name: ArtifactName,
    names: Arc<Mutex<BTreeSet<ArtifactName>>>,
}

impl TakingIn {
    fn begin(names: &Arc<Mutex<BTreeSet<ArtifactName>>>, name: &ArtifactName) -> Option<Self> {
        let is_free = lock(names).insert(name.clone());
        is_free.then(|| Self { name: name.clone(), names: Arc::clone(names) })
    }
}

impl Drop for TakingIn {
    fn drop(&mut self) {
        lock(&self.names).remove(&self.name);
    }
}
