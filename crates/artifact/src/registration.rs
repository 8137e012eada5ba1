//! The registration of an artifact: its name and the source of its bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use conjure_conversation::ArtifactName;
use conjure_store::Store;
use serde_json::Value;

use conjure_base::Digest;

/// Where the bytes of a new artifact come from.
#[derive(Clone)]
#[non_exhaustive]
pub enum RegistrationSource {
    /// A file of this machine. Registering it copies its bytes into the store (by sharing blocks where the file system supports it), so
    /// later changes of the file have no effect.
    File {
        /// Its path.
        path: PathBuf,
    },
    /// As `File`, for a path that contains no symbolic links. If it contains one when the file is opened, that is an error: a tool may
    /// have created it.
    RealFile {
        /// Its path.
        path: PathBuf,
    },
    /// A URL. It is fetched on first use, never when it is registered.
    Url(String),
    /// These bytes.
    Content {
        /// The bytes.
        bytes: Bytes,
        /// The media type; `None`: detected from name and bytes.
        content_type: Option<String>,
    },
    /// Content of a store, for example an output of another session of the tenant. It is linked if both stores are on one file system,
    /// else copied.
    Stored {
        /// The store.
        store: Store,
        /// The digest.
        digest: Digest,
        /// The media type, if known.
        content_type: Option<String>,
    },
}

impl RegistrationSource {
    /// The file at this path.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into() }
    }

    /// The file at this path, which contains no symbolic links.
    pub fn real_file(path: impl Into<PathBuf>) -> Self {
        Self::RealFile { path: path.into() }
    }

    /// A URL.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url(url.into())
    }

    /// Bytes of this media type.
    pub fn content(bytes: impl Into<Bytes>, content_type: impl Into<String>) -> Self {
        Self::Content { bytes: bytes.into(), content_type: Some(content_type.into()) }
    }

    /// Content of a store of the same tenant, with this media type.
    pub fn stored(store: &Store, digest: Digest, content_type: impl Into<String>) -> Self {
        Self::Stored { store: store.clone(), digest, content_type: Some(content_type.into()) }
    }
}

/// Omits the bytes, which belong to the user.
impl fmt::Debug for RegistrationSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path } => f.debug_struct("File").field("path", path).finish(),
            Self::RealFile { path } => f.debug_struct("RealFile").field("path", path).finish(),
            Self::Url(_) => f.write_str("Url(…)"),
            Self::Content { bytes, content_type } => f
                .debug_struct("Content")
                .field("size", &bytes.len())
                .field("content_type", content_type)
                .finish(),
            Self::Stored { digest, .. } => {
                f.debug_struct("Stored").field("digest", digest).finish_non_exhaustive()
            }
        }
    }
}

/// A request to register an artifact.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The artifact's name.
    pub name: ArtifactName,
    /// The source of its bytes.
    pub source: RegistrationSource,
    /// The media type; `None`: the source's, else detected from name and bytes.
    pub content_type: Option<String>,
    /// The embedder's own metadata, at most 4 KiB as JSON. The model does not see it.
    pub metadata: BTreeMap<String, Value>,
}

impl Registration {
    /// Creates a registration without metadata, with a detected media type.
    #[must_use]
    pub fn new(name: ArtifactName, source: RegistrationSource) -> Self {
        Self { name, source, content_type: None, metadata: BTreeMap::new() }
    }
}
