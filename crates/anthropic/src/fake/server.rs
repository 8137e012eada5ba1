//! [`FakeMessages`]: a running fake, and its builder.

use std::io;
use std::ops::Deref;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::{ContainerId, lock};
use conjure_model_http::fake::{FakeServer, FakeSettings};

use super::hosted::{Hosting, Origin, Store};
use super::rate_limit::RateLimit;
use super::reply::Reply;
use super::service::MessagesService;
use crate::config::ApiProfile;
use crate::hosted::FileId;

/// A running fake. Dropping it closes its connections and frees its address.
#[derive(Debug)]
pub struct FakeMessages(FakeServer<MessagesService>);

/// Builds a [`FakeMessages`]. Created by [`FakeMessages::builder`].
#[derive(Debug)]
pub struct FakeMessagesBuilder {
    settings: FakeSettings<MessagesService>,
    profile: Option<ApiProfile>,
    rate: Option<RateLimit>,
    hosting: Option<Hosting>,
}

impl FakeMessages {
    /// A fake of both profiles, for any key and model, without limits, with nothing to say.
    #[must_use]
    pub fn builder() -> FakeMessagesBuilder {
        FakeMessagesBuilder { settings: FakeSettings::default(), profile: None, rate: None, hosting: None }
    }

    /// `http://127.0.0.1:PORT`, without a slash at its end.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.server_url()
    }

    fn service(&self) -> &MessagesService {
        &self.state().service
    }

    /// Answers the next good request for skills or files with this. Several are taken one after the other.
    pub fn add_hosted_fault(&self, fault: Reply) {
        lock(&self.service().hosted_faults).push_back(fault);
    }

    /// Answers every good request for skills or files with this from now on; with `None`, as it should again.
    pub fn set_hosted_outage(&self, answer: Option<Reply>) {
        *lock(&self.service().hosted_outage) = answer;
    }

    /// The files that are kept, uploaded or made, in the order in which they came to be.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        self.service().store().file_ids().map(FileId::new).collect()
    }

    /// Keeps a file as one that a tool has made, which can be downloaded. Returns its id.
    pub fn put_file(&self, name: &str, content: impl Into<Bytes>) -> FileId {
        let now = self.state().clock.timestamp();
        let kind = crate::hosted::media_type_of(name);
        FileId::new(self.service().store().add_file(name, kind, content.into(), Origin::Tool, now))
    }

    /// The content of a file that is kept, uploaded or made.
    #[must_use]
    pub fn file(&self, id: &FileId) -> Option<Bytes> {
        self.service().store().content(id.as_str())
    }

    /// The containers that there have been.
    #[must_use]
    pub fn containers(&self) -> Vec<ContainerId> {
        self.service().store().containers().into_iter().map(ContainerId::new).collect()
    }

    /// Ends all containers now: a request that names one of them is refused.
    pub fn expire_containers(&self) {
        self.service().store().expire_containers();
    }

    /// Stops: no more requests are accepted, and running answers are cut.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

impl Deref for FakeMessages {
    type Target = FakeServer<MessagesService>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

conjure_model_http::builder_methods!(FakeMessagesBuilder, Reply);

impl FakeMessagesBuilder {
    /// Speaks this profile only.
    #[must_use]
    pub const fn profile(mut self, profile: ApiProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Minds containers, each of which lives for 30 days: see the [module](super).
    #[must_use]
    pub const fn hosting(self) -> Self {
        self.hosting_for(Duration::from_secs(30 * 24 * 3600))
    }

    /// Minds containers, each of which lives so long after it was last used, by the fake's clock.
    #[must_use]
    pub const fn hosting_for(mut self, lifetime: Duration) -> Self {
        self.hosting = Some(Hosting { lifetime });
        self
    }

    /// Limits each key.
    #[must_use]
    pub const fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.rate = Some(limit);
        self
    }

    /// Starts it. Needs a Tokio runtime with I/O and time.
    ///
    /// # Errors
    /// When the port is not free.
    pub async fn start(self) -> io::Result<FakeMessages> {
        let service = MessagesService {
            profile: self.profile,
            rate: self.rate,
            windows: Mutex::default(),
            hosting: self.hosting,
            store: Mutex::new(Store::new()),
            hosted_faults: Mutex::default(),
            hosted_outage: Mutex::default(),
        };
        Ok(FakeMessages(self.settings.start(service).await?))
    }
}
