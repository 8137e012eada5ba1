//! The requests to a session's artifact registry.

use conjure_artifact::{ArtifactUri, OutputContent, Registration, RegistrationSource, ResolvedReference};
use conjure_base::Deadline;
use conjure_conversation::{Artifact, SessionFile};

use crate::session::{ReplyTo, SessionError};

/// A slow request about a session's artifacts.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArtifactRequest {
    /// Registers an artifact.
    Register {
        /// The artifact.
        registration: Box<Registration>,
        /// Answered with the recorded artifact.
        reply: ReplyTo<Artifact>,
    },
    /// Resolves a reference.
    Resolve {
        /// The reference.
        uri: ArtifactUri,
        /// Answered with the resolved reference.
        reply: ReplyTo<ResolvedReference>,
    },
    /// Opens the content of a reference.
    Open {
        /// The reference.
        uri: ArtifactUri,
        /// Answered with the content.
        reply: ReplyTo<OutputContent>,
    },
    /// Copies a produced file into the tenant's store, so that other sessions can have it.
    Store {
        /// The file.
        file: Box<SessionFile>,
        /// Its content.
        content: Box<OutputContent>,
        /// Answered with the source of an artifact.
        reply: ReplyTo<RegistrationSource>,
    },
}

impl ArtifactRequest {
    /// Answers the request with an error instead of carrying it out.
    pub(crate) fn reject(self, error: SessionError) {
        match self {
            Self::Register { reply, .. } => reply.send(Err(error)),
            Self::Resolve { reply, .. } => reply.send(Err(error)),
            Self::Open { reply, .. } => reply.send(Err(error)),
            Self::Store { reply, .. } => reply.send(Err(error)),
        }
    }

    /// The time until which the caller waits.
    pub(crate) const fn deadline(&self) -> Deadline {
        match self {
            Self::Register { reply, .. } => reply.deadline(),
            Self::Resolve { reply, .. } => reply.deadline(),
            Self::Open { reply, .. } => reply.deadline(),
            Self::Store { reply, .. } => reply.deadline(),
        }
    }
}
