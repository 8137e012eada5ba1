//! What may stand on the command line.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
#[cfg(feature = "docker")]
use std::str::FromStr as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use conjure::{HostedSkill, NetworkPolicy, VARIABLES, parse_network};

use crate::cli::approvals::RulesArgs;
#[cfg(feature = "anthropic")]
use crate::cli::hosted_args::{PushArgs, RemoteCommand};
use crate::cli::session_args::{Place, SessionsArgs};

const EXAMPLES: &str = "\
Examples:
  conjure run --skills fixtures/skills --script fixtures/scripts/sales-report.yaml \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  conjure run --skills fixtures/skills --model claude-sonnet-4-5 \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  conjure skills list
  conjure skills validate my-skill
  conjure sessions list
  conjure doctor

Exit codes: 0 done, 1 model or internal error, 2 usage or configuration, 3 a limit was reached,
4 refused by the model, 5 a denial ended the run, 6 a tool call waits for a person, 130 interrupted,
143 terminated.";

const RUN_EXAMPLES: &str = "\
Examples:
  conjure run --skills fixtures/skills --script fixtures/scripts/sales-report.yaml \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  conjure run --skills fixtures/skills --model claude-sonnet-4-5 \\
      --file fixtures/data/sales.csv \"Which region grew fastest?\"
  git diff | conjure run --script review.yaml --json \"Review this\" > events.jsonl
  conjure run --model claude-sonnet-4-5 --workspace . --allow view \"Tidy up this folder\"

The final answer is all that goes to standard output; with --json it is the session's events, one a
line. Progress goes to standard error. Standard input, unless it is a terminal, is extra context.
The session is kept, unless with --ephemeral: `conjure sessions resume ID` goes on with it.

A tool call that --ask or --allow makes a person's business is asked for at the terminal. Where there is
none the command ends with code 6, and says how `conjure sessions decide` goes on.";

#[cfg(feature = "docker")]
const IMAGE_EXAMPLES: &str = "\
Examples:
  conjure image build
  conjure image build --from debian --base debian:12 --add default-jre-headless
  conjure image build --packages minimal --tag my/sandbox:small

Its name and digest are all that goes to standard output. Debian packages need `mmdebstrap` and, for
the full set, `pip` on this machine, and no registry of images.";

/// Run Agent Skills: a model, the skills it may use, and a sandbox for its tools.
#[derive(Debug, Parser)]
#[command(name = "conjure", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    /// The configuration file, instead of `~/.conjure/config.toml`.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Subcommand,
}

impl Args {
    /// The command line of this process.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let variables: String = VARIABLES
            .iter()
            .map(|variable| format!("\n  {}\n      {}", variable.name, variable.meaning))
            .collect();
        let command = Self::command().after_long_help(format!("{EXAMPLES}\n\nEnvironment:{variables}"));
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Answer one prompt with the help of skills and tools.
    Run(Box<RunArgs>),
    /// List, check and show skills.
    Skills(SkillsArgs),
    /// List, show and go on with sessions: the runs so far.
    Sessions(SessionsArgs),
    /// The image that containers are made of.
    #[cfg(feature = "docker")]
    Image(ImageArgs),
    /// Say what this machine offers, and how to mend what is missing.
    Doctor(DoctorArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// What you ask.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,
    /// A folder of skills; may be repeated, the first wins. Instead of the configured ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// The model to call, with the key in `ANTHROPIC_API_KEY`.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A script that the model's words come from, instead of a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// A file that the model gets in its workspace, as a copy; may be repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// A file or a URL that the model finds as `file://NAME`, for reading; may be repeated. Without `NAME=` it has the file's name. A URL is
    /// fetched when it is first used.
    #[arg(long, value_name = "[NAME=]PATH|URL", value_parser = attachment)]
    pub(crate) attach: Vec<Attachment>,
    /// A folder that gets copies of the files that the run produces. What is there already is not overwritten.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How much may be copied there, all files together, such as `500m` or `10g`. Holes count a 64th.
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = conjure::parse_size)]
    pub(crate) out_limit: u64,
    /// Skills that the model's service runs, in containers of its own: its own ones by name (`xlsx,pptx`), uploaded ones by id, each with
    /// `@VERSION` where it is not to be the newest. Nothing runs here then, unless `--sandbox`, `--skills` or `--workspace` ask for it.
    #[arg(long, value_name = "SKILL,...", value_delimiter = ',', value_parser = hosted)]
    pub(crate) hosted: Vec<HostedSkill>,
    /// Where tools run: `jail` (the default), `docker`, or `local`, a plain child process that isolates nothing; `jail-or-local` is `local`
    /// where this machine permits no jail.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The image of the container, for `--sandbox docker`.
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// What tools may reach of the network: `none` (the default), `limited:HOST,...` or `full`.
    #[arg(long, value_name = "POLICY", value_parser = network)]
    pub(crate) network: Option<NetworkPolicy>,
    /// How much memory all tools may use together, such as `512m` or `2g`.
    #[arg(long, value_name = "SIZE", value_parser = conjure::parse_size)]
    pub(crate) memory: Option<u64>,
    /// How many processors they may keep busy, such as `2` or `0.5`.
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<f64>,
    /// Where tools work and leave their files, instead of a folder that stays with the session.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// A variable that tools see; `NAME` alone passes on the one of this process. May be repeated.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    pub(crate) env: Vec<Variable>,
    /// How the model gets at a skill: it loads it with a tool (`load`, the default), or reads its SKILL.md (`view`).
    #[arg(long, value_name = "STYLE", value_parser = conjure::parse_activation)]
    pub(crate) activation: Option<conjure::Activation>,
    /// A value for an input that the manifests of the skills ask for; JSON where it is not text. `NAME=@FILE` takes it from a
    /// file and `NAME=-` from standard input, where no other process sees it; a value that begins with `@` has two. May be
    /// repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = given)]
    pub(crate) input: Vec<Given>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Print the session's events on standard output, one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// How often the model may be called.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How long the whole run may take, in seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// How long one tool call may take, in seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) tool_timeout: Option<Duration>,
    /// Write a script of this run, which `--script` can play again.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Keep nothing of the session; it cannot be resumed.
    #[arg(long)]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    pub(crate) command: SkillsCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SkillsCommand {
    /// List the skills that a session would have.
    List {
        /// A folder of skills; may be repeated, the first wins. Instead of the configured ones.
        #[arg(long, value_name = "DIR")]
        skills: Vec<PathBuf>,
        /// How to print it.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Check skills against the format. Exit code 1: at least one is not valid.
    Validate(ValidateArgs),
    /// Say whether a skill could run here, with everything that is missing. Exit code 1: something is.
    Check(CheckArgs),
    /// Print a skill's properties as JSON, as the format's reference validator does.
    Properties {
        /// A skill's folder, its SKILL.md, or a .skill package.
        #[arg(value_name = "PATH")]
        path: PathBuf,
    },
    /// Print the block that tells a model of these skills.
    Prompt {
        /// Skills' folders, their SKILL.md, or .skill packages.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Pack a skill into a `.skill` file.
    Pack {
        /// The skill's folder, or its SKILL.md.
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// The file to write, or a folder for it; by default NAME.skill in the current folder.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Bring the model's service in step with a folder of skills: upload what is new or has changed, and nothing else.
    #[cfg(feature = "anthropic")]
    Push(PushArgs),
    /// List and delete skills that the model's service keeps.
    #[cfg(feature = "anthropic")]
    Remote {
        #[command(subcommand)]
        command: RemoteCommand,
    },
    /// Show everything about one skill.
    Inspect {
        /// A skill's folder, its SKILL.md, or a .skill package.
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// How to print it.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Skills' folders, their SKILL.md, or .skill packages.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// By the letter of the format, as its reference validator does (the default).
    #[arg(long, conflicts_with = "lenient")]
    pub(crate) strict: bool,
    /// As skills are loaded: what can be repaired is a warning.
    #[arg(long)]
    pub(crate) lenient: bool,
    /// How to print it.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// A skill's folder, its SKILL.md, or a .skill package.
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// A value for an input of the skill's manifest; JSON where the input is not text. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = given)]
    pub(crate) input: Vec<Given>,
    /// Where it would run: `jail`, `docker` or `local`, which is this machine itself; by default as configured.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// Where it would work, instead of a new temporary folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// A variable that it would see; `NAME` alone passes on the one of this process. May be repeated.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    pub(crate) env: Vec<Variable>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// A value of `--input`, as it was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The name only: the value may be a secret.
impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// `NAME=VALUE`, `NAME=@FILE` or `NAME=-`. Reads the file, or standard input.
pub(crate) fn given(text: &str) -> Result<Given, String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("an input is NAME=VALUE, NAME=@FILE, or NAME=- for standard input")?;
    let text = match (value, value.strip_prefix('@')) {
        ("-", _) => from_standard_input()?,
        (_, Some(literal)) if literal.starts_with('@') => literal.to_owned(),
        (_, Some(path)) => {
            let file = File::open(path).map_err(|error| format!("`{path}` cannot be opened: {error}"))?;
            input_of(file, path)?
        }
        (value, None) => value.to_owned(),
    };
    Ok(Given { name: name.to_owned(), text })
}

/// More than any input holds.
const LARGEST_INPUT: u64 = 1024 * 1024;

fn from_standard_input() -> Result<String, String> {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    if IS_READ.swap(true, Ordering::Relaxed) {
        return Err("standard input is the value of one input alone; give others by NAME=@FILE".to_owned());
    }
    input_of(io::stdin(), "standard input")
}

/// All of it, without the line end that editors and `echo` put after it.
fn input_of(source: impl Read, name: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = source.take(LARGEST_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("`{name}` cannot be read: {error}"))?;
    if bytes.len() as u64 > LARGEST_INPUT {
        return Err(format!("`{name}` is larger than 1 MiB, which no input is"));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| format!("`{name}` is not UTF-8 text"))?;
    if text.ends_with('\n') {
        text.pop();
        text.truncate(text.trim_end_matches('\r').len());
    }
    Ok(text)
}

/// A file or a URL that a session is given, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) place: String,
}

impl Attachment {
    /// Whether it is a URL, and no path.
    pub(crate) fn is_url(&self) -> bool {
        is_url(&self.place)
    }
}

fn is_url(place: &str) -> bool {
    let scheme = place.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// A hosted skill: `ID` or `ID@VERSION`.
fn hosted(text: &str) -> Result<HostedSkill, String> {
    let (id, version) = match text.split_once('@') {
        Some((id, version)) => (id.trim(), Some(version.trim())),
        None => (text.trim(), None),
    };
    let is_word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
    };
    if !is_word(id) || !version.is_none_or(is_word) {
        return Err(
            "a hosted skill is `ID` or `ID@VERSION`, such as `xlsx` or `skill_01AbCdEf@latest`".to_owned()
        );
    }
    let skill = if id.starts_with("skill_") { HostedSkill::custom(id) } else { HostedSkill::anthropic(id) };
    Ok(match version {
        Some(version) => skill.version(version),
        None => skill,
    })
}

fn attachment(text: &str) -> Result<Attachment, String> {
    if let Some((name, place)) = text.split_once('=')
        && !name.is_empty()
        && !name.contains('/')
    {
        if place.is_empty() {
            return Err("behind `NAME=` stands a path or a URL".to_owned());
        }
        return Ok(Attachment { name: name.to_owned(), place: place.to_owned() });
    }
    let last = if is_url(text) {
        let path = text.split(['?', '#']).next().unwrap_or_default();
        path.splitn(4, '/').nth(3).and_then(|path| path.rsplit('/').next())
    } else {
        std::path::Path::new(text).file_name().and_then(std::ffi::OsStr::to_str)
    };
    match last.filter(|name| !name.is_empty()) {
        Some(name) => Ok(Attachment { name: name.to_owned(), place: text.to_owned() }),
        None => Err("it has no name by itself: write `NAME=PATH` or `NAME=URL`".to_owned()),
    }
}

#[cfg(feature = "docker")]
#[derive(Debug, clap::Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

#[cfg(feature = "docker")]
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ImageCommand {
    /// Build it: a shell, Python, Node and what skills use, for the user `sandbox`.
    Build(ImageBuildArgs),
}

#[cfg(feature = "docker")]
#[derive(Debug, clap::Args)]
#[command(after_help = IMAGE_EXAMPLES)]
pub(crate) struct ImageBuildArgs {
    /// The name that it gets.
    #[arg(long, value_name = "NAME:TAG", default_value_t, value_parser = conjure::ImageName::from_str)]
    pub(crate) tag: conjure::ImageName,
    /// What it begins with: an image for a Dockerfile (`ubuntu:24.04`), a release for Debian packages (`debian:13`).
    #[arg(long, value_name = "BASE")]
    pub(crate) base: Option<String>,
    /// How it is built.
    #[arg(long, value_enum, default_value_t, value_name = "WAY")]
    pub(crate) from: ImageFrom,
    /// What is in it.
    #[arg(long, value_enum, default_value_t, value_name = "SET")]
    pub(crate) packages: PackageSet,
    /// A further package of the distribution; may be repeated.
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) add: Vec<String>,
    /// Where Debian packages are fetched, such as `http://deb.debian.org/debian`.
    #[arg(long, value_name = "URL")]
    pub(crate) mirror: Option<String>,
    /// How long it may take, in seconds.
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "3600")]
    pub(crate) timeout: Duration,
}

/// How an image is built.
#[cfg(feature = "docker")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ImageFrom {
    /// From the Dockerfile where its base can be had, else of Debian packages.
    #[default]
    Auto,
    /// By the engine, from the Dockerfile.
    Dockerfile,
    /// On this machine, by mmdebstrap, without a registry.
    Debian,
}

/// What is in an image.
#[cfg(feature = "docker")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum PackageSet {
    /// Python, Node, and the packages that skills use.
    #[default]
    Full,
    /// A shell and Python.
    Minimal,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// How to print it.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// How something is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// A variable of `--env`: with its value, or by name.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// `None`: the one of this process.
    pub(crate) value: Option<String>,
}

/// The name only: the value may be a secret.
impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

pub(crate) fn variable(text: &str) -> Result<Variable, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let starts = name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(Variable { name: name.to_owned(), value })
    } else {
        Err("a variable is NAME=VALUE, its name of letters, digits and `_`".to_owned())
    }
}

fn network(text: &str) -> Result<NetworkPolicy, String> {
    parse_network(text.split(',').map(str::trim).filter(|word| !word.is_empty()))
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = 365.0 * 24.0 * 3600.0;
    text.parse::<f64>()
        .ok()
        .filter(|seconds| *seconds > 0.0 && *seconds <= YEAR)
        .map(Duration::from_secs_f64)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            "a number of seconds more than 0 and up to a year is needed, such as `30` or `0.5`".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosted_skills_are_the_services_own_or_uploaded_ones() {
        assert_eq!(hosted("xlsx").unwrap(), HostedSkill::anthropic("xlsx"));
        assert_eq!(hosted(" pptx ").unwrap(), HostedSkill::anthropic("pptx"));
        assert_eq!(hosted("skill_01@17").unwrap(), HostedSkill::custom("skill_01").version("17"));
        for text in ["", "@1", "a@", "a b", "a/b", "a@b@c", "{}"] {
            assert!(hosted(text).is_err(), "{text}");
        }
    }

    #[test]
    fn attachments_have_the_name_that_was_given_or_that_of_the_file() {
        for (text, expected) in [
            ("sales=data/sales.csv", Some(("sales", "data/sales.csv"))),
            ("data/sales.csv", Some(("sales.csv", "data/sales.csv"))),
            ("data/a=b.csv", Some(("a=b.csv", "data/a=b.csv"))),
            ("https://a.example/data/x.json?a=b#c", Some(("x.json", "https://a.example/data/x.json?a=b#c"))),
            ("api=https://a.example/?a=b", Some(("api", "https://a.example/?a=b"))),
            ("https://a.example", None),
            ("https://a.example/", None),
            ("..", None),
            ("name=", None),
            ("", None),
        ] {
            let parsed = attachment(text).ok();
            let parsed = parsed.as_ref().map(|parsed| (parsed.name.as_str(), parsed.place.as_str()));
            assert_eq!(parsed, expected, "{text}");
        }
        assert!(attachment("api=HTTPS://a.example/x").unwrap().is_url());
        assert!(!attachment("x=https:/a").unwrap().is_url());
    }
}
