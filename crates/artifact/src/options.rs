//! What a host permits of artifacts (ADR-0018, section 9).

use std::path::PathBuf;
use std::time::Duration;

use conjure_base::Timestamp;

/// What files and URLs a session may be given, and what a fetch may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactOptions {
    /// The folders beneath which files may be registered; none: any file of the host's. An empty list allows nothing.
    pub allowed_dirs: Option<Vec<PathBuf>>,
    /// The most bytes of a file or of given content: 50 MiB.
    pub max_file_size: u64,
    /// Whether URLs are fetched at all.
    pub url_fetch: UrlFetch,
    /// The most time that a fetch takes, redirects and all: 30 seconds.
    pub url_timeout: Duration,
    /// The most bytes that a URL leads to: 10 MiB.
    pub url_max_size: u64,
    /// Hosts that are never asked, as names or addresses: `localhost`, `127.0.0.1`, `169.254.169.254`. Private addresses are refused
    /// whatever stands here.
    pub blocked_hosts: Vec<String>,
    /// The schemes of URLs that are fetched: `https`.
    pub allowed_schemes: Vec<String>,
    /// Whether what was fetched is kept for later, for each tenant by itself, and for how long without asking again: 15 minutes, or less
    /// where the server says so (`Cache-Control`).
    pub cache: UrlCache,
    /// The most bytes that are kept so for each tenant, those of all its URLs together: 100 MiB. What was used least lately goes first,
    /// and what is larger by itself is fetched each time. What goes is asked for again when somebody wants it; its bytes stay in the
    /// tenant's store until whoever tidies that finds that nobody has used them for long.
    pub cache_max_size: u64,
    /// For how long the artifacts of a session stay that nobody uses: an hour ([`ArtifactOptions::are_expired`]).
    pub session_ttl: Option<Duration>,
}

/// Whether URLs are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UrlFetch {
    /// They are.
    #[default]
    On,
    /// A URL is an error that says so.
    Off,
}

/// Whether fetched content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlCache {
    /// For so long nobody is asked again; then it is asked whether it has changed. A server may say less, and never more.
    For(Duration),
    /// Each access fetches.
    Off,
}

impl ArtifactOptions {
    /// Whether the artifacts of a session have expired that was used last at `used`, the time of its last recorded event.
    ///
    /// They go together, and as if they were unregistered: it is the session that nobody uses. No timer runs for it. Whoever uses the
    /// session next (a message, a call about its artifacts, a revival) asks this first and records that they are cleared, unless a janitor
    /// came by before and recorded the same; until then their contents stay on the disk. A turn that runs uses the session, and a clock
    /// that was set back expires nothing.
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
        self.session_ttl.is_some_and(|ttl| now.since(used) > ttl)
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
            cache_max_size: 100 << 20,
            session_ttl: Some(Duration::from_secs(60 * 60)),
        }
    }
}
