//! Standard output and standard error: who may write what, in which colours, and what a closed pipe means.
//!
//! Holds the redactor of the run, because everything that leaves goes through here. A reader that goes away
//! (`conjure … | head`) is no failure of ours: writing to it does nothing, and [`Terminal::output_is_closed`]
//! says so to whoever would go on producing. A full disk is one: [`Terminal::output_failure`] tells it.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure::{Environment, Redactor};

use crate::cli::failure::Failure;

/// Where the command writes.
#[derive(Debug)]
pub(crate) struct Terminal {
    colour: bool,
    redactor: OnceLock<Redactor>,
    output_closed: AtomicBool,
    output_failure: OnceLock<String>,
}

/// How a piece of text on standard error looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Dim,
    Good,
    Warning,
    Bad,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[1;31m",
        }
    }
}

impl Terminal {
    /// The process' own, with colours only on a terminal whose user does not refuse them.
    pub(crate) fn of_process(environment: &Environment) -> Self {
        Self {
            colour: io::stderr().is_terminal() && !environment.refuses_colour(),
            redactor: OnceLock::new(),
            output_closed: AtomicBool::new(false),
            output_failure: OnceLock::new(),
        }
    }

    /// From now on these secrets are kept out of everything that is written. Only the first call counts.
    pub(crate) fn redact(&self, redactor: Redactor) {
        let _ = self.redactor.set(redactor);
    }

    /// A line on standard error.
    pub(crate) fn note(&self, line: &str) {
        self.styled(Style::Plain, line);
    }

    /// A line on standard error that begins with `word` in this style.
    pub(crate) fn marked(&self, style: Style, word: &str, rest: &str) {
        let line = self.redacted(&format!("{word}{rest}")).into_owned();
        // Where a secret reaches over its end, the line begins with no word.
        let (word, rest) = line.strip_prefix(word).map_or(("", line.as_str()), |rest| (word, rest));
        let line = format!("{}{}\n", self.paint(style, &harmless(word)), harmless(rest));
        // One write per line, so that lines of other threads do not get into it. A closed standard error leaves
        // nobody to tell.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }

    /// A line on standard error, all in this style.
    pub(crate) fn styled(&self, style: Style, line: &str) {
        self.marked(style, line, "");
    }

    /// Words on standard error to which somebody answers on the same line.
    pub(crate) fn prompt(&self, words: &str) {
        let words = self.paint(Style::Warning, &harmless(&self.redacted(words)));
        let _ = io::stderr().lock().write_all(words.as_bytes());
    }

    /// `warning: …` on standard error.
    pub(crate) fn warning(&self, text: &str) {
        self.marked(Style::Warning, "warning", &format!(": {text}"));
    }

    /// `error: …` and `hint: …` on standard error.
    pub(crate) fn failure(&self, failure: &Failure) {
        self.marked(Style::Bad, "error", &format!(": {}", failure.message));
        if let Some(hint) = &failure.hint {
            self.marked(Style::Good, "hint", &format!(": {hint}"));
        }
    }

    /// What clap has to say: help and version on standard output, mistakes on standard error.
    pub(crate) fn clap(&self, error: &clap::Error) {
        let text = error.render().to_string();
        if error.use_stderr() { self.note(text.trim_end()) } else { self.output(text.trim_end()) }
    }

    /// A line, or several, on standard output: byte for byte, unless that is a terminal, which the words of a model, of a tool
    /// or of a file must not be able to control.
    pub(crate) fn output(&self, text: &str) {
        if self.output_is_closed() {
            return;
        }
        let mut out = io::stdout().lock();
        let text = self.redacted(text);
        let text = if out.is_terminal() { harmless(&text).into() } else { text };
        let written = out
            .write_all(text.as_bytes())
            .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") })
            .and_then(|()| out.flush());
        if let Err(error) = written {
            if error.kind() != io::ErrorKind::BrokenPipe {
                let _ = self.output_failure.set(format!("standard output cannot be written: {error}"));
            }
            self.output_closed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether nobody reads standard output any more.
    pub(crate) fn output_is_closed(&self) -> bool {
        self.output_closed.load(Ordering::Relaxed)
    }

    /// Why standard output was not written, when that is not because its reader has gone away.
    pub(crate) fn output_failure(&self) -> Option<&str> {
        self.output_failure.get().map(String::as_str)
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colour && style != Style::Plain {
            format!("{}{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }

    /// `text` without the secrets of the run.
    pub(crate) fn redacted<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        self.redactor.get().map_or(std::borrow::Cow::Borrowed(text), |redactor| redactor.redact(text))
    }
}

/// `text` as a terminal shows it, on one line: control characters but the tab, with which a file's name or a tool's
/// output could move the cursor or change colours, are written as escapes, and so is what is not seen or has text shown in
/// another order than it has.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, |c| c == '\t')
}

/// The same of several lines.
fn harmless(text: &str) -> String {
    escaped(text, |c| matches!(c, '\t' | '\n'))
}

fn escaped(text: &str, is_fine: impl Fn(char) -> bool) -> String {
    let mut result = String::with_capacity(text.len());
    for (c, deceives) in conjure_base::judged(text) {
        if deceives || (c.is_control() && !is_fine(c)) {
            result.extend(c.escape_default());
        } else {
            result.push(c);
        }
    }
    result
}
