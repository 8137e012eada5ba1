//! `conjure skills pack`: packs a skill's directory into a `.skill` file.

use std::path::Path;

use conjure::skill::{PackageLimits, SkillError, pack_file};

use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::skills::load::skill_error;
use crate::cli::terminal::{Terminal, printable};

/// Writes the package, and prints its path. Exit code 1 if the skill is not valid or the file cannot be written, and 2 if nothing exists
/// there.
pub(super) fn pack(path: &Path, output: Option<&Path>, terminal: &Terminal) -> Result<ExitStatus, CliError> {
    let output = output.unwrap_or(Path::new("."));
    let packed = pack_file(path, output, PackageLimits::default()).map_err(|error| match error {
        error @ SkillError::Write { .. } => CliError::internal(conjure::Error::from(error).to_string())
            .with_hint("`-o FILE` chooses another place"),
        error => skill_error(error),
    })?;
    for file in &packed.skipped {
        terminal.note(&format!("left out: {}", printable(&file.to_string_lossy())));
    }
    terminal.note(&format!(
        "{}: {} files, {} bytes, packed into {} bytes",
        packed.skill.name(),
        packed.files.len(),
        packed.total_bytes,
        packed.package_bytes
    ));
    if let Some(written) = &packed.output {
        terminal.output(&printable(&written.to_string_lossy()));
    }
    Ok(ExitStatus::Success)
}
