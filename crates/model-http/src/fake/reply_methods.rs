//! [`reply_methods`](crate::reply_methods): the methods that the replies of all services have.

/// Gives the type of a service's replies the methods that are the same for every service.
///
/// A type of another crate can have no methods, and each service has some of its own (`Reply::parts`). So each service has a type around a
/// [`FakeReply`](crate::fake::FakeReply), and this macro writes what these types share.
#[macro_export]
macro_rules! reply_methods {
    ($reply:ident, $answer:ty, $error:ty) => {
        impl From<$reply> for $crate::fake::FakeReply<$answer, $error> {
            fn from(reply: $reply) -> Self {
                reply.0
            }
        }

        impl $reply {
            /// A model's answer. A missing `id` or `model` is generated. Blocks that the service has not are left out.
            #[must_use]
            pub fn answer(response: conjure_conversation::Response) -> Self {
                Self($crate::fake::FakeReply::response(response))
            }

            /// An answer of these blocks. It stops for its tool calls if it has any.
            #[must_use]
            pub fn blocks(content: Vec<conjure_conversation::Block>) -> Self {
                Self::answer($crate::fake::response_of(content))
            }

            /// An error instead of an answer.
            #[must_use]
            pub fn error(error: $error) -> Self {
                Self($crate::fake::FakeReply::new($crate::fake::ReplyBody::Error(error)))
            }

            /// These bytes.
            #[must_use]
            pub fn raw(status: u16, content_type: impl Into<String>, body: impl Into<bytes::Bytes>) -> Self {
                Self($crate::fake::FakeReply::raw(status, content_type, body))
            }

            /// A stream of these bytes.
            #[must_use]
            pub fn stream(body: impl Into<bytes::Bytes>) -> Self {
                Self::raw(200, "text/event-stream", body)
            }

            /// An HTML page, as a proxy returns it.
            #[must_use]
            pub fn html(status: u16) -> Self {
                Self($crate::fake::FakeReply::html(status))
            }

            /// Status 200 and no body at all.
            #[must_use]
            pub fn empty() -> Self {
                let body = bytes::Bytes::new();
                let raw = $crate::fake::ReplyBody::Raw { status: 200, content_type: None, body };
                Self($crate::fake::FakeReply::new(raw))
            }

            /// A stream that begins with some bytes and repeats others for ever.
            #[must_use]
            pub fn endless(beginning: impl Into<bytes::Bytes>, repeated: impl Into<bytes::Bytes>) -> Self {
                let (beginning, repeated) = (beginning.into(), repeated.into());
                Self($crate::fake::FakeReply::new($crate::fake::ReplyBody::Endless { beginning, repeated }))
            }

            /// No response, ever.
            #[must_use]
            pub fn silence() -> Self {
                Self($crate::fake::FakeReply::new($crate::fake::ReplyBody::Silence))
            }

            /// The connection closes without a response.
            #[must_use]
            pub fn hang_up() -> Self {
                Self($crate::fake::FakeReply::new($crate::fake::ReplyBody::HangUp))
            }

            /// The answer with each text in at most so many pieces; 4 by default.
            #[must_use]
            pub fn with_pieces(mut self, pieces: usize) -> Self {
                if let Some(answer) = self.0.answer_mut() {
                    $crate::fake::WireAnswer::split_into(answer, pieces);
                }
                self
            }

            /// The reply with one more header: `retry-after` (seconds or a date), `retry-after-ms`, `x-should-retry`, …
            #[must_use]
            pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.0.headers.push((name.into(), value.into()));
                self
            }

            /// The reply after this time.
            #[must_use]
            pub const fn delayed(mut self, delay: std::time::Duration) -> Self {
                self.0.delay = delay;
                self
            }

            /// The reply in chunks of so many bytes, wherever they fall: within events, within characters.
            #[must_use]
            pub const fn in_pieces_of(mut self, bytes: usize) -> Self {
                self.0.timing.piece = Some(bytes);
                self
            }

            /// The reply with this time between two chunks.
            #[must_use]
            pub const fn dripping(mut self, every: std::time::Duration) -> Self {
                self.0.timing.every = every;
                self
            }

            /// The reply, but the connection closes after so many bytes of the body.
            #[must_use]
            pub const fn cut_after_bytes(mut self, after: usize) -> Self {
                self.0.timing.end = $crate::fake::BodyEnd::Cut { after };
                self
            }

            /// The reply, but nothing more comes after so many bytes of the body, and the connection stays.
            #[must_use]
            pub const fn hanging_after_bytes(mut self, after: usize) -> Self {
                self.0.timing.end = $crate::fake::BodyEnd::Hang { after };
                self
            }
        }
    };
}
