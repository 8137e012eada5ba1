//! HTTP versions, and how the end of a message's body is known.

/// The HTTP version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// The message has no body.
    None,
    /// By the size in bytes.
    Exact(u64),
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}
