//! What an engine and its machine can do, against what is asked of them.

use rustix::process::{Resource, getrlimit};

use super::facts::{EngineFacts, EngineKind};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::isolation::{Boundary, Isolation};

/// What the engine says that it does not do.
pub(super) fn honest(isolation: Isolation, warnings: &[String]) -> Isolation {
    let mut honest = isolation;
    for warning in warnings.iter().map(|warning| warning.to_ascii_lowercase()) {
        tracing::warn!(warning, "the engine warns");
        if !warning.contains("discard") {
            continue;
        }
        if warning.contains("memory") {
            honest.memory = Boundary::Open;
        }
        if warning.contains("cpu") {
            honest.processor = Boundary::Open;
        }
        if warning.contains("pids") {
            honest.process_count = Boundary::Open;
        }
    }
    honest
}

/// How many processes any user of this machine can have: no more than there are numbers for them. Podman goes below that itself.
pub(super) fn most_processes() -> u64 {
    /// What Podman takes for the most.
    const MOST: u64 = 1 << 20;
    let numbers = std::fs::read_to_string("/proc/sys/kernel/pid_max");
    let numbers = numbers.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MOST);
    let own = getrlimit(Resource::Nproc).maximum.unwrap_or(MOST);
    own.min(numbers).min(MOST)
}

/// An engine has a runtime, and Podman the one alone that it was started with: it does not hear of another.
pub(super) fn check_runtime(facts: &EngineFacts, runtime: &str) -> Result<(), SandboxError> {
    let message = match facts.kind {
        EngineKind::Podman if facts.default_runtime == runtime => return Ok(()),
        EngineKind::Docker if facts.runtimes.iter().any(|known| known == runtime) => return Ok(()),
        EngineKind::Podman => format!(
            "the engine has no runtime `{runtime}`; it has `{}`: start Podman's service with `podman --runtime {runtime} \
             system service`",
            facts.default_runtime
        ),
        EngineKind::Docker => {
            format!("the engine has no runtime `{runtime}`; it has `{}`", facts.runtimes.join("`, `"))
        }
    };
    Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
}

/// Whether the guest's program runs on the machine that an image is for.
pub(super) fn check_architecture(architecture: &str) -> Result<(), SandboxError> {
    if fits(architecture) {
        return Ok(());
    }
    let message = format!(
        "the image is for `{architecture}`, and the guest's program for `{}`: take an image for this machine, or build with \
         `CONJURE_GUEST` naming a program that fits",
        std::env::consts::ARCH
    );
    Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
}

fn fits(architecture: &str) -> bool {
    let normal = |name| match name {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    normal(architecture) == normal(std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_discards_is_open() {
        let warning = |text: &str| honest(Isolation::FULL, &[text.to_owned()]);
        let memory = warning(
            "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
        );
        assert_eq!(memory.open().collect::<Vec<_>>(), ["memory"]);
        let pids = warning("Your kernel does not support PIDs limit capabilities. PIDs limit discarded.");
        assert_eq!(pids.open().collect::<Vec<_>>(), ["process_count"]);
    }

    #[test]
    fn architectures_have_two_names() {
        let own = std::env::consts::ARCH;
        assert!(fits(own) && fits(if own == "x86_64" { "amd64" } else { "arm64" }));
        assert!(!fits("riscv64"));
    }
}
