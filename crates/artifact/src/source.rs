//! What a session is to be given.

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
pub enum Source {
    /// A file of the host's, as it is now. Its bytes are taken into the store when it is registered, by sharing its blocks where the file
    /// system can, else by copying; what becomes of the file later changes nothing. With [`Keep::Frozen`] it is only linked.
    File {
        /// Its path.
        path: PathBuf,
        /// How it is kept.
        keep: Keep,
    },
    /// A URL, fetched when somebody first wants what it leads to, never when it is registered.
    Url(String),
    /// These bytes.
    Content {
        /// The bytes.
        bytes: Bytes,
        /// Their media type; none: by the name, and by the bytes.
        content_type: Option<String>,
    },
    /// A content of a store: what another session of the same tenant produced, or was given. Linked where both stores lie on one file
    /// system, else copied.
    Stored {
        /// The store.
        store: Store,
        /// The digest.
        digest: Digest,
        /// The media type, where it is known.
        content_type: Option<String>,
    },
}

/// How the bytes of a file are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// By themselves: nobody who has the file can change them.
    #[default]
    Copied,
    /// As a further link to the same file, where its file system and its permissions let it be, at no cost but that of reading it once: the
    /// host promises that nobody changes it in place any more. A change that shows is an error at the next use.
    Frozen,
}

impl Source {
    /// The file at this path, as it is now.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), keep: Keep::Copied }
    }

    /// The file at this path, which nobody changes any more.
    pub fn frozen_file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), keep: Keep::Frozen }
    }

    /// This URL.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url(url.into())
    }

    /// These bytes, of this media type.
    pub fn content(bytes: impl Into<Bytes>, content_type: impl Into<String>) -> Self {
        Self::Content { bytes: bytes.into(), content_type: Some(content_type.into()) }
    }

    /// What a store of the same tenant has under this digest, of this media type.
    pub fn stored(store: &Store, digest: Digest, content_type: impl Into<String>) -> Self {
        Self::Stored { store: store.clone(), digest, content_type: Some(content_type.into()) }
    }
}

/// Without the bytes: they are the user's.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, keep } => {
                f.debug_struct("File").field("path", path).field("keep", keep).finish()
            }
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

/// An artifact that is to be registered.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Under which name.
    pub name: ArtifactName,
    /// Where its bytes come from.
    pub source: Source,
    /// Its media type; none: what the source says, else by the name, and by the bytes.
    pub content_type: Option<String>,
    /// What the host says of it; at most 4 KiB as JSON. The model is not shown it.
    pub metadata: BTreeMap<String, Value>,
}

impl Registration {
    /// An artifact without metadata, of the media type that shows.
    #[must_use]
    pub fn new(name: ArtifactName, source: Source) -> Self {
        Self { name, source, content_type: None, metadata: BTreeMap::new() }
    }
}
