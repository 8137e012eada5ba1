//! Checks whether sandboxes start, and which programs they contain. It creates a sandbox and runs the programs.

use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::sandbox::{CallOptions, Command, CommandEnd, DiskLimit};
use conjure::session::ContextOptions;
use conjure::{Clock as _, Config, ProcessEnv, Settings, Skill, SystemClock, Workbench};

use crate::cli::doctor::check::{Check, Finding};
use crate::cli::terminal::printable;

/// The timeout for a program that prints its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// The programs that skills use, whether this version needs them, and how to get them.
const PROGRAMS: [(&str, bool, &str); 3] = [
    ("bash", true, "install bash: the tool `bash_tool` runs commands with it"),
    ("python3", false, "install python3: the scripts of most skills need it"),
    ("node", false, "install Node.js, if a skill has scripts that need it"),
];

/// How to enable a boundary that cannot be enforced.
const REMEDIES: [(&str, &str); 7] = [
    ("identity", "run the host as root: it then runs each jail as another user that owns nothing"),
    ("syscalls", "a kernel with CONFIG_SECCOMP_FILTER"),
    (
        "files",
        "Linux 5.19 or later with Landlock switched on (`lsm=landlock,...` on the kernel's command line)",
    ),
    ("memory", "control groups, see below"),
    ("processor", "control groups, see below"),
    ("process_count", "control groups, see below, or Linux 5.14"),
    (
        "disk",
        "workspaces and the temporary directory on another file system than Btrfs, or `disk_limit = \"kernel\"`",
    ),
];

/// By how much a quota that the guest watches can be exceeded. The example `quota` of `conjure-sandbox` measures it.
const WATCHED_QUOTA: &str = "watched: commands are ended that exceed the quota. They can exceed it by a sixteenth, at most 64 MiB and \
                       4,096 files, and by what the disk takes until it is noticed (up to 130 MB were measured on a busy machine)";

/// What commands in a jail can see of the host. The kernel shows it for every mount, so it cannot be hidden.
const VISIBLE_PATHS: &str = "commands can read in /proc/self/mountinfo where their directories are on the host: the paths of the data directory \
                     and of a `--workspace`, the tenant's name, the session's id. They cannot reach those paths";

/// Creates a sandbox of each kind, and checks the programs in one of the configured kind.
pub(super) async fn checks(environment: &ProcessEnv, configured: ExecutorKind) -> Vec<Check> {
    let mut checks = Vec::new();
    let local = start(environment, ExecutorKind::Local).await;
    let jail = match start(environment, ExecutorKind::Jail).await {
        Ok(jail) => {
            let found = "starts and runs programs".to_owned();
            checks.push(Check::new("sandbox jail", Finding::Good(found)));
            checks.extend(jail.executor().isolation().open().map(|boundary| {
                let finding =
                    Finding::Missing(format!("the jail cannot enforce the boundary `{boundary}` here"));
                let remedy = REMEDIES.iter().find(|(name, _)| *name == boundary).map(|(_, remedy)| *remedy);
                let check = Check::new("  boundary", finding);
                if let Some(remedy) = remedy { check.remedy(remedy) } else { check }
            }));
            if jail.executor().isolation().open().all(|boundary| boundary != "disk") {
                checks.push(Check::new("  disk", Finding::Good(WATCHED_QUOTA.to_owned())));
            }
            checks.push(kernel_limit(environment).await);
            checks.push(Check::new("  paths", Finding::Good(VISIBLE_PATHS.to_owned())));
            Some(jail)
        }
        Err(reason) => {
            let check = Check::new("sandbox jail", Finding::Missing(reason));
            let check = check.remedy("`--sandbox local` does without, and isolates nothing");
            checks.push(if configured == ExecutorKind::Jail { check.needed() } else { check });
            None
        }
    };
    match &local {
        Ok(_) => {
            let found = "starts and runs programs; isolates nothing".to_owned();
            checks.push(Check::new("sandbox local", Finding::Good(found)));
        }
        Err(reason) => {
            let check = Check::new("sandbox local", Finding::Missing(reason.clone())).needed();
            checks.push(check.remedy("a writable temporary directory (TMPDIR), and room for more processes"));
        }
    }
    let local = local.ok();
    let looked_into = match configured {
        ExecutorKind::Local => local.as_ref(),
        // The programs in a container depend on its image.
        ExecutorKind::Docker => None,
        _ => jail.as_ref(),
    };
    if let Some(workbench) = looked_into {
        for (program, needed, remedy) in PROGRAMS {
            let check = match run(workbench, [program, "--version"]).await {
                Ok(version) => {
                    let version = printable(version.lines().next().unwrap_or_default());
                    Check::new(program, Finding::Good(version))
                }
                Err(reason) => Check::new(program, Finding::Missing(reason)).remedy(remedy),
            };
            checks.push(if needed { check.needed() } else { check });
        }
    }
    for workbench in jail.into_iter().chain(local) {
        workbench.close().await;
    }
    checks
}

/// Checks whether the kernel can limit the disk of a jail.
async fn kernel_limit(environment: &ProcessEnv) -> Check {
    let settings = Settings {
        executor: Some(ExecutorKind::Jail),
        disk_limit: Some(DiskLimit::Kernel),
        ..Settings::default()
    };
    match start_with(environment, settings).await {
        Ok(jail) => {
            jail.close().await;
            let found = "can limit it instead, exactly: `CONJURE_DISK_LIMIT=kernel`".to_owned();
            Check::new("  disk, kernel", Finding::Good(found))
        }
        Err(reason) => Check::new("  disk, kernel", Finding::Missing(reason)).remedy(
            "run as root, with `mke2fs` (apt-get install e2fsprogs), where the quota must be exact"
                .to_owned(),
        ),
    }
}

/// A workbench whose sandbox has run a program, or the reason why it could not be created.
pub(crate) async fn start(environment: &ProcessEnv, kind: ExecutorKind) -> Result<Workbench, String> {
    start_with(environment, Settings { executor: Some(kind), ..Settings::default() }).await
}

/// A workbench with these settings, whose sandbox has run a program.
async fn start_with(environment: &ProcessEnv, settings: Settings) -> Result<Workbench, String> {
    // Only the process environment is used, and not the user's configuration.
    let config =
        Config::default().with(settings).map_err(|error| error.to_string())?.with_process_env(environment);
    let opened = Workbench::open(Vec::<Skill>::new(), &config, ContextOptions::default()).await;
    let workbench = opened.map_err(|error| error.to_string())?;
    run(&workbench, ["/bin/true"]).await?;
    Ok(workbench)
}

/// The output of a program that must succeed.
async fn run<const N: usize>(workbench: &Workbench, argv: [&str; N]) -> Result<String, String> {
    let options = CallOptions::until(SystemClock.deadline(VERSION_TIMEOUT));
    let outcome =
        workbench.executor().run(Command::new(argv), options).await.map_err(|error| error.to_string())?;
    match outcome.end {
        CommandEnd::Exited(0) => Ok(String::from_utf8_lossy(&outcome.stdout.head).into_owned()),
        end => Err(format!("it ended with {end:?}")),
    }
}
