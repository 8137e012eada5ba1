use proptest::prelude::*;

use super::*;

fn parse(fields: &str, mode: Mode) -> Result<Document, FrontmatterError> {
    Frontmatter::parse(&format!("---\n{fields}\n---\nbody"), mode)
}

/// The errors of a strict reader, each on a line with its place.
fn check(fields: &str, expected: &str) {
    let errors =
        parse(fields, Mode::Strict).map_or_else(|error| error.diagnostics, |document| document.diagnostics);
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(lines.join("\n"), expected, "{fields:?}");
}

#[test]
fn findings_have_rule_message_and_position() {
    check("name: a\ndescription: d", "");
    check(
        "name: -A\nzebra: x\napple: y\ndescription: ''",
        "3:1: error[unknown-field]: Unexpected fields in frontmatter: apple, zebra. Only ['allowed-tools', \
         'compatibility', 'description', 'license', 'metadata', 'name'] are allowed.\n\
         2:7: error[name-not-lowercase]: Skill name '-A' must be lowercase\n\
         2:7: error[name-edge-hyphen]: Skill name cannot start or end with a hyphen\n\
         5:14: error[description-empty]: Field 'description' must be a non-empty string",
    );
    check(
        "name: a\ndescription: b: c",
        "3:15: error[frontmatter-syntax]: Invalid YAML in frontmatter: a second `: ` is not allowed here: quote the text",
    );
    check(
        "name: a\ndescription: d\nallowed-tools:\n  - Read",
        "5:3: warning[field-not-text]: Field 'allowed-tools' should be a string; its parts were joined by spaces",
    );
}

#[test]
fn hostile_texts_are_read_in_bounded_time_and_space() {
    let bomb = (0..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
        format!("{text}a{}: &a{} [*a{level}, *a{level}, *a{level}]\n", level + 1, level + 1)
    });
    let fill = |size: usize| move |piece: &str| piece.repeat(size / piece.len());
    let nested: String = (0..1000).map(|level| format!("{}k:\n", " ".repeat(level))).collect();
    let many: String = (0..60_000).map(|index| format!("k{index}: v\n")).collect();
    let pieces = [
        "[",
        "{a: ",
        "- ",
        "? ",
        "a:\n",
        " a:\n",
        "a: b: c\n",
        "'",
        "\"\\",
        "&a ",
        "!",
        "a: |\n",
        "\n",
        ": ",
        "*a\n",
        "k: '\n",
    ];
    for text in
        pieces.map(fill(200_000)).into_iter().chain(pieces.map(fill(30_000))).chain([bomb, nested, many])
    {
        for mode in [Mode::Strict, Mode::Lenient] {
            assert!(parse(&text, mode).is_err());
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text: String) {
        let _ = raw_document(&text);
        let _ = raw_document(&format!("---\n{text}\n---\n"));
        for mode in [Mode::Strict, Mode::Lenient] {
            let _ = Frontmatter::parse(&text, mode);
            let _ = parse(&text, mode);
        }
    }

    #[test]
    fn strictly_valid_documents_are_parsed_alike_in_lenient_mode(
        name in "[a-z]{1,5}(-[a-z0-9]{1,5})?", description in "[a-z:#'\"é \\-]{1,30}", license in "[a-z0-9.: ]{0,10}",
    ) {
        let fields = format!("name: {name}\ndescription: {description}\nlicense: {license}");
        if let Ok(strict) = parse(&fields, Mode::Strict) {
            prop_assert_eq!(parse(&fields, Mode::Lenient), Ok(strict));
        }
    }
}

#[test]
fn a_finding_about_thousands_of_unknown_fields_is_short() {
    let fields: String = (0..2000).map(|number| format!("k{number:04}: x\n")).collect();
    let content = format!("---\nname: a\ndescription: d\n{}: x\n{fields}---\n", "a".repeat(200));
    let document = Frontmatter::parse(&content, Mode::Lenient).unwrap();
    let [finding] = &document.diagnostics[..] else { panic!("{:?}", document.diagnostics) };
    let message = finding.message();
    assert!(
        message.ends_with("…, k0000, k0001, k0002, k0003, k0004, k0005, k0006, k0007, k0008 and 1991 more"),
        "{message}"
    );
    assert!(message.len() < 300, "{message}");
}

#[test]
fn raw_fields_contain_everything_written() {
    let content =
        "---\r\nname: A B\nlevel: 3\nlist: [a, 1.5, null]\ndescription: 'Use when: x '\n---\n\n Do it.\n";
    let (fields, body) = raw_document(content).unwrap();
    let expected = serde_json::json!({"name": "A B", "level": 3, "list": ["a", 1.5, null], "description": "Use when: x "});
    assert_eq!((serde_json::Value::Object(fields), body.as_str()), (expected, "Do it."));
    for wrong in ["no fence", "---\nname: a\n", "---\n- a\n---\n", "---\n? [a]\n: b\n---\n"] {
        assert!(raw_document(wrong).is_err(), "{wrong}");
    }
}
