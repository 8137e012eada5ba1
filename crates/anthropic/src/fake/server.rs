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
    /// A builder of a fake that accepts both profiles, any key and any model, has no limits, and has no replies.
    #[must_use]
    pub fn builder() -> FakeMessagesBuilder {
        FakeMessagesBuilder { settings: FakeSettings::default(), profile: None, rate: None, hosting: None }
    }

    /// `http://127.0.0.1:PORT`, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.server_url()
    }

    fn service(&self) -> &MessagesService {
        &self.state().service
    }

    /// Sends this reply to the next valid request for skills or files. Several faults are used one after the other.
    pub fn add_hosted_fault(&self, fault: Reply) {
        lock(&self.service().hosted_faults).push_back(fault);
    }

    /// Sends this reply to every valid request for skills or files from now on. `None` ends the outage.
    pub fn set_hosted_outage(&self, answer: Option<Reply>) {
        *lock(&self.service().hosted_outage) = answer;
    }

    /// The ids of the stored files, uploaded or produced, in order of creation.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        self.service().store().file_ids().map(FileId::new).collect()
    }

    /// Stores a file as if a tool had produced it, so that it can be downloaded. Returns its id.
    pub fn put_file(&self, name: &str, content: impl Into<Bytes>) -> FileId {
        let now = self.state().clock.timestamp();
        let kind = conjure_artifact::content_type_of(name, b"");
        FileId::new(self.service().store().add_file(name, &kind, content.into(), Origin::Tool, now))
    }

    /// The content of a stored file, uploaded or produced.
    #[must_use]
    pub fn file(&self, id: &FileId) -> Option<Bytes> {
        self.service().store().content(id.as_str())
    }

    /// The ids of all containers so far.
    #[must_use]
    pub fn containers(&self) -> Vec<ContainerId> {
        self.service().store().containers().into_iter().map(ContainerId::new).collect()
    }

    /// Expires all containers now. The fake refuses a request that names one of them.
    pub fn expire_containers(&self) {
        self.service().store().expire_containers();
    }

    /// Stops the fake: it accepts no more requests and cuts running responses.
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
    /// Accepts only this profile.
    #[must_use]
    pub const fn profile(mut self, profile: ApiProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Simulates containers, each with a lifetime of 30 days: see the [module](super).
    #[must_use]
    pub const fn hosting(self) -> Self {
        self.hosting_for(Duration::from_secs(30 * 24 * 3600))
    }

    /// Simulates containers. Each expires this long after its last use, by the fake's clock.
    #[must_use]
    pub const fn hosting_for(mut self, lifetime: Duration) -> Self {
        self.hosting = Some(Hosting { lifetime });
        self
    }

    /// Limits the request rate of each key.
    #[must_use]
    pub const fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.rate = Some(limit);
        self
    }

    /// Starts the fake. Needs a Tokio runtime with I/O and time.
    ///
    /// # Errors
    /// If the port is not free.
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
