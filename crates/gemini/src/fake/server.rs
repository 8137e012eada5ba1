//! [`FakeGemini`]: a running fake, and its builder.

use std::io;
use std::ops::Deref;

use conjure_model_http::fake::{FakeServer, FakeSettings};

use super::answer_writer::CallIds;
use super::reply::Reply;
use super::service::GeminiService;

/// A running fake. Dropping it closes its connections and frees its address.
#[derive(Debug)]
pub struct FakeGemini(FakeServer<GeminiService>);

/// Builds a [`FakeGemini`]. Created by [`FakeGemini::builder`].
#[derive(Debug)]
pub struct FakeGeminiBuilder {
    settings: FakeSettings<GeminiService>,
    ids: CallIds,
}

impl FakeGemini {
    /// A builder of a fake that accepts any key and any model, and has no replies.
    #[must_use]
    pub fn builder() -> FakeGeminiBuilder {
        FakeGeminiBuilder { settings: FakeSettings::default(), ids: CallIds::None }
    }

    /// The base URL for a client of this crate: `http://127.0.0.1:PORT/v1`. The server also serves the API under `/v1beta`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.server_url())
    }

    /// Stops the fake: it accepts no more requests and cuts running responses.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

impl Deref for FakeGemini {
    type Target = FakeServer<GeminiService>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

conjure_model_http::builder_methods!(FakeGeminiBuilder, Reply);

impl FakeGeminiBuilder {
    /// Sends the script's ids with calls. By default calls have no ids, because the service often sends none.
    #[must_use]
    pub const fn with_call_ids(mut self) -> Self {
        self.ids = CallIds::Scripted;
        self
    }

    /// Starts the fake. Needs a Tokio runtime with I/O and time.
    ///
    /// # Errors
    /// If the port is not free.
    pub async fn start(self) -> io::Result<FakeGemini> {
        Ok(FakeGemini(self.settings.start(GeminiService { ids: self.ids }).await?))
    }
}
