//! Random fixtures from a seed, biased to edge cases: most are nearly valid.

use super::Fixture;

/// The fixture of a seed; always the same.
pub(crate) fn fixture(seed: u64) -> Fixture {
    // Mixed first, so that the fixtures of neighbouring seeds have nothing in common.
    let mut random = Random(Random(seed).next());
    let name = name(&mut random);
    let mut fields = vec![
        ("name".to_owned(), field(&mut random, &name)),
        (key(&mut random, "description"), {
            let text = text(&mut random);
            field(&mut random, &text)
        }),
    ];
    for optional in ["license", "compatibility", "allowed-tools"] {
        if random.chance(3) {
            let text = text(&mut random);
            fields.push((key(&mut random, optional), field(&mut random, &text)));
        }
    }
    if random.chance(3) {
        fields.push(("metadata".to_owned(), metadata(&mut random)));
    }
    if random.chance(25) {
        let unknown = random.pick(&["version", "Name", "allowed_tools", "<<", "=", "x y", "é"]);
        fields.push((unknown.to_owned(), field(&mut random, "x")));
    }
    if random.chance(30) {
        let twice = random.pick_from(&fields).clone();
        fields.push(twice);
    }
    if random.chance(30) {
        let lost = random.below(fields.len());
        fields.remove(lost);
    }
    if random.chance(4) {
        let from = random.below(fields.len());
        let field = fields.swap_remove(from);
        fields.push(field);
    }
    let content = mutate(&mut random, render(&fields));
    let dir = dir(&mut random, &name);
    Fixture { dir, file: "SKILL.md", content: content.into_bytes() }
}

fn render(fields: &[(String, String)]) -> String {
    let lines: String = fields.iter().map(|(key, value)| format!("{key}:{value}\n")).collect();
    format!("---\n{lines}---\n\n# Body\n")
}

fn key(random: &mut Random, key: &str) -> String {
    match random.below(40) {
        0 => format!("\"{key}\""),
        1 => format!("'{key}'"),
        2 => format!("{key} "),
        3 => key.to_uppercase(),
        4 => format!("? {key}\n"),
        _ => key.to_owned(),
    }
}

fn name(random: &mut Random) -> String {
    let parts = [
        "a",
        "skill",
        "data",
        "0",
        "x9",
        "é",
        "ñandú",
        "навык",
        "技能",
        "ß",
        "ﬁ",
        "ｘ",
        "e\u{301}",
        "A",
        "É",
        "_",
        ".",
        " ",
        "--",
        "-",
        "²",
        "ⅷ",
        "क्",
        "🦀",
        "ͅ",
        "ǆ",
        "µ",
        "ſ",
    ];
    if random.chance(15) {
        return random.pick(&["a", "é", "技", "ﬁ", "e\u{301}"]).repeat(random.between(20, 70));
    }
    let count = random.between(1, 4);
    let usual = 7;
    let words: Vec<_> = (0..count)
        .map(|_| if random.chance(12) { random.pick(&parts) } else { random.pick(&parts[..usual]) })
        .collect();
    words.join(if random.chance(20) { "" } else { "-" })
}

fn dir(random: &mut Random, name: &str) -> String {
    let dir = if random.chance(15) {
        random.pick(&["other", "skill", "a"]).to_owned()
    } else {
        name.trim().to_owned()
    };
    // A directory's name has at most 255 bytes, and some texts are none.
    let mut dir: String = dir.replace(['/', '\0'], "");
    while dir.len() > 240 {
        dir.pop();
    }
    if dir.is_empty() || dir == "." || dir == ".." { "directory".to_owned() } else { dir }
}

/// Some words, now and then with what YAML minds, or at a limit.
fn text(random: &mut Random) -> String {
    let plain = [
        "Use", "when", "the", "report", "PDF", "files", "é", "数据", "v1.0", "a-b", "(x)", "50%", "it's",
        "C#", "a:b", "e.g.", "🦀",
    ];
    let special = [
        ": ", " #", "#", ":", "- ", "'", "\"", "\\", "[", "]", "{", "}", ",", "&", "*", "!", "|", ">", "%",
        "@", "`", "?", "? ", "<b>", "=", "~", "null", "---", "...", "\u{a0}", "\u{85}", "\u{2028}",
        "\u{feff}", "\u{7f}", "\t", "  ", "\u{200b}",
    ];
    if random.chance(25) {
        return random.pick(&["a", "é", "ab ", "数"]).repeat(random.between(490, 515) * random.between(1, 2));
    }
    let mut text = String::new();
    for index in 0..random.between(1, 8) {
        if random.chance(14) {
            text.push_str(random.pick(&special));
        } else {
            if index > 0 {
                text.push(' ');
            }
            text.push_str(random.pick(&plain));
        }
    }
    text
}

/// The value of a field with the text, in one of YAML's styles; begins right after the colon.
fn field(random: &mut Random, text: &str) -> String {
    let value = scalar(random, text, 2);
    match random.below(70) {
        0 => " &anchor x".to_owned(),
        1 => format!(" !!str {text}"),
        2 => format!(" [{text}]"),
        3 => format!(" {{k: {text}}}"),
        4 => " *alias".to_owned(),
        5 => format!("\n  - {text}\n  - y"),
        6 => format!("\n- {text}"),
        7 => format!("\n  k: {text}"),
        8 => String::new(),
        9 => format!("{value} # comment"),
        10 => format!("{value}  "),
        11 => format!("\t{text}"),
        12 => format!("{text}\n"),
        _ => value,
    }
}

fn scalar(random: &mut Random, text: &str, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let lines = |separators: &[&str], random: &mut Random| -> String {
        text.split(' ').fold(String::new(), |mut lines, word| {
            if !lines.is_empty() {
                let separator = if random.chance(3) { random.pick(separators) } else { " " };
                lines.push_str(&separator.replace('\n', &format!("\n{margin}")));
            }
            lines.push_str(word);
            lines
        })
    };
    match random.below(12) {
        0 | 1 => format!(" '{}'", text.replace('\'', "''")),
        2 | 3 => format!(" \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        4 => format!(" \"{}\"", lines(&["\n", "\\n", "\\\n", "\n\n", "\\u00e9", "\\t"], random)),
        5 => format!(" '{}'", lines(&["\n", "\n\n", "  "], random)),
        6 => format!(" {}", lines(&["\n", "\n\n", "\n  ", "\n# "], random)),
        7 | 8 => {
            let header = random.pick(&[
                "|", ">", "|-", ">-", "|+", ">+", "|2", ">2-", "|-2", "| # c", ">  ", "|1", "|0", ">9", "|x",
            ]);
            let below = random.pick(&["", "\n", "\n\n", "\n # c", "\n  # c", "\n\n # c\n"]);
            format!(" {header}\n{margin}{}{below}", lines(&["\n", "\n\n", "\n  ", "\n\n  "], random))
        }
        9 => format!("\n{margin}{text}"),
        _ => format!(" {text}"),
    }
}

fn metadata(random: &mut Random) -> String {
    if random.chance(12) {
        return random
            .pick(&["", " text", "\n  - a", " {}", "\n  k:\n    n: v", "\n  k:\n  - v", "\n  k: v\n   l: w"])
            .to_owned();
    }
    let keys = ["author", "version", "k-1", "é", "1", "true", "'q'", "\"d\"", "a b", "~"];
    let mut out = String::new();
    for _ in 0..random.between(1, 4) {
        let text = text(random);
        let value = if random.chance(2) {
            format!(" {}", random.pick(&["1.0", "1.10", "true", "~", "0x1f", "2024-01-01", "''", "no"]))
        } else {
            scalar(random, &text, 4)
        };
        out.push_str(&format!("\n  {}:{value}", random.pick(&keys)));
        if random.chance(10) {
            out.push_str(random.pick(&["\n", "\n\n", "\n  # c", "\n# c", " # c"]));
        }
    }
    out
}

/// Now and then changes the file as a whole, or characters of it.
fn mutate(random: &mut Random, mut content: String) -> String {
    match random.below(60) {
        0 => content = content.replace('\n', "\r\n"),
        1 => content = content.replace('\n', "\r"),
        2 => content.insert(0, '\u{feff}'),
        3 => content.insert(0, '\n'),
        4 => content = content.replace("\n---\n", "\n"),
        5 => content.truncate(content.find("\n---\n").map_or(content.len(), |offset| offset + 4)),
        6 => content = content.replace("\n---\n", "\n...\n---\n"),
        7 => content = content.replace("\n---\n", "\n \n\t\n---\n"),
        8 => content = content.replacen('\n', "\n# comment\n\n", 3),
        _ => {}
    }
    if random.chance(6) {
        let pieces = [
            " ", "\n", "\n\n", "\t", ":", ": ", "-", "- ", "#", " #", "'", "\"", "|", ">", "?", "? ", "\\",
            "\n  ", "\n - ", "\n  k: v", "x", "\u{85}", "\u{2028}", "\u{feff}", "...", "\r", "%", "@",
        ];
        for _ in 0..random.between(1, 3) {
            let places: Vec<_> = content.char_indices().map(|(offset, _)| offset).collect();
            let Some(&offset) = places.get(random.below(places.len())) else { break };
            if random.chance(3) {
                content.remove(offset);
            } else {
                content.insert_str(offset, random.pick(&pieces));
            }
        }
    }
    content
}

/// A small generator of random numbers (splitmix64), so that a seed makes the same fixtures everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with a probability of one in `times`.
    fn chance(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn pick_from<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
