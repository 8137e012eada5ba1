//! [`ContainerRun`]: a parsed command line `docker run …` or `podman run …`, as many servers are published. The container program is not
//! started: the image becomes a sandbox. An option that a sandbox does not support is refused by name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use conjure_sandbox::NetworkPolicy;

/// A parsed command line.
#[derive(Clone, PartialEq, Eq)]
pub struct ContainerRun {
    /// The program that the command line starts.
    pub program: ContainerProgram,
    /// The image.
    pub image: String,
    /// Replaces the image's entrypoint and command.
    pub entrypoint: Option<String>,
    /// The arguments after the image, which replace the image's command.
    pub args: Vec<String>,
    /// The environment variables of the server. `None`: the variable's value in the caller's environment.
    pub env: BTreeMap<String, Option<String>>,
    /// Files and directories of the host that the server may read.
    pub mounts: Vec<ContainerMount>,
    /// The network policy, if the command line sets one.
    pub network: Option<NetworkPolicy>,
    /// The working directory. `None`: that of the image.
    pub workdir: Option<String>,
}

/// The program that a command line starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerProgram {
    /// `docker`.
    Docker,
    /// `podman`.
    Podman,
}

/// A file or directory of the host that a server may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerMount {
    /// The path on the host.
    pub host: PathBuf,
    /// The path in the container.
    pub target: PathBuf,
}

/// Flags without effect here: the sandbox behaves this way anyway, or has nothing to change.
const FLAGS: [&str; 6] =
    ["--interactive", "--rm", "--init", "--quiet", "--read-only", "--oom-kill-disable=false"];

/// Options whose value is used.
const USED_OPTIONS: [&str; 7] =
    ["--env", "--volume", "--mount", "--network", "--net", "--workdir", "--entrypoint"];

/// Options whose value has no effect here.
const IGNORED: [&str; 5] = ["--name", "--hostname", "--label", "--log-driver", "--cap-drop"];

/// Flags that are refused, with the reason.
const REFUSED_FLAGS: [(&str, &str); 5] = [
    ("--privileged", "a server runs in a sandbox"),
    ("--tty", "a terminal would change what the server says; leave it out"),
    ("--detach", "the server speaks by its standard input and output"),
    ("--publish-all", "nothing can connect to a sandbox"),
    ("--no-healthcheck", NOT_SUPPORTED),
];

/// Options with a value that are refused, with the reason.
const REFUSED: [(&str, &str); 10] = [
    ("--cap-add", "a server has no capabilities"),
    ("--device", "a server runs in a sandbox"),
    ("--env-file", "give its variables by `env`"),
    ("--gpus", "a server runs in a sandbox"),
    ("--ipc", "a server runs in a sandbox"),
    ("--memory", LIMITS),
    ("--cpus", LIMITS),
    ("--pid", "a server runs in a sandbox"),
    ("--publish", "nothing can connect to a sandbox"),
    ("--user", "the sandbox chooses the user; leave it out"),
];

const LIMITS: &str = "the limits are those of the configuration; leave it out";
const NOT_SUPPORTED: &str = "it is not supported";

/// The long names of short options.
const SHORT: [(char, &str); 13] = [
    ('i', "--interactive"),
    ('q', "--quiet"),
    ('t', "--tty"),
    ('d', "--detach"),
    ('P', "--publish-all"),
    ('e', "--env"),
    ('v', "--volume"),
    ('w', "--workdir"),
    ('h', "--hostname"),
    ('l', "--label"),
    ('m', "--memory"),
    ('p', "--publish"),
    ('u', "--user"),
];

impl ContainerRun {
    /// Parses a program and its arguments. `None` if the program is another one.
    ///
    /// # Errors
    /// The option that cannot be used, as text.
    ///
    /// ```
    /// use conjure_mcp::ContainerRun;
    ///
    /// let line = ["run", "-i", "--rm", "-e", "TOKEN", "ghcr.io/example/server", "stdio"].map(str::to_owned);
    /// let run = ContainerRun::parse("docker", &line)?.expect("it is such a line");
    /// assert_eq!((run.image.as_str(), run.args.as_slice()), ("ghcr.io/example/server", ["stdio".to_owned()].as_slice()));
    /// # Ok::<(), String>(())
    /// ```
    pub fn parse(command: &str, args: &[String]) -> Result<Option<Self>, String> {
        let program = match command.rsplit('/').next() {
            Some("docker") => ContainerProgram::Docker,
            Some("podman") => ContainerProgram::Podman,
            _ => return Ok(None),
        };
        let options = match args {
            [run, options @ ..] if run == "run" => options,
            [container, run, options @ ..] if container == "container" && run == "run" => options,
            _ => {
                return Err(format!(
                    "of `{program}` only lines that begin with `{program} run` can be used: their image becomes a sandbox"
                ));
            }
        };
        let refused = |reason: String| format!("the line `{program} run`: {reason}");
        let mut run = Self {
            program,
            image: String::new(),
            entrypoint: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            mounts: Vec::new(),
            network: None,
            workdir: None,
        };
        let rest = run.read_options(options).map_err(refused)?;
        let [image, args @ ..] = rest else { return Err(refused("it names no image".to_owned())) };
        let is_plain = !image.is_empty()
            && image.len() <= 512
            && image.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\'));
        if !is_plain {
            return Err(refused(format!("`{}` is no name of an image", shown(image))));
        }
        run.image.clone_from(image);
        run.args = args.to_vec();
        Ok(Some(run))
    }

    /// The variables of the server, for a caller with these variables. The server sees no others.
    #[must_use]
    pub fn environment(&self, starts_with: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let value = |(name, value): (&String, &Option<String>)| {
            Some((name.clone(), value.as_ref().or_else(|| starts_with.get(name))?.clone()))
        };
        self.env.iter().filter_map(value).collect()
    }

    /// Parses the options. Returns the words after them.
    fn read_options<'a>(&mut self, mut line: &'a [String]) -> Result<&'a [String], String> {
        while let [word, rest @ ..] = line {
            if word == "--" {
                return Ok(rest);
            }
            line = match word.strip_prefix('-') {
                Some(long) if long.starts_with('-') => self.read_long(word, rest)?,
                Some(short) if !short.is_empty() => self.read_short(short, rest)?,
                _ => return Ok(line),
            };
        }
        Ok(line)
    }

    /// Parses an option such as `--rm` or `--env=NAME`. Returns the words after it.
    fn read_long<'a>(&mut self, word: &str, rest: &'a [String]) -> Result<&'a [String], String> {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if is_flag(name) {
            self.flag(name, attached)?;
            return Ok(rest);
        }
        match (attached, rest) {
            (Some(value), _) => self.option(name, value).map(|()| rest),
            (None, [value, after @ ..]) => self.option(name, value).map(|()| after),
            (None, []) if USED_OPTIONS.contains(&name) => Err(no_value(name)),
            (None, []) => self.option(name, "").and(Err(no_value(name))),
        }
    }

    /// Parses options such as `-i` or `-ie NAME`. Returns the words after them.
    fn read_short<'a>(&mut self, letters: &str, rest: &'a [String]) -> Result<&'a [String], String> {
        for (at, letter) in letters.char_indices() {
            let long = SHORT.iter().find(|(short, _)| *short == letter).map(|(_, long)| *long);
            let long = long.ok_or_else(|| refusal(&format!("-{letter}"), NOT_SUPPORTED))?;
            if is_flag(long) {
                self.flag(long, None)?;
                continue;
            }
            let attached = letters.get(at + letter.len_utf8()..).unwrap_or_default();
            let attached = attached.strip_prefix('=').unwrap_or(attached);
            return match (attached, rest) {
                ("", [value, after @ ..]) => self.option(long, value).map(|()| after),
                ("", []) => Err(no_value(long)),
                (value, _) => self.option(long, value).map(|()| rest),
            };
        }
        Ok(rest)
    }

    fn flag(&self, name: &str, value: Option<&str>) -> Result<(), String> {
        match value {
            None | Some("true") => {}
            Some("false") => return Ok(()),
            Some(_) => return Err(format!("the option `{name}` takes `true` or `false` alone")),
        }
        match REFUSED_FLAGS.iter().find(|(refused, _)| *refused == name) {
            Some((_, why)) => Err(refusal(name, why)),
            None => Ok(()),
        }
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "--env" => self.variable(value),
            "--volume" => self.volume(value),
            "--mount" => self.mount(value),
            "--network" | "--net" => {
                self.network = Some(network(value)?);
                Ok(())
            }
            "--workdir" => {
                self.workdir = Some(absolute(name, value)?.to_owned());
                Ok(())
            }
            "--entrypoint" => {
                self.entrypoint = Some(value.to_owned());
                Ok(())
            }
            "--pull" if matches!(value, "missing" | "never") => Ok(()),
            "--pull" => {
                Err("an image is not pulled when a server is started: pull it before, and leave `--pull` out"
                    .to_owned())
            }
            "--security-opt" if value.starts_with("no-new-privileges") && !value.ends_with("false") => Ok(()),
            "--security-opt" => Err(refusal(name, "the rules of a sandbox cannot be changed")),
            _ if IGNORED.contains(&name) => Ok(()),
            _ => {
                let why = REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, why)| *why);
                Err(refusal(name, why.unwrap_or(NOT_SUPPORTED)))
            }
        }
    }

    fn variable(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        if name.is_empty() || text.contains('\0') {
            // The value may be a secret.
            return Err("an option `--env` has no name of a variable".to_owned());
        }
        self.env.insert(name.to_owned(), value);
        Ok(())
    }

    /// `HOST:TARGET[:OPTIONS]`.
    fn volume(&mut self, text: &str) -> Result<(), String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (host, target, options) = match parts.as_slice() {
            [host, target] => (*host, *target, ""),
            [host, target, options] => (*host, *target, *options),
            _ => return Err(format!("the volume `{}` is not `HOST:TARGET`", shown(text))),
        };
        if let Some(option) =
            options.split(',').find(|option| !matches!(*option, "" | "ro" | "rw" | "z" | "Z"))
        {
            return Err(format!(
                "the volume `{}` has the option `{}`, which is not supported",
                shown(text),
                shown(option)
            ));
        }
        self.bind(host, target)
    }

    /// `type=bind,source=HOST,target=TARGET[,readonly]`.
    fn mount(&mut self, text: &str) -> Result<(), String> {
        let (mut kind, mut host, mut target) = ("volume", None, None);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or((part, "true"));
            match key {
                "type" => kind = value,
                "source" | "src" => host = Some(value),
                "target" | "destination" | "dst" => target = Some(value),
                "readonly" | "ro" => {}
                other => {
                    return Err(format!(
                        "the mount `{}` has the part `{}`, which is not supported",
                        shown(text),
                        shown(other)
                    ));
                }
            }
        }
        match (kind, host, target) {
            ("bind", Some(host), Some(target)) => self.bind(host, target),
            ("bind", ..) => Err(format!("the mount `{}` has no `source` or no `target`", shown(text))),
            (kind, ..) => Err(format!(
                "the mount `{}` is of the type `{}`, and only `bind` is supported: nothing that a server stores outlives its session",
                shown(text),
                shown(kind)
            )),
        }
    }

    fn bind(&mut self, host: &str, target: &str) -> Result<(), String> {
        if !host.contains('/') {
            return Err(format!(
                "the volume `{}` is one of the engine, and only paths of this machine are supported: nothing that a server stores outlives its session",
                shown(host)
            ));
        }
        let host = absolute("--volume", host)?.into();
        let target = absolute("--volume", target)?.into();
        self.mounts.push(ContainerMount { host, target });
        Ok(())
    }
}

fn is_flag(name: &str) -> bool {
    FLAGS.contains(&name) || REFUSED_FLAGS.iter().any(|(refused, _)| *refused == name)
}

fn network(value: &str) -> Result<NetworkPolicy, String> {
    match value {
        "none" => Ok(NetworkPolicy::None),
        "bridge" | "default" => Ok(NetworkPolicy::Full),
        _ => Err(format!(
            "the network `{}` is not supported: there are `none`, and `bridge` for all public addresses",
            shown(value)
        )),
    }
}

fn absolute<'a>(option: &str, path: &'a str) -> Result<&'a str, String> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(path);
    }
    Err(format!("the option `{option}` has the path `{}`, which is not absolute", shown(path)))
}

fn refusal(option: &str, why: &str) -> String {
    format!("the option `{}` is refused: {why}", shown(option))
}

fn no_value(option: &str) -> String {
    format!("the option `{option}` has no value")
}

/// Text of the command line, for an error.
fn shown(text: &str) -> String {
    conjure_base::text::truncate(text, 100).escape_debug().to_string()
}

impl fmt::Display for ContainerProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        })
    }
}

/// Shows only the names of variables: a value may be a secret.
impl fmt::Debug for ContainerRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerRun")
            .field("program", &self.program)
            .field("image", &self.image)
            .field("entrypoint", &self.entrypoint)
            .field("args", &self.args)
            .field("env", &self.env.keys())
            .field("mounts", &self.mounts)
            .field("network", &self.network)
            .field("workdir", &self.workdir)
            .finish()
    }
}

#[cfg(test)]
mod tests;
