use std::future::poll_fn;

use http_body::Body as _;
use proptest::prelude::*;

use super::*;

/// The bytes of a form, in the pieces that it came in.
async fn sent(form: &Form) -> Result<Vec<Bytes>, io::Error> {
    let mut body = form.body();
    let mut pieces = Vec::new();
    let length = body.size_hint().exact().unwrap();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        pieces.push(frame?.into_data().unwrap());
    }
    assert!(body.is_end_stream() && body.size_hint().exact() == Some(0));
    assert_eq!(
        pieces.iter().map(|piece| piece.len() as u64).sum::<u64>(),
        length,
        "it is as long as it says"
    );
    Ok(pieces)
}

fn open(path: &std::path::Path) -> Content {
    Content::File(Arc::new(File::open(path).unwrap()), path.to_owned())
}

#[tokio::test]
async fn a_form_is_what_the_official_sdk_sends() {
    let form = Form::new(None)
        .text("display_title", "T \u{e4}")
        .file("files[]", "s/SKILL.md", "text/markdown", Content::Bytes(Bytes::from_static(b"---\n")), 4)
        .file(
            "files[]",
            "s/we\"ird n\u{e4}me \\x\n.bin",
            "application/octet-stream",
            Content::Bytes(Bytes::new()),
            0,
        );
    let boundary = form.content_type().split_once("boundary=").unwrap().1.to_owned();
    assert_eq!(boundary.len(), 32);
    let expected = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"display_title\"\r\n\r\nT \u{e4}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"files[]\"; filename=\"s/SKILL.md\"\r\n\
         Content-Type: text/markdown\r\n\r\n---\n\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"files[]\"; filename=\"s/we%22ird n\u{e4}me \\\\x%0A.bin\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n\r\n--{boundary}--\r\n"
    );
    // Twice, as a retry does.
    for _ in 0..2 {
        assert_eq!(sent(&form).await.unwrap().concat(), expected.as_bytes());
    }
    assert_ne!(Form::new(None).content_type(), Form::new(None).content_type());
}

#[tokio::test]
async fn a_large_file_is_streamed_with_progress() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.bin");
    let content: Vec<u8> = (0..READ * 2 + 12_345).map(|n| (n % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let reported: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let sink = Arc::clone(&reported);
    let form = Form::new(Some(Arc::new(move |progress| sink.lock().unwrap().push(progress))));
    let form = form.file("file", "large.bin", "application/octet-stream", open(&path), content.len() as u64);
    let pieces = sent(&form).await.unwrap();
    assert!(pieces.iter().all(|piece| piece.len() <= PIECE) && pieces.len() > 30);
    let body = pieces.concat();
    assert!(body.windows(content.len()).any(|window| window == content));
    let reported = reported.lock().unwrap();
    assert!(reported.windows(2).all(|pair| pair[0].sent < pair[1].sent));
    assert_eq!(reported.last(), Some(&Progress { sent: body.len() as u64, total: body.len() as u64 }));
    assert_eq!((form.sent(), form.read_error()), (body.len() as u64, None));
}

#[tokio::test]
async fn a_file_that_shrinks_during_upload_fails_the_body() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.txt");
    std::fs::write(&path, "12345").unwrap();
    let form = Form::new(None).file("file", "a.txt", "text/plain", open(&path), 9);
    let error = sent(&form).await.unwrap_err().to_string();
    assert!(error.contains("a.txt") && error.contains("has changed while"), "{error}");
    assert_eq!(form.read_error(), Some(error));
    // One that grows is sent as it was announced.
    let form = Form::new(None).file("file", "a.txt", "text/plain", open(&path), 3);
    let body = sent(&form).await.unwrap().concat();
    assert!(String::from_utf8(body).unwrap().contains("\r\n\r\n123\r\n--"));
}

/// The name that a reader makes of it, by the rules of browsers.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let hex = (character == '%').then(|| rest.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok()));
        match (character, hex.flatten()) {
            ('%', Some(byte)) => {
                plain.push(char::from(byte));
                rest = &rest[3..];
            }
            ('\\', _) => {
                plain.push('\\');
                rest = rest.strip_prefix("\\\\").unwrap();
            }
            _ => {
                plain.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    plain
}

proptest! {
    #[test]
    fn any_name_is_quoted_correctly(name in "[^%]{0,40}") {
        let escaped = escaped(&name);
        prop_assert!(!escaped.contains(['"', '\r', '\n']));
        prop_assert_eq!(unescaped(&escaped), name);
    }
}
