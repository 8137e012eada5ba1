//! [`reply_methods`](crate::reply_methods): the methods that the reply types of all services share.

/// Adds the methods that every service has to a service's reply type.
///
/// Each service needs its own reply type, because it has methods of its own (`Reply::parts`), and a crate cannot add methods to a type of
/// another crate. So each type wraps a [`FakeReply`](crate::fake::FakeReply), and this macro writes the shared methods.
#[macro_export]
macro_rules! reply_methods {
    ($reply:ident, $answer:ty, $error:ty) => {
        impl From<$reply> for $crate::fake::FakeReply<$answer, $error> {
            fn from(reply: $reply) -> Self {
                reply.0
            }
        }

        impl $reply {
            /// Creates an answer of the model. A missing `id` or `model` is generated. Blocks that the service does not have are left out.
            #[must_use]
            pub fn answer(response: conjure_conversation::Response) -> Self {
                Self($crate::fake::FakeReply::response(response))
            }

            /// Creates an answer of these blocks. It stops for its tool calls if it has any.
            #[must_use]
            pub fn blocks(content: Vec<conjure_conversation::Block>) -> Self {
                Self::answer($crate::fake::response_of(content))
            }

            /// Creates an error in place of an answer.
            #[must_use]
            pub fn error(error: $error) -> Self {
                Self($crate::fake::FakeReply::new($crate::fake::ReplyBody::Error(error)))
            }

            /// Creates a reply of raw bytes.
            #[must_use]
            pub fn raw(status: u16, content_type: impl Into<String>, body: impl Into<bytes::Bytes>) -> Self {
                Self($crate::fake::FakeReply::raw(status, content_type, body))
            }

            /// Creates a stream of these bytes.
            #[must_use]
            pub fn stream(body: impl Into<bytes::Bytes>) -> Self {
                Self::raw(200, "text/event-stream", body)
            }

            /// Creates an HTML page, as a proxy might return it.
            #[must_use]
            pub fn html(status: u16) -> Self {
                Self($crate::fake::FakeReply::html(status))
            }

            /// Creates a reply with status 200 and an empty body.
            #[must_use]
            pub fn empty() -> Self {
                let body = bytes::Bytes::new();
                let raw = $crate::fake::ReplyBody::Raw { status: 200, content_type: None, body };
                Self($crate::fake::FakeReply::new(raw))
            }

            /// Creates a reply that never responds and keeps the connection open.
            #[must_use]
            pub fn silence() -> Self {
                Self($crate::fake::FakeReply::new($crate::fake::ReplyBody::Silence))
            }

            /// Creates a reply that closes the connection without a response.
            #[must_use]
            pub fn hang_up() -> Self {
                Self($crate::fake::FakeReply::new($crate::fake::ReplyBody::HangUp))
            }

            /// Sets the maximum number of pieces of each text; 4 by default.
            #[must_use]
            pub fn with_pieces(mut self, pieces: usize) -> Self {
                if let Some(answer) = self.0.answer_mut() {
                    $crate::fake::WireAnswer::split_into(answer, pieces);
                }
                self
            }

            /// Adds a header: `retry-after` (seconds or a date), `retry-after-ms`, `x-should-retry`, …
            #[must_use]
            pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.0.headers.push((name.into(), value.into()));
                self
            }

            /// Sends the body in chunks of this many bytes, which may end within events and within characters.
            #[must_use]
            pub const fn with_chunk_size(mut self, bytes: usize) -> Self {
                self.0.pacing.piece = Some(bytes);
                self
            }

            /// Closes the connection after this many bytes of the body.
            #[must_use]
            pub const fn cut_after_bytes(mut self, after: usize) -> Self {
                self.0.pacing.cut = Some(after);
                self
            }
        }
    };
}
