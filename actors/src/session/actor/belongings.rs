//! What is asked of a session's files and artifacts beside its conversation: tracked tasks of its actor, which goes on meanwhile.
//!
//! State: none that lasts; what is under way ends with the actor.

use std::sync::Arc;

use conjure_artifact::{OutputContent, OutputError, OutputStore, Source};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::SessionFile;
use conjure_sandbox::{CallOptions, Executor};

use super::SessionActor;
use crate::artifacts::{ArtifactRequest, Makings, RegistryPlace};
use crate::session::away::INBOX;
use crate::session::error::SessionError;
use crate::session::mail::Mail;
use crate::session::message::Answer;
use crate::supervision::Context;

impl SessionActor {
    pub(super) fn executor(&self) -> Result<Arc<dyn Executor>, SessionError> {
        self.parts.executor.clone().ok_or(SessionError::Unsupported { what: "no sandbox with files" })
    }

    /// Whether one more may be listed or opened.
    fn has_room(&mut self) -> bool {
        self.listings.retain(|job| !job.is_finished());
        self.listings.len() < INBOX
    }

    /// Where a file lies that the session produced. Only what is its own: a file that somebody else produced may have the same name
    /// here.
    fn store_of(&self, file: &SessionFile) -> Result<Arc<dyn OutputStore>, SessionError> {
        let store = self.parts.outputs.iter().find(|store| store.source() == file.source);
        let store = store.filter(|_| self.shared.has_file(file)).cloned();
        store.ok_or_else(|| OutputError::NotFound { name: file.name.clone() }.into())
    }

    /// Has the registry of artifacts do what takes long.
    pub(super) fn pass_on(&mut self, request: ArtifactRequest, context: &Context<Mail>) {
        let makings = match self.makings(context) {
            Ok(makings) => makings,
            Err(error) => return request.refuse(error),
        };
        if !self.has_room() {
            return request.refuse(SessionError::overloaded("what works with the session's artifacts"));
        }
        let registry = self.registry.clone();
        self.listings.push(context.spawn(async move { pass_to(&registry, &makings, request).await }));
    }

    fn makings(&self, context: &Context<Mail>) -> Result<Makings, SessionError> {
        let (Some(parts), Some(keeping)) = (self.parts.artifacts.clone(), self.keeping.clone()) else {
            return Err(SessionError::Unsupported { what: "no artifacts: they are switched off" });
        };
        let session = context.address().clone();
        Ok(Makings { parts, shared: Arc::clone(&self.shared), keeping, session })
    }

    /// Has the bytes of a produced file put into the tenant's store.
    pub(super) fn store_file(&mut self, file: SessionFile, reply: Answer<Source>, context: &Context<Mail>) {
        let found = self.store_of(&file).and_then(|store| Ok((store, self.makings(context)?)));
        let (store, makings) = match found {
            Ok(found) => found,
            Err(error) => return reply.send(Err(error)),
        };
        if !self.has_room() {
            return reply.send(Err(SessionError::overloaded("what opens the session's files")));
        }
        let registry = self.registry.clone();
        self.listings.push(context.spawn(async move {
            let opened = tokio::select! {
                biased;
                opened = store.open(&file) => opened.map_err(SessionError::from),
                () = SystemClock.sleep_until(reply.deadline()) => Err(SessionError::DeadlinePassed),
            };
            match opened {
                Ok(content) => {
                    let (file, content) = (Box::new(file), Box::new(content));
                    pass_to(&registry, &makings, ArtifactRequest::Store { file, content, reply }).await;
                }
                Err(error) => reply.send(Err(error)),
            }
        }));
    }

    /// Sees to it that the contents of the session's artifacts stay, and no others.
    pub(super) fn keep_contents(&self, context: &Context<Mail>) {
        let Some(keeping) = self.keeping.as_ref().filter(|keeping| keeping.is_due()) else { return };
        let keeping = Arc::clone(keeping);
        context.spawn(async move { keeping.put_in_order().await }).detach();
    }

    pub(super) fn open_file(
        &mut self,
        file: SessionFile,
        reply: Answer<OutputContent>,
        context: &Context<Mail>,
    ) {
        let store = match self.store_of(&file) {
            Ok(store) => store,
            Err(error) => return reply.send(Err(error)),
        };
        if !self.has_room() {
            return reply.send(Err(SessionError::overloaded("what opens the session's files")));
        }
        self.listings.push(context.spawn(async move {
            let deadline = reply.deadline();
            let opened = tokio::select! {
                biased;
                opened = store.open(&file) => opened.map_err(SessionError::from),
                () = SystemClock.sleep_until(deadline) => Err(SessionError::DeadlinePassed),
            };
            reply.send(opened);
        }));
    }

    pub(super) fn list(&mut self, reply: Answer<conjure_sandbox::Listing>, context: &Context<Mail>) {
        let executor = match self.executor() {
            Ok(executor) => executor,
            Err(error) => return reply.send(Err(error)),
        };
        if !self.has_room() {
            return reply.send(Err(SessionError::overloaded("what lists the session's files")));
        }
        self.listings.push(context.spawn(async move {
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

/// Passes a request to the registry, which is started where none runs.
async fn pass_to(registry: &RegistryPlace, makings: &Makings, request: ArtifactRequest) {
    match registry.registry(makings, request.deadline()).await {
        Ok(address) => {
            let until = request.deadline();
            if let Err(error) = address.send_by(request, until).await {
                // Where it has just ended, the request may be sent again.
                error.into_message().refuse(SessionError::overloaded("the registry of artifacts"));
            }
        }
        Err(error) => request.refuse(error),
    }
}
