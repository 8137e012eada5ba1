//! The content type of an uploaded file, by its name. The official SDK uses the same table (Python's own).

/// The type of files with an unknown extension.
const BYTES: &str = "application/octet-stream";

/// Extensions that name a compression instead of a type.
const ENCODINGS: [&str; 5] = ["gz", "bz2", "xz", "br", "zst"];

/// Extensions in alphabetical order, and their types.
const TYPES: [(&str, &str); 69] = [
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("avi", "video/x-msvideo"),
    ("bat", "text/plain"),
    ("bmp", "image/bmp"),
    ("c", "text/plain"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("dot", "application/msword"),
    ("eml", "message/rfc822"),
    ("epub", "application/epub+zip"),
    ("gif", "image/gif"),
    ("h", "text/plain"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/vnd.microsoft.icon"),
    ("jpe", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("ksh", "text/plain"),
    ("latex", "application/x-latex"),
    ("m4a", "audio/mp4"),
    ("markdown", "text/markdown"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("ogg", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("pl", "text/plain"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("py", "text/x-python"),
    ("rst", "text/x-rst"),
    ("rtf", "application/rtf"),
    ("rtx", "text/richtext"),
    ("sgml", "text/x-sgml"),
    ("sh", "application/x-sh"),
    ("sql", "application/sql"),
    ("srt", "text/plain"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tex", "application/x-tex"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("tsv", "text/tab-separated-values"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain"),
    ("vcf", "text/x-vcard"),
    ("vtt", "text/vtt"),
    ("wasm", "application/wasm"),
    ("wav", "audio/x-wav"),
    ("webp", "image/webp"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "text/xml"),
    ("zip", "application/zip"),
];

/// The content type of a file of this name.
pub(crate) fn media_type_for_name(name: &str) -> &'static str {
    let name = name.rsplit('/').next().unwrap_or(name);
    let Some((stem, extension)) = split_extension(name) else { return BYTES };
    let extension = extension.to_ascii_lowercase();
    if extension == "tgz" {
        return "application/x-tar";
    }
    if ENCODINGS.contains(&extension.as_str()) {
        return split_extension(stem)
            .map_or(BYTES, |(_, extension)| media_type_for_extension(&extension.to_ascii_lowercase()));
    }
    media_type_for_extension(&extension)
}

/// Splits a name at its last dot. A dot at the start does not begin an extension.
fn split_extension(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('.').filter(|(stem, _)| !stem.trim_start_matches('.').is_empty())
}

fn media_type_for_extension(extension: &str) -> &'static str {
    match TYPES.binary_search_by_key(&extension, |(known, _)| known) {
        Ok(index) => TYPES[index].1,
        Err(_) => BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_follow_from_extensions() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0), "they are searched by halves");
        for (name, expected) in [
            ("my-skill/SKILL.md", "text/markdown"),
            ("my-skill/scripts/a.py", "text/x-python"),
            ("scripts/run.sh", "application/x-sh"),
            ("TABLE.CSV", "text/csv"),
            ("a.b/c", BYTES),
            ("noext", BYTES),
            (".json", BYTES),
            ("..json", BYTES),
            ("a.tar.gz", "application/x-tar"),
            ("a.tgz", "application/x-tar"),
            ("a.gz", BYTES),
            ("x.unheard-of", BYTES),
            ("r\u{e9}port.XLSX", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
            ("", BYTES),
        ] {
            assert_eq!(media_type_for_name(name), expected, "{name}");
        }
    }
}
