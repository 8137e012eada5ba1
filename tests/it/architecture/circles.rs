//! Checks that files do not import each other in cycles.
//!
//! Two files that need each other are one file, or what they share is a third file below both. Reads `use` declarations and paths that
//! begin with `crate` or `super`, follows re-exports, and leaves tests out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A path of module names, from the crate's root.
type ModulePath = Vec<String>;

/// One crate's files, with what each names of the others.
#[derive(Default)]
struct CrateFiles {
    /// The file of each module.
    files: BTreeMap<ModulePath, PathBuf>,
    /// What `pub use` gives another name: the module that says it, the name, the path that it stands for.
    reexports: BTreeMap<(ModulePath, String), ModulePath>,
    /// The paths that each module names.
    paths: BTreeMap<ModulePath, Vec<ModulePath>>,
}

impl CrateFiles {
    fn read(source: &Path) -> Self {
        let mut found = Self::default();
        let mut pending = vec![source.to_owned()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                if path.is_dir() {
                    if name != "tests" && name != "bin" {
                        pending.push(path);
                    }
                } else if name.ends_with(".rs") && name != "tests.rs" && name != "main.rs" {
                    found.files.insert(module_of(source, &path), path);
                }
            }
        }
        for (module, path) in found.files.clone() {
            let text = without_tests(&fs::read_to_string(&path).unwrap());
            let mut paths = Vec::new();
            for (is_public, used) in uses(&text) {
                for (alias, path) in expand(&used) {
                    let Some(path) = found.module_at(&module, &path) else { continue };
                    if is_public {
                        found.reexports.insert((module.clone(), alias), path.clone());
                    } else {
                        paths.push(path);
                    }
                }
            }
            for path in inline_paths(&text) {
                paths.extend(found.module_at(&module, &path));
            }
            found.paths.insert(module, paths);
        }
        found
    }

    /// The path as seen from the crate's root; `None` where it leads to another crate.
    fn module_at(&self, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let mut rest = path;
        let mut base = match rest.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => module.clone(),
            first => {
                let mut child = module.clone();
                child.push(first.to_owned());
                if !self.files.contains_key(&child) {
                    return None;
                }
                module.clone()
            }
        };
        while let Some(first) = rest.first() {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => {
                    base.pop();
                }
                _ => break,
            }
            rest = &rest[1..];
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// The module whose file defines what the path names.
    fn definition(&self, path: &ModulePath, depth: usize) -> Option<ModulePath> {
        let mut module = ModulePath::new();
        for (at, segment) in path.iter().enumerate() {
            let mut child = module.clone();
            child.push(segment.clone());
            if self.files.contains_key(&child) {
                module = child;
                continue;
            }
            if let Some(target) = self.reexports.get(&(module.clone(), segment.clone()))
                && depth < 8
            {
                let mut full_path = target.clone();
                full_path.extend_from_slice(&path[at + 1..]);
                return self.definition(&full_path, depth + 1);
            }
            return Some(module);
        }
        // A module as such: what is used of it stands in inline paths.
        None
    }

    /// The files that name each other, as pairs.
    fn pairs(&self) -> Vec<(&Path, &Path)> {
        let arrows: BTreeMap<&ModulePath, BTreeSet<ModulePath>> = self
            .paths
            .iter()
            .map(|(module, paths)| {
                (module, paths.iter().filter_map(|path| self.definition(path, 0)).collect())
            })
            .collect();
        let mut pairs = Vec::new();
        for (module, targets) in &arrows {
            for target in targets.iter().filter(|target| module < target) {
                if arrows.get(target).is_some_and(|back| back.contains(*module)) {
                    pairs.push((self.files[*module].as_path(), self.files[target].as_path()));
                }
            }
        }
        pairs
    }
}

fn module_of(source: &Path, file: &Path) -> ModulePath {
    let mut module: ModulePath = file
        .strip_prefix(source)
        .unwrap()
        .with_extension("")
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

/// The text up to its tests, without comments.
fn without_tests(text: &str) -> String {
    let mut output = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test") {
            // A block of tests ends the file; a single item is passed over.
            match lines.peek() {
                Some(next) if next.trim_end().ends_with('{') && next.contains("mod ") => break,
                _ => {
                    for line in lines.by_ref() {
                        if line.contains(';') || line.starts_with('}') {
                            break;
                        }
                    }
                }
            }
            continue;
        }
        if !trimmed.starts_with("//") {
            output.push_str(line);
            output.push('\n');
        }
    }
    output
}

/// The `use` declarations: whether they re-export, and what they name.
fn uses(text: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let after_visibility = trimmed
            .strip_prefix("pub ")
            .or_else(|| trimmed.strip_prefix("pub(crate) "))
            .or_else(|| trimmed.strip_prefix("pub(super) "))
            .or_else(|| {
                trimmed
                    .starts_with("pub(in")
                    .then(|| trimmed.split_once(") ").map_or("", |(_, remainder)| remainder))
            });
        let is_public = after_visibility.is_some();
        let Some(first) = after_visibility.unwrap_or(trimmed).strip_prefix("use ") else { continue };
        let mut used = first.to_owned();
        while !used.contains(';') {
            let Some(next) = lines.next() else { break };
            used.push_str(next.trim());
        }
        found.push((
            is_public,
            used.split(';').next().unwrap().split_whitespace().collect::<Vec<_>>().join(" "),
        ));
    }
    found
}

/// The paths that a tree of names stands for, each with the name under which it is known.
fn expand(tree: &str) -> Vec<(String, ModulePath)> {
    let tree = tree.trim();
    if let Some((prefix, group)) = tree.split_once('{') {
        let prefix: ModulePath =
            prefix.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let group = group.strip_suffix('}').unwrap_or(group);
        return split_group(group)
            .into_iter()
            .flat_map(expand)
            .map(|(alias, path)| {
                let mut full_path = prefix.clone();
                if path != ["self"] {
                    full_path.extend(path);
                }
                (alias, full_path)
            })
            .collect();
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let path: ModulePath = path.split("::").map(|part| part.trim().to_owned()).collect();
    let alias = alias.map_or_else(|| path.last().unwrap().clone(), |alias| alias.trim().to_owned());
    if path.last().is_some_and(String::is_empty) { Vec::new() } else { vec![(alias, path)] }
}

/// The parts of a group between its braces, groups within it left whole.
fn split_group(group: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// Paths in the code itself.
fn inline_paths(text: &str) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("use ") || trimmed.starts_with("pub") && trimmed.contains(" use ") {
            continue;
        }
        for start in ["crate::", "super::"] {
            for (at, _) in line.match_indices(start) {
                if line[..at]
                    .ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | ':' | '$'))
                {
                    continue;
                }
                let path =
                    line[at..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next().unwrap();
                found.push(path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
            }
        }
    }
    found
}

#[test]
fn files_do_not_import_each_other_in_cycles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = vec![root.join("src"), root.join("actors/src")];
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        sources.push(entry.unwrap().path().join("src"));
    }
    let mut found = BTreeSet::new();
    for source in sources {
        let short = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        found.extend(CrateFiles::read(&source).pairs().iter().map(|(one, other)| (short(one), short(other))));
    }
    assert!(
        found.is_empty(),
        "files that use each other; merge them, or move what they share to a third file: {found:#?}"
    );
}
