//! What the head of an answer says: whether it is one, where it redirects, what it holds, by what it is known again.
//!
//! Nothing of it is trusted: texts of a server are bounded, or not used. It owns no state.

use reqwest::StatusCode;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, TRANSFER_ENCODING,
};

use super::web_url::WebUrl;
use crate::error::{ArtifactError, Retry};
use crate::media::is_content_type;

/// The longest validator that is kept, in bytes.
const LONGEST_VALIDATOR: usize = 512;

/// What is to be done with an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its body is what was asked for.
    Content,
    /// What was fetched before is still good.
    Unchanged,
    /// To go on there.
    Redirect(String),
}

/// What a server is asked by whether its answer has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
}

impl Validators {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).filter(|value| value.len() <= LONGEST_VALIDATOR).cloned();
        Self { etag: value(ETAG), last_modified: value(LAST_MODIFIED) }
    }

    /// The headers of a request for what is newer.
    pub(crate) fn conditions(&self) -> HeaderMap {
        let names = [(IF_NONE_MATCH, &self.etag), (IF_MODIFIED_SINCE, &self.last_modified)];
        names.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    /// With what a later answer says instead.
    pub(crate) fn renewed(&self, later: Self) -> Self {
        Self {
            etag: later.etag.or_else(|| self.etag.clone()),
            last_modified: later.last_modified.or_else(|| self.last_modified.clone()),
        }
    }
}

/// Judges an answer by its status and by how its body is coded. `Unchanged` is only what was asked for.
pub(crate) fn judge(
    url: &WebUrl,
    status: StatusCode,
    headers: &HeaderMap,
    is_conditional: Conditional,
) -> Result<Verdict, ArtifactError> {
    let failed = |reason: String, retry| ArtifactError::FetchFailed { url: url.shown(), reason, retry };
    match status {
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => {
            let location = headers.get(LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
            return location.map(|location| Verdict::Redirect(location.to_owned())).ok_or_else(|| {
                failed(format!("the server redirects ({status}) and does not say where"), Retry::Useless)
            });
        }
        StatusCode::NOT_MODIFIED if is_conditional == Conditional::Yes => return Ok(Verdict::Unchanged),
        // Only a part, which nobody has asked for.
        StatusCode::PARTIAL_CONTENT => {}
        status if status.is_success() => {
            let coded = coding(headers, &CONTENT_ENCODING, "identity");
            if let Some(coding) = coded.or_else(|| coding(headers, &TRANSFER_ENCODING, "chunked")) {
                let reason = format!(
                    "the server answers in the coding {coding:?} although it was asked for the bytes as they are; \
                     name a URL that is served without it"
                );
                return Err(failed(reason, Retry::Useless));
            }
            return Ok(Verdict::Content);
        }
        _ => {}
    }
    let retry = match status.as_u16() {
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Retry::MayHelp,
        _ => Retry::Useless,
    };
    Err(failed(format!("the server answered {status}"), retry))
}

/// Whether it was asked for what is newer only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conditional {
    Yes,
    No,
}

/// The first coding of a body other than `usual`.
fn coding(headers: &HeaderMap, name: &HeaderName, usual: &str) -> Option<String> {
    headers.get_all(name).iter().find_map(|value| {
        let value = String::from_utf8_lossy(value.as_bytes());
        let coding =
            value.split(',').map(str::trim).find(|one| !one.is_empty() && !one.eq_ignore_ascii_case(usual));
        coding.map(|coding| coding.chars().take(40).collect())
    })
}

/// The media type, without parameters and in lower case, unless it says nothing.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let says_nothing = matches!(
        essence.as_str(),
        "application/octet-stream" | "binary/octet-stream" | "application/unknown" | "unknown/unknown"
    );
    (is_content_type(&essence) && !says_nothing).then_some(essence)
}

#[cfg(test)]
mod tests;
