//! Records the names that the facade exports, so that a change of the public API is visible.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The names at the root, modules included, that a page has room for.
const MOST_ROOT_NAMES: usize = 60;

/// The exported names by module; the root is "". An alias counts by its new name.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let text = fs::read_to_string(path).unwrap();
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut module = String::new();
    for statement in code.join("\n").split_inclusive([';', '\n']).fold(Vec::new(), join_statements) {
        let statement = statement.trim();
        if let Some(name) = statement.strip_prefix("pub mod ") {
            module = name.trim_end_matches(" {").to_owned();
            found.entry(String::new()).or_default().insert(module.clone());
        } else if statement == "}" {
            module.clear();
        } else if let Some(exports) = statement.strip_prefix("pub use ") {
            found.entry(module.clone()).or_default().extend(names(exports));
        }
    }
    found
}

/// Joins the lines of a `pub use` until its semicolon.
fn join_statements(mut statements: Vec<String>, line: &str) -> Vec<String> {
    match statements.last_mut() {
        Some(last) if last.trim_start().starts_with("pub use ") && !last.trim_end().ends_with(';') => {
            last.push_str(line);
        }
        _ => statements.push(line.to_owned()),
    }
    statements
}

/// The names of `path::{A, B as C};` or `path::A;`.
fn names(exports: &str) -> Vec<String> {
    let exports = exports.trim_end().trim_end_matches(';');
    let list = match exports.split_once('{') {
        Some((_, list)) => list.trim_end().trim_end_matches('}'),
        None => exports.rsplit("::").next().unwrap_or(exports),
    };
    let name = |item: &str| item.rsplit(" as ").next().unwrap_or(item).trim().to_owned();
    list.split(',').map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_root_fits_on_a_page() {
    let root = &exported()[""];
    assert!(root.contains("Runtime") && root.contains("skill"), "{root:?}");
    assert!(root.len() <= MOST_ROOT_NAMES, "{} names at the root: {root:?}", root.len());
}

#[test]
fn the_exported_names_are_the_recorded_ones() {
    let mut listed = String::new();
    for (module, names) in exported() {
        let title = if module.is_empty() { "conjure".to_owned() } else { format!("conjure::{module}") };
        let names: Vec<String> = names.into_iter().collect();
        listed.push_str(&format!("{title}: {}\n", names.join(" ")));
    }
    insta::assert_snapshot!("public_names", listed);
}
