//! Names in plain words: no type, function, module or file has one of the private words that the project once used.
//!
//! The guide's page of concepts has the words to use. Ordinary words in prose are free, and so are names of tests, which are sentences.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that no name contains.
const WORDS: [&str; 49] = [
    "belongings",
    "berth",
    "bringing",
    "chore",
    "chronicle",
    "complaints",
    "cot",
    "debts",
    "dice",
    "doomed",
    "errand",
    "fate",
    "fittings",
    "flights",
    "folder",
    "fortress",
    "gathering",
    "gist",
    "hatch",
    "holdings",
    "hops",
    "ingredients",
    "intake",
    "janitor",
    "keeper",
    "landed",
    "makings",
    "mooring",
    "nursery",
    "occupant",
    "outfit",
    "outfitter",
    "parcel",
    "parting",
    "premises",
    "purse",
    "remains",
    "rim",
    "rope",
    "scenes",
    "shelf",
    "shelves",
    "shelved",
    "spare",
    "surroundings",
    "tariff",
    "tenancy",
    "traveller",
    "withheld",
];

/// Words that are no name of a type: participles, pronouns and adverbs.
const NO_TYPES: [&str; 30] = [
    "Alone",
    "Asked",
    "Away",
    "Captured",
    "Chosen",
    "Due",
    "Extracted",
    "Found",
    "Given",
    "Gone",
    "Heard",
    "Held",
    "Kept",
    "Known",
    "Laid",
    "Left",
    "Lent",
    "Meant",
    "Packed",
    "Place",
    "Places",
    "Prepared",
    "Shown",
    "Standing",
    "Steady",
    "Stay",
    "Told",
    "Wanted",
    "Whose",
    "Why",
];

/// The keywords before a name in a declaration.
const KINDS: [&str; 6] = ["struct ", "enum ", "trait ", "type ", "fn ", "mod "];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !matches!(name, "tests" | "target" | "fixtures") && !name.starts_with('.') {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// `SandboxSlot` and `sandbox_slot` are `sandbox` and `slot`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if (character.is_uppercase() || character == '_') && !words.last().unwrap().is_empty() {
            words.push(String::new());
        }
        if character != '_' {
            words.last_mut().unwrap().extend(character.to_lowercase());
        }
    }
    words
}

fn declared(line: &str) -> Option<(&'static str, &str)> {
    let code = line.trim_start();
    if code.starts_with("//") {
        return None;
    }
    KINDS.iter().find_map(|kind| {
        let offset = code.find(kind)?;
        let is_declaration = code[..offset].split_whitespace().all(|word| {
            word.starts_with("pub")
                || matches!(word, "async" | "const" | "unsafe" | "extern" | "\"C\"" | "in" | "default")
                || word.ends_with(')')
        });
        let name = code[offset + kind.len()..].split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        (is_declaration && !name.is_empty()).then_some((*kind, name))
    })
}

#[test]
fn no_name_is_a_private_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "actors/src", "benches", "examples"] {
        sources(&root.join(dir), &mut files);
    }
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut wrong = Vec::new();
    for file in &files {
        let relative_path = file.strip_prefix(root).unwrap().display().to_string();
        let stem = file.file_stem().unwrap().to_str().unwrap();
        if words(stem).iter().any(|word| WORDS.contains(&word.as_str())) {
            wrong.push(format!("{relative_path}: the file"));
        }
        let text = fs::read_to_string(file).unwrap();
        let tests = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
        for (number, line) in text[..tests].lines().enumerate() {
            let Some((kind, name)) = declared(line) else { continue };
            let is_type = !matches!(kind, "fn " | "mod ");
            if words(name).iter().any(|word| WORDS.contains(&word.as_str()))
                || is_type && NO_TYPES.contains(&name)
            {
                wrong.push(format!("{relative_path}:{}: `{kind}{name}`", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "names in private words; take the field's:\n{}", wrong.join("\n"));
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("SandboxSlot"), ["sandbox", "slot"]);
    assert_eq!(words("keep_alive"), ["keep", "alive"]);
    assert_eq!(declared("    pub(crate) async fn run(&self) {"), Some(("fn ", "run")));
    assert_eq!(declared("pub struct Berth<'a> {"), Some(("struct ", "Berth")));
    assert_eq!(declared("/// pub struct Berth"), None);
    assert_eq!(declared("let type_of = fn_of(struct_of);"), None);
}
