//! The handle of a session's artifacts.

use std::sync::Arc;

use conjure_artifact::{
    ArtifactError, ArtifactUri, OutputContent, Registration, RegistrationSource, ResolvedReference,
};
use conjure_conversation::{Artifact, ArtifactName, CommandKind};

use crate::session::{Session, SessionError, SessionRequest};

use super::request::ArtifactRequest;

/// The artifacts of a session: the named files and data given to it. Cheap to clone; calls revive the session.
///
/// The methods take names as plain text and check them. An invalid name is a typed error.
#[derive(Debug, Clone)]
pub struct Artifacts {
    session: Session,
}

impl Session {
    /// The session's artifacts: the named files and data given to it.
    #[must_use]
    pub fn artifacts(&self) -> Artifacts {
        Artifacts { session: self.clone() }
    }
}

impl Artifacts {
    /// Registers an artifact under this name. Tools see it from their next call on, also in a running turn. A file is
    /// copied as it is now; a URL is fetched when it is first needed. Returns when the artifact is recorded.
    ///
    /// # Errors
    /// [`SessionError::Artifact`] if the name or the source is invalid, or if the name is taken.
    /// [`SessionError::Quota`] if the tenant's disk quota is used up, or would be exceeded; nothing of the artifact is
    /// left then.
    pub async fn register(&self, name: &str, source: RegistrationSource) -> Result<Artifact, SessionError> {
        let name = ArtifactName::new(name).map_err(ArtifactError::from)?;
        self.register_with(Registration::new(name, source)).await
    }

    /// Registers an artifact with more options.
    ///
    /// # Errors
    /// As for [`Artifacts::register`].
    pub async fn register_with(&self, registration: Registration) -> Result<Artifact, SessionError> {
        let registration = Box::new(registration);
        let message = |reply| SessionRequest::Artifacts(ArtifactRequest::Register { registration, reply });
        self.session.request(message).await
    }

    /// Resolves a reference: a file of a skill, an artifact, or the content of a URL. A URL is fetched again if its last fetched
    /// content is stale.
    ///
    /// # Errors
    /// [`SessionError::Artifact`] if the reference cannot be resolved.
    pub async fn resolve(&self, uri: &str) -> Result<ResolvedReference, SessionError> {
        let uri = ArtifactUri::parse(uri)?;
        self.session.request(|reply| SessionRequest::Artifacts(ArtifactRequest::Resolve { uri, reply })).await
    }

    /// Opens the content of a reference as a stream.
    ///
    /// # Errors
    /// As for [`Artifacts::resolve`].
    pub async fn open(&self, uri: &str) -> Result<OutputContent, SessionError> {
        let uri = ArtifactUri::parse(uri)?;
        self.session.request(|reply| SessionRequest::Artifacts(ArtifactRequest::Open { uri, reply })).await
    }

    /// All artifacts of the session, in the order of registration. Nothing is fetched.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn list(&self) -> Result<Vec<Artifact>, SessionError> {
        Ok(self.all().await?.iter().map(|artifact| Artifact::clone(artifact)).collect())
    }

    /// One artifact of the session. Nothing is fetched.
    ///
    /// # Errors
    /// When the session has no artifact of this name.
    pub async fn info(&self, name: &str) -> Result<Artifact, SessionError> {
        let artifacts = self.all().await?;
        let known = || artifacts.iter().map(|artifact| artifact.name.as_str()).take(20).collect::<Vec<_>>();
        let found = artifacts.iter().find(|artifact| artifact.name.as_str() == name);
        found.map(|artifact| Artifact::clone(artifact)).ok_or_else(|| {
            ArtifactError::ArtifactNotFound { name: name.to_owned(), known: known().join(", ") }.into()
        })
    }

    /// Removes an artifact from the session. Tools no longer see it from their next call on. Running readers of it continue.
    ///
    /// # Errors
    /// When the session has no artifact of this name.
    pub async fn unregister(&self, name: &str) -> Result<(), SessionError> {
        let name = ArtifactName::new(name).map_err(ArtifactError::from)?;
        self.session.submit(CommandKind::UnregisterArtifact { name }).await
    }

    /// Removes all artifacts from the session.
    ///
    /// # Errors
    /// When the removal was not recorded.
    pub async fn cleanup(&self) -> Result<(), SessionError> {
        self.session.submit(CommandKind::ClearArtifacts).await
    }

    async fn all(&self) -> Result<Arc<[Arc<Artifact>]>, SessionError> {
        self.session.request(|reply| SessionRequest::ListArtifacts { reply }).await
    }
}
