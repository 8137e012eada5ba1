//! Compares the capabilities of an engine and its machine with the requested ones.

use rustix::process::{Resource, getrlimit};

use super::engine_info::{EngineInfo, EngineKind};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::settings::isolation::{Boundary, Isolation};

/// Removes the boundaries that the engine does not enforce according to its warnings.
pub(crate) fn actual_isolation(isolation: Isolation, warnings: &[String]) -> Isolation {
    let mut actual_isolation = isolation;
    for warning in warnings.iter().map(|warning| warning.to_ascii_lowercase()) {
        tracing::warn!(warning, "the engine warns");
        if !warning.contains("discard") {
            continue;
        }
        if warning.contains("memory") {
            actual_isolation.memory = Boundary::Open;
        }
        if warning.contains("cpu") {
            actual_isolation.processor = Boundary::Open;
        }
        if warning.contains("pids") {
            actual_isolation.process_count = Boundary::Open;
        }
    }
    actual_isolation
}

/// The maximum number of processes of a user on this machine: the range of process ids. Podman itself uses a lower
/// maximum.
pub(crate) fn max_processes() -> u64 {
    /// Podman's own maximum.
    const MAX: u64 = 1 << 20;
    let numbers = std::fs::read_to_string("/proc/sys/kernel/pid_max");
    let numbers = numbers.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAX);
    let own = getrlimit(Resource::Nproc).maximum.unwrap_or(MAX);
    own.min(numbers).min(MAX)
}

/// Fails unless the engine has this runtime. Podman has only the runtime that it was started with, and ignores other
/// names.
pub(crate) fn check_runtime(info: &EngineInfo, runtime: &str) -> Result<(), SandboxError> {
    let message = match info.kind {
        EngineKind::Podman if info.default_runtime == runtime => return Ok(()),
        EngineKind::Docker if info.runtimes.iter().any(|known| known == runtime) => return Ok(()),
        EngineKind::Podman => format!(
            "the engine has no runtime `{runtime}`; it has `{}`: start Podman's service with `podman --runtime {runtime} \
             system service`",
            info.default_runtime
        ),
        EngineKind::Docker => {
            format!("the engine has no runtime `{runtime}`; it has `{}`", info.runtimes.join("`, `"))
        }
    };
    Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
}

/// Fails unless the guest's program runs on the architecture of an image.
pub(crate) fn check_architecture(architecture: &str) -> Result<(), SandboxError> {
    if is_supported(architecture) {
        return Ok(());
    }
    let message = format!(
        "the image is for `{architecture}`, and the guest's program for `{}`: take an image for this machine, or build with \
         `CONJURE_GUEST` naming a program that fits",
        std::env::consts::ARCH
    );
    Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
}

fn is_supported(architecture: &str) -> bool {
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
        let warning = |text: &str| actual_isolation(Isolation::FULL, &[text.to_owned()]);
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
        assert!(is_supported(own) && is_supported(if own == "x86_64" { "amd64" } else { "arm64" }));
        assert!(!is_supported("riscv64"));
    }
}
