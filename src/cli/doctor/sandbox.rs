//! Whether the sandbox of this version starts, and what programs are found in it. Nothing is guessed: a sandbox
//! is made and asked.

use std::time::Duration;

use conjure::{
    CallOptions, Clock as _, Command, CommandEnd, Config, ContextOptions, Environment, ExecutorKind,
    Settings, Skill, SystemClock, Workbench,
};

use crate::cli::doctor::check::{Check, Finding};
use crate::cli::terminal::printable;

/// A program that does not tell its version in this time is not of use.
const PATIENCE: Duration = Duration::from_secs(10);

/// The programs that skills use, whether this version needs them, and how to get them.
const PROGRAMS: [(&str, bool, &str); 3] = [
    ("bash", true, "install bash: the tool `bash_tool` runs commands with it"),
    ("python3", false, "install python3: the scripts of most skills need it"),
    ("node", false, "install Node.js, if a skill has scripts that need it"),
];

/// Makes a sandbox and looks into it.
pub(super) async fn checks(environment: &Environment) -> Vec<Check> {
    let workbench = match start(environment).await {
        Ok(workbench) => workbench,
        Err(reason) => {
            let check = Check::new("sandbox local", Finding::Missing(reason)).needed();
            return vec![check.remedy("a writable temporary folder (TMPDIR), and room for more processes")];
        }
    };
    let found = "the guest starts and runs programs; isolates nothing";
    let mut checks = vec![Check::new("sandbox local", Finding::Good(found.to_owned()))];
    for (program, needed, remedy) in PROGRAMS {
        let check = match run(&workbench, [program, "--version"]).await {
            Ok(version) => {
                let version = printable(version.lines().next().unwrap_or_default());
                Check::new(program, Finding::Good(version))
            }
            Err(reason) => Check::new(program, Finding::Missing(reason)).remedy(remedy),
        };
        checks.push(if needed { check.needed() } else { check });
    }
    workbench.close().await;
    checks
}

/// A workbench in whose sandbox a program has run.
async fn start(environment: &Environment) -> Result<Workbench, String> {
    let local = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    // Only the process' environment is of interest here, not what the user has configured.
    let config =
        Config::default().with(local).map_err(|error| error.to_string())?.in_environment(environment);
    let opened = Workbench::open(Vec::<Skill>::new(), &config, ContextOptions::default()).await;
    let workbench = opened.map_err(|error| error.to_string())?;
    run(&workbench, ["/bin/true"]).await?;
    Ok(workbench)
}

/// The output of a program that succeeds.
async fn run<const N: usize>(workbench: &Workbench, argv: [&str; N]) -> Result<String, String> {
    let options = CallOptions::until(SystemClock.deadline(PATIENCE));
    let outcome =
        workbench.executor().run(Command::new(argv), options).await.map_err(|error| error.to_string())?;
    match outcome.end {
        CommandEnd::Exited(0) => Ok(String::from_utf8_lossy(&outcome.stdout.head).into_owned()),
        end => Err(format!("it ended with {end:?}")),
    }
}
