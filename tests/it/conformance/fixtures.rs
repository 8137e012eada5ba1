//! Fixed fixtures: edge cases of the format that an implementation got wrong.

use super::Fixture;

/// All of them.
pub(crate) fn all() -> Vec<Fixture> {
    let frontmatters = FRONTMATTERS.iter().map(|fields| of("a", &format!("---\n{fields}\n---\nBody\n")));
    let contents = CONTENTS.iter().map(|content| of("a", content));
    let mut fixtures: Vec<_> = frontmatters.chain(contents).chain(names()).chain(lengths()).collect();
    let valid = "---\nname: a\ndescription: d\n---\n";
    fixtures.push(Fixture { file: "skill.md", ..of("a", valid) });
    fixtures.push(Fixture { file: "README.md", ..of("a", valid) });
    fixtures.push(Fixture { content: b"---\nname: a\ndescription: \xff\n---\n".to_vec(), ..of("a", "") });
    fixtures.push(Fixture { content: b"---\nname: a\ndescription: d\n---\n\xff".to_vec(), ..of("a", "") });
    fixtures
}

fn of(dir: &str, content: &str) -> Fixture {
    Fixture { dir: dir.to_owned(), file: "SKILL.md", content: content.as_bytes().to_vec() }
}

/// Names as they are, each in a directory that should bear it.
fn names() -> impl Iterator<Item = Fixture> {
    let valid = ["a", "0", "my-skill", "a-1-b", "навык", "技能", "café", "ñ", "ß", "٣", "²", "ⅷ", "一", "ᾳ"];
    let invalid = [
        "A",
        "a_b",
        "a b",
        "a.b",
        "-a",
        "a-",
        "--",
        "-",
        "a--b",
        "É",
        "ǅ",
        "İ",
        "a\u{301}b\u{323}",
        "क्ष",
        "🅐",
        "ⓐ",
        "a\u{200d}b",
        "a\u{ad}b",
        "😀",
        "a’b",
        "\u{345}",
    ];
    let other_forms = [
        ("ﬁle", "file"),
        ("cafe\u{301}", "café"),
        ("café", "cafe\u{301}"),
        ("ａ", "a"),
        ("a", "ａ"),
        ("Ⅷ", "viii"),
    ];
    let named = |name: &str, dir: &str| of(dir, &format!("---\nname: '{name}'\ndescription: d\n---\n"));
    let plain = valid.into_iter().chain(invalid).map(move |name| named(name, name));
    let forms = other_forms.into_iter().map(move |(name, dir)| named(name, dir));
    plain.collect::<Vec<_>>().into_iter().chain(forms.collect::<Vec<_>>())
}

/// Texts at the limits, measured in code points.
fn lengths() -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    for character in ["a", "é", "技"] {
        for length in [63, 64, 65] {
            let name = character.repeat(length);
            fixtures.push(of(&name, &format!("---\nname: {name}\ndescription: d\n---\n")));
        }
        for length in [1023, 1024, 1025] {
            let text = character.repeat(length);
            fixtures.push(of("a", &format!("---\nname: a\ndescription: {text}\n---\n")));
            fixtures.push(of("a", &format!("---\nname: a\ndescription: ' {text}'\n---\n")));
        }
        for length in [499, 500, 501] {
            let text = character.repeat(length);
            fixtures.push(of("a", &format!("---\nname: a\ndescription: d\ncompatibility: {text}\n---\n")));
        }
    }
    fixtures.push(of("a", &format!("---\nname: a\ndescription: d\n{}: x\n---\n", "k".repeat(1024))));
    fixtures.push(of("a", &format!("---\nname: a\ndescription: d\n{}: x\n---\n", "k".repeat(1025))));
    fixtures
        .push(of("a", &format!("---\nname: a\ndescription: d\nmetadata:\n  {}1\n---\n", "- ".repeat(60))));
    fixtures
}

/// Whole files.
const CONTENTS: [&str; 19] = [
    "",
    "-",
    "---",
    "------",
    "---\n---",
    "---\n\n---\n",
    "# Title\n",
    "\u{feff}---\nname: a\ndescription: d\n---\n",
    "\n---\nname: a\ndescription: d\n---\n",
    " ---\nname: a\ndescription: d\n---\n",
    "---\nname: a\ndescription: d\n",
    "---\nname: a\ndescription: d\n---",
    "---\nname: a\ndescription: d\n--- \nBody",
    "---\nname: a\ndescription: d\n----\nBody",
    "---\nname: a\ndescription: d\n ---\nBody",
    "---\r\nname: a\r\ndescription: d\r\n---\r\nBody\r\n",
    "---\rname: a\rdescription: d\r---\rBody\r",
    "--- \nname: a\ndescription: d\n---\n",
    "--- # comment\nname: a\ndescription: d\n---\n",
];

/// The text between the fences, in a directory `a`.
const FRONTMATTERS: [&str; 97] = [
    "name: a\ndescription: d",
    "description: d\nname: a",
    "name: a",
    "description: d",
    "name:\ndescription: d",
    "name: a\ndescription:",
    "name: ' '\ndescription: d",
    "name: a\ndescription: ' '",
    "name: a\ndescription: '  padded  '",
    "name: ' a '\ndescription: d",
    "name: b\ndescription: d",
    "name: a\ndescription: d\nextra: x",
    "name: a\ndescription: d\nzebra: x\nApple: y\nbar: z",
    "Name: a\nDescription: d",
    "name: a\ndescription: d\nlicense: MIT\ncompatibility: c\nallowed-tools: Bash(git:*) Read\nmetadata:\n  author: me\n  version: 1.0",
    "name: a\ndescription: d\nlicense:\ncompatibility:\nallowed-tools:\nmetadata:",
    "name: a\ndescription: d\nlicense: ~\ncompatibility: true\nallowed-tools: 1.10",
    "name: a\ndescription: d\ncompatibility: c\nlicense: l",
    "name: a\ndescription: d\ncompatibility:\n  - a",
    "name: a\ndescription: d\ncompatibility:\n  a: b",
    "name: a\ndescription: d\nlicense:\n  - MIT",
    "name: a\ndescription: d\nallowed-tools:\n  - Read\n  - Write",
    "name: a\ndescription: d\nallowed-tools:\n- Read",
    "name: a\ndescription: d\nmetadata: text",
    "name: a\ndescription: d\nmetadata:\n  - x",
    "name: a\ndescription: d\nmetadata:\n  k:\n    n: v",
    "name: a\ndescription: d\nmetadata:\n  k: ~\n  1: 2\n  true: no\n  '': e",
    "name: a\ndescription: d\nmetadata:\n  z: 1\n  y: 2\n  x: 3",
    "name: a\ndescription: d\nmetadata:\n  é: ü\n  \"tab\": \"\\t\"",
    "name:\n  - a\ndescription: d",
    "name: a\ndescription:\n  - d",
    "name: a\ndescription:\n  k: v",
    "name: 123\ndescription: 456",
    "name: true\ndescription: no",
    "name: a\nname: a\ndescription: d",
    "name: a\n\"name\": b\ndescription: d",
    "name: a\ndescription: d\nmetadata:\n  k: 1\n  k: 2",
    "{name: a, description: d}",
    "name: a\ndescription: [d]",
    "name: a\ndescription: {k: v}",
    "name: a\ndescription: d]",
    "name: a\ndescription: ]d",
    "name: a\ndescription: ,d",
    "name: a\ndescription: d\nmetadata: {}",
    "name: a\ndescription: d\nallowed-tools: []",
    "name: &x a\ndescription: d",
    "name: a\ndescription: *x",
    "name: !!str a\ndescription: d",
    "name: ! a\ndescription: d",
    "name: a\ndescription: \td",
    "name: a\ndescription: d\t",
    "name: a\ndescription: d\te",
    "name: a\n\tdescription: d",
    "name: a\n\n\tdescription: d",
    "name: a\ndescription: d\nmetadata:\n\tk: v",
    "name: a\ndescription: Use when: x",
    "name: a\ndescription: x:y",
    "name: a\ndescription: x:",
    "name: a\ndescription: ':'",
    "name: a\ndescription: a # b",
    "name: a\ndescription: a#b",
    "name: a\ndescription: # nothing",
    "# comment\nname: a # c\n# between\ndescription: d\n# end",
    "name: a\n  # indented\ndescription: d\n\n\n",
    "name: a\ndescription: 'it''s'",
    "name: a\ndescription: \"q\\\"\\n\\u00e9\\x41\\U0001F600\\_\"",
    "name: a\ndescription: \"\\ud83d\\ude00\"",
    "name: a\ndescription: \"\\q\"",
    "name: a\ndescription: 'open",
    "name: a\ndescription: \"open",
    "name: a\ndescription: 'a' b",
    "name: a\ndescription: 'a'# b",
    "name: a\ndescription: >\n  folded\n  text\n\n  more",
    "name: a\ndescription: >-\n  folded\n   deeper\n  text",
    "name: a\ndescription: >+\n  folded\n\n",
    "name: a\ndescription: |\n  literal\n    deeper\n\n  more\n",
    "name: a\ndescription: |-\n  literal\n",
    "name: a\ndescription: |+\n  literal\n\n",
    "name: a\ndescription: |2\n   two\n",
    "name: a\ndescription: |0\n  zero\n",
    "name: a\ndescription: | # comment\n  text",
    "name: a\ndescription: |#\n  text",
    "name: a\ndescription: |\nno indentation",
    "name: a\ndescription: |\n  text\n # comment\nlicense: l",
    "name: a\ndescription: over\n  several\n\n  lines\nlicense: l",
    "name: a\ndescription:\n  below",
    "name: a\ndescription: over\nseveral",
    "  name: a\n  description: d",
    "name: a\n description: d",
    "? name\n: a\n? description\n: d",
    "- name: a\n- description: d",
    "just text",
    "<<:\n  k: v\nname: a\ndescription: d",
    "name: a\ndescription: =",
    "name: a\ndescription: \"bell \\a\"",
    "name: a\ndescription: d\n...",
    "name: a\ndescription: <b>&amp; \"x\" 'y'</b>",
];
