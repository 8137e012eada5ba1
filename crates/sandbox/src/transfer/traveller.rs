//! What a sandbox must get through its guest, and how it gets there.

use std::path::PathBuf;

use conjure_guest::protocol::{Reply, Request};

use super::parcel;
use super::pieces;
use super::room::Room;
use super::workspace::Workspace;
use crate::error::SandboxError;
use crate::executor::CallOptions;
use crate::operation::Pump;
use crate::provision::{Provision, Shelf};
use crate::sandbox::{Sandbox, wrong_reply};
use crate::types::BroughtBack;

/// What a sandbox that shares no folders with the host must get through its guest before it is used, and what it may get
/// later ([`crate::SandboxGuard::transfer`]). Its greeting names the folder of the shelves, in which `skills` and
/// `artifacts` lie.
#[derive(Debug)]
pub struct Transfer {
    /// What lies on its shelves from the start.
    pub provisions: Vec<Provision>,
    /// The folder of the host whose files the workspace begins with, and where changed ones are brought back to: one that is
    /// the session's alone.
    pub workspace: PathBuf,
    /// How many bytes may lie on the shelves in all.
    pub room: u64,
    /// How many bytes are brought back at a time at most.
    pub bring_back: u64,
}

/// Carries content through the guest of one sandbox.
#[derive(Debug)]
pub(crate) struct Traveller {
    room: Room,
    workspace: Workspace,
}

impl Traveller {
    /// For this sandbox, after it got what it begins with.
    pub(crate) async fn move_in(
        sandbox: &Sandbox,
        transfer: Transfer,
        options: &CallOptions,
    ) -> Result<Self, SandboxError> {
        let Transfer { provisions, workspace, room, bring_back } = transfer;
        let room = Room::new(room);
        for provision in provisions {
            give(sandbox, &room, provision, options.clone()).await?;
        }
        let workspace = Workspace::move_in(sandbox, workspace, bring_back, options).await?;
        Ok(Self { room, workspace })
    }

    /// Puts a content onto a shelf, whole or not at all.
    pub(crate) async fn provide(
        &self,
        sandbox: &Sandbox,
        provision: Provision,
        options: CallOptions,
    ) -> Result<(), SandboxError> {
        give(sandbox, &self.room, provision, options).await
    }

    /// Takes what has this name off a shelf.
    pub(crate) async fn withdraw(
        &self,
        sandbox: &Sandbox,
        shelf: Shelf,
        name: &str,
        options: CallOptions,
    ) -> Result<(), SandboxError> {
        let request = Request::Withdraw { shelf: folder_of(shelf).to_owned(), name: name.to_owned() };
        match sandbox.finish(request, 0, Pump::none(), options).await? {
            (_, Reply::Withdraw { .. }, _) => {
                self.room.leave(shelf, name);
                Ok(())
            }
            (call, ..) => Err(wrong_reply(&call)),
        }
    }

    /// Brings back what was changed in the workspace.
    pub(crate) async fn bring_back(
        &self,
        sandbox: &Sandbox,
        options: &CallOptions,
    ) -> Result<BroughtBack, SandboxError> {
        self.workspace.bring_back(sandbox, options).await
    }

    /// What the model is to be told, once.
    pub(crate) fn take_notice(&self) -> Option<String> {
        self.workspace.take_notice()
    }
}

/// The guest decides: what it has not shown when it is told to stop does not appear, and what it says that it has shown did.
async fn give(
    sandbox: &Sandbox,
    room: &Room,
    provision: Provision,
    options: CallOptions,
) -> Result<(), SandboxError> {
    let measured = provision.clone();
    let doing = format!("give `{}` to the sandbox", provision.name);
    let size = pieces::blocking(doing, move || parcel::size(&measured)).await?;
    let (shelf, name) = (provision.shelf, provision.name.clone());
    let taken = room.take(size, &name)?;
    let request = Request::Provide {
        shelf: folder_of(provision.shelf).to_owned(),
        name: provision.name.clone(),
        kind: parcel::kind(&provision),
    };
    match sandbox.finish(request, 0, Pump::of(parcel::parcel(provision)), options).await? {
        (_, Reply::Provide { .. }, _) => {
            taken.keep(shelf, name);
            Ok(())
        }
        (call, ..) => Err(wrong_reply(&call)),
    }
}

/// The folder of a shelf among those that the guest fills.
pub(crate) const fn folder_of(shelf: Shelf) -> &'static str {
    match shelf {
        Shelf::Skills => "skills",
        Shelf::Artifacts => "artifacts",
    }
}
