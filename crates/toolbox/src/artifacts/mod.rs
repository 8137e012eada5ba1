//! Artifacts in tool calls (ADR-0018, sections 5 and 6): references in inputs are resolved before a call runs, and commands find the
//! session's artifacts where the sandbox has them.
//!
//! - Only an input that is a path may be a reference, and only as a whole: `view.path`, `skills.read.path`, each argument of
//!   `skills.run_script`, and what a host's tool declares ([`Tool::path_inputs`](crate::Tool::path_inputs)). A URL in a command or in a
//!   file's text is text. What writes takes no reference: artifacts are read-only.
//! - A reference that leads nowhere is an error result that names the input and the reason. Nothing of the call was done then.
//! - Whoever approves calls sees the input as the model wrote it, before anything is resolved. No grant and no
//!   skill's `allowed-tools` speaks for a call that fetches a URL which the model has written: whoever approves does, each time.
//! - Before each command, and before each view, all artifacts whose content is known are put on the sandbox's shelf, and commands have
//!   their paths in variables. What was unregistered is taken off before the next.
//!
//! State: which names were put on the shelf, in memory beside the toolbox, which lives no longer than the sandbox does. A sandbox that
//! takes the place of another one gets them from whoever supervises it, and is asked anew here each time. A crash loses nothing: the
//! session's record says which artifacts there are.

mod failure;
mod gathering;
mod shelf;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_artifact::{ArtifactUri, Resolver, UrlFetch, content_type_of};
use conjure_prompt::{ArtifactAccess, ArtifactPrompt, ContainerFiles, UrlReferences};
use conjure_sandbox::{ArtifactFolder, Layout};

pub(crate) use gathering::{Gathering, Refused};
use shelf::Shelf;

/// The artifacts of a session, for its tools. Clones share what is known of the sandbox's shelf: one is for one sandbox, over all its
/// replacements.
#[derive(Clone)]
pub struct ArtifactTools {
    resolver: Resolver,
    shelf: Arc<Shelf>,
}

impl ArtifactTools {
    /// References are resolved so.
    #[must_use]
    pub fn new(resolver: Resolver) -> Self {
        Self { resolver, shelf: Arc::default() }
    }

    /// What is true of references in a session whose sandbox has things there; `None`: it has no sandbox. For the prompt
    /// (`PromptOptions::artifacts`), where a host that uploads them says so.
    #[must_use]
    pub fn prompt(&self, layout: Option<&Layout>) -> ArtifactPrompt {
        ArtifactPrompt {
            commands: match layout.map(|layout| &layout.artifacts) {
                None | Some(ArtifactFolder::Nowhere) => ArtifactAccess::ToolsOnly,
                Some(ArtifactFolder::At(folder)) => ArtifactAccess::Folder(folder.clone()),
                Some(ArtifactFolder::PerSandbox) => ArtifactAccess::Variables,
            },
            container: ContainerFiles::None,
            urls: match self.resolver.url_fetch() {
                UrlFetch::On => UrlReferences::Fetched,
                UrlFetch::Off => UrlReferences::Refused,
            },
            media_type: |name| content_type_of(name, b""),
        }
    }
}

/// Without what the resolver holds.
impl fmt::Debug for ArtifactTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactTools").field("tenant", self.resolver.tenant()).finish_non_exhaustive()
    }
}

/// Whether a text is a reference to what must be fetched.
pub(crate) fn is_url(text: &str) -> bool {
    ArtifactUri::is_reference(text) && text.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"))
}

/// A path as an input of a tool.
fn text_of(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
