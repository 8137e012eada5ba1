//! From a URL to content: one hop after the other, each checked, resolved and dialled anew.
//!
//! Nothing is carried from one hop to the next: no credentials, no cookies, no referrer. It owns no state.

use conjure_egress::Policy;
use conjure_store::Store;
use reqwest::header::{CONTENT_DISPOSITION, HeaderMap};

use super::Fetched;
use super::answer::{Conditional, Validators, Verdict, judge, media_type};
use super::body::take_in;
use super::cache::Entry;
use super::dial::Dial;
use super::file_name::file_name;
use super::guard::Guard;
use super::keeping::{Keeping, age};
use super::web_url::WebUrl;
use crate::error::{ArtifactError, Retry};
use crate::media::{content_type_of, is_text};

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 5;

/// The way to content.
#[derive(Debug)]
pub(crate) struct Hops<'a> {
    pub(crate) guard: &'a Guard,
    pub(crate) dial: &'a Dial,
    /// What may be asked on the way, beside what the guard says.
    pub(crate) network: &'a Policy,
    pub(crate) store: &'a Store,
    /// The most bytes.
    pub(crate) limit: u64,
    /// What is there from before, if the server agrees.
    pub(crate) known: Option<&'a Entry>,
}

/// Where a URL led.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) fetched: Fetched,
    pub(crate) validators: Validators,
    /// What the last server says of how long its answer may be kept.
    pub(crate) keeping: Keeping,
    /// What is left of that by now, and of what the redirects say of themselves.
    pub(crate) left: Keeping,
    /// The last of the URLs.
    pub(crate) url: WebUrl,
    pub(crate) status: u16,
}

impl Hops<'_> {
    /// Goes there.
    pub(crate) async fn follow(&self, start: &WebUrl) -> Result<Landed, ArtifactError> {
        let (mut url, mut left) = (start.clone(), Keeping::AsConfigured);
        for _ in 0..=MOST_REDIRECTS {
            let addresses = self.guard.resolve(&url).await?;
            let known = self.known.filter(|known| known.landed == url.as_str());
            let conditions = known.map_or_else(HeaderMap::new, |known| known.validators.conditions());
            let conditional = if conditions.is_empty() { Conditional::No } else { Conditional::Yes };
            let response = self.dial.get(&url, addresses, conditions).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let verdict = judge(&url, status, &headers, conditional)?;
            let said = Keeping::of(&headers);
            // A server that only says that nothing has changed may leave out what it said before.
            let before = known.filter(|_| verdict == Verdict::Unchanged).map(|known| known.keeping);
            let keeping = said.or(before).unwrap_or(Keeping::AsConfigured);
            left = left.and(keeping.after(age(&headers)));
            match (verdict, known) {
                (Verdict::Redirect(location), _) => {
                    url = self.guard.follow(&url, &location, self.network)?;
                }
                (Verdict::Unchanged, Some(known)) => {
                    let validators = known.validators.renewed(Validators::of(&headers));
                    let (fetched, status) = (known.fetched.clone(), status.as_u16());
                    return Ok(Landed { fetched, validators, keeping, left, url, status });
                }
                (Verdict::Content | Verdict::Unchanged, _) => {
                    let taken = take_in(response, &url, self.limit, self.store).await?;
                    let name =
                        file_name(headers.get(CONTENT_DISPOSITION).map(|value| value.as_bytes()), &url);
                    let content_type = content_type(media_type(&headers), &name, &taken.head);
                    return Ok(Landed {
                        fetched: Fetched { content: taken.content, content_type, name },
                        validators: Validators::of(&headers),
                        keeping,
                        left,
                        url,
                        status: status.as_u16(),
                    });
                }
            }
        }
        Err(ArtifactError::FetchFailed {
            url: start.shown(),
            reason: format!("it redirects more than {MOST_REDIRECTS} times"),
            retry: Retry::Useless,
        })
    }
}

/// What the server said, unless it said nothing, or the bytes show that it is not so: text with a NUL in it is none, and a picture is no
/// text.
fn content_type(told: Option<String>, name: &str, head: &[u8]) -> String {
    let shown = content_type_of(name, head);
    let is_media = |told: &str| {
        ["image/", "audio/", "video/"].iter().any(|kind| told.starts_with(kind)) && !is_text(told)
    };
    let is_wrong = |told: &String| {
        is_text(told) && head.contains(&0) || is_media(told) && !head.is_empty() && is_text(&shown)
    };
    told.filter(|told| !is_wrong(told)).unwrap_or(shown)
}
