//! What lies in a sandbox's workspace, asked for page by page, so that no number of files is too many for a frame.

use conjure_guest::protocol::{Reply, Request};

use crate::error::SandboxError;
use crate::executor::CallOptions;
use crate::operation::Pump;
use crate::sandbox::{Sandbox, wrong_reply};
use crate::types::{DirectoryEntry, LeftBehind};

/// How many entries a page has at most; the guest makes it smaller.
const PAGE: u32 = 50_000;

/// A walk through a workspace, which looks at so many entries at most.
#[derive(Debug)]
pub(super) struct Pages {
    place: Place,
    most: usize,
    seen: usize,
}

/// Where the walk is.
#[derive(Debug)]
enum Place {
    Start,
    After(Vec<u8>),
    End,
}

/// Part of what lies there.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Each folder before what lies in it.
    pub(super) entries: Vec<DirectoryEntry>,
    /// What could not be listed.
    pub(super) unlisted: Vec<LeftBehind>,
}

impl Pages {
    pub(super) const fn new(most: usize) -> Self {
        Self { place: Place::Start, most, seen: 0 }
    }

    /// The next page; `None`: that was all.
    pub(super) async fn next(
        &mut self,
        sandbox: &Sandbox,
        options: &CallOptions,
    ) -> Result<Option<Page>, SandboxError> {
        let after = match std::mem::replace(&mut self.place, Place::End) {
            Place::Start => None,
            Place::After(path) => Some(path),
            Place::End => return Ok(None),
        };
        if self.seen >= self.most {
            return Ok(Some(Page { entries: Vec::new(), unlisted: vec![self.too_many(after.as_deref())] }));
        }
        let room = u32::try_from(self.most - self.seen).unwrap_or(PAGE).min(PAGE);
        let request = Request::Walk { path: ".".to_owned(), after, max_entries: room };
        let (entries, unlisted, next) =
            match sandbox.finish(request, 0, Pump::none(), options.clone()).await? {
                (_, Reply::Walk { entries, unlisted, next }, _) => (entries, unlisted, next),
                (call, ..) => return Err(wrong_reply(&call)),
            };
        // A page of nothing is counted, too, so that there is an end.
        self.seen += (entries.len() + unlisted.len()).max(1);
        if let Some(next) = next {
            self.place = Place::After(next);
        }
        let unlisted = unlisted.into_iter().map(|it| LeftBehind { path: it.path, reason: it.reason });
        Ok(Some(Page { entries, unlisted: unlisted.collect() }))
    }

    fn too_many(&self, after: Option<&[u8]>) -> LeftBehind {
        let after = String::from_utf8_lossy(after.unwrap_or_default());
        let reason = format!(
            "the workspace holds more than {} files and folders; what comes after `{after}` in it was not looked at: pack \
             it into one file",
            self.most
        );
        LeftBehind { path: ".".to_owned(), reason }
    }
}
