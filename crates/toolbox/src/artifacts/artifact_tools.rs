//! [`ArtifactTools`]: the resolver and the installed artifacts of a session.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{ArtifactUri, ReferenceResolver, UrlFetch, content_type_of};
use conjure_prompt::{ArtifactAccess, ArtifactPrompt, ContainerFiles, UrlReferences};
use conjure_sandbox::{ArtifactDir, Layout};

use super::installed_artifacts::InstalledArtifacts;

/// The artifacts of a session, for its tools. Clones share the table of installed artifacts. So use one instance for each sandbox;
/// the sandbox's replacements use it too.
#[derive(Clone)]
pub struct ArtifactTools {
    pub(super) resolver: ReferenceResolver,
    pub(super) installed: Arc<InstalledArtifacts>,
}

impl ArtifactTools {
    /// Creates the tools with this resolver.
    #[must_use]
    pub fn new(resolver: ReferenceResolver) -> Self {
        Self { resolver, installed: Arc::default() }
    }

    /// How the prompt describes references (`PromptOptions::artifacts`). `layout` is `None` without a sandbox. An embedder that uploads
    /// artifacts to the model's service sets `container` itself.
    #[must_use]
    pub fn prompt(&self, layout: Option<&Layout>) -> ArtifactPrompt {
        ArtifactPrompt {
            access: match layout.map(|layout| &layout.artifacts) {
                None | Some(ArtifactDir::None) => ArtifactAccess::ToolsOnly,
                Some(ArtifactDir::Fixed(dir)) => ArtifactAccess::Directory(dir.clone()),
                Some(ArtifactDir::PerSandbox) => ArtifactAccess::EnvironmentVariables,
            },
            container_files: ContainerFiles::None,
            url_references: match self.resolver.url_fetch() {
                UrlFetch::On => UrlReferences::Fetched,
                UrlFetch::Off => UrlReferences::Refused,
            },
            media_type: |name| content_type_of(name, b""),
        }
    }
}

/// Shows the tenant only.
impl fmt::Debug for ArtifactTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactTools").field("tenant", self.resolver.tenant()).finish_non_exhaustive()
    }
}

/// Whether a text is a URL reference.
pub(crate) fn is_url(text: &str) -> bool {
    ArtifactUri::is_reference(text) && text.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"))
}
