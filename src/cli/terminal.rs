//! Standard output and standard error: colours, redaction, and closed pipes.
//!
//! It holds the redactor of the run, because all output passes through it. A closed reader (`conjure … | head`) is not an error: writes do
//! nothing, and [`Terminal::output_is_closed`] returns true. A full disk is an error: [`Terminal::output_failure`] returns it.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure::ProcessEnv;
use conjure::session::Redactor;

use crate::cli::cli_error::{CliError, ExitStatus};

pub(crate) use conjure_toolbox::call_text::{printable, printable_lines};

/// The width if the output is not a terminal.
const DEFAULT_COLUMNS: usize = 80;

/// The output of the command.
#[derive(Debug)]
pub(crate) struct Terminal {
    colour: bool,
    redactor: OnceLock<Redactor>,
    output_closed: AtomicBool,
    output_failure: OnceLock<String>,
}

/// The style of a text on standard error.
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
    /// The terminal of this process, with colours unless the user disables them.
    pub(crate) fn of_process(environment: &ProcessEnv) -> Self {
        Self {
            colour: io::stderr().is_terminal() && !environment.no_color(),
            redactor: OnceLock::new(),
            output_closed: AtomicBool::new(false),
            output_failure: OnceLock::new(),
        }
    }

    /// A terminal without colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self {
            colour: false,
            redactor: OnceLock::new(),
            output_closed: AtomicBool::new(false),
            output_failure: OnceLock::new(),
        }
    }

    /// Redacts these secrets in everything that is written from now on. Only the first call has an effect.
    pub(crate) fn redact(&self, redactor: Redactor) {
        let _ = self.redactor.set(redactor);
    }

    /// Prints a line on standard error.
    pub(crate) fn note(&self, line: &str) {
        self.styled(Style::Plain, line);
    }

    /// Prints a line on standard error that begins with `word`. The word has this style.
    pub(crate) fn marked(&self, style: Style, word: &str, rest: &str) {
        let line = self.redacted(&format!("{word}{rest}")).into_owned();
        // The line is not styled if a secret spans the end of the word.
        let (word, rest) = line.strip_prefix(word).map_or(("", line.as_str()), |rest| (word, rest));
        let line = format!("{}{}\n", self.paint(style, &printable_lines(word)), printable_lines(rest));
        // Each line is one write, so that lines of other threads are not mixed in. A closed standard error cannot be reported.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }

    /// Prints a line on standard error in this style.
    pub(crate) fn styled(&self, style: Style, line: &str) {
        self.marked(style, line, "");
    }

    /// Prints a prompt on standard error; the reply follows on the same line.
    pub(crate) fn prompt(&self, words: &str) {
        self.part(Style::Warning, words);
    }

    /// Prints a part of a line on standard error; more follows on the same line.
    pub(crate) fn part(&self, style: Style, words: &str) {
        let words = self.paint(style, &self.cleaned(words));
        let _ = io::stderr().lock().write_all(words.as_bytes());
    }

    /// Cleans text for a terminal: redacts the secrets of the run, and escapes control characters except line ends.
    pub(crate) fn cleaned(&self, text: &str) -> String {
        printable_lines(&self.redacted(text))
    }

    /// The number of columns of standard error; 80 if it is not a terminal.
    pub(crate) fn columns(&self) -> usize {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
        size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(DEFAULT_COLUMNS)
    }

    /// Prints `warning: …` on standard error.
    pub(crate) fn warning(&self, text: &str) {
        self.marked(Style::Warning, "warning", &format!(": {text}"));
    }

    /// Prints `error: …` and `hint: …` on standard error.
    pub(crate) fn error(&self, failure: &CliError) {
        self.marked(Style::Bad, "error", &format!(": {}", failure.message));
        if let Some(hint) = &failure.hint {
            self.marked(Style::Good, "hint", &format!(": {hint}"));
        }
    }

    /// The exit status of a command. If it failed, its error is printed.
    pub(crate) fn exit_status(&self, result: Result<ExitStatus, CliError>) -> ExitStatus {
        result.unwrap_or_else(|error| {
            self.error(&error);
            error.exit
        })
    }

    /// Prints clap's message: help and version on standard output, errors on standard error.
    pub(crate) fn clap(&self, error: &clap::Error) {
        let text = error.render().to_string();
        if error.use_stderr() { self.note(text.trim_end()) } else { self.output(text.trim_end()) }
    }

    /// Prints lines on standard output, byte for byte. On a terminal, control characters are escaped, because a model, a tool or a file
    /// must not control the terminal.
    pub(crate) fn output(&self, text: &str) {
        let text = self.redacted(text);
        let text = if io::stdout().is_terminal() { printable_lines(&text).into() } else { text };
        let line_end = if text.ends_with('\n') { "" } else { "\n" };
        self.write_output(&[&text, line_end]);
    }

    /// Prints a part of a line on standard output; more follows on the same line. On a terminal, the text must be cleaned before.
    pub(crate) fn output_part(&self, text: &str) {
        self.write_output(&[&self.redacted(text)]);
    }

    fn write_output(&self, parts: &[&str]) {
        if self.output_is_closed() {
            return;
        }
        let mut out = io::stdout().lock();
        let written =
            parts.iter().try_for_each(|part| out.write_all(part.as_bytes())).and_then(|()| out.flush());
        if let Err(error) = written {
            if error.kind() != io::ErrorKind::BrokenPipe {
                let _ = self.output_failure.set(format!("standard output cannot be written: {error}"));
            }
            self.output_closed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the reader closed standard output.
    pub(crate) fn output_is_closed(&self) -> bool {
        self.output_closed.load(Ordering::Relaxed)
    }

    /// The error if standard output could not be written, except for a closed reader.
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

    /// Returns `text` with the secrets of the run redacted.
    pub(crate) fn redacted<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        self.redactor.get().map_or(std::borrow::Cow::Borrowed(text), |redactor| redactor.redact(text))
    }
}
