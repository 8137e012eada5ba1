//! [`Interpreters`]: which program runs a script, by its extension.

use std::collections::BTreeMap;
use std::path::Path;

/// The default table. For other extensions, an executable file is started directly; else its first line names the interpreter (`#!`).
const DEFAULT: [(&str, &[&str]); 12] = [
    ("py", &["python3"]),
    ("sh", &["bash"]),
    ("bash", &["bash"]),
    ("js", &["node"]),
    ("mjs", &["node"]),
    ("cjs", &["node"]),
    // No person can answer Deno's prompts. The sandbox restricts its access.
    ("ts", &["deno", "run", "--allow-all"]),
    ("mts", &["deno", "run", "--allow-all"]),
    ("rb", &["ruby"]),
    ("pl", &["perl"]),
    ("lua", &["lua"]),
    ("ps1", &["pwsh", "-NoProfile", "-NonInteractive", "-File"]),
];

/// The program that runs a script, by the script's extension.
///
/// | extension | program |
/// |---|---|
/// | `.py` | `python3`, with the skill's directory on `PYTHONPATH` |
/// | `.sh`, `.bash` | `bash` |
/// | `.js`, `.mjs`, `.cjs` | `node` |
/// | `.ts`, `.mts` | `deno run --allow-all` |
/// | `.rb` | `ruby` |
/// | `.pl` | `perl` |
/// | `.lua` | `lua` |
/// | `.ps1` | `pwsh -NoProfile -NonInteractive -File` |
/// | any other | the file itself if it is executable, else the program that its first line names (`#!`) |
///
/// ```
/// use conjure_toolbox::Interpreters;
///
/// let interpreters = Interpreters::default().with("R", ["Rscript"]).without("pl");
/// assert_eq!(interpreters.for_script("scripts/plot.R").unwrap(), ["Rscript"]);
/// assert_eq!(interpreters.for_script("scripts/old.pl"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreters(BTreeMap<String, Vec<String>>);

impl Default for Interpreters {
    fn default() -> Self {
        DEFAULT.iter().fold(Self(BTreeMap::new()), |table, (extension, argv)| {
            table.with(extension, argv.iter().copied())
        })
    }
}

impl Interpreters {
    /// Sets the program for files of this extension (without its dot). `argv` is the program and the arguments before the script's
    /// path. An empty `argv` removes the program.
    #[must_use]
    pub fn with(mut self, extension: &str, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv: Vec<String> = argv.into_iter().map(Into::into).collect();
        if argv.is_empty() {
            return self.without(extension);
        }
        self.0.insert(extension.to_ascii_lowercase(), argv);
        self
    }

    /// Removes the program for this extension. Such files then run like files of any other extension.
    #[must_use]
    pub fn without(mut self, extension: &str) -> Self {
        self.0.remove(&extension.to_ascii_lowercase());
        self
    }

    /// The program for this file and the arguments before its path. `None` if the table does not have the file's extension.
    #[must_use]
    pub fn for_script(&self, script: impl AsRef<Path>) -> Option<&[String]> {
        let extension = script.as_ref().extension()?.to_str()?.to_ascii_lowercase();
        self.0.get(&extension).map(Vec::as_slice)
    }

    /// Whether a skill's file looks like a script, by its extension or its directory.
    pub(crate) fn is_script(&self, file: &Path) -> bool {
        self.for_script(file).is_some() || file.starts_with("scripts")
    }
}

/// The interpreter that the first line of a file names: the program, and at most one argument, as the kernel reads it.
pub(super) fn parse_shebang(start: &[u8]) -> Option<Vec<String>> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim();
    let (program, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    if program.is_empty() {
        return None;
    }
    let argument = Some(argument.trim().to_owned()).filter(|argument| !argument.is_empty());
    Some(std::iter::once(program.to_owned()).chain(argument).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_the_documented_one() {
        let table = Interpreters::default();
        let check = |script: &str, expected: Option<&[&str]>| {
            let argv: Option<Vec<&str>> =
                table.for_script(script).map(|argv| argv.iter().map(String::as_str).collect());
            assert_eq!(argv.as_deref(), expected, "{script}");
        };
        check("scripts/a.py", Some(&["python3"]));
        check("a.PY", Some(&["python3"]));
        check("deep/er/a.sh", Some(&["bash"]));
        check("a.js", Some(&["node"]));
        check("a.ts", Some(&["deno", "run", "--allow-all"]));
        check("a.rb", Some(&["ruby"]));
        check("a.pl", Some(&["perl"]));
        check("a.ps1", Some(&["pwsh", "-NoProfile", "-NonInteractive", "-File"]));
        check("a", None);
        check(".py", None);
        check("a.exe", None);
    }

    #[test]
    fn a_first_line_names_a_program_and_one_argument() {
        let check = |start: &[u8], expected: Option<&[&str]>| {
            let argv = parse_shebang(start);
            let argv: Option<Vec<&str>> = argv.as_ref().map(|argv| argv.iter().map(String::as_str).collect());
            assert_eq!(argv.as_deref(), expected);
        };
        check(b"#!/bin/sh\necho", Some(&["/bin/sh"]));
        check(b"#! /usr/bin/env  -S node --x\r\n", Some(&["/usr/bin/env", "-S node --x"]));
        check(b"#!/usr/bin/perl", Some(&["/usr/bin/perl"]));
        check(b"#!\n", None);
        check(b"#! \xff", None);
        check(b"\x7fELF", None);
        check(b"", None);
    }

    proptest! {
        #[test]
        fn a_first_line_is_a_program_or_nothing(start: Vec<u8>, line in "#![ -~\t]{0,40}") {
            for start in [start.as_slice(), line.as_bytes()] {
                if let Some(argv) = parse_shebang(start) {
                    prop_assert!((1..=2).contains(&argv.len()));
                    prop_assert!(argv.iter().all(|word| !word.trim().is_empty() && !word.contains('\n')));
                }
            }
        }
    }

    #[test]
    fn a_script_is_known_by_its_extension_or_its_directory() {
        let table = Interpreters::default();
        for (file, expected) in [
            ("core/a.py", true),
            ("scripts/run", true),
            ("run", false),
            ("scripts.txt", false),
            ("a.md", false),
        ] {
            assert_eq!(table.is_script(Path::new(file)), expected, "{file}");
        }
    }
}
