use super::super::web_url::UncheckedUrl;
use super::*;

fn headers(headers: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    headers.iter().map(pair).collect()
}

fn check_head(
    status: u16,
    list: &[(&'static str, &'static str)],
    conditional: ConditionalRequest,
) -> Result<ResponseKind, String> {
    let url = WebUrl::try_from(UncheckedUrl::parse("https://example.com/a?key=secret").unwrap()).unwrap();
    classify(&url, StatusCode::from_u16(status).unwrap(), &headers(list), conditional)
        .map_err(|error| format!("{} (retry: {})", error, error.is_retryable()))
}

#[test]
fn only_status_200_is_content() {
    for status in [200, 201, 203, 204, 205, 226] {
        assert_eq!(check_head(status, &[], ConditionalRequest::No), Ok(ResponseKind::Content), "{status}");
    }
    let failed = |reason: &str, retry: bool| {
        Err(format!(
            "fetching `https://example.com/a?key=…` failed: the server answered {reason} (retry: {retry})"
        ))
    };
    assert_eq!(check_head(206, &[], ConditionalRequest::No), failed("206 Partial Content", false));
    assert_eq!(check_head(300, &[], ConditionalRequest::No), failed("300 Multiple Choices", false));
    assert_eq!(check_head(404, &[], ConditionalRequest::No), failed("404 Not Found", false));
    assert_eq!(check_head(429, &[], ConditionalRequest::No), failed("429 Too Many Requests", true));
    assert_eq!(check_head(503, &[], ConditionalRequest::No), failed("503 Service Unavailable", true));
    assert_eq!(check_head(999, &[], ConditionalRequest::No), failed("999 <unknown status code>", false));
}

#[test]
fn not_modified_is_accepted_only_for_conditional_requests() {
    assert_eq!(check_head(304, &[], ConditionalRequest::Yes), Ok(ResponseKind::Unchanged));
    assert!(check_head(304, &[], ConditionalRequest::No).unwrap_err().contains("304 Not Modified"));
}

#[test]
fn redirects_need_a_location() {
    for status in [301, 302, 303, 307, 308] {
        let verdict = check_head(status, &[("location", "/b")], ConditionalRequest::No);
        assert_eq!(verdict, Ok(ResponseKind::Redirect("/b".to_owned())));
        assert!(check_head(status, &[], ConditionalRequest::No).unwrap_err().contains("without a target"));
    }
}

#[test]
fn coded_bodies_are_refused() {
    for coding in ["gzip", "identity, br", "x-gzip", "GZIP"] {
        let error = check_head(200, &[("content-encoding", coding)], ConditionalRequest::No).unwrap_err();
        assert!(error.contains("in the coding") && error.ends_with("(retry: false)"), "{error}");
        assert!(check_head(200, &[("transfer-encoding", coding)], ConditionalRequest::No).is_err());
    }
    assert!(check_head(200, &[("transfer-encoding", "gzip, chunked")], ConditionalRequest::No).is_err());
    let twice = [("content-encoding", "identity"), ("content-encoding", "gzip")];
    assert!(check_head(200, &twice, ConditionalRequest::No).is_err());
    let plain =
        [("content-encoding", "Identity"), ("transfer-encoding", "chunked"), ("content-encoding", "")];
    assert_eq!(check_head(200, &plain, ConditionalRequest::No), Ok(ResponseKind::Content));
}

#[test]
fn generic_media_types_are_ignored() {
    let read = |value: &'static str| media_type(&headers(&[("content-type", value)]));
    assert_eq!(read("Text/CSV; charset=utf-8").as_deref(), Some("text/csv"));
    assert_eq!(read("application/vnd.api+json").as_deref(), Some("application/vnd.api+json"));
    for text in ["", "text", "/csv", "text/", "a b/c", "text/<b>", "application/octet-stream", "text/a/b"] {
        assert_eq!(read(text), None, "{text:?}");
    }
    assert_eq!(media_type(&HeaderMap::new()), None);
}

#[test]
fn validators_become_conditions_and_are_bounded() {
    let first = Validators::from_headers(&headers(&[("etag", "\"1\""), ("last-modified", "Mon")]));
    let conditions = first.conditions();
    assert_eq!(conditions[IF_NONE_MATCH], "\"1\"");
    assert_eq!(conditions[IF_MODIFIED_SINCE], "Mon");
    let second = first.updated_with(Validators::from_headers(&headers(&[("etag", "\"2\"")])));
    assert_eq!(second, Validators::from_headers(&headers(&[("etag", "\"2\""), ("last-modified", "Mon")])));
    let long = HeaderValue::try_from("a".repeat(MAX_VALIDATOR_BYTES + 1)).unwrap();
    assert!(Validators::from_headers(&HeaderMap::from_iter([(ETAG, long)])).conditions().is_empty());
}
