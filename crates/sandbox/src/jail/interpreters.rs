//! Interpreters outside the system's directories: in `/opt`, or from a version manager in a home directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The programs that skills are written for.
const WANTED: [&str; 8] = ["python3", "node", "bash", "ruby", "perl", "deno", "git", "pwsh"];

/// The system's program directories, in the usual order of `PATH`.
pub(super) const SYSTEM: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The directories of an installation next to its program directory.
const SIBLING_DIRS: [&str; 4] = ["include", "lib", "lib64", "libexec"];

/// An installation that a jail shows at its own path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Installation {
    /// The visible directories: the program directory, and those next to it that belong to an installation. Others,
    /// such as `share`, are never included, because people keep their own data there (`~/.local/share`).
    pub(super) parts: Vec<PathBuf>,
    /// The directory of the program.
    pub(super) programs: PathBuf,
}

/// The installations of the interpreters that the system lacks, found by `path` (the host's `PATH`). Scripts that only
/// start a program (of a version manager) are skipped.
pub(super) fn outside_system_dirs(path: Option<&OsStr>, system: &[&str]) -> Vec<Installation> {
    let mut found: Vec<Installation> = WANTED
        .iter()
        .filter(|name| !system.iter().any(|dir| is_program(&Path::new(dir).join(name))))
        .filter_map(|name| {
            let dirs = path.map(std::env::split_paths).into_iter().flatten();
            dirs.filter(|dir| dir.is_absolute()).filter_map(|dir| installation(&dir.join(name))).next()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The installation of a program: `PREFIX/bin/NAME` after following links, with its directories beside it.
fn installation(program: &Path) -> Option<Installation> {
    let real = fs::canonicalize(program).ok()?;
    if !is_program(&real) || is_script(&real) {
        return None;
    }
    let programs = real.parent()?;
    let prefix = programs.parent()?;
    // The program must be in a `bin` directory whose parent is not at the top level. So `/usr` and `/root` are never
    // shown as an installation.
    let is_own = programs.file_name() == Some(OsStr::new("bin")) && prefix.components().count() > 2;
    let parts: Vec<PathBuf> =
        SIBLING_DIRS.iter().map(|name| prefix.join(name)).filter(|part| part.is_dir()).collect();
    // Hidden directories such as `~/.local` belong to a user, not to a program.
    let is_hidden = prefix.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    if !is_own || parts.is_empty() || is_hidden || is_home(prefix) || prefix.parent().is_some_and(is_home) {
        return None;
    }
    let parts = std::iter::once(programs.to_owned()).chain(parts).collect();
    Some(Installation { parts, programs: programs.to_owned() })
}

/// Whether the directory is a home directory, by its entries. A directory that cannot be listed may be one.
fn is_home(dir: &Path) -> bool {
    const SIGNS: [&str; 6] = [".ssh", ".profile", ".bashrc", ".config", ".local", ".cache"];
    fs::read_dir(dir).map_or(true, |mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| SIGNS.contains(&name)))
        })
    })
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn is_script(path: &Path) -> bool {
    use std::io::Read as _;

    let mut beginning = [0; 2];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && beginning == *b"#!"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn an_installation_is_found_through_links_and_past_scripts() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        program(&root.join("shims/python3"), "#!/bin/sh\nexec elsewhere\n");
        program(&root.join("versions/3.12/bin/python3"), "ELF");
        fs::create_dir(root.join("versions/3.12/lib")).unwrap();
        fs::create_dir(root.join("links")).unwrap();
        std::os::unix::fs::symlink(root.join("versions/3.12/bin/python3"), root.join("links/python3"))
            .unwrap();
        // A home directory is none, though it has programs.
        program(&root.join("home/bin/node"), "ELF");
        fs::create_dir_all(root.join("home/lib")).unwrap();
        fs::create_dir(root.join("home/.ssh")).unwrap();
        // Nor is what lies directly in one.
        program(&root.join("home/tools/bin/deno"), "ELF");
        fs::create_dir_all(root.join("home/tools/lib")).unwrap();
        program(&root.join("other/.local/bin/ruby"), "ELF");
        fs::create_dir_all(root.join("other/.local/lib")).unwrap();

        let path = std::env::join_paths(
            ["shims", "links", "home/bin", "home/tools/bin", "other/.local/bin"].map(|name| root.join(name)),
        )
        .unwrap();
        let prefix = root.join("versions/3.12");
        let parts = vec![prefix.join("bin"), prefix.join("lib")];
        let expected = Installation { programs: prefix.join("bin"), parts };
        assert_eq!(outside_system_dirs(Some(&path), &[]), [expected]);
        let system = root.join("links");
        assert_eq!(outside_system_dirs(Some(&path), &[system.to_str().unwrap()]), []);
        assert_eq!(outside_system_dirs(None, &[]), []);
    }
}
