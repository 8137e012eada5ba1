//! Detects media types from a file's name and first bytes.
//!
//! Recognised bytes take precedence over the name, so an image is never an HTML page because of its name. The name only refines the
//! result: the kind of text, or the format in an archive. HTML without a matching name is plain text. The table is our own, because
//! the crates for this purpose contain thousands of types that a model cannot use.

/// How many of a file's first bytes are inspected.
pub const HEAD_BYTES: usize = 4096;

/// The fallback.
const UNKNOWN: &str = "application/octet-stream";
const TEXT: &str = "text/plain";

/// Detects the media type of a file from its name and its first bytes, of which at most [`HEAD_BYTES`] count. Without bytes, only the
/// name counts.
///
/// ```
/// use conjure_artifact::content_type_of;
///
/// assert_eq!(content_type_of("sales.csv", b"a,b\n"), "text/csv");
/// assert_eq!(content_type_of("page.html", b"\x89PNG\r\n\x1a\n...."), "image/png");
/// ```
#[must_use]
pub fn content_type_of(name: &str, head: &[u8]) -> String {
    let head = head.get(..HEAD_BYTES).unwrap_or(head);
    let named = by_name(name);
    let chosen = match by_bytes(head) {
        SniffedType::Nothing => named.unwrap_or(UNKNOWN),
        SniffedType::Text => named.filter(|named| is_text(named)).unwrap_or(TEXT),
        SniffedType::Binary => {
            named.filter(|named| !is_text(named) && !is_sniffable(named)).unwrap_or(UNKNOWN)
        }
        SniffedType::Known(known) => named.filter(|named| refines(named, known)).unwrap_or(known),
    };
    chosen.to_owned()
}

/// Whether the name's extension is known.
pub(crate) fn is_known_name(name: &str) -> bool {
    by_name(name).is_some()
}

/// Whether a media type is human-readable text.
#[must_use]
pub fn is_text(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || essence.starts_with("message/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || matches!(
            essence.as_str(),
            "application/json"
                | "application/xml"
                | "application/x-ndjson"
                | "application/yaml"
                | "application/toml"
                | "application/sql"
                | "application/x-sh"
                | "application/rtf"
                | "application/x-ipynb+json"
        )
}

/// Whether a text is a media type: `type/subtype` with optional parameters, printable ASCII, at most 255 bytes.
#[must_use]
pub fn is_content_type(text: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty()
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    text.len() <= 255
        && essence.trim_end().split_once('/').is_some_and(|(kind, rest)| is_token(kind) && is_token(rest))
        && parameters.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The result of inspecting the first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SniffedType {
    /// There are no bytes.
    Nothing,
    /// Text.
    Text,
    /// Binary data of an unknown type.
    Binary,
    /// A known type.
    Known(&'static str),
}

const ZIP: &str = "application/zip";
const GZIP: &str = "application/gzip";
const OLE: &str = "application/x-ole-storage";
const OGG: &str = "application/ogg";
const MP4: &str = "video/mp4";
const MATROSKA: &str = "video/x-matroska";

/// Magic numbers that identify a type.
const MAGIC: [(&[u8], &str); 30] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\x01\0", "image/x-icon"),
    (b"%PDF-", "application/pdf"),
    (b"%!PS", "application/postscript"),
    (b"{\\rtf", "application/rtf"),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"\x1f\x8b", GZIP),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"(\xb5/\xfd", "application/zstd"),
    (b"7z\xbc\xaf'\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"ARROW1", "application/vnd.apache.arrow.file"),
    (b"\x7fELF", "application/x-executable"),
    (b"\0asm", "application/wasm"),
    (b"OggS", OGG),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", MATROSKA),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
];

fn by_bytes(head: &[u8]) -> SniffedType {
    if head.is_empty() {
        return SniffedType::Nothing;
    }
    let at = |offset: usize, bytes: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(bytes));
    if let Some((_, known)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return SniffedType::Known(known);
    }
    // Two letters alone may begin a text.
    if at(0, b"BM") && at(6, &[0; 4]) {
        return SniffedType::Known("image/bmp");
    }
    if at(0, b"RIFF") {
        let kinds: [(&[u8], _); 3] =
            [(b"WEBP", "image/webp"), (b"WAVE", "audio/wav"), (b"AVI ", "video/x-msvideo")];
        if let Some((_, known)) = kinds.iter().find(|(kind, _)| at(8, kind)) {
            return SniffedType::Known(known);
        }
    }
    if at(4, b"ftyp") {
        return SniffedType::Known(match head.get(8..12) {
            Some(b"avif") => "image/avif",
            Some(b"heic" | b"heix" | b"mif1") => "image/heic",
            _ => MP4,
        });
    }
    if at(257, b"ustar") {
        return SniffedType::Known("application/x-tar");
    }
    if looks_like_text(head) { SniffedType::Text } else { SniffedType::Binary }
}

/// Whether it is UTF-8 without control characters, possibly cut within a character, or UTF-16 with a byte order mark.
fn looks_like_text(head: &[u8]) -> bool {
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return true;
    }
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // Only the last character is incomplete.
        Err(error) if error.error_len().is_none() => {
            let (valid, _) = head.split_at(error.valid_up_to());
            std::str::from_utf8(valid).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.chars().any(|character| {
        character.is_control()
            && !matches!(character, '\t' | '\n' | '\r' | '\u{c}' | '\u{8}' | '\u{1b}' | '\u{85}')
    })
}

/// Whether [`MAGIC`] has a number for this type. If it has, a file without that number is of another type.
fn is_sniffable(content_type: &str) -> bool {
    MAGIC.iter().any(|(_, known)| *known == content_type)
        || content_type.starts_with("image/")
        || [ZIP, GZIP, OLE, OGG, MP4, MATROSKA].iter().any(|known| refines(content_type, known))
}

/// Whether the type by name is a special case of the type by bytes.
fn refines(named: &str, known: &str) -> bool {
    named == known
        || match known {
            ZIP => {
                named.starts_with("application/vnd.openxmlformats-")
                    || named.starts_with("application/vnd.oasis.opendocument.")
                    || matches!(
                        named,
                        "application/epub+zip"
                            | "application/java-archive"
                            | "application/x-wheel+zip"
                            | "application/vnd.ms-excel.sheet.macroenabled.12"
                            | "application/x-npz"
                            | "application/vnd.google-earth.kmz"
                    )
            }
            GZIP => named == "application/x-gtar-compressed",
            OLE => {
                matches!(
                    named,
                    "application/msword"
                        | "application/vnd.ms-excel"
                        | "application/vnd.ms-powerpoint"
                        | "application/vnd.ms-outlook"
                )
            }
            OGG => named.starts_with("audio/ogg") || named == "video/ogg",
            MP4 => matches!(named, "audio/mp4" | "video/quicktime" | "video/mp4"),
            MATROSKA => matches!(named, "video/webm" | "audio/webm"),
            _ => false,
        }
}

/// The media type of a name's extension.
fn by_name(name: &str) -> Option<&'static str> {
    let file = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let (stem, ending) = file.rsplit_once('.')?;
    if stem.is_empty() {
        return None;
    }
    if stem.ends_with(".tar") && ending == "gz" {
        return Some("application/x-gtar-compressed");
    }
    Some(match ending {
        "txt" | "text" | "log" | "conf" | "cfg" | "ini" | "env" | "diff" | "patch" | "rst" | "tex"
        | "srt" => TEXT,
        "md" | "markdown" => "text/markdown",
        "csv" => "text/csv",
        "tsv" | "tab" => "text/tab-separated-values",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" | "cjs" => "text/javascript",
        "ts" | "tsx" | "jsx" => "text/x-typescript",
        "py" | "pyi" => "text/x-python",
        "rs" => "text/x-rust",
        "go" => "text/x-go",
        "java" => "text/x-java",
        "c" | "h" => "text/x-c",
        "cc" | "cpp" | "cxx" | "hpp" => "text/x-c++",
        "rb" => "text/x-ruby",
        "ex" | "exs" => "text/x-elixir",
        "r" => "text/x-r",
        "sh" | "bash" | "zsh" => "application/x-sh",
        "sql" => "application/sql",
        "json" | "geojson" => "application/json",
        "ipynb" => "application/x-ipynb+json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "xml" | "xsd" | "xsl" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "ics" => "text/calendar",
        "vcf" => "text/vcard",
        "vtt" => "text/vtt",
        "eml" => "message/rfc822",
        "rtf" => "application/rtf",
        "pdf" => "application/pdf",
        "ps" | "eps" => "application/postscript",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "bmp" => "image/bmp",
        "tif" | "tiff" => "image/tiff",
        "ico" => "image/x-icon",
        "avif" => "image/avif",
        "heic" | "heif" => "image/heic",
        "zip" | "skill" => ZIP,
        "gz" => GZIP,
        "tgz" => "application/x-gtar-compressed",
        "tar" => "application/x-tar",
        "bz2" => "application/x-bzip2",
        "xz" => "application/x-xz",
        "zst" => "application/zstd",
        "7z" => "application/x-7z-compressed",
        "rar" => "application/vnd.rar",
        "jar" => "application/java-archive",
        "whl" => "application/x-wheel+zip",
        "epub" => "application/epub+zip",
        "kmz" => "application/vnd.google-earth.kmz",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "xlsm" => "application/vnd.ms-excel.sheet.macroenabled.12",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "odt" => "application/vnd.oasis.opendocument.text",
        "ods" => "application/vnd.oasis.opendocument.spreadsheet",
        "odp" => "application/vnd.oasis.opendocument.presentation",
        "doc" => "application/msword",
        "xls" => "application/vnd.ms-excel",
        "ppt" => "application/vnd.ms-powerpoint",
        "msg" => "application/vnd.ms-outlook",
        "sqlite" | "sqlite3" | "db" => "application/vnd.sqlite3",
        "parquet" => "application/vnd.apache.parquet",
        "arrow" | "feather" => "application/vnd.apache.arrow.file",
        "npy" => "application/x-npy",
        "npz" => "application/x-npz",
        "pkl" | "pickle" => "application/x-python-pickle",
        "h5" | "hdf5" => "application/x-hdf5",
        "wasm" => "application/wasm",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "flac" => "audio/flac",
        "m4a" => "audio/mp4",
        "oga" | "ogg" | "opus" => "audio/ogg",
        "mp4" | "m4v" => MP4,
        "mov" => "video/quicktime",
        "webm" => "video/webm",
        "mkv" => MATROSKA,
        "avi" => "video/x-msvideo",
        "ogv" => "video/ogg",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_file_has_a_media_type(name in r"\PC{0,12}(\.(png|html|csv|docx|tar\.gz|HTML|x))?", head: Vec<u8>) {
            let detected = content_type_of(&name, &head);
            prop_assert!(is_content_type(&detected), "{}", detected);
            // What is a page to those who show pages says so by its name, and is text.
            prop_assert!(detected != "text/html" || (name.to_lowercase().ends_with("html") && looks_like_text(&head)));
        }

        #[test]
        fn media_types_are_safe_header_values(text in r"\PC{0,6}/?[a-z;= \r\n\x00-\x1f]{0,12}") {
            prop_assert!(!is_content_type(&text) || text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }

    fn check(name: &str, head: &[u8], expected: &str) {
        assert_eq!(content_type_of(name, head), expected, "{name} {head:?}");
    }

    #[test]
    fn sniffed_types_override_names() {
        check("photo.html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png");
        check("photo.html", b"<html>", "text/html");
        check("photo.png", b"<html><script>", "text/plain");
        check("noname", b"<!doctype html><html>", "text/plain");
        check("report.txt", b"%PDF-1.7\n", "application/pdf");
        check("data.csv", b"\0\x01\x02", "application/octet-stream");
        check("data.png", b"\0\x01\x02", "application/octet-stream");
        check("data.bin", b"plain words", "text/plain");
        check("clip", b"\0\0\0\x18ftypisom", "video/mp4");
        check("pic", b"\0\0\0\x18ftypavif", "image/avif");
        check("BMW.txt", b"BMW is a make of cars", "text/plain");
    }

    #[test]
    fn names_refine_ambiguous_bytes() {
        let zip = b"PK\x03\x04\x14\0";
        check("a.zip", zip, "application/zip");
        check("a.xlsx", zip, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet");
        check("a.html", zip, "application/zip");
        check("a.tar.gz", b"\x1f\x8b\x08", "application/x-gtar-compressed");
        check("a.csv.gz", b"\x1f\x8b\x08", "application/gzip");
        check("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/msword");
        check("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml");
        check("A.JSON", b"{}", "application/json");
        check("x.npy", b"\x93NUMPY\x01\0v\0", "application/x-npy");
        check("directory.png/readme", b"words", "text/plain");
    }

    #[test]
    fn empty_files_are_typed_by_name() {
        check("sales.csv", b"", "text/csv");
        check("api", b"", "application/octet-stream");
        check(".bashrc", b"", "application/octet-stream");
        check("", b"", "application/octet-stream");
    }

    #[test]
    fn text_is_detected_despite_a_split_character() {
        let mut long = "ü".repeat(HEAD_BYTES / 2 - 1).into_bytes();
        long.extend_from_slice(b"a\xc3\xbc");
        check("a.md", &long, "text/markdown");
        check("a.md", b"caf\xe9 au lait", "application/octet-stream");
        check("a.csv", b"\xff\xfea\0,\0b\0", "text/csv");
    }

    #[test]
    fn media_types_have_a_type_and_a_subtype() {
        for good in ["text/csv", "text/plain; charset=utf-8", "application/vnd.a+json", "image/svg+xml ;q=1"]
        {
            assert!(is_content_type(good), "{good}");
        }
        for bad in ["", "csv", "text/", "/csv", "text/csv\r\nX: y", "text/c sv", "a/b; \u{7f}", "te\"xt/x"] {
            assert!(!is_content_type(bad), "{bad:?}");
        }
        assert!(!is_content_type(&format!("text/{}", "a".repeat(255))));
    }
}
