//! Requests about a session's files and artifacts that do not need the conversation.
//!
//! Each slow request runs in a tracked task beside the actor. State: the running tasks, which end with the actor.

use std::sync::Arc;

use conjure_artifact::{OutputContent, OutputError, OutputStore, RegistrationSource};
use conjure_base::{Deadline, SystemClock, with_deadline};
use conjure_conversation::SessionFile;
use conjure_sandbox::{CallOptions, Executor};

use super::SessionActor;
use crate::artifacts::{ArtifactRequest, LazyRegistry, RegistryDeps};
use crate::session::error::{ReplyTo, SessionError};
use crate::session::lifecycle::actor_message::ActorMessage;
use crate::session::turn::running_task::INBOX_CAPACITY;
use crate::supervision::Context;

/// What is full when too many tasks run, for error messages.
const REQUESTS: &str = "the list of the session's running file and artifact requests";

impl SessionActor {
    pub(super) fn executor(&self) -> Result<Arc<dyn Executor>, SessionError> {
        self.components.executor.clone().ok_or(SessionError::Unsupported { what: "no sandbox with files" })
    }

    /// Whether another task for a request about files or artifacts may start.
    fn has_room(&mut self) -> bool {
        self.file_jobs.retain(|job| !job.is_finished());
        self.file_jobs.len() < INBOX_CAPACITY
    }

    /// The store of a produced file. Fails if this session did not produce the file, because its name may belong to
    /// another file here.
    fn store_of(&self, file: &SessionFile) -> Result<Arc<dyn OutputStore>, SessionError> {
        let store = self.components.outputs.iter().find(|store| store.source() == file.source);
        let store = store.filter(|_| self.entry.observer.projection.has_file(file)).cloned();
        store.ok_or_else(|| OutputError::NotFound { name: file.name.clone() }.into())
    }

    /// Forwards a slow request to the registry of artifacts.
    pub(super) fn forward_to_registry(&mut self, request: ArtifactRequest, context: &Context<ActorMessage>) {
        let deps = match self.registry_deps(context) {
            Ok(deps) => deps,
            Err(error) => return request.reject(error),
        };
        if !self.has_room() {
            return request.reject(SessionError::overloaded(REQUESTS));
        }
        let registry = self.registry.clone();
        self.file_jobs.push(context.spawn(async move { send_to_registry(&registry, &deps, request).await }));
    }

    fn registry_deps(&self, context: &Context<ActorMessage>) -> Result<RegistryDeps, SessionError> {
        let (Some(services), Some(pinning)) = (self.components.artifacts.clone(), self.pinning.clone())
        else {
            return Err(SessionError::Unsupported { what: "no artifacts: they are switched off" });
        };
        let session = context.address().clone();
        Ok(RegistryDeps { services, entry: Arc::clone(&self.entry), pinning, session })
    }

    /// Copies the bytes of a produced file into the tenant's store.
    pub(super) fn store_file(
        &mut self,
        file: SessionFile,
        reply: ReplyTo<RegistrationSource>,
        context: &Context<ActorMessage>,
    ) {
        let found = self.store_of(&file).and_then(|store| Ok((store, self.registry_deps(context)?)));
        let (store, deps) = match found {
            Ok(found) => found,
            Err(error) => return reply.send(Err(error)),
        };
        if !self.has_room() {
            return reply.send(Err(SessionError::overloaded(REQUESTS)));
        }
        let registry = self.registry.clone();
        self.file_jobs.push(context.spawn(async move {
            match open_in_time(&*store, &file, reply.deadline()).await {
                Ok(content) => {
                    let (file, content) = (Box::new(file), Box::new(content));
                    send_to_registry(&registry, &deps, ArtifactRequest::Store { file, content, reply }).await;
                }
                Err(error) => reply.send(Err(error)),
            }
        }));
    }

    /// Pins the contents of the session's artifacts, and unpins all others.
    pub(super) fn update_pins(&self, context: &Context<ActorMessage>) {
        let Some(pinning) = self.pinning.as_ref().filter(|pinning| pinning.needs_sync()) else { return };
        let pinning = Arc::clone(pinning);
        context.spawn(async move { pinning.sync().await }).detach();
    }

    pub(super) fn open_file(
        &mut self,
        file: SessionFile,
        reply: ReplyTo<OutputContent>,
        context: &Context<ActorMessage>,
    ) {
        let store = match self.store_of(&file) {
            Ok(store) => store,
            Err(error) => return reply.send(Err(error)),
        };
        if !self.has_room() {
            return reply.send(Err(SessionError::overloaded(REQUESTS)));
        }
        self.file_jobs.push(context.spawn(async move {
            let opened = open_in_time(&*store, &file, reply.deadline()).await;
            reply.send(opened);
        }));
    }

    pub(super) fn list(&mut self, reply: ReplyTo<conjure_sandbox::Listing>, context: &Context<ActorMessage>) {
        let executor = match self.executor() {
            Ok(executor) => executor,
            Err(error) => return reply.send(Err(error)),
        };
        if !self.has_room() {
            return reply.send(Err(SessionError::overloaded(REQUESTS)));
        }
        self.file_jobs.push(context.spawn(async move {
            let workspace = executor.layout().workspace.clone();
            let options = CallOptions::until(reply.deadline());
            let listing = executor.list(&workspace.to_string_lossy(), 8, 10_000, options).await;
            reply.send(
                listing
                    .map_err(|error| SessionError::Files { kind: error.kind(), reason: error.to_string() }),
            );
        }));
    }
}

async fn open_in_time(
    store: &dyn OutputStore,
    file: &SessionFile,
    deadline: Deadline,
) -> Result<OutputContent, SessionError> {
    Ok(with_deadline(&SystemClock, deadline, store.open(file)).await??)
}

/// Sends a request to the registry, and starts the registry if it does not run.
async fn send_to_registry(registry: &LazyRegistry, deps: &RegistryDeps, request: ArtifactRequest) {
    match registry.get_or_start(deps, request.deadline()).await {
        Ok(address) => {
            let until = request.deadline();
            if let Err(error) = address.send_with_deadline(request, until).await {
                // The registry may have just ended. The error tells the caller that it may send the request again.
                error.into_message().reject(SessionError::overloaded("the registry of artifacts"));
            }
        }
        Err(error) => request.reject(error),
    }
}
