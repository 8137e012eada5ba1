//! The options of artifacts: sources, limits and fetching (ADR-0018, section 9).

use std::path::PathBuf;
use std::time::Duration;

use conjure_base::Timestamp;

/// Which files and URLs may become artifacts, and the limits of fetching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactOptions {
    /// The directories beneath which files may be registered. `None` allows any file, an empty list none.
    pub allowed_dirs: Option<Vec<PathBuf>>,
    /// The maximum number of bytes of a file or of inline content: 50 MiB by default.
    pub max_file_size: u64,
    /// Whether URLs are fetched.
    pub url_fetch: UrlFetch,
    /// The timeout of a fetch, redirects included: 30 seconds by default.
    pub url_timeout: Duration,
    /// The maximum number of bytes of fetched content: 10 MiB by default.
    pub url_max_size: u64,
    /// Hosts that are never contacted, as names or addresses: `localhost`, `127.0.0.1`, `169.254.169.254` by default. Private addresses
    /// are always refused.
    pub blocked_hosts: Vec<String>,
    /// The schemes of URLs that are fetched: `https` by default.
    pub allowed_schemes: Vec<String>,
    /// Whether fetched content is cached, per tenant, and for how long without revalidation: 15 minutes by default, or less if the server
    /// says so (`Cache-Control`). A tenant has at most 256 cached URLs; the least recently used one is evicted first.
    pub cache: UrlCache,
    /// How long the artifacts of an unused session are kept: one hour by default ([`ArtifactOptions::are_expired`]).
    pub session_ttl: Option<Duration>,
}

/// Whether URLs are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UrlFetch {
    /// URLs are fetched.
    #[default]
    On,
    /// Every URL is refused.
    Off,
}

/// Whether fetched content is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlCache {
    /// Used without revalidation for this long. The server can shorten the time, not extend it.
    For(Duration),
    /// Every access fetches.
    Off,
}

impl ArtifactOptions {
    /// Whether the artifacts of a session have expired. `used` is the time of the session's last recorded event.
    ///
    /// All artifacts of a session expire together, as if they were unregistered. No timer runs: the next use of the session (a message,
    /// an artifact call, a revival) or a maintenance task checks this and records the removal. Until then the contents stay on disk. A
    /// running turn uses the session. A clock that was set back expires nothing.
    ///
    /// ```
    /// use conjure_artifact::ArtifactOptions;
    /// use conjure_base::Timestamp;
    ///
    /// let options = ArtifactOptions::default();
    /// let used = Timestamp::from_millis(1_000);
    /// assert!(!options.are_expired(used, Timestamp::from_millis(1_000 + 3_600_000)));
    /// assert!(options.are_expired(used, Timestamp::from_millis(1_001 + 3_600_000)));
    /// ```
    #[must_use]
    pub fn are_expired(&self, used: Timestamp, now: Timestamp) -> bool {
        self.session_ttl.is_some_and(|ttl| now.duration_since(used) > ttl)
    }
}

impl Default for ArtifactOptions {
    fn default() -> Self {
        Self {
            allowed_dirs: None,
            max_file_size: 50 << 20,
            url_fetch: UrlFetch::On,
            url_timeout: Duration::from_secs(30),
            url_max_size: 10 << 20,
            blocked_hosts: ["localhost", "127.0.0.1", "169.254.169.254"].map(str::to_owned).to_vec(),
            allowed_schemes: vec!["https".to_owned()],
            cache: UrlCache::For(Duration::from_secs(15 * 60)),
            session_ttl: Some(Duration::from_secs(60 * 60)),
        }
    }
}
