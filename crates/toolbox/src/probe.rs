//! What a sandbox has of what a skill needs: commands, files, variables, as the skill's scripts will find them.
//!
//! Over the sandbox that isolates nothing this is the view of the host. It keeps nothing; a crash loses nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::Clock;
use conjure_sandbox::{Boundary, CallOptions, Command, CommandEnd, CommandOutcome, Executor, NetworkPolicy};
use conjure_skill::{
    AskVersion, Base, CommandFound, Network, Probe, ProbeError, ProbeFuture, Skill, Version,
};

/// A command that has not told its version by then will not.
const PATIENCE: Duration = Duration::from_secs(10);
/// So much of what a command writes is looked at.
const KEPT_BYTES: u32 = 8 * 1024;

/// How commands are asked that do not know `--version`. No other command gets a bare word, which it could take for
/// something to make or to remove.
const ASKED_OTHERWISE: [(&str, &[&str]); 12] = [
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

/// The root of the repository that a folder lies in, else the folder itself; and whether there is something at a path
/// beneath it.
const IN_REPOSITORY: &str = r#"
here=$(pwd -P)
root=$here
while [ ! -e "$root/.git" ]; do
  case $root in "" | /) root=$here; break;; esac
  root=${root%/*}
done
[ -e "$root/$1" ]
"#;

/// A sandbox, asked for what a skill needs.
pub struct SandboxProbe<'a> {
    executor: &'a dyn Executor,
    clock: Arc<dyn Clock>,
    skill_root: Option<PathBuf>,
    network: Network,
}

impl<'a> SandboxProbe<'a> {
    /// The view of this sandbox, which has the skill's folder among those that may be read.
    #[must_use]
    pub fn new(executor: &'a dyn Executor, clock: Arc<dyn Clock>, skill: &Skill) -> Self {
        let skill_root = executor.layout().sandbox_path(skill.root_dir());
        Self { executor, clock, skill_root, network: Network::Unknown }
    }

    /// The same, of a sandbox that was made with this policy. One that does not enforce it has the host's network.
    #[must_use]
    pub fn under(mut self, policy: &NetworkPolicy) -> Self {
        let is_enforced = self.executor.isolation().network == Boundary::Enforced;
        self.network = match policy {
            NetworkPolicy::None if is_enforced => Network::None,
            NetworkPolicy::None | NetworkPolicy::Limited(_) | NetworkPolicy::Full => Network::Reachable,
        };
        self
    }

    async fn run(&self, argv: impl IntoIterator<Item = &str>) -> Result<CommandOutcome, ProbeError> {
        let command = Command { keep_head: KEPT_BYTES, keep_tail: 0, spill: 0, ..Command::new(argv) };
        let options = CallOptions::until(self.clock.deadline(PATIENCE));
        self.executor.run(command, options).await.map_err(|error| ProbeError { message: error.to_string() })
    }

    /// Whether a script of a plain shell succeeds.
    async fn holds(&self, script: &str, argument: &str) -> Result<bool, ProbeError> {
        match self.run(["sh", "-c", script, "sh", argument]).await?.end {
            CommandEnd::Exited(code) => Ok(code == 0),
            end => Err(ProbeError { message: format!("the sandbox's shell ended with {end:?}") }),
        }
    }

    /// What a command says of its version: the first answer that has one in it, else what it said first.
    async fn version(&self, name: &str) -> Result<String, ProbeError> {
        let otherwise =
            ASKED_OTHERWISE.iter().find(|(known, _)| *known == name).map(|(_, arguments)| *arguments);
        let mut first = None;
        for arguments in otherwise.into_iter().chain([&["--version"][..], &["-V"][..]]) {
            let outcome = self.run([name].into_iter().chain(arguments.iter().copied())).await?;
            let said = String::from_utf8_lossy(&outcome.stdout.head).into_owned();
            let is_answer =
                matches!(outcome.end, CommandEnd::Exited(0)) && Version::in_output(&said).is_some();
            if is_answer {
                return Ok(said);
            }
            first.get_or_insert(said);
        }
        Ok(first.unwrap_or_default())
    }
}

impl Probe for SandboxProbe<'_> {
    fn command<'a>(&'a self, name: &'a str, ask_version: AskVersion) -> ProbeFuture<'a, CommandFound> {
        Box::pin(async move {
            if !self.holds(r#"command -v "$1" > /dev/null"#, name).await? {
                return Ok(CommandFound::Absent);
            }
            let said = match ask_version {
                AskVersion::Yes => self.version(name).await?,
                AskVersion::No => String::new(),
            };
            Ok(CommandFound::Present { said })
        })
    }

    fn file<'a>(&'a self, base: Base, path: &'a str) -> ProbeFuture<'a, bool> {
        Box::pin(async move {
            match base {
                Base::SkillRoot => {
                    let root = self.skill_root.as_deref().ok_or_else(|| ProbeError {
                        message: "the skill's folder is not in the sandbox".to_owned(),
                    })?;
                    self.holds(r#"[ -e "$1" ]"#, &root.join(path).to_string_lossy()).await
                }
                Base::RepoRoot => self.holds(IN_REPOSITORY, path).await,
                Base::Cwd => {
                    let path = Path::new(".").join(path);
                    self.holds(r#"[ -e "$1" ]"#, &path.to_string_lossy()).await
                }
            }
        })
    }

    fn variable<'a>(&'a self, name: &'a str) -> ProbeFuture<'a, bool> {
        Box::pin(async move {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit())
            {
                return Err(ProbeError { message: format!("`{name}` is no name of a variable") });
            }
            self.holds(&format!("[ -n \"${{{name}+set}}\" ]"), "").await
        })
    }

    fn network(&self) -> Network {
        self.network
    }
}
