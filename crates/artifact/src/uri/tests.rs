//! Parsing, display and checks of artifact references.

use proptest::prelude::*;

use super::*;
use crate::error::ArtifactErrorKind as Kind;

fn reads(text: &str, expected: &str) {
    let uri = ArtifactUri::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(uri.to_string(), expected, "{text:?}");
    assert_eq!(ArtifactUri::parse(expected).unwrap(), uri, "{text:?}");
    assert!(ArtifactUri::is_reference(text));
}

fn refused(text: &str, kind: Kind, hint: &str) {
    let error = ArtifactUri::parse(text).expect_err(text);
    assert_eq!(error.kind(), kind, "{text:?}: {error}");
    assert!(error.to_string().contains(hint), "{text:?}: {error}");
}

#[test]
fn the_examples_of_the_decision_record() {
    for text in [
        "skill://csv-helper/assets/sample_data.csv",
        "skill://pdf-generator/assets/templates/invoice.docx",
        "file://sales_report",
        "file://user_upload_123",
        "https://example.com/api/data.json",
    ] {
        reads(text, text);
    }
}

#[test]
fn any_file_of_a_skill_can_be_named() {
    reads("skill://a/SKILL.md", "skill://a/SKILL.md");
    reads("skill://a/references/deep/er/file.txt", "skill://a/references/deep/er/file.txt");
    reads("skill://a/assets/assets/x", "skill://a/assets/assets/x");
    reads("skill://a/.hidden/..x/...", "skill://a/.hidden/..x/...");
    let uri = ArtifactUri::parse("skill://a/x/y.txt").unwrap();
    let ArtifactUri::Skill { skill, path } = uri else { panic!("{uri}") };
    assert_eq!((skill.as_str(), path.as_str()), ("a", "x/y.txt"));
}

#[test]
fn schemes_ignore_case_and_names_do_not() {
    reads("SKILL://a/B.txt", "skill://a/B.txt");
    reads("File://Report", "file://Report");
    reads("HTTPS://Example.com/A", "https://Example.com/A");
    assert_ne!(ArtifactUri::parse("file://Report").unwrap(), ArtifactUri::parse("file://report").unwrap());
}

#[test]
fn percent_encoding_is_decoded_once() {
    let name = |text: &str| match ArtifactUri::parse(text).unwrap() {
        ArtifactUri::File { name } => name.to_string(),
        other => panic!("{other}"),
    };
    assert_eq!(name("file://Q3%20report.xlsx"), "Q3 report.xlsx");
    assert_eq!(name("file://Q3 report.xlsx"), "Q3 report.xlsx");
    assert_eq!(name("file://a%252Fb"), "a%2Fb");
    assert_eq!(name("file://%E6%95%B0%e6%8d%ae.csv"), "数据.csv");
    assert_eq!(name("file://数据.csv"), "数据.csv");
    assert_eq!(name("file://a+b"), "a+b");
    assert_eq!(name("file://a%3Ab%40c"), "a:b@c");
    assert_eq!(name("file://localhost"), "localhost");
    reads("file://a%3ab", "file://a%3Ab");
    reads("skill://a/100%25.txt", "skill://a/100%25.txt");
    reads("skill://a/%61%2e", "skill://a/a.");
}

#[test]
fn ambiguous_uris_are_rejected() {
    for text in ["skill://a/%2e%2e/b", "skill://a/..", "skill://a/b/../c", "skill://a/%2E./b"] {
        refused(text, Kind::PathTraversal, "leads out");
    }
    refused("skill://a/b%2Fc", Kind::InvalidUri, "%2F");
    refused("skill://a%2Fb/c", Kind::InvalidUri, "not a skill name");
    refused("skill://../b", Kind::InvalidUri, "not a skill name");
    refused("skill://a/b%5Cc", Kind::InvalidUri, "backslash");
    refused("skill://a/b\\c", Kind::InvalidUri, "backslash");
    refused("skill://a/./b", Kind::InvalidUri, "`.`");
    refused("skill://a//b", Kind::InvalidUri, "empty name");
    refused("skill://a/b/", Kind::InvalidUri, "empty name");
    refused("skill://a/", Kind::InvalidUri, "empty name");
    refused("skill://a", Kind::InvalidUri, "names no file");
    refused("skill:///assets/x", Kind::InvalidUri, "names no skill");
    refused("skill://u@a/b", Kind::InvalidUri, "%40");
    refused("skill://a:80/b", Kind::InvalidUri, "%3A");
    refused("skill://a/b?c", Kind::InvalidUri, "%3F");
    refused("skill://a/b#c", Kind::InvalidUri, "%23");
    refused("skill://a/b%00", Kind::InvalidUri, "zero byte");
    refused("skill://a/b\0", Kind::InvalidUri, "zero byte");
    refused("skill://a/b\nc", Kind::InvalidUri, "control character");
    refused("skill://a/b%0ac", Kind::InvalidUri, "control character");
    refused("skill://a/%", Kind::InvalidUri, "%25");
    refused("skill://a/%2", Kind::InvalidUri, "%25");
    refused("skill://a/%zz", Kind::InvalidUri, "%25");
    refused("skill://a/%+1", Kind::InvalidUri, "%25");
    refused("skill://a/%é", Kind::InvalidUri, "%25");
    refused("skill://a/%ff", Kind::InvalidUri, "UTF-8");
}

#[test]
fn file_uris_name_artifacts_and_not_paths() {
    for text in [
        "file:///etc/passwd",
        "file://localhost/x",
        "file://report/",
        "file://",
        "file://a/b",
        "file://..%2Fx",
        "file://C:\\x",
        "file://a%5Cb",
    ] {
        refused(text, Kind::InvalidUri, "name of an artifact of the session");
    }
    refused("file://..", Kind::InvalidUri, "`..`");
    refused("file://a%20", Kind::InvalidUri, "space");
    refused("file://a%0A", Kind::InvalidUri, "character");
    refused("file://me@host", Kind::InvalidUri, "%40");
    refused("file://host:80", Kind::InvalidUri, "%3A");
    refused("file://a?b", Kind::InvalidUri, "%3F");
    refused(&format!("file://{}", "a".repeat(129)), Kind::InvalidUri, "129 bytes");
}

#[test]
fn urls_are_kept_verbatim_except_hidden_characters() {
    reads("https://example.com", "https://example.com");
    reads("http://example.com:8080/a?b=c#d", "http://example.com:8080/a?b=c#d");
    reads("https://example.com/a@b?c@d", "https://example.com/a@b?c@d");
    refused("https://", Kind::InvalidUri, "names no host");
    refused("https:///x", Kind::InvalidUri, "names no host");
    refused("https://?x", Kind::InvalidUri, "names no host");
    refused("https://good.example@evil.example/", Kind::InvalidUri, "user name");
    refused("https://a.example\\@evil.example/", Kind::InvalidUri, "backslash");
    refused("https://a.example/ x", Kind::InvalidUri, "spaces");
    refused("https://a.example/\r\nX: y", Kind::InvalidUri, "spaces");
    refused("https://a\tb/", Kind::InvalidUri, "spaces");
}

#[test]
fn other_texts_are_not_references() {
    for text in [
        "",
        "/etc/passwd",
        "a.csv",
        "file:/x",
        "file:x",
        "ftp://x/y",
        " file://x",
        "xfile://a",
        "data:,x",
        "://",
    ] {
        assert!(!ArtifactUri::is_reference(text), "{text:?}");
        refused(text, Kind::InvalidUri, "begins with");
    }
    refused(&format!("file://{}", "a".repeat(9000)), Kind::InvalidUri, "the maximum is 8192");
    let error = ArtifactUri::parse(&format!("bad\x1b[31m{}", "x".repeat(5000))).unwrap_err().to_string();
    assert!(error.len() < 500 && !error.contains('\x1b'), "{error}");
}

#[test]
fn paths_are_checked_as_paths() {
    assert_eq!(SkillPath::new("assets/100%.csv").unwrap().as_path(), Path::new("assets/100%.csv"));
    for (path, kind) in [("../x", Kind::PathTraversal), ("/x", Kind::InvalidUri), ("", Kind::InvalidUri)] {
        assert_eq!(SkillPath::new(path).unwrap_err().kind(), kind, "{path}");
    }
}

proptest! {
    #[test]
    fn any_text_is_rejected_or_round_trips(text in r"(skill://|file://|https://|)[%/.a:@?# \\\u{7f}\u{e9}0-9e]{0,24}") {
        if let Ok(uri) = ArtifactUri::parse(&text) {
            prop_assert_eq!(ArtifactUri::parse(&uri.to_string()).unwrap(), uri);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(text in any::<String>()) {
        let _ = ArtifactUri::parse(&text);
        let _ = ArtifactUri::parse(&format!("skill://{text}"));
        let _ = ArtifactUri::parse(&format!("file://{text}"));
    }

    #[test]
    fn every_valid_path_has_a_reference(path in r"[^/\\\p{Cc}]{1,8}(/[^/\\\p{Cc}]{1,8}){0,3}") {
        prop_assume!(path.split('/').all(|segment| !matches!(segment, "." | "..")));
        let uri = ArtifactUri::skill("some-skill", SkillPath::new(path.clone()).unwrap());
        let text = uri.to_string();
        prop_assert!(text.is_ascii());
        match ArtifactUri::parse(&text).unwrap() {
            ArtifactUri::Skill { path: read, .. } => prop_assert_eq!(read.as_str(), path),
            other => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn every_name_has_a_reference(name in r"[^/\\\p{Cc}]{1,20}") {
        if let Ok(name) = ArtifactName::new(name) {
            let uri = ArtifactUri::file(name);
            prop_assert_eq!(ArtifactUri::parse(&uri.to_string()).unwrap(), uri);
        }
    }

    /// A path that is read never leads out, whatever it was encoded as.
    #[test]
    fn no_encoding_escapes_the_directory(segments in prop::collection::vec(r"(\.|%2e|%2E|%252e|a|%2f|/){0,4}", 1..4)) {
        if let Ok(ArtifactUri::Skill { path, .. }) = ArtifactUri::parse(&format!("skill://s/{}", segments.join("/"))) {
            let is_plain = |part| matches!(part, std::path::Component::Normal(_));
            prop_assert!(path.as_path().components().all(is_plain));
        }
    }
}

#[test]
fn an_error_shows_no_secrets_of_a_url() {
    let long = format!("https://h/?token=hunter2{}", "x".repeat(MAX_BYTES));
    for text in
        ["https://bob:hunter2@h/", "HTTP://h/a b?token=hunter2", "ftp://bob:hunter2@h/?hunter2", &long]
    {
        let error = ArtifactUri::parse(text).unwrap_err().to_string();
        assert!(!error.contains("hunter2") && !error.contains("bob") && error.contains("://h/"), "{error}");
    }
}
