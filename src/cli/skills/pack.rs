//! `conjure skills pack`: a skill's folder as one `.skill` file.

use std::path::Path;

use conjure::{PackageLimits, SkillError, pack_file};

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::skills::refused;
use crate::cli::terminal::{Terminal, printable};

/// Writes the package and prints its path. Exit code 1 when the skill is not valid or the file cannot be written, 2
/// when nothing is there.
pub(super) fn pack(path: &Path, output: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let output = output.unwrap_or(Path::new("."));
    let packed = pack_file(path, output, PackageLimits::default()).map_err(|error| match error {
        error @ SkillError::Write { .. } => {
            Failure::internal(conjure::Error::from(error).to_string()).hint("`-o FILE` chooses another place")
        }
        error => refused(error),
    })?;
    for file in &packed.left_out {
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
    Ok(Exit::Done)
}
