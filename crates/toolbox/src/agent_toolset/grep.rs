//! `grep`: finds lines that match a regular expression in text files.

use conjure_base::Redactor;
use conjure_sandbox::{CallOptions, Executor, SandboxError, SandboxErrorKind};
use futures_util::{StreamExt as _, stream};
use regex::bytes::{Regex, RegexBuilder};

use super::error_text::toolset_error;
use super::glob::one_line;
use super::tree_walk::{FileTree, FoundFile, is_of_call, join};
use super::whole_file::read_whole;
use crate::text::{clean, quote};
use crate::tool::ToolOutput;

/// The maximum number of lines of a result.
const MAX_LINES: usize = 500;

/// The maximum number of bytes of a line that are shown.
const MAX_LINE_BYTES: usize = 500;

/// The largest file that is searched.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// How many files are read at once.
const CONCURRENCY: usize = 8;

/// The maximum length of an expression, and the maximum memory of a compiled one, in bytes.
const MAX_PATTERN: usize = 4_096;
const MAX_PROGRAM: usize = 4 * 1024 * 1024;

/// A checked expression, and the path to search.
#[derive(Debug, Clone)]
pub(crate) struct Grep {
    regex: Regex,
    /// Empty: the working directory.
    root: String,
}

impl Grep {
    /// Checks an expression.
    ///
    /// # Errors
    /// A message for the model that says what is wrong with the expression.
    pub(crate) fn new(pattern: &str, path: Option<&str>) -> Result<Self, String> {
        if pattern.is_empty() {
            return Err("field `pattern` is empty: give a regular expression".to_owned());
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!(
                "field `pattern` has {} bytes, and the maximum is {MAX_PATTERN}",
                pattern.len()
            ));
        }
        let built = RegexBuilder::new(pattern).size_limit(MAX_PROGRAM).dfa_size_limit(MAX_PROGRAM).build();
        let regex = built.map_err(|error| {
            format!(
                "field `pattern` is not a regular expression that can be searched: {error}\nhint: escape special characters \
                 with `\\`; look-around and back references are not there"
            )
        })?;
        Ok(Self { regex, root: path.unwrap_or_default().to_owned() })
    }

    /// The matching lines of a text, with their numbers, from 1.
    fn lines<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (usize, &'t [u8])> + 't {
        let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let count = text.iter().filter(|byte| **byte == b'\n').count();
        // There is no line after the last line end.
        let all = if text.last() == Some(&b'\n') { count } else { count + 1 };
        (1..).zip(lines).take(all).filter(|(_, line)| self.regex.is_match(line))
    }
}

/// The files that were not searched.
#[derive(Debug, Default)]
struct SkippedFiles {
    large: usize,
    unreadable: usize,
}

pub(super) async fn run(
    executor: &dyn Executor,
    grep: &Grep,
    budget: usize,
    redactor: &Redactor,
    options: CallOptions,
) -> ToolOutput {
    let root = if grep.root.is_empty() { "." } else { &grep.root };
    let tree = match FileTree::list(executor, root, &options).await {
        Ok(tree) => tree,
        // The root may be a file.
        Err(error) if error.kind() == SandboxErrorKind::WrongFileType => FileTree {
            files: vec![FoundFile { path: String::new(), size: 0, modified_ns: 0 }],
            ..FileTree::default()
        },
        Err(error) => return toolset_error("search", &quote(root), &error),
    };
    match search(executor, grep, &tree, budget, redactor, &options).await {
        Ok(text) => ToolOutput::text(text),
        Err(error) => toolset_error("search", &quote(root), &error),
    }
}

async fn search(
    executor: &dyn Executor,
    grep: &Grep,
    tree: &FileTree,
    budget: usize,
    redactor: &Redactor,
    options: &CallOptions,
) -> Result<String, SandboxError> {
    let mut skipped = SkippedFiles::default();
    let files: Vec<&FoundFile> = tree.files.iter().filter(|file| file.size <= MAX_FILE_BYTES).collect();
    skipped.large = tree.files.len() - files.len();
    let read = |file: &FoundFile| {
        let path = join(&grep.root, &file.path);
        async move { (read_whole(executor, &path, MAX_FILE_BYTES, options.clone()).await, path) }
    };
    let mut contents = stream::iter(files.into_iter().map(read)).buffered(CONCURRENCY);
    let (mut text, mut count, mut is_cut) = (String::new(), 0, false);
    'files: while let Some((content, path)) = contents.next().await {
        let content = match content {
            Ok(content) => content,
            Err(error) if is_of_call(&error) => return Err(error),
            Err(error) => {
                match error.kind() {
                    SandboxErrorKind::TooLarge => skipped.large += 1,
                    _ => skipped.unreadable += 1,
                }
                continue;
            }
        };
        // A file with a zero byte is not text.
        if content.contains(&0) {
            continue;
        }
        for (number, line) in grep.lines(&content) {
            let line = format!("{}:{number}:{}\n", one_line(&path), shown_line(line, redactor));
            if count == MAX_LINES || text.len() + line.len() > budget {
                is_cut = true;
                break 'files;
            }
            text += &line;
            count += 1;
        }
    }
    if text.is_empty() && !is_cut {
        text += "[no line matches]\n";
    }
    if is_cut {
        text += &format!("[only the first {count} lines are shown; narrow the pattern, or give a `path`]\n");
    }
    if skipped.large > 0 {
        text += &format!("[{} files of more than {MAX_FILE_BYTES} bytes were not searched]\n", skipped.large);
    }
    if skipped.unreadable > 0 {
        text += &format!("[{} files could not be read]\n", skipped.unreadable);
    }
    if let Some(notice) = tree.notice() {
        text += &format!("[{notice}]\n");
    }
    Ok(text)
}

/// A line as text, from its start.
fn shown_line(line: &[u8], redactor: &Redactor) -> String {
    let shown = clean(line.get(..line.len().min(MAX_LINE_BYTES)).unwrap_or_default());
    if line.len() <= MAX_LINE_BYTES {
        return shown;
    }
    // Redact here: truncation may have left a part of a secret.
    format!("{}… [{} bytes in all]", redactor.redact_head(&shown), line.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_numbered_whatever_their_ends() {
        let grep = Grep::new("b|^$", None).unwrap();
        let lines: Vec<_> = grep.lines(b"abc\r\n\nxyz\nb").collect();
        assert_eq!(lines, [(1, b"abc".as_slice()), (2, b"".as_slice()), (4, b"b".as_slice())]);
        assert_eq!(grep.lines(b"a\n").count(), 0);
        assert_eq!(Grep::new("x$", None).unwrap().lines(b"x\r\n").count(), 1);
    }

    #[test]
    fn an_expression_that_cannot_be_searched_says_why() {
        assert!(Grep::new("(a", None).unwrap_err().contains("unclosed group"));
        assert!(Grep::new(r"(?=a)", None).unwrap_err().contains("look-around"));
        assert!(
            Grep::new(&format!("a{}", "{1000}".repeat(3)), None).unwrap_err().contains("exceeds size limit")
        );
    }

    proptest! {
        #[test]
        fn matching_lines_are_those_that_contain_a_literal(
            lines in prop::collection::vec("[abc]{0,4}", 0..12),
            literal in "[abc]{1,2}",
        ) {
            let grep = Grep::new(&literal, None).unwrap();
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let found: Vec<usize> = grep.lines(text.as_bytes()).map(|(number, _)| number).collect();
            let expected: Vec<usize> =
                (1..).zip(&lines).filter(|(_, line)| line.contains(&literal)).map(|(number, _)| number).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_pattern_is_refused_or_searched(pattern in ".{0,40}", text in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(grep) = Grep::new(&pattern, None) {
                prop_assert!(grep.lines(&text).count() <= text.len() + 1);
            }
        }
    }
}
