//! [`InstalledContent`]: the index of the content that one running sandbox has.
//!
//! Changes run one at a time. An interrupted change leaves its entry *uncertain*, and the next change of that name
//! removes the entry first. So the index never names content that the sandbox does not have, and the same content is
//! installed once.
//!
//! State: the names and their content, in memory. It ends with the sandbox, as the content directories do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use conjure_base::Digest;
use conjure_store::FileMode;
use tokio::sync::Mutex;

use crate::content::{ContentDir, ItemContent};
use crate::settings::context::ExecutionContext;

/// The content of one sandbox by directory and name.
#[derive(Debug)]
pub(crate) struct InstalledContent(pub(crate) Mutex<Names>);

pub(crate) type Names = BTreeMap<(ContentDir, String), EntryState>;

/// The state of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// The sandbox was created with it.
    Initial,
    /// It was installed while the sandbox runs, at this path.
    Installed(ContentIdentity, PathBuf),
    /// A change of it was interrupted.
    Uncertain,
}

/// Identifies content independently of its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContentIdentity {
    File(Digest, FileMode),
    Tree(Digest),
}

impl ContentIdentity {
    pub(crate) fn from_content(content: &ItemContent) -> Self {
        match content {
            ItemContent::File { digest, mode } => Self::File(*digest, *mode),
            ItemContent::Tree(tree) => Self::Tree(*tree.digest()),
        }
    }
}

impl InstalledContent {
    /// The index of a sandbox that is created for this context.
    pub(crate) fn for_context(context: &ExecutionContext) -> Self {
        let named = |target: &PathBuf| {
            let dir = ContentDir::ALL.into_iter().find(|dir| target.parent() == Some(dir.path().as_ref()))?;
            Some((dir, target.file_name()?.to_str()?.to_owned()))
        };
        let names = context.read_only.iter().filter_map(|shared| named(&shared.target));
        Self(Mutex::new(names.map(|name| (name, EntryState::Initial)).collect()))
    }
}
