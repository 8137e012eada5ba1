//! Runs the built command as a user would, in its own environment.

pub(crate) mod terminal;
pub(crate) mod turns;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Far more than any run here takes; a run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// The root of the project.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    if cfg!(engines) { package.ancestors().nth(2).unwrap() } else { package }
}

/// The command under test. Cargo tells another package's tests nothing of it, so it is looked for beside them.
pub(crate) fn program() -> PathBuf {
    option_env!("CARGO_BIN_EXE_conjure").map_or_else(
        || {
            let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("conjure");
            assert!(
                program.exists(),
                "there is no {}: `cargo test --workspace` builds it",
                program.display()
            );
            program
        },
        PathBuf::from,
    )
}

/// A file or directory of the fixtures.
pub(crate) fn fixture(path: &str) -> PathBuf {
    root().join("fixtures").join(path)
}

/// The command `conjure` with arguments, in the root directory, with an empty standard input and a home of its own.
pub(crate) struct Conjure {
    command: std::process::Command,
    input: Input,
    output: Output,
    home: tempfile::TempDir,
}

/// The content of standard input.
enum Input {
    Bytes(Vec<u8>),
    /// Nothing, and it does not end.
    Open,
}

/// The reader of standard output.
#[derive(PartialEq, Eq)]
enum Output {
    Read,
    Closed,
    /// Nor standard error.
    AllClosed,
    /// Standard error is a full pipe, which nobody empties.
    ErrorsStuck,
    /// Standard output is on a full disk.
    Full,
}

/// A script of model turns, in a file that goes when it is dropped.
pub(crate) fn script(turns: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let turns: String = turns.lines().map(|line| format!("  {line}\n")).collect();
    write!(file, "version: 1\nturns:\n{turns}").unwrap();
    file
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A run under way. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    stdout: Reader,
    stderr: Reader,
    _open_input: Option<ChildStdin>,
    _unread: Option<std::io::PipeReader>,
    home: Option<tempfile::TempDir>,
}

/// Reads a pipe to its end on a thread.
#[derive(Default)]
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            let mut piece = [0; 64 * 1024];
            while let Ok(length @ 1..) = pipe.read(&mut piece) {
                shared.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        Self { bytes, thread: Some(thread) }
    }

    /// The output so far.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// All that there is to read.
    fn finish(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        String::from_utf8(std::mem::take(&mut *self.bytes.lock().unwrap())).unwrap()
    }
}

impl Conjure {
    /// `conjure` with these arguments.
    pub(crate) fn new<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::started_by(&[], args)
    }

    /// The same, started by another program with its arguments, such as `unshare`.
    pub(crate) fn started_by<A: AsRef<OsStr>>(starter: &[&str], args: impl IntoIterator<Item = A>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let program = program();
        let arguments = [starter, &[program.to_str().unwrap()]].concat();
        #[expect(clippy::disallowed_methods, reason = "the test starts the program under test")]
        let mut command = std::process::Command::new(arguments[0]);
        command.args(&arguments[1..]).args(args).current_dir(root()).env_clear().env("HOME", home.path());
        command.env("PATH", path_variable()).env("TMPDIR", home.path());
        if !test_support::has_user_namespaces() {
            command.env("CONJURE_EXECUTOR", "local");
        }
        Self { command, input: Input::Bytes(Vec::new()), output: Output::Read, home }
    }

    /// The home directory, which is also where temporary directories are made.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// The content of standard input.
    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Input::Bytes(input.into());
        self
    }

    /// Standard input stays open, and nothing comes.
    pub(crate) fn with_open_input(mut self) -> Self {
        self.input = Input::Open;
        self
    }

    /// Standard output has no reader.
    pub(crate) fn without_reader(mut self) -> Self {
        self.output = Output::Closed;
        self
    }

    /// Standard output and standard error have no reader.
    pub(crate) fn without_readers(mut self) -> Self {
        self.output = Output::AllClosed;
        self
    }

    /// Standard output is on a full disk.
    pub(crate) fn with_full_output(mut self) -> Self {
        self.output = Output::Full;
        self
    }

    /// Standard error is a full pipe, so that the first line that is written to it waits for ever.
    pub(crate) fn with_unread_stderr(mut self) -> Self {
        self.output = Output::ErrorsStuck;
        self
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Running {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut unread = None;
        if self.output == Output::ErrorsStuck {
            let (reader, mut writer) = std::io::pipe().unwrap();
            // As much as fits: the smallest size that a pipe has.
            let size = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
            writer.write_all(&vec![b'x'; size]).unwrap();
            self.command.stderr(writer);
            unread = Some(reader);
        } else if self.output == Output::Full {
            self.command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        } else if self.output != Output::Read {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            if self.output == Output::AllClosed {
                self.command.stderr(writer.try_clone().unwrap());
            }
            self.command.stdout(writer);
        }
        // A process group of its own, as a shell gives it.
        self.command.process_group(0);
        let mut child = self.command.spawn().unwrap();
        let stdout = child.stdout.take().map(Reader::start).unwrap_or_default();
        let stderr = child.stderr.take().map(Reader::start).unwrap_or_default();
        let mut stdin = child.stdin.take().unwrap();
        let open_input = match self.input {
            Input::Open => Some(stdin),
            Input::Bytes(bytes) => {
                // On a thread: a program that does not read must not hold up the test, and one that has ended breaks
                // the pipe.
                std::thread::spawn(move || {
                    let _ = stdin.write_all(&bytes);
                });
                None
            }
        };
        Running { child, stdout, stderr, _open_input: open_input, _unread: unread, home: Some(self.home) }
    }

    /// Runs it to its end.
    pub(crate) fn finish(self) -> Finished {
        self.start().wait()
    }
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Sends its process group a signal, as a terminal does.
    pub(crate) fn signal_group(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process_group(self.pid(), signal).unwrap();
    }

    /// Waits until it has said this on standard error.
    pub(crate) fn eventually_says(&self, part: &str) {
        eventually("the command says something", || self.stderr.text().contains(part));
    }

    /// Waits for its end, which must come.
    pub(crate) fn wait(self) -> Finished {
        self.wait_keeping_home().0
    }

    /// Waits for its end, and gives its home directory, to look at what is left there.
    pub(crate) fn wait_keeping_home(mut self) -> (Finished, tempfile::TempDir) {
        let mut ended = None;
        eventually("the command ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        let finished = Finished {
            code: ended.unwrap().code(),
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
        };
        (finished, self.home.take().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Asserts the exit code, and shows what was said when it is another.
    #[track_caller]
    pub(crate) fn code(self, expected: i32) -> Self {
        assert_eq!(self.code, Some(expected), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Asserts that standard error holds this.
    #[track_caller]
    pub(crate) fn says(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "`{part}` is missing in: {}", self.stderr);
        self
    }

    /// Asserts that standard error does not hold this.
    #[track_caller]
    pub(crate) fn does_not_say(self, part: &str) -> Self {
        assert!(!self.stderr.contains(part), "`{part}` is in: {}", self.stderr);
        self
    }

    /// Standard output's lines as JSON.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// Waits until `holds`, looking again and again; fails when it never does.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let (pause, mut left) = (Duration::from_millis(5), PATIENCE);
    while !holds() {
        left = left.checked_sub(pause).unwrap_or_else(|| panic!("timed out waiting until {what}"));
        std::thread::park_timeout(pause);
    }
}

#[expect(clippy::disallowed_methods, reason = "programs must be found by the command under test")]
fn path_variable() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}
