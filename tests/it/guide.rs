//! The guide is correct: its generated tables match the code, its commands parse, its files are valid, and its links have
//! targets.
//!
//! `UPDATE_GUIDE=1 cargo test --test it guide` rewrites the generated parts. Blocks of Rust are tests of the documentation.

#![expect(clippy::disallowed_methods, reason = "the command and a shell parse the guide's examples")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{program, root};
use conjure::SessionId;
use conjure::config::{CONFIG_KEYS, VARIABLES};
use conjure::conversation::Event;
use conjure::session::EventProjection;

fn pages() -> Vec<(PathBuf, String)> {
    let mut paths =
        vec![root().join("README.md"), root().join("CONTRIBUTING.md"), root().join("docs/ARCHITECTURE.md")];
    for entry in fs::read_dir(root().join("docs/guide/src")).unwrap() {
        paths.push(entry.unwrap().path());
    }
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The blocks of a page in this language, each with the number of its first line.
fn blocks(text: &str, language: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: Vec<_> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        if info.split(',').next() == Some(language) {
            found.push((number + 2, block.join("\n")));
        }
    }
    found
}

/// Compares what stands between two marks of a page with what the code says, or writes it there.
fn check_generated(page: &str, name: &str, expected: &str) {
    let path = root().join("docs/guide/src").join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let (before, remainder) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} lacks `{begin}`"));
    let (current, after) = remainder.split_once(&end).unwrap_or_else(|| panic!("{page} lacks `{end}`"));
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        fs::write(&path, format!("{before}{begin}{expected}{end}{after}")).unwrap();
    } else {
        assert_eq!(
            current, expected,
            "{page} is not what the code says: `UPDATE_GUIDE=1 cargo test --test it guide`"
        );
    }
}

fn help(command: &str) -> String {
    let output = Command::new(program())
        .args(command.split_whitespace())
        .arg("--help")
        .env_clear()
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    assert!(output.status.success(), "conjure {command} --help");
    String::from_utf8(output.stdout).unwrap()
}

/// Every command behind `command`, each before those behind it, as the help lists them.
fn commands(command: &str) -> Vec<String> {
    let help = help(command);
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A line that is indented further continues the one before.
    let entries = listed.filter_map(|line| line.strip_prefix("  ")).filter(|entry| !entry.starts_with(' '));
    let names = entries.filter_map(|entry| entry.split_whitespace().next());
    let below =
        names.filter(|name| *name != "help").flat_map(|name| commands(format!("{command} {name}").trim()));
    std::iter::once(command.to_owned()).chain(below).collect()
}

#[test]
fn the_command_is_documented() {
    let mut text = String::new();
    let commands = commands("");
    assert!(commands.len() > 30, "{commands:?}");
    for command in &commands {
        let name = if command.is_empty() { "conjure".to_owned() } else { format!("conjure {command}") };
        let help: String = help(command).lines().map(|line| format!("{}\n", line.trim_end())).collect();
        write!(text, "\n## `{name}`\n\n```text\n{}\n```\n", help.trim_end()).unwrap();
    }
    check_generated("command.md", "help", &text);
}

#[test]
fn keys_and_variables_are_documented() {
    let mut keys = String::new();
    let mut table = None;
    for key in CONFIG_KEYS {
        if table != Some(key.table) {
            if !key.table.is_empty() {
                write!(keys, "\n### `[{}]`\n", key.table).unwrap();
            }
            keys.push_str("\n| key | example | meaning |\n|---|---|---|\n");
            table = Some(key.table);
        }
        writeln!(keys, "| `{}` | `{}` | {} |", key.name, key.example, key.meaning).unwrap();
    }
    check_generated("configuration.md", "keys", &keys);
    let mut variables = "\n| variable | meaning |\n|---|---|\n".to_owned();
    for variable in VARIABLES {
        writeln!(variables, "| `{}` | {} |", variable.name, variable.meaning).unwrap();
    }
    check_generated("configuration.md", "variables", &variables);
}

/// Each kind of event with the first sentence that its declaration says of it, in the order of the declarations.
fn event_kinds() -> Vec<(String, String)> {
    let dir = root().join("crates/conversation/src/session_event");
    let source: String = fs::read_dir(dir)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .filter(|text| text.contains("pub enum SessionEventKind"))
        .collect();
    let mut meaning = String::new();
    let mut kinds = Vec::new();
    for line in source.lines() {
        if let Some(kind) =
            line.strip_prefix("    #[serde(rename = \"").and_then(|remainder| remainder.split('"').next())
        {
            if kind.contains('.') {
                kinds.push((kind.to_owned(), std::mem::take(&mut meaning)));
            }
        } else if let Some(text) = line.strip_prefix("    /// ") {
            meaning = if meaning.is_empty() { text.to_owned() } else { format!("{meaning} {text}") };
        } else {
            meaning.clear();
        }
    }
    kinds
}

/// An event of each kind, from the recorded conversations that pin the form: the shortest one.
fn event_examples() -> BTreeMap<String, String> {
    let mut examples = BTreeMap::<String, String>::new();
    let golden = fs::read_dir(root().join("crates/conversation/tests/golden")).unwrap();
    let mut files: Vec<_> = golden.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let mut projection = EventProjection::new(SessionId::from_bits(0x01));
        for (seq, line) in (0..).zip(fs::read_to_string(file).unwrap().lines()) {
            let Ok(event) = serde_json::from_str::<Event>(line) else { continue };
            for event in projection.apply(seq, &event) {
                let line = event.to_line();
                // Some of them have numbers that no program can read, on purpose.
                let Ok(value) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
                let kind = value["type"].as_str().unwrap().to_owned();
                let shorter = examples.get(&kind).is_none_or(|known| line.len() < known.len());
                if shorter {
                    examples.insert(kind, line);
                }
            }
        }
    }
    examples
}

#[test]
fn every_event_is_documented() {
    let (kinds, examples) = (event_kinds(), event_examples());
    assert!(kinds.len() > 20, "{kinds:?}");
    let mut text = String::new();
    for (kind, meaning) in kinds {
        let example =
            examples.get(&kind).unwrap_or_else(|| panic!("no recorded conversation has a `{kind}`"));
        write!(text, "\n### `{kind}`\n\n{meaning}\n\n```json\n{example}\n```\n").unwrap();
    }
    check_generated("events.md", "events", &text);
}

#[test]
fn every_metric_is_documented() {
    let source = fs::read_to_string(root().join("actors/src/metrics/names.rs")).unwrap();
    let names: Vec<_> = source.split('"').filter(|text| text.starts_with("conjure_")).collect();
    assert!(names.len() > 20, "{names:?}");
    let page = fs::read_to_string(root().join("docs/guide/src/metrics.md")).unwrap();
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "metrics.md lacks `{name}`");
    }
}

#[test]
fn configuration_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let mut count = 0;
    for (path, text) in pages() {
        for (line, block) in blocks(&text, "toml") {
            fs::write(&file, &block).unwrap();
            let output = Command::new(program())
                .arg("--config")
                .arg(&file)
                .args(["skills", "list"])
                .env("HOME", dir.path())
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}:{line}: {error}", path.display());
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

#[test]
fn manifests_are_read() {
    for (path, text) in pages() {
        for (line, block) in blocks(&text, "yaml") {
            let dir = tempfile::tempdir().unwrap();
            let skill = dir.path().join("example");
            fs::create_dir(&skill).unwrap();
            fs::write(skill.join("SKILL.md"), "---\nname: example\ndescription: An example.\n---\nText.\n")
                .unwrap();
            fs::write(skill.join("skill.manifest.yaml"), &block).unwrap();
            let output = Command::new(program()).args(["skills", "validate"]).arg(&skill).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}:{line}: {text}", path.display());
        }
    }
}

#[test]
fn commands_are_understood() {
    let mut count = 0;
    for (path, text) in pages() {
        for (line, block) in blocks(&text, "sh") {
            let location = format!("{}:{line}", path.display());
            let syntax = Command::new("bash").args(["-n", "-c", &block]).output().unwrap();
            assert!(syntax.status.success(), "{location}: {}", String::from_utf8_lossy(&syntax.stderr));
            for command in block.lines() {
                check_command(&location, command);
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// Options of ours are understood by the command itself; names of examples and benchmarks are there.
fn check_command(location: &str, line: &str) {
    let words = shell_words(line);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let ours = match words.as_slice() {
        ["conjure", rest @ ..] | ["cargo", "run", "--", rest @ ..] => rest,
        ["nice", rest @ ..] => return check_command(location, &rest.join(" ")),
        ["cargo", rest @ ..] => return check_cargo(location, rest),
        _ => return,
    };
    let output = Command::new(program()).args(ours).arg("--help").output().unwrap();
    assert!(output.status.success(), "{location}: `{line}`: {}", String::from_utf8_lossy(&output.stderr));
}

fn check_cargo(location: &str, text: &[&str]) {
    let value =
        |option: &str| text.iter().position(|word| *word == option).and_then(|offset| text.get(offset + 1));
    let package = value("-p").map_or(root().to_owned(), |package| {
        root().join("crates").join(package.strip_prefix("conjure-").unwrap_or(package))
    });
    for (option, dir) in [("--example", "examples"), ("--bench", "benches")] {
        let Some(name) = value(option).filter(|name| **name != "NAME") else { continue };
        let dir = package.join(dir);
        let is_there = dir.join(format!("{name}.rs")).exists() || dir.join(name).join("main.rs").exists();
        assert!(is_there, "{location}: there is no {option} {name}");
    }
}

/// The words of a simple command.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// The lines of a page that are not in a code block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors of a page's headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> Vec<String> {
    let headings =
        prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let of = |heading: &str| {
        let lower = heading.to_lowercase().replace(char::is_whitespace, "-");
        lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(of).collect()
}

#[test]
fn links_point_to_existing_pages_and_headings() {
    let guide = root().join("docs/guide/src").canonicalize().unwrap();
    let mut anchored = 0;
    for (path, text) in pages() {
        let links: Vec<&str> = prose(&text)
            .flat_map(|line| line.split("](").skip(1).filter_map(|remainder| remainder.split(')').next()))
            .filter(|target| !target.contains("://"))
            .collect();
        for target in links {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let Ok(file) = file.canonicalize() else {
                panic!("{}: there is no {target}", path.display());
            };
            // The book has only its own pages.
            let leaves_book = path.starts_with(&guide) && !file.starts_with(&guide);
            assert!(!leaves_book, "{}: {target} is not in the book", path.display());
            if !anchor.is_empty() {
                anchored += 1;
                let headings = anchors(&fs::read_to_string(&file).unwrap());
                assert!(headings.iter().any(|known| known == anchor), "{}: no {target}", path.display());
            }
        }
    }
    assert!(anchored > 0, "no link to a heading was found");
}

#[test]
fn every_page_of_the_guide_is_in_its_summary() {
    let guide = root().join("docs/guide/src");
    let summary = fs::read_to_string(guide.join("SUMMARY.md")).unwrap();
    for entry in fs::read_dir(&guide).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_listed = name == "SUMMARY.md" || summary.contains(&format!("]({name})"));
        assert!(is_listed, "SUMMARY.md does not list {name}, so the book has no such page");
    }
}

#[test]
fn paths_of_the_code_exist() {
    for (path, text) in pages() {
        for name in text.split('`').skip(1).step_by(2) {
            let is_path = ["src/", "actors/", "crates/", "tests/", "docs/", "benches/", "examples/"]
                .iter()
                .any(|dir| name.starts_with(dir));
            if !is_path || name.contains(|c: char| c.is_whitespace() || matches!(c, '*' | '{' | '<')) {
                continue;
            }
            let file = root().join(name);
            assert!(
                file.exists() || file.with_extension("rs").exists(),
                "{}: there is no `{name}`",
                path.display()
            );
        }
    }
}
