//! [`SandboxProbe`]: checks which commands, files and variables a skill's scripts will find in a sandbox.
//!
//! With the sandbox kind that isolates nothing, this is the view of the machine itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::Clock;
use conjure_sandbox::{Boundary, CallOptions, Command, CommandEnd, CommandOutcome, Executor, NetworkPolicy};
use conjure_skill::{
    CommandProbe, Network, PathBase, Probe, ProbeError, ProbeFuture, Skill, Version, VersionQuery,
};

/// The timeout of one command.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many bytes of a command's output are read.
const MAX_OUTPUT: u32 = 8 * 1024;

/// Version arguments of commands that do not support `--version`. Other commands never get a bare word, which they could take for
/// an action.
const VERSION_ARGUMENTS: [(&str, &[&str]); 12] = [
    ("awk", &["-W", "version"]),
    ("ffmpeg", &["-version"]),
    ("ffprobe", &["-version"]),
    ("go", &["version"]),
    ("helm", &["version", "--short"]),
    ("java", &["-version"]),
    ("javac", &["-version"]),
    ("kubectl", &["version", "--client"]),
    ("mawk", &["-W", "version"]),
    ("openssl", &["version"]),
    ("ssh", &["-V"]),
    ("tmux", &["-V"]),
];

/// A shell script: checks for a path beneath the root of the enclosing repository, else beneath the working directory.
const IN_REPOSITORY: &str = r#"
here=$(pwd -P)
root=$here
while [ ! -e "$root/.git" ]; do
  case $root in "" | /) root=$here; break;; esac
  root=${root%/*}
done
[ -e "$root/$1" ]
"#;

/// Probes a sandbox for the requirements of a skill.
pub struct SandboxProbe<'a> {
    executor: &'a dyn Executor,
    clock: Arc<dyn Clock>,
    skill_root: Option<PathBuf>,
    network: Network,
}

impl<'a> SandboxProbe<'a> {
    /// Creates a probe of this sandbox, in which the skill's directory is readable.
    #[must_use]
    pub fn new(executor: &'a dyn Executor, clock: Arc<dyn Clock>, skill: &Skill) -> Self {
        let skill_root = executor.layout().sandbox_path(skill.root_dir());
        Self { executor, clock, skill_root, network: Network::Unknown }
    }

    /// Sets the network policy of the sandbox. A sandbox that does not enforce it has the machine's network.
    #[must_use]
    pub fn with_network(mut self, policy: &NetworkPolicy) -> Self {
        let is_enforced = self.executor.isolation().network == Boundary::Enforced;
        self.network = match policy {
            NetworkPolicy::None if is_enforced => Network::None,
            NetworkPolicy::None | NetworkPolicy::Limited(_) | NetworkPolicy::Full => Network::Reachable,
        };
        self
    }

    async fn run(&self, argv: impl IntoIterator<Item = &str>) -> Result<CommandOutcome, ProbeError> {
        let command = Command { keep_head: MAX_OUTPUT, keep_tail: 0, spill: 0, ..Command::new(argv) };
        let options = CallOptions::until(self.clock.deadline(TIMEOUT));
        self.executor.run(command, options).await.map_err(|error| ProbeError { message: error.to_string() })
    }

    /// Whether a shell script succeeds.
    async fn script_succeeds(&self, script: &str, argument: &str) -> Result<bool, ProbeError> {
        match self.run(["sh", "-c", script, "sh", argument]).await?.end {
            CommandEnd::Exited(code) => Ok(code == 0),
            end => Err(ProbeError { message: format!("the sandbox's shell ended with {end:?}") }),
        }
    }

    /// The output of a command about its version: the first output with a version in it, else the first output.
    async fn version(&self, name: &str) -> Result<String, ProbeError> {
        let otherwise =
            VERSION_ARGUMENTS.iter().find(|(known, _)| *known == name).map(|(_, arguments)| *arguments);
        let mut first = None;
        for arguments in otherwise.into_iter().chain([&["--version"][..], &["-V"][..]]) {
            let outcome = self.run([name].into_iter().chain(arguments.iter().copied())).await?;
            let version_output = String::from_utf8_lossy(&outcome.stdout.head).into_owned();
            let has_version =
                matches!(outcome.end, CommandEnd::Exited(0)) && Version::in_output(&version_output).is_some();
            if has_version {
                return Ok(version_output);
            }
            first.get_or_insert(version_output);
        }
        Ok(first.unwrap_or_default())
    }
}

impl Probe for SandboxProbe<'_> {
    fn command<'a>(&'a self, name: &'a str, version_query: VersionQuery) -> ProbeFuture<'a, CommandProbe> {
        Box::pin(async move {
            if !self.script_succeeds(r#"command -v "$1" > /dev/null"#, name).await? {
                return Ok(CommandProbe::NotFound);
            }
            let version_output = match version_query {
                VersionQuery::Yes => self.version(name).await?,
                VersionQuery::No => String::new(),
            };
            Ok(CommandProbe::Found { version_output })
        })
    }

    fn file<'a>(&'a self, base: PathBase, path: &'a str) -> ProbeFuture<'a, bool> {
        Box::pin(async move {
            match base {
                PathBase::SkillRoot => {
                    let root = self.skill_root.as_deref().ok_or_else(|| ProbeError {
                        message: "the skill's directory is not in the sandbox".to_owned(),
                    })?;
                    self.script_succeeds(r#"[ -e "$1" ]"#, &root.join(path).to_string_lossy()).await
                }
                PathBase::RepoRoot => self.script_succeeds(IN_REPOSITORY, path).await,
                PathBase::Cwd => {
                    let path = Path::new(".").join(path);
                    self.script_succeeds(r#"[ -e "$1" ]"#, &path.to_string_lossy()).await
                }
            }
        })
    }

    fn variable<'a>(&'a self, name: &'a str) -> ProbeFuture<'a, bool> {
        Box::pin(async move {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit())
            {
                return Err(ProbeError { message: format!("`{name}` is not a name of a variable") });
            }
            self.script_succeeds(&format!("[ -n \"${{{name}+set}}\" ]"), "").await
        })
    }

    fn network(&self) -> Network {
        self.network
    }
}
