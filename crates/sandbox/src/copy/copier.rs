//! [`GuestCopier`]: copies content and the workspace through the guest, by a [`CopyPlan`].

use std::path::PathBuf;
use std::sync::Arc;

use conjure_fs::run_blocking;
use conjure_guest::protocol::{Reply, Request};

use super::content_archive;
use super::space_budget::SpaceBudget;
use super::workspace::WorkspaceCopy;
use crate::calls::call_options::CallOptions;
use crate::calls::files::CopyOutReport;
use crate::calls::guest_ops::ContentSender;
use crate::content::{ContentDir, ContentItem};
use crate::error::SandboxError;
use crate::guest_connection::{GuestConnection, wrong_reply};

/// What to copy through the guest, for a sandbox that shares no directories with the host
/// ([`crate::SandboxGuard::copy_plan`]). Some content is copied before the first call, and some later. The greeting
/// names the directory that contains `skills` and `artifacts`.
#[derive(Debug)]
pub struct CopyPlan {
    /// The content to install at the start.
    pub items: Vec<ContentItem>,
    /// The host directory that is copied into the workspace at the start, and that changes are copied out to. It
    /// belongs to the session alone.
    pub workspace: PathBuf,
    /// The maximum size of installed content in bytes.
    pub content_max_bytes: u64,
    /// The maximum size of one copy out in bytes.
    pub copy_out_max_bytes: u64,
}

/// Copies content through the guest of one sandbox.
#[derive(Debug)]
pub(crate) struct GuestCopier {
    guest: Arc<GuestConnection>,
    space: SpaceBudget,
    workspace: WorkspaceCopy,
}

impl GuestCopier {
    /// Copies the planned content into a new sandbox.
    pub(crate) async fn copy_in(
        guest: Arc<GuestConnection>,
        plan: CopyPlan,
        options: &CallOptions,
    ) -> Result<Self, SandboxError> {
        let CopyPlan { items, workspace, content_max_bytes, copy_out_max_bytes } = plan;
        let space = SpaceBudget::new(content_max_bytes);
        for item in items {
            send_item(&guest, &space, item, options.clone()).await?;
        }
        let workspace = WorkspaceCopy::copy_in(&guest, workspace, copy_out_max_bytes, options).await?;
        Ok(Self { guest, space, workspace })
    }

    /// Installs an item completely or not at all.
    pub(crate) async fn install(&self, item: ContentItem, options: CallOptions) -> Result<(), SandboxError> {
        send_item(&self.guest, &self.space, item, options).await
    }

    /// Removes the entry of this name.
    pub(crate) async fn remove(
        &self,
        content_dir: ContentDir,
        name: &str,
        options: CallOptions,
    ) -> Result<(), SandboxError> {
        let request =
            Request::Remove { content_dir: content_dir_name(content_dir).to_owned(), name: name.to_owned() };
        match self.guest.finish(request, 0, ContentSender::none(), options).await? {
            (_, Reply::Remove { .. }, _) => {
                self.space.release(content_dir, name);
                Ok(())
            }
            (call, ..) => Err(wrong_reply(&call)),
        }
    }

    /// Copies the changes of the workspace out.
    pub(crate) async fn copy_out(&self, options: &CallOptions) -> Result<CopyOutReport, SandboxError> {
        self.workspace.copy_out(&self.guest, options).await
    }

    /// Takes the notice for the model. Each notice is returned once.
    pub(crate) fn take_model_notice(&self) -> Option<String> {
        self.workspace.take_model_notice()
    }
}

/// Sends an item to the guest, which decides about the commit. After a cancel the item does not appear. An item that
/// the guest confirms has appeared.
async fn send_item(
    guest: &GuestConnection,
    space: &SpaceBudget,
    item: ContentItem,
    options: CallOptions,
) -> Result<(), SandboxError> {
    let measured = item.clone();
    let size = run_blocking(move || content_archive::size(&measured)).await??;
    let (content_dir, name) = (item.dir, item.name.clone());
    let grant = space.reserve(size, &name)?;
    let request = Request::Install {
        content_dir: content_dir_name(item.dir).to_owned(),
        name: item.name.clone(),
        kind: content_archive::kind(&item),
    };
    match guest
        .finish(request, 0, ContentSender::from_stream(content_archive::write_archive(item)), options)
        .await?
    {
        (_, Reply::Install { .. }, _) => {
            grant.keep(content_dir, name);
            Ok(())
        }
        (call, ..) => Err(wrong_reply(&call)),
    }
}

/// The directory name that the guest uses for a content directory.
pub(crate) const fn content_dir_name(content_dir: ContentDir) -> &'static str {
    match content_dir {
        ContentDir::Skills => "skills",
        ContentDir::Artifacts => "artifacts",
    }
}
