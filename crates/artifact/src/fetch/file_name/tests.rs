use proptest::prelude::*;

use super::super::web_url::UncheckedUrl;
use super::*;

fn url(text: &str) -> WebUrl {
    WebUrl::try_from(UncheckedUrl::parse(text).unwrap()).unwrap()
}

fn check(disposition: impl AsRef<[u8]>, expected: &str) {
    let url = url("https://example.com/by-url.csv");
    let disposition = disposition.as_ref();
    assert_eq!(file_name(Some(disposition), &url), expected, "{:?}", String::from_utf8_lossy(disposition));
}

#[test]
fn the_content_disposition_names_the_file() {
    check("attachment; filename=report.csv", "report.csv");
    check("attachment; filename=\"Q3 report.csv\"", "Q3 report.csv");
    check("inline;FileName = \"a\\\"b.csv\" ; size=3", "a\"b.csv");
    check("attachment; filename=\"a;b=c.csv\"; x=y", "a;b=c.csv");
    check("attachment; x=y; filename=unterminated", "unterminated");
    check("attachment; filename=\"unterminated", "unterminated");
    check("attachment; filename=\"Übersicht.csv\"", "Übersicht.csv");
    check(b"attachment; filename=\"\xdcbersicht.csv\"", "Übersicht.csv");
}

#[test]
fn the_extended_file_name_takes_precedence() {
    check("attachment; filename=\"x.csv\"; filename*=UTF-8''%E2%82%AC%20rates.csv", "€ rates.csv");
    check("attachment; filename*=utf-8'en'rates.csv; filename=x.csv", "rates.csv");
    check("attachment; filename*=iso-8859-1''%A3%20rates.csv", "£ rates.csv");
    check("attachment; filename*=UTF-8''%ff.csv; filename=x.csv", "x.csv");
    check("attachment; filename*=KOI8-R''%C1.csv; filename=x.csv", "x.csv");
    check("attachment; filename*=broken; filename=x.csv", "x.csv");
    check("attachment; filename*=UTF-8''100%.csv", "100%.csv");
}

#[test]
fn file_names_are_sanitized() {
    check("attachment; filename=\"../../etc/passwd\"", "passwd");
    check("attachment; filename=\"C:\\\\dir\\\\file.txt\"", "file.txt");
    check("attachment; filename*=UTF-8''..%2F..%2Fetc%2Fpasswd", "passwd");
    check("attachment; filename*=UTF-8''a%00b%0Ac.txt", "a_b_c.txt");
    check("attachment; filename*=UTF-8''exe%E2%80%AEgpj.txt", "exe_gpj.txt");
    check("attachment; filename=\"  spaces  \"", "spaces");
    for text in [
        "",
        "attachment",
        "attachment; filename=",
        "attachment; filename=\"..\"",
        "; filename=\"a/\"",
        ";;=;",
    ] {
        check(text, "by-url.csv");
    }
    check(format!("attachment; filename={}", "a".repeat(5000)), "by-url.csv");
    let long = format!("attachment; filename=\"{}.tar.gz\"", "ä".repeat(200));
    let expected = format!("{}.gz", "ä".repeat(62));
    check(long, &expected);
}

#[test]
fn without_a_header_the_url_names_the_file() {
    let named = |text: &str| file_name(None, &url(text));
    assert_eq!(named("https://example.com/data.json?x=y.csv"), "data.json");
    assert_eq!(named("https://example.com/a/b%20c.csv"), "b c.csv");
    assert_eq!(named("https://example.com/a%2Fb.csv"), "b.csv");
    assert_eq!(named("https://example.com/%ff.csv"), "%ff.csv");
    assert_eq!(named("https://example.com/%2e%2e"), "example.com");
    assert_eq!(named("https://example.com/dir/"), "example.com");
    assert_eq!(named("https://example.com"), "example.com");
    assert_eq!(named("http://[2001:db8::1]/"), "[2001:db8::1]");
}

proptest! {
    #[test]
    fn any_header_gives_a_valid_name(header in proptest::collection::vec(any::<u8>(), 0..128)) {
        let name = file_name(Some(&header), &url("https://example.com/"));
        prop_assert!(ArtifactName::new(name).is_ok());
    }

    #[test]
    fn any_similar_header_gives_a_valid_name(header in "[a-z]{0,4}(; *(filename\\*?|x) *=? *\"?[ -~]{0,20}\"?){0,4}") {
        let name = file_name(Some(header.as_bytes()), &url("https://example.com/"));
        prop_assert!(ArtifactName::new(name).is_ok());
    }

    #[test]
    fn any_encoding_of_a_name_is_decoded(name in "[\\PC&&[^/\\\\]]{1,40}") {
        prop_assume!(ArtifactName::new(name.clone()).is_ok());
        let url = url("https://example.com/by-url.csv");
        let quoted = format!("attachment; filename=\"{}\"", name.replace('"', "\\\""));
        prop_assert_eq!(file_name(Some(quoted.as_bytes()), &url), name.clone());
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let extended = format!("attachment; filename=\"x\"; filename*=UTF-8''{encoded}");
        prop_assert_eq!(file_name(Some(extended.as_bytes()), &url), name);
    }

    #[test]
    fn any_url_path_gives_a_name(path in "[!-~]{0,64}") {
        let name = file_name(None, &url(&format!("https://example.com/{}", path.replace('\\', ""))));
        prop_assert!(ArtifactName::new(name).is_ok());
    }
}
