//! Parses `multipart/form-data` (RFC 7578), strictly.

use bytes::Bytes;

/// One part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
    pub(super) media_type: Option<String>,
    pub(super) content: Bytes,
}

/// Splits a body of this content type into its parts.
pub(super) fn parse(content_type: &str, body: &Bytes) -> Result<Vec<Field>, &'static str> {
    let (kind, remainder) = content_type.split_once(';').ok_or("the content type names no boundary")?;
    if kind.trim() != "multipart/form-data" {
        return Err("Content-Type must be multipart/form-data");
    }
    let boundary = remainder.trim().strip_prefix("boundary=").ok_or("the content type names no boundary")?;
    let boundary = boundary.trim_matches('"');
    if boundary.is_empty() || boundary.len() > 70 {
        return Err("the boundary is empty or too long");
    }
    let delimiter = format!("\r\n--{boundary}");
    let first = &delimiter.as_bytes()[2..];
    if !body.starts_with(first) {
        return Err("the body does not begin with the boundary");
    }
    let mut fields = Vec::new();
    let mut offset = first.len();
    loop {
        match body.get(offset..offset + 2) {
            Some(b"--") => return Ok(fields),
            Some(b"\r\n") => offset += 2,
            _ => return Err("a boundary is not followed by a part or the end"),
        }
        let head_end = offset + find(&body[offset..], b"\r\n\r\n").ok_or("a part has no end of its head")?;
        let content_at = head_end + 4;
        let length = find(&body[content_at..], delimiter.as_bytes()).ok_or("a part has no end")?;
        let head =
            std::str::from_utf8(&body[offset..head_end]).map_err(|_| "the head of a part is not UTF-8")?;
        fields.push(field(head, body.slice(content_at..content_at + length))?);
        offset = content_at + length + delimiter.len();
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut offset = 0;
    while let Some(next) = text[offset..].iter().position(|byte| *byte == first) {
        offset += next;
        if text[offset..].starts_with(wanted) {
            return Some(offset);
        }
        offset += 1;
    }
    None
}

fn field(head: &str, content: Bytes) -> Result<Field, &'static str> {
    let mut field = Field { name: String::new(), file_name: None, media_type: None, content };
    for line in head.split("\r\n") {
        let (name, value) = line.split_once(": ").ok_or("a line of a part's head is no header")?;
        match name.to_ascii_lowercase().as_str() {
            "content-disposition" => {
                let parameters = value.strip_prefix("form-data; ").ok_or("a part is not of a form")?;
                for (name, value) in parse_parameters(parameters)? {
                    match name {
                        "name" => field.name = value,
                        "filename" => field.file_name = Some(value),
                        _ => {}
                    }
                }
            }
            "content-type" => field.media_type = Some(value.to_owned()),
            _ => {}
        }
    }
    if field.name.is_empty() { Err("a part has no name") } else { Ok(field) }
}

/// Parses `name="…"; filename="…"`, and resolves the escapes in the quotes.
fn parse_parameters(text: &str) -> Result<Vec<(&str, String)>, &'static str> {
    let mut parameters = Vec::new();
    let mut rest = text;
    loop {
        let (name, value) = rest.split_once("=\"").ok_or("a parameter is not in quotes")?;
        let end = value.find('"').ok_or("a parameter's quotes are not closed")?;
        parameters.push((name.trim(), unescaped(&value[..end])));
        rest = &value[end + 1..];
        match rest.strip_prefix(';') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(parameters),
            None => return Err("something follows a parameter"),
        }
    }
}

fn unescaped(text: &str) -> String {
    text.replace("%22", "\"").replace("%0A", "\n").replace("%0D", "\r").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body(parts: &[(&str, &[u8])]) -> Bytes {
        let mut body = Vec::new();
        for (head, content) in parts {
            body.extend_from_slice(format!("--xyz\r\n{head}\r\n\r\n").as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--xyz--\r\n");
        body.into()
    }

    const TYPE: &str = "multipart/form-data; boundary=xyz";

    #[test]
    fn parts_are_read_with_their_names_and_bytes() {
        let head = "Content-Disposition: form-data; name=\"files[]\"; filename=\"s/a %22b%22 \u{e4}\\\\.bin\"\r\nContent-Type: text/x-python";
        let parts =
            body(&[("Content-Disposition: form-data; name=\"t\"", b"T\r\n--xy"), (head, b"\r\n\0--")]);
        let fields = parse(TYPE, &parts).unwrap();
        assert_eq!((fields[0].name.as_str(), &fields[0].content[..]), ("t", &b"T\r\n--xy"[..]));
        assert_eq!(fields[1].file_name.as_deref(), Some("s/a \"b\" \u{e4}\\.bin"));
        assert_eq!(fields[1].media_type.as_deref(), Some("text/x-python"));
        assert_eq!(&fields[1].content[..], b"\r\n\0--");
        assert_eq!(parse(TYPE, &body(&[])), Ok(Vec::new()));
        assert!(parse(TYPE, &Bytes::from_static(b"{}")).is_err());
        assert!(
            parse("application/json", &parts).is_err() && parse("text/plain; boundary=xyz", &parts).is_err()
        );
    }

    proptest! {
        #[test]
        fn any_body_is_parsed_or_rejected(
            content in prop::collection::vec(prop_oneof![Just(b'-'), Just(b'\r'), Just(b'\n'), Just(b'x'), any::<u8>()], 0..80),
            cut in 0_usize..200,
        ) {
            let complete = body(&[("Content-Disposition: form-data; name=\"a\"", &content)]);
            let holds_end = content.windows(7).any(|window| window == b"\r\n--xyz");
            if !holds_end {
                prop_assert_eq!(&parse(TYPE, &complete).unwrap()[0].content[..], &content[..]);
            }
            let _ = parse(TYPE, &complete.slice(..cut.min(complete.len())));
            let _ = parse(TYPE, &Bytes::from(content));
        }
    }
}
