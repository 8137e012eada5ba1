//! [`FakeOpenAi`]: a running fake, and its builder.

use std::io;
use std::ops::Deref;

use conjure_model_http::fake::{FakeServer, FakeSettings};

use super::reply::Reply;
use super::service::OpenAiService;

/// A running fake. Dropping it closes its connections and frees its address.
#[derive(Debug)]
pub struct FakeOpenAi(FakeServer<OpenAiService>);

/// Builds a [`FakeOpenAi`]. Created by [`FakeOpenAi::builder`].
#[derive(Debug)]
pub struct FakeOpenAiBuilder {
    settings: FakeSettings<OpenAiService>,
}

impl FakeOpenAi {
    /// A builder of a fake that accepts any key and any model, and has no replies.
    #[must_use]
    pub fn builder() -> FakeOpenAiBuilder {
        FakeOpenAiBuilder { settings: FakeSettings::default() }
    }

    /// The base URL for clients: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.server_url())
    }

    /// Stops the fake: it accepts no more requests and cuts running responses.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

impl Deref for FakeOpenAi {
    type Target = FakeServer<OpenAiService>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

conjure_model_http::builder_methods!(FakeOpenAiBuilder, Reply);

impl FakeOpenAiBuilder {
    /// Starts the fake. Needs a Tokio runtime with I/O and time.
    ///
    /// # Errors
    /// If the port is not free.
    pub async fn start(self) -> io::Result<FakeOpenAi> {
        Ok(FakeOpenAi(self.settings.start(OpenAiService).await?))
    }
}
