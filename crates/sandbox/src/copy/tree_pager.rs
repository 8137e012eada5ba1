//! [`TreePager`]: lists the workspace of a sandbox in pages, each of which fits into a frame. The number of files is
//! not limited by the frame size.

use conjure_guest::protocol::{Reply, Request};

use crate::calls::call_options::CallOptions;
use crate::calls::files::{DirectoryEntry, SkippedFile};
use crate::calls::guest_ops::ContentSender;
use crate::error::SandboxError;
use crate::guest_connection::{GuestConnection, wrong_reply};

/// The maximum number of entries of a page. The guest may send fewer.
const PAGE: u32 = 50_000;

/// A walk through a workspace, up to a maximum number of entries.
#[derive(Debug)]
pub(super) struct TreePager {
    cursor: PageCursor,
    max_entries: usize,
    seen: usize,
}

/// The position of the walk.
#[derive(Debug)]
enum PageCursor {
    Start,
    After(Vec<u8>),
    End,
}

/// A part of the workspace.
#[derive(Debug, Default)]
pub(super) struct TreePage {
    /// Each directory comes before its entries.
    pub(super) entries: Vec<DirectoryEntry>,
    /// The entries that could not be listed.
    pub(super) unlisted: Vec<SkippedFile>,
}

impl TreePager {
    pub(super) const fn new(max_entries: usize) -> Self {
        Self { cursor: PageCursor::Start, max_entries, seen: 0 }
    }

    /// The next page; `None` after the last.
    pub(super) async fn next(
        &mut self,
        guest: &GuestConnection,
        options: &CallOptions,
    ) -> Result<Option<TreePage>, SandboxError> {
        let after = match std::mem::replace(&mut self.cursor, PageCursor::End) {
            PageCursor::Start => None,
            PageCursor::After(path) => Some(path),
            PageCursor::End => return Ok(None),
        };
        if self.seen >= self.max_entries {
            return Ok(Some(TreePage {
                entries: Vec::new(),
                unlisted: vec![self.too_many(after.as_deref())],
            }));
        }
        let room = u32::try_from(self.max_entries - self.seen).unwrap_or(PAGE).min(PAGE);
        let request = Request::Walk { path: ".".to_owned(), after, max_entries: room };
        let (entries, unlisted, next) =
            match guest.finish(request, 0, ContentSender::none(), options.clone()).await? {
                (_, Reply::Walk { entries, unlisted, next }, _) => (entries, unlisted, next),
                (call, ..) => return Err(wrong_reply(&call)),
            };
        // An empty page counts too, so that the walk ends.
        self.seen += (entries.len() + unlisted.len()).max(1);
        if let Some(next) = next {
            self.cursor = PageCursor::After(next);
        }
        let unlisted = unlisted.into_iter().map(|it| SkippedFile { path: it.path, reason: it.reason });
        Ok(Some(TreePage { entries, unlisted: unlisted.collect() }))
    }

    fn too_many(&self, after: Option<&[u8]>) -> SkippedFile {
        let after = String::from_utf8_lossy(after.unwrap_or_default());
        let reason = format!(
            "the workspace holds more than {} files and directories; what comes after `{after}` in it was not looked at: pack \
             it into one file",
            self.max_entries
        );
        SkippedFile { path: ".".to_owned(), reason }
    }
}
