//! `glob`: finds files whose path matches a pattern.

use conjure_sandbox::{CallOptions, Executor};
use globset::{GlobBuilder, GlobMatcher};

use super::error_text::toolset_error;
use super::tree_walk::{FileTree, join};
use crate::text::{clean, quote};
use crate::tool::ToolOutput;

/// The maximum number of paths of a result.
const MAX_PATHS: usize = 1_000;

/// The longest pattern.
const MAX_PATTERN: usize = 1_024;

/// A checked pattern, and the directory that it is relative to.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    pattern: String,
    matcher: GlobMatcher,
    /// The directory that is searched; empty: the working directory.
    root: String,
}

impl Glob {
    /// Checks a pattern. In it `*` and `?` match no `/`, `**` matches any directories, `{a,b}` alternatives.
    ///
    /// # Errors
    /// A message for the model that says what is wrong with the pattern.
    pub(crate) fn new(pattern: &str, path: Option<&str>) -> Result<Self, String> {
        if pattern.is_empty() {
            return Err("field `pattern` is empty: give a pattern such as `**/*.py`".to_owned());
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!(
                "field `pattern` has {} bytes, and the maximum is {MAX_PATTERN}",
                pattern.len()
            ));
        }
        let (base, relative) = split_base(pattern);
        let root = match (base, path) {
            ("", path) => path.unwrap_or_default().to_owned(),
            (base, None) => base.to_owned(),
            (base, Some(path)) if base.starts_with('/') => {
                return Err(format!(
                    "field `pattern` begins at `{}`, and field `path` is `{}`: give a pattern that is relative to the path",
                    quote(base),
                    quote(path)
                ));
            }
            (base, Some(path)) => join(path, base),
        };
        let glob = GlobBuilder::new(relative)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| format!("field `pattern` is not a glob pattern: {}", error.kind()))?;
        Ok(Self { pattern: pattern.to_owned(), matcher: glob.compile_matcher(), root })
    }

    fn is_match(&self, path: &str) -> bool {
        self.matcher.is_match(path)
    }
}

/// Splits a pattern into its literal leading directories and the rest, which the search matches.
fn split_base(pattern: &str) -> (&str, &str) {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let special = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    match pattern.get(..special).and_then(|literal| literal.rfind('/')) {
        Some(0) => ("/", pattern.get(1..).unwrap_or_default()),
        Some(end) => (pattern.get(..end).unwrap_or_default(), pattern.get(end + 1..).unwrap_or_default()),
        None => ("", pattern),
    }
}

pub(super) async fn run(
    executor: &dyn Executor,
    glob: &Glob,
    budget: usize,
    options: CallOptions,
) -> ToolOutput {
    let root = if glob.root.is_empty() { "." } else { &glob.root };
    let tree = match FileTree::list(executor, root, &options).await {
        Ok(tree) => tree,
        Err(error) => return toolset_error("search", &quote(root), &error),
    };
    let mut found: Vec<_> = tree.files.iter().filter(|file| glob.is_match(&file.path)).collect();
    // Latest first, then by path.
    found.sort_by_key(|file| std::cmp::Reverse(file.modified_ns));
    let mut text = String::new();
    let mut shown = 0;
    for file in found.iter().take(MAX_PATHS) {
        let line = one_line(&join(&glob.root, &file.path));
        if text.len() + line.len() >= budget {
            break;
        }
        text += &line;
        text.push('\n');
        shown += 1;
    }
    if shown < found.len() {
        text += &format!("[{} more files match; narrow the pattern]\n", found.len() - shown);
    }
    if found.is_empty() {
        text = format!("[no file in `{}` matches `{}`]\n", quote(root), quote(&glob.pattern));
    }
    if let Some(notice) = tree.notice() {
        text += &format!("[{notice}]\n");
    }
    ToolOutput::text(text)
}

/// A path on one line.
pub(super) fn one_line(path: &str) -> String {
    clean(path.as_bytes()).replace('\n', "␊").replace('\r', "␍")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_stay_in_their_directory_and_two_cross_directories() {
        let is_match = |pattern: &str, path: &str| Glob::new(pattern, None).unwrap().is_match(path);
        assert!(is_match("*.py", "a.py") && !is_match("*.py", "src/a.py"));
        assert!(is_match("**/*.py", "a.py") && is_match("**/*.py", "src/deep/a.py"));
        assert!(is_match("**/*.{c,h}", "src/a.h") && !is_match("**/*.{c,h}", "src/a.cc"));
        assert!(is_match("[ab]?.txt", "a1.txt") && !is_match("[ab]?.txt", "c1.txt"));
        assert!(is_match("**/test_*", "x/test_a") && !is_match("**/test_*", "x/test_a/b"));
    }

    #[test]
    fn named_directories_are_the_root() {
        for (pattern, path, root, relative) in [
            ("src/*.py", None, "src", "*.py"),
            ("./src/**/a", Some("/work"), "/work/src", "**/a"),
            ("/etc/*", None, "/etc", "*"),
            ("/*", None, "/", "*"),
            ("a.txt", Some("docs"), "docs", "a.txt"),
        ] {
            let glob = Glob::new(pattern, path).unwrap();
            assert_eq!((glob.root.as_str(), glob.matcher.glob().glob()), (root, relative));
        }
        assert!(Glob::new("/etc/*", Some("src")).unwrap_err().contains("relative to the path"));
        assert!(Glob::new("a[", None).unwrap_err().starts_with("field `pattern` is not a glob pattern"));
        assert!(Glob::new("", None).is_err());
    }

    proptest! {
        #[test]
        fn a_pattern_of_any_characters_is_refused_or_matches_without_panic(
            pattern in ".{0,40}",
            path in "[a-z/.]{0,40}",
        ) {
            if let Ok(glob) = Glob::new(&pattern, None) {
                let _ = glob.is_match(&path);
            }
        }

        #[test]
        fn a_pattern_without_special_characters_matches_itself_alone(name in "[a-z0-9._-]{1,20}", other in "[a-z]{1,5}") {
            let glob = Glob::new(&name, None).unwrap();
            prop_assert!(glob.is_match(&name));
            let longer = format!("{name}{other}");
            prop_assert!(!glob.is_match(&longer));
        }
    }
}
