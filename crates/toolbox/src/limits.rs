//! The size limits of tool inputs and results.

/// The size limits of results and inputs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Text of a `bash_tool` result, notices included. At most 2 MiB.
    pub shell: usize,
    /// Text of a `view` result, notices included.
    pub view: usize,
    /// Text of any result.
    pub text: usize,
    /// An image after base64 encoding. All images of one result together may have four times as much.
    pub image: usize,
    /// Output of a command that is written to a file in the sandbox if it does not fit; 0 disables that.
    pub spill: u64,
    /// The JSON of a call's input.
    pub input: usize,
}

/// 100 KiB of shell output, 256 KiB of text, images of 5 MiB, 64 MiB of output kept in a file, 16 MiB of input.
impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            shell: 100 * 1024,
            view: 256 * 1024,
            text: 256 * 1024,
            image: 5 * 1024 * 1024,
            spill: 64 * 1024 * 1024,
            input: 16 * 1024 * 1024,
        }
    }
}

impl OutputLimits {
    /// The maximum number of bytes of an image before base64 encoding.
    pub(crate) const fn max_image_bytes(&self) -> u64 {
        (self.image / 4 * 3) as u64
    }

    /// The maximum size of a document in bytes after base64 encoding: twice that of an image.
    pub(crate) const fn document(&self) -> usize {
        self.image.saturating_mul(2)
    }

    /// The maximum number of bytes of a document before base64 encoding.
    pub(crate) const fn max_document_bytes(&self) -> u64 {
        (self.document() / 4 * 3) as u64
    }
}
