//! A program that does nothing and needs no library, so that the same file runs on the host and in a container.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::harness::Result;

/// Where commands in a sandbox find it.
pub(crate) const INSIDE: &str = "/workspace/nothing";

/// Makes it in this workspace, by the compiler's driver that Rust links with, and says where it is.
pub(crate) fn make(workspace: &Path) -> Result<String> {
    let (source, program) = (workspace.join("nothing.c"), workspace.join("nothing"));
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let made = std::process::Command::new("cc")
        .args(["-O2", "-static", "-o"])
        .arg(&program)
        .arg(&source)
        .status()?;
    if !made.success() {
        return Err("`cc` makes no static program: install the C library's archive (libc6-dev)".into());
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program.to_str().ok_or("the workspace has no name")?.to_owned())
}
