//! What is asked of a session's registry of artifacts.

use conjure_artifact::{ArtifactUri, OutputContent, Registration, RegistrationSource, ResolvedReference};
use conjure_base::Deadline;
use conjure_conversation::{Artifact, SessionFile};

use crate::session::{ReplyTo, SessionError};

/// What a host asks of a session's artifacts and takes longer than a moment.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArtifactRequest {
    /// The session is to have this artifact.
    Register {
        /// Which.
        registration: Box<Registration>,
        /// Told what was recorded.
        reply: ReplyTo<Artifact>,
    },
    /// What does this reference stand for?
    Resolve {
        /// The reference.
        uri: ArtifactUri,
        /// Told.
        reply: ReplyTo<ResolvedReference>,
    },
    /// The bytes of what a reference stands for are wanted.
    Open {
        /// The reference.
        uri: ArtifactUri,
        /// Given them.
        reply: ReplyTo<OutputContent>,
    },
    /// A file that the session produced is to be a content of its tenant's store, for other sessions to be given.
    Store {
        /// Which, and its bytes.
        file: Box<SessionFile>,
        /// Where it is read.
        content: Box<OutputContent>,
        /// Given the source of an artifact.
        reply: ReplyTo<RegistrationSource>,
    },
}

impl ArtifactRequest {
    /// Answers a request that is not carried out.
    pub(crate) fn reject(self, error: SessionError) {
        match self {
            Self::Register { reply, .. } => reply.send(Err(error)),
            Self::Resolve { reply, .. } => reply.send(Err(error)),
            Self::Open { reply, .. } => reply.send(Err(error)),
            Self::Store { reply, .. } => reply.send(Err(error)),
        }
    }

    /// Until when somebody waits for the answer.
    pub(crate) const fn deadline(&self) -> Deadline {
        match self {
            Self::Register { reply, .. } => reply.deadline(),
            Self::Resolve { reply, .. } => reply.deadline(),
            Self::Open { reply, .. } => reply.deadline(),
            Self::Store { reply, .. } => reply.deadline(),
        }
    }
}
