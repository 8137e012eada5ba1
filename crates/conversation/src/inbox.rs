//! What reaches a turn from outside while it runs: posts, each acknowledged once.
//!
//! A post owns what its sender is told. However it ends (recorded, refused, left over when the turn ended, lost with a
//! driver that was dropped), its sender hears exactly one [`Receipt`].

use std::fmt;

use crate::command::{ArtifactChange, CommandKind, Rejection};
use crate::content::Block;
use crate::conversation::{Conversation, SubmitError};
use crate::ledger::LedgerError;
use crate::limits::Limits;
use crate::queue::QueueId;

/// What a post is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostKind {
    /// A part of the turn that runs: the model reads it after the next results.
    Steer,
    /// A turn of its own, after this one and those that were queued before.
    Queue,
    /// A change of the session's artifacts: the next request and the next call see it.
    Artifacts,
}

/// What became of a post.
#[derive(Debug, Clone, PartialEq)]
pub enum Receipt {
    /// The turn that runs has it, recorded at this sequence number.
    Steered {
        /// Where it is recorded.
        seq: u64,
    },
    /// It waits for its turn, recorded at this sequence number.
    Queued {
        /// Its place in the queue.
        id: QueueId,
        /// Where it is recorded.
        seq: u64,
    },
    /// It is recorded.
    Recorded,
    /// The machine refused it.
    Refused(Rejection),
    /// The ledger failed: whether it was recorded is not known.
    Failed(LedgerError),
    /// Nobody took it: no turn runs any more. Here it is again; nothing, of a change of artifacts.
    NotTaken(Vec<Block>),
    /// Whoever was recording it is gone: whether it was recorded is not known.
    Unknown,
}

type Acknowledge = Box<dyn FnOnce(Receipt) + Send>;

/// Something that the user adds while a turn runs, and who is told what becomes of it.
pub struct Post {
    kind: PostKind,
    /// What its turn may consume, should it become one.
    limits: Option<Limits>,
    /// How many may wait for their turn, this one among them.
    most: usize,
    fate: Fate,
    acknowledge: Option<Acknowledge>,
}

enum Fate {
    Waiting(Content),
    Submitted,
}

enum Content {
    Input(Vec<Block>),
    Change(ArtifactChange),
}

impl Post {
    /// A post whose sender is told by `acknowledge`, once. That must return at once.
    pub fn new(
        kind: PostKind,
        input: Vec<Block>,
        acknowledge: impl FnOnce(Receipt) + Send + 'static,
    ) -> Self {
        Self::of(kind, Content::Input(input), acknowledge)
    }

    /// A change of the session's artifacts, of [`PostKind::Artifacts`].
    pub fn artifacts(change: ArtifactChange, acknowledge: impl FnOnce(Receipt) + Send + 'static) -> Self {
        Self::of(PostKind::Artifacts, Content::Change(change), acknowledge)
    }

    fn of(kind: PostKind, content: Content, acknowledge: impl FnOnce(Receipt) + Send + 'static) -> Self {
        let (fate, acknowledge) = (Fate::Waiting(content), Some(Box::new(acknowledge) as Acknowledge));
        Self { kind, limits: None, most: usize::MAX, fate, acknowledge }
    }

    /// The same with what its turn may consume, for [`PostKind::Queue`].
    #[must_use]
    pub fn within(mut self, limits: Option<Limits>) -> Self {
        self.limits = limits;
        self
    }

    /// The same where no more than so many may wait for their turn, for [`PostKind::Queue`].
    #[must_use]
    pub const fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// What it is to become.
    #[must_use]
    pub const fn kind(&self) -> PostKind {
        self.kind
    }

    /// Submits it and tells its sender. Where no turn runs, what was to steer one goes back.
    ///
    /// # Errors
    /// When the ledger fails.
    pub async fn submit(mut self, conversation: &mut Conversation) -> Result<(), LedgerError> {
        if self.kind == PostKind::Steer && conversation.state().turn().is_none() {
            return Ok(());
        }
        let Fate::Waiting(content) = std::mem::replace(&mut self.fate, Fate::Submitted) else {
            return Ok(());
        };
        if self.kind == PostKind::Queue && conversation.state().queue().len() >= self.most {
            self.tell(Receipt::Refused(Rejection::QueueFull { limit: self.most }));
            return Ok(());
        }
        let command = match (content, self.kind) {
            (Content::Change(change), _) => change.into(),
            (Content::Input(input), PostKind::Queue) => {
                CommandKind::Queue { input, limits: self.limits.take() }
            }
            (Content::Input(input), _) => CommandKind::Steer { input },
        };
        match conversation.submit(command).await {
            Ok(()) => {
                let seq = conversation.seq().saturating_sub(1);
                let last = conversation.state().queue().last();
                self.tell(match (self.kind, last) {
                    (PostKind::Artifacts, _) => Receipt::Recorded,
                    (PostKind::Queue, Some(queued)) => Receipt::Queued { id: queued.id, seq },
                    _ => Receipt::Steered { seq },
                });
                Ok(())
            }
            Err(SubmitError::Rejected(rejection)) => {
                self.tell(Receipt::Refused(rejection));
                Ok(())
            }
            Err(SubmitError::Ledger(error)) => {
                self.tell(Receipt::Failed(error.clone()));
                Err(error)
            }
        }
    }

    /// Tells its sender that the ledger has failed.
    pub fn fail(mut self, error: LedgerError) {
        self.fate = Fate::Submitted;
        self.tell(Receipt::Failed(error));
    }

    fn tell(&mut self, receipt: Receipt) {
        if let Some(acknowledge) = self.acknowledge.take() {
            acknowledge(receipt);
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        let receipt = match std::mem::replace(&mut self.fate, Fate::Submitted) {
            Fate::Waiting(Content::Input(input)) => Receipt::NotTaken(input),
            Fate::Waiting(Content::Change(_)) => Receipt::NotTaken(Vec::new()),
            Fate::Submitted => Receipt::Unknown,
        };
        self.tell(receipt);
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("kind", &self.kind).finish_non_exhaustive()
    }
}
