//! Responses with the bytes of a file, which is read while it is sent.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_util::io::ReaderStream;

use crate::http::error::ApiError;

/// How many bytes are read at a time.
const CHUNK: usize = 64 << 10;

/// The characters of a file's name that are encoded in a header.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A response with the bytes of `file`, which a browser saves under `name`.
pub(crate) fn download(
    file: std::fs::File,
    size: u64,
    content_type: &str,
    name: &str,
) -> Result<Response, ApiError> {
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK);
    let failed =
        |error: &dyn std::fmt::Display| ApiError::internal(format!("the file cannot be sent: {error}"));
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| failed(&error));
    Response::builder()
        .header(header::CONTENT_TYPE, value(content_type)?)
        .header(header::CONTENT_LENGTH, size)
        .header(header::CONTENT_DISPOSITION, value(&disposition(name))?)
        // Browsers must not treat an uploaded file as a page of this server.
        .header(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
        .body(Body::from_stream(stream))
        .map_err(|error| failed(&error))
}

/// The header `content-disposition` with this name: in ASCII for old clients, and complete for others (RFC 6266).
fn disposition(name: &str) -> String {
    let plain = |char: char| matches!(char, ' '..='~') && !matches!(char, '"' | '\\');
    let ascii: String = name.chars().map(|char| if plain(char) { char } else { '_' }).collect();
    let encoded = utf8_percent_encode(name, ENCODED);
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_header() {
        assert_eq!(disposition("a b.csv"), "attachment; filename=\"a b.csv\"; filename*=UTF-8''a%20b.csv");
        assert_eq!(
            disposition("ä\"\r\nx: y"),
            "attachment; filename=\"____x: y\"; filename*=UTF-8''%C3%A4%22%0D%0Ax%3A%20y"
        );
        assert!(HeaderValue::from_str(&disposition("\0\u{7f}\r\n\"\\")).is_ok());
    }
}
