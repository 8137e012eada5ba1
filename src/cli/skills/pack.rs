//! `conjure skills pack`: packs a skill's directory into a `.skill` file.

use std::path::Path;

use conjure::skill::{PackageLimits, SkillError, pack_file};

use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::destination::{self, ToolDirs};
use crate::cli::skills::load::skill_error;
use crate::cli::terminal::{Terminal, printable};

/// Writes the package, and prints its path. Exit code 1 if the skill is not valid or the file cannot be written, and 2 if nothing exists
/// there.
pub(super) fn pack(
    path: &Path,
    output: Option<&Path>,
    tools: &ToolDirs,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let output = output.unwrap_or(Path::new("."));
    check_output(output, tools)?;
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

/// Refuses a place that is reached by a link which a tool may have created. A missing directory is reported when the package is written.
fn check_output(output: &Path, tools: &ToolDirs) -> Result<(), CliError> {
    let dir = if output.is_dir() { Some(output) } else { output.parent() };
    let dir = dir.filter(|dir| dir.is_dir());
    let opened = dir.map(|dir| destination::open_dir(dir, tools)).transpose();
    opened
        .map(drop)
        .map_err(|error| CliError::usage(format!("`--output`: {}", printable(&error.to_string()))))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_package_is_written_through_a_link_of_a_tool() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for name in ["work", "own"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        symlink(at("own"), at("link")).unwrap();
        symlink(at("own"), at("work/planted")).unwrap();
        let tools = ToolDirs::new([&*at("work")]);
        for output in ["work", "own", "link", "link/a.skill", "work/a.skill", "none/a.skill"] {
            check_output(&at(output), &tools).unwrap();
        }
        check_output(Path::new("a.skill"), &tools).unwrap();
        for output in ["work/planted", "work/planted/a.skill"] {
            let refused = check_output(&at(output), &tools).unwrap_err();
            assert!(refused.message.contains("is a link"), "{output}: {}", refused.message);
        }
    }
}
