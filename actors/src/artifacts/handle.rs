//! What a host does with a session's artifacts.

use std::sync::Arc;

use conjure_artifact::{
    ArtifactError, ArtifactUri, OutputContent, Registration, RegistrationSource, ResolvedReference,
};
use conjure_conversation::{Artifact, ArtifactChange, ArtifactName};

use crate::session::{Session, SessionError, SessionRequest};

use super::request::ArtifactRequest;

/// The artifacts of a session: files and data that it is given, by name. Cheap to clone; calls revive the session.
///
/// Names are texts here, and checked: what is no name of an artifact is a typed error.
#[derive(Debug, Clone)]
pub struct Artifacts {
    session: Session,
}

impl Artifacts {
    pub(crate) const fn new(session: Session) -> Self {
        Self { session }
    }

    /// Gives the session this under this name: tools see it from their next call on, also in a turn that runs. A file is taken in as it
    /// is now; a URL is fetched when somebody first wants what it leads to. Returns when it is recorded.
    ///
    /// # Errors
    /// [`SessionError::Artifact`] says what is wrong with the name or the source, and that there is one of this name already.
    /// [`SessionError::Quota`]: its tenant has as much on the disk as it may, or would have more with it; nothing is left of it then.
    pub async fn register(&self, name: &str, source: RegistrationSource) -> Result<Artifact, SessionError> {
        let name = ArtifactName::new(name).map_err(ArtifactError::from)?;
        self.register_with(Registration::new(name, source)).await
    }

    /// The same with what else is known of it.
    ///
    /// # Errors
    /// As for [`Artifacts::register`].
    pub async fn register_with(&self, registration: Registration) -> Result<Artifact, SessionError> {
        let registration = Box::new(registration);
        let message = |reply| SessionRequest::Artifacts(ArtifactRequest::Register { registration, reply });
        self.session.request(message).await
    }

    /// What a reference stands for: a file of a skill, an artifact, what a URL leads to. URLs are fetched for that, where what was
    /// fetched before is not good any more.
    ///
    /// # Errors
    /// [`SessionError::Artifact`] says why it is not to be had.
    pub async fn resolve(&self, uri: &str) -> Result<ResolvedReference, SessionError> {
        let uri = ArtifactUri::parse(uri)?;
        self.session.request(|reply| SessionRequest::Artifacts(ArtifactRequest::Resolve { uri, reply })).await
    }

    /// The bytes of what a reference stands for, as a stream.
    ///
    /// # Errors
    /// As for [`Artifacts::resolve`].
    pub async fn open(&self, uri: &str) -> Result<OutputContent, SessionError> {
        let uri = ArtifactUri::parse(uri)?;
        self.session.request(|reply| SessionRequest::Artifacts(ArtifactRequest::Open { uri, reply })).await
    }

    /// All of them, in the order in which they were registered. Nothing is fetched.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn list(&self) -> Result<Vec<Artifact>, SessionError> {
        Ok(self.all().await?.iter().map(|artifact| Artifact::clone(artifact)).collect())
    }

    /// One of them. Nothing is fetched.
    ///
    /// # Errors
    /// When the session has none of this name.
    pub async fn info(&self, name: &str) -> Result<Artifact, SessionError> {
        let artifacts = self.all().await?;
        let known = || artifacts.iter().map(|artifact| artifact.name.as_str()).take(20).collect::<Vec<_>>();
        let found = artifacts.iter().find(|artifact| artifact.name.as_str() == name);
        found.map(|artifact| Artifact::clone(artifact)).ok_or_else(|| {
            ArtifactError::ArtifactNotFound { name: name.to_owned(), known: known().join(", ") }.into()
        })
    }

    /// The session does not have it any more, from its tools' next call on. Who reads it just then goes on.
    ///
    /// # Errors
    /// When the session has none of this name.
    pub async fn unregister(&self, name: &str) -> Result<(), SessionError> {
        let name = ArtifactName::new(name).map_err(ArtifactError::from)?;
        self.change(ArtifactChange::Unregister(name)).await
    }

    /// The session does not have any of them any more.
    ///
    /// # Errors
    /// When that was not recorded.
    pub async fn cleanup(&self) -> Result<(), SessionError> {
        self.change(ArtifactChange::Clear).await
    }

    async fn all(&self) -> Result<Arc<[Arc<Artifact>]>, SessionError> {
        self.session.request(|reply| SessionRequest::ListArtifacts { reply }).await
    }

    async fn change(&self, change: ArtifactChange) -> Result<(), SessionError> {
        self.session.request(|reply| SessionRequest::ChangeArtifacts { change, reply }).await
    }
}
