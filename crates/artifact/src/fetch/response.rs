//! Interprets the head of an HTTP response: status, redirect, media type, validators.
//!
//! Nothing in it is trusted: texts of a server are bounded or not used.

use reqwest::StatusCode;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, TRANSFER_ENCODING,
};

use super::web_url::WebUrl;
use crate::error::{ArtifactError, Retryable};
use crate::media::is_content_type;

/// The longest validator that is stored, in bytes.
const MAX_VALIDATOR_BYTES: usize = 512;

/// What to do with a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// Read its body.
    Content,
    /// Use the cached content (`304`).
    Unchanged,
    /// Follow the redirect to this location.
    Redirect(String),
}

/// The validators of a response: `ETag` and `Last-Modified`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
}

impl Validators {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).filter(|value| value.len() <= MAX_VALIDATOR_BYTES).cloned();
        Self { etag: value(ETAG), last_modified: value(LAST_MODIFIED) }
    }

    /// The headers of a conditional request.
    pub(crate) fn conditions(&self) -> HeaderMap {
        let names = [(IF_NONE_MATCH, &self.etag), (IF_MODIFIED_SINCE, &self.last_modified)];
        names.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    /// These validators, replaced by those of a later response.
    pub(crate) fn updated_with(&self, newer: Self) -> Self {
        Self {
            etag: newer.etag.or_else(|| self.etag.clone()),
            last_modified: newer.last_modified.or_else(|| self.last_modified.clone()),
        }
    }
}

/// Classifies a response by status and body coding. Only a conditional request can be answered with `Unchanged`.
pub(crate) fn classify(
    url: &WebUrl,
    status: StatusCode,
    headers: &HeaderMap,
    is_conditional: ConditionalRequest,
) -> Result<ResponseKind, ArtifactError> {
    let failed = |reason: String, retry| ArtifactError::FetchFailed { url: url.redacted(), reason, retry };
    match status {
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => {
            let location = headers.get(LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
            return location.map(|location| ResponseKind::Redirect(location.to_owned())).ok_or_else(|| {
                failed(format!("the server redirects ({status}) without a target"), Retryable::No)
            });
        }
        StatusCode::NOT_MODIFIED if is_conditional == ConditionalRequest::Yes => {
            return Ok(ResponseKind::Unchanged);
        }
        // A part of the content, which was not requested.
        StatusCode::PARTIAL_CONTENT => {}
        status if status.is_success() => {
            let coded = unexpected_coding(headers, &CONTENT_ENCODING, "identity");
            if let Some(coding) = coded.or_else(|| unexpected_coding(headers, &TRANSFER_ENCODING, "chunked"))
            {
                let reason = format!(
                    "the server answers in the coding {coding:?} although it was asked for the bytes as they are; \
                     name a URL that is served without it"
                );
                return Err(failed(reason, Retryable::No));
            }
            return Ok(ResponseKind::Content);
        }
        _ => {}
    }
    let retry = match status.as_u16() {
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Retryable::Yes,
        _ => Retryable::No,
    };
    Err(failed(format!("the server answered {status}"), retry))
}

/// Whether the request carried validators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionalRequest {
    Yes,
    No,
}

/// The first body coding other than `usual`.
fn unexpected_coding(headers: &HeaderMap, name: &HeaderName, usual: &str) -> Option<String> {
    headers.get_all(name).iter().find_map(|value| {
        let value = String::from_utf8_lossy(value.as_bytes());
        let coding =
            value.split(',').map(str::trim).find(|one| !one.is_empty() && !one.eq_ignore_ascii_case(usual));
        coding.map(|coding| coding.chars().take(40).collect())
    })
}

/// The media type without parameters, in lower case; `None` for an unspecific one.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_unspecific = matches!(
        essence.as_str(),
        "application/octet-stream" | "binary/octet-stream" | "application/unknown" | "unknown/unknown"
    );
    (is_content_type(&essence) && !is_unspecific).then_some(essence)
}

#[cfg(test)]
mod tests;
