//! Follows redirects. Every hop is checked and resolved again: `UrlRules` checks the target, and `conjure_egress` its addresses.
//!
//! Nothing is carried from one hop to the next: no credentials, no cookies, no referrer.

use conjure_egress::EgressPolicy;
use conjure_store::Store;
use reqwest::header::{CONTENT_DISPOSITION, HeaderMap};

use super::FetchedContent;
use super::body::store_body;
use super::file_name::file_name;
use super::pinned_client::PinnedClient;
use super::response::{ConditionalRequest, ResponseKind, Validators, classify, media_type};
use super::url_rules::UrlRules;
use super::web_url::WebUrl;
use crate::error::{ArtifactError, Retryable};
use crate::fetch::caching::cache::CacheEntry;
use crate::fetch::caching::freshness::{Freshness, age};
use crate::media::{content_type_of, is_text};

/// The maximum number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// Fetches a URL over its redirects.
#[derive(Debug)]
pub(crate) struct RedirectFollower<'a> {
    pub(crate) rules: &'a UrlRules,
    pub(crate) client: &'a PinnedClient,
    /// The tenant's network policy, beside the URL rules.
    pub(crate) network: &'a EgressPolicy,
    pub(crate) store: &'a Store,
    /// The maximum number of bytes of the body.
    pub(crate) limit: u64,
    /// The cached entry, which the server may confirm.
    pub(crate) known: Option<&'a CacheEntry>,
}

/// The final response.
#[derive(Debug)]
pub(crate) struct FinalResponse {
    pub(crate) fetched: FetchedContent,
    pub(crate) validators: Validators,
    /// Freshness of the final response.
    pub(crate) freshness: Freshness,
    /// The freshness left, the redirects' own freshness included.
    pub(crate) freshness_left: Freshness,
    /// The final URL.
    pub(crate) url: WebUrl,
    pub(crate) status: u16,
}

impl RedirectFollower<'_> {
    /// Requests `start` and follows its redirects.
    pub(crate) async fn follow(&self, start: &WebUrl) -> Result<FinalResponse, ArtifactError> {
        let (mut url, mut freshness_left) = (start.clone(), Freshness::Default);
        for _ in 0..=MAX_REDIRECTS {
            let addresses = self.rules.resolve(&url).await?;
            let known = self.known.filter(|known| known.final_url == url.as_str());
            let conditions = known.map_or_else(HeaderMap::new, |known| known.validators.conditions());
            let conditional =
                if conditions.is_empty() { ConditionalRequest::No } else { ConditionalRequest::Yes };
            let response = self.client.get(&url, addresses, conditions).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let kind = classify(&url, status, &headers, conditional)?;
            let new = Freshness::from_headers(&headers);
            // A `304` may omit headers of the response that it confirms.
            let before = known.filter(|_| kind == ResponseKind::Unchanged).map(|known| known.freshness);
            let freshness = new.or(before).unwrap_or(Freshness::Default);
            freshness_left = freshness_left.stricter(freshness.minus_age(age(&headers)));
            match (kind, known) {
                (ResponseKind::Redirect(location), _) => {
                    url = self.rules.check_redirect(&url, &location, self.network)?;
                }
                (ResponseKind::Unchanged, Some(known)) => {
                    let validators = known.validators.updated_with(Validators::from_headers(&headers));
                    let (fetched, status) = (known.fetched.clone(), status.as_u16());
                    return Ok(FinalResponse { fetched, validators, freshness, freshness_left, url, status });
                }
                (ResponseKind::Content | ResponseKind::Unchanged, _) => {
                    let body = store_body(response, &url, self.limit, self.store).await?;
                    let name =
                        file_name(headers.get(CONTENT_DISPOSITION).map(|value| value.as_bytes()), &url);
                    let content_type = content_type(media_type(&headers), &name, &body.head);
                    return Ok(FinalResponse {
                        fetched: FetchedContent { content: body.content, content_type, name },
                        validators: Validators::from_headers(&headers),
                        freshness,
                        freshness_left,
                        url,
                        status: status.as_u16(),
                    });
                }
            }
        }
        Err(ArtifactError::FetchFailed {
            url: start.redacted(),
            reason: format!("it redirects more than {MAX_REDIRECTS} times"),
            retry: Retryable::No,
        })
    }
}

/// The server's media type, unless it is missing or the bytes contradict it: text contains no NUL, and an image is not text.
fn content_type(declared: Option<String>, name: &str, head: &[u8]) -> String {
    let detected = content_type_of(name, head);
    let is_media = |declared: &str| {
        ["image/", "audio/", "video/"].iter().any(|kind| declared.starts_with(kind)) && !is_text(declared)
    };
    let contradicts = |declared: &String| {
        is_text(declared) && head.contains(&0) || is_media(declared) && !head.is_empty() && is_text(&detected)
    };
    declared.filter(|declared| !contradicts(declared)).unwrap_or(detected)
}
