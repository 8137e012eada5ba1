//! Multipart forms: text fields, and files that are read while they arrive.

use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::StatusCode;

use crate::http::error::ApiError;

/// The maximum size of a text field, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// The multipart form of a request.
pub(crate) struct Form(Multipart);

/// One part of a form.
pub(crate) struct Part<'f> {
    /// The name of the field, without the `[]` of arrays.
    pub(crate) name: String,
    /// The name of the file; `None` for a field of text.
    pub(crate) file_name: Option<String>,
    /// The content type, as the client sent it.
    pub(crate) content_type: Option<String>,
    field: Field<'f>,
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Multipart::from_request(request, state).await.map(Self).map_err(|error| {
            ApiError::invalid(format!("the body is not a form: {error}; send `multipart/form-data`"))
        })
    }
}

impl Form {
    /// The next part; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Part<'_>>, ApiError> {
        let Some(field) = self.0.next_field().await.map_err(|error| refused(&error))? else {
            return Ok(None);
        };
        let name = field.name().unwrap_or_default();
        Ok(Some(Part {
            name: name.strip_suffix("[]").unwrap_or(name).to_owned(),
            file_name: field.file_name().map(str::to_owned),
            content_type: field.content_type().map(str::to_owned),
            field,
        }))
    }
}

impl Part<'_> {
    /// The next bytes; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<axum::body::Bytes>, ApiError> {
        self.field.chunk().await.map_err(|error| refused(&error))
    }

    /// Reads all bytes, at most `limit`.
    pub(crate) async fn bytes(mut self, limit: usize) -> Result<Vec<u8>, ApiError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > limit {
                let name = self.name.as_str();
                return Err(ApiError::too_large(format!("{name}: the field has more than {limit} bytes")));
            }
        }
        Ok(bytes)
    }

    /// The text of a field.
    pub(crate) async fn text(self) -> Result<String, ApiError> {
        let name = self.name.clone();
        let bytes = self.bytes(MAX_TEXT).await?;
        String::from_utf8(bytes).map_err(|_| ApiError::invalid(format!("{name}: the text is not UTF-8")))
    }

    /// The error for a field that the form does not define.
    pub(crate) fn unknown(&self, known: &str) -> ApiError {
        let name = self.name.escape_debug();
        ApiError::invalid(format!(
            "{name}: the field is unknown; remove it, or give one of the fields {known}"
        ))
    }
}

fn refused(error: &MultipartError) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::too_large("the body is larger than this server takes")
    } else {
        ApiError::invalid(format!("the form cannot be read: {}", error.body_text()))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header;
    use proptest::prelude::*;

    use super::*;

    /// Reads a form to its end. Returns the names and sizes of its parts.
    async fn read(body: Vec<u8>) -> Result<Vec<(String, usize)>, ApiError> {
        let request = Request::builder().header(header::CONTENT_TYPE, "multipart/form-data; boundary=b");
        let request = request.body(Body::from(body)).unwrap();
        let mut form = Form::from_request(request, &()).await?;
        let mut parts = Vec::new();
        while let Some(part) = form.next().await? {
            let name = part.name.clone();
            parts.push((name, part.bytes(1_000).await?.len()));
        }
        Ok(parts)
    }

    const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"files[]\"; filename=\"a/b\"\r\n\r\ntext\r\n--b\r\n\
        Content-Disposition: form-data; name=\"display_name\"\r\n\r\nA name\r\n--b--\r\n";

    #[tokio::test]
    async fn a_form_has_parts_and_its_end() {
        let parts = read(FORM.as_bytes().to_vec()).await.unwrap();
        assert_eq!(parts, [("files".to_owned(), 4), ("display_name".to_owned(), 6)]);
        for end in [0, 10, 60, FORM.len() - 12] {
            assert_eq!(
                read(FORM.as_bytes()[..end].to_vec()).await.unwrap_err().status().as_u16(),
                400,
                "{end}"
            );
        }
        let large = FORM.replace("text", &"x".repeat(1_001));
        assert_eq!(read(large.into_bytes()).await.unwrap_err().status().as_u16(), 413);
    }

    proptest! {
        #[test]
        fn any_form_is_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..4)), 0..8),
            random in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut body = FORM.as_bytes().to_vec();
            for (place, bytes) in changes {
                let place = place.index(body.len());
                let end = (place + bytes.len()).min(body.len());
                body.splice(place..end, bytes.into_iter().rev());
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(read(body));
            let _ = runtime.block_on(read(random));
        }
    }
}
