//! The host files that the program of an MCP server needs.
//!
//! These are the directory where the program is installed, the directories of its interpreter, and the files among its
//! arguments. A sandbox shows these and no other files of the user.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// The directories that every jail shows.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"];

/// Directories in a home directory that many programs share.
const SHARED: [&str; 5] = [".local", ".config", ".cache", ".ssh", ".gnupg"];

/// The most links and interpreters that are followed from a command to its program.
const MAX_STEPS: usize = 8;

/// The program of a server, and the files of the host that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProgramFiles {
    /// The program, by its path on the host.
    pub(super) program: PathBuf,
    /// Directories to read, by their real paths. No directory lies in another one.
    pub(super) dirs: BTreeSet<PathBuf>,
    /// Other paths of these directories that contain symbolic links, with the real paths.
    pub(super) aliases: BTreeMap<PathBuf, PathBuf>,
    /// The directories among the arguments, as the arguments write them.
    pub(super) arguments: Vec<PathBuf>,
    /// Further directories for `PATH`.
    pub(super) path: Vec<PathBuf>,
}

/// Where to look for programs and files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SearchPaths<'a> {
    /// The value of `PATH`.
    pub(super) path: &'a OsStr,
    /// The home directory, for `~/`.
    pub(super) home: Option<&'a Path>,
    /// The session's workspace, by its real path. Tools can create links in it, so a link that leads out of it is not
    /// followed.
    pub(super) workspace: Option<&'a Path>,
}

impl SearchPaths<'_> {
    /// Whether `given` passes through the workspace, but `real` lies outside of it.
    fn leads_out(&self, given: &Path, real: &Path) -> bool {
        self.workspace.is_some_and(|workspace| {
            let is_inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(workspace));
            !real.starts_with(workspace) && given.ancestors().any(is_inside)
        })
    }
}

/// Finds the program `command` and the files that it needs with these arguments.
///
/// # Errors
/// The reason why the program cannot be found, as text.
pub(super) fn program_files(
    command: &str,
    args: &[String],
    search_paths: SearchPaths<'_>,
) -> Result<ProgramFiles, String> {
    let program = find(command, search_paths.path, search_paths.home)?;
    let mut files = ProgramFiles { program: program.clone(), ..ProgramFiles::default() };
    files.add_program(&program, search_paths.path);
    for arg in args {
        files.add_argument(arg, search_paths);
    }
    // An alias inside a visible directory is dropped: the sandbox sees the link itself.
    let ProgramFiles { dirs, aliases, .. } = &mut files;
    aliases.retain(|alias, real| {
        let of_workspace =
            |path: &Path| search_paths.workspace.is_some_and(|workspace| path.starts_with(workspace));
        !dirs.iter().any(|dir| alias.starts_with(dir)) && !of_workspace(alias) && !of_workspace(real)
    });
    Ok(files)
}

/// The program of this name or path.
fn find(command: &str, path: &OsStr, home: Option<&Path>) -> Result<PathBuf, String> {
    if command.contains('/') {
        let given = with_home(command, home);
        let absolute = std::path::absolute(&given).map_err(|error| format!("`{command}`: {error}"))?;
        if is_program(&absolute) {
            return Ok(absolute);
        }
        return Err(format!("there is no program `{}`", absolute.display()));
    }
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(command))
        .find(|program| is_program(program))
        .ok_or_else(|| format!("there is no program `{command}` in the directories of `PATH`"))
}

impl ProgramFiles {
    /// Adds the directories of a program, of the targets of its links, and of its interpreter.
    fn add_program(&mut self, program: &Path, path: &OsStr) {
        let mut next = Some(program.to_owned());
        for _ in 0..MAX_STEPS {
            let Some(program) = next.take() else { return };
            self.add_installation(&program);
            next = match fs::read_link(&program) {
                Ok(target) => program.parent().map(|dir| dir.join(target)),
                Err(_) => interpreter(&program, path),
            };
            next = next.filter(|program| is_program(program));
        }
    }

    /// Adds the directory where a program is installed.
    ///
    /// - For `PREFIX/bin/NAME` this is `PREFIX`, unless that is a personal directory.
    /// - For `PREFIX/shims/NAME` this is `PREFIX`, unless that is a home directory or a directory of many programs. Version
    ///   managers such as pyenv put scripts there that look for the program below `PREFIX`.
    /// - Otherwise it is the parent directory.
    fn add_installation(&mut self, program: &Path) {
        let Some(dir) = program.parent().and_then(|dir| dir.canonicalize().ok()) else { return };
        if is_of_system(&dir) {
            return;
        }
        let prefix = dir.parent().filter(|prefix| {
            let is_installation = match dir.file_name().and_then(OsStr::to_str) {
                Some("bin") => !is_personal(prefix),
                Some("shims") => !is_home(prefix) && !SHARED.iter().any(|name| prefix.ends_with(name)),
                _ => false,
            };
            is_installation && prefix.components().count() > 2
        });
        let shown = prefix.unwrap_or(&dir);
        self.add_dir(shown.to_owned());
        let given = program.ancestors().skip(1).take(2);
        let given = given.filter(|given| given.canonicalize().is_ok_and(|real| real == *shown)).last();
        self.add_alias(given.or(program.parent()), if given.is_some() { shown } else { &dir });
        if !self.path.contains(&dir) {
            self.path.push(dir);
        }
    }

    /// Adds the file or directory that an argument names. The argument may be the path alone, or `--option=PATH`.
    fn add_argument(&mut self, arg: &str, search_paths: SearchPaths<'_>) {
        let value =
            arg.strip_prefix('-').and_then(|option| option.split_once('=')).map_or(arg, |(_, value)| value);
        let given = with_home(value, search_paths.home);
        if !given.is_absolute() {
            return;
        }
        // The file need not exist yet: the program may create it. A file that lies directly in a personal directory adds
        // nothing, because the other files of that directory must stay hidden.
        let real = given
            .canonicalize()
            .ok()
            .or_else(|| Some(given.parent()?.canonicalize().ok()?.join(given.file_name()?)));
        let Some(real) = real.filter(|real| !search_paths.leads_out(&given, real)) else { return };
        let dir = if real.is_dir() { Some(real.as_path()) } else { real.parent() };
        let is_shown = |dir: &&Path| {
            let is_own = real.is_dir() || !is_personal(dir);
            is_own && !is_of_system(dir) && dir.components().count() > 2
        };
        if let Some(dir) = dir.filter(is_shown) {
            if real.is_dir() {
                self.arguments.push(given.clone());
            }
            self.add_dir(dir.to_owned());
            self.add_alias(if real.is_dir() { Some(&given) } else { given.parent() }, dir);
        }
    }

    /// Records that this directory has another path.
    fn add_alias(&mut self, given: Option<&Path>, real: &Path) {
        let is_other = |given: &&Path| {
            let is_plain =
                given.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
            is_plain && *given != real && !is_of_system(given)
        };
        if let Some(given) = given.filter(is_other) {
            self.aliases.insert(given.to_owned(), real.to_owned());
        }
    }

    fn add_dir(&mut self, dir: PathBuf) {
        if self.dirs.iter().any(|known| dir.starts_with(known)) {
            return;
        }
        self.dirs.retain(|known| !known.starts_with(&dir));
        self.dirs.insert(dir);
    }
}

fn with_home(path: &str, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// The interpreter in the first line of a script.
fn interpreter(script: &Path, path: &OsStr) -> Option<PathBuf> {
    let mut head = [0; 256];
    let length = fs::File::open(script).and_then(|mut file| file.read(&mut head)).ok()?;
    let line = head.get(..length)?.strip_prefix(b"#!")?;
    let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next()?).into_owned();
    let mut words = line.split_whitespace();
    let program = words.next()?;
    if program.ends_with("/env") {
        let name = words.find(|word| !word.starts_with('-'))?;
        return find(name, path, None).ok();
    }
    Some(PathBuf::from(program))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn is_of_system(dir: &Path) -> bool {
    SYSTEM.iter().any(|system| dir.starts_with(system)) && !dir.starts_with("/etc") || dir.parent().is_none()
}

/// Whether a directory is a personal one, such as a home directory or `~/.local`. It holds more than one program.
fn is_personal(dir: &Path) -> bool {
    let is_hidden = dir.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    is_home(dir) || is_hidden && dir.parent().is_some_and(is_home)
}

/// Whether a directory looks like a home directory.
fn is_home(dir: &Path) -> bool {
    const SIGNS: [&str; 6] = [".ssh", ".profile", ".bashrc", ".config", ".local", ".cache"];
    SIGNS.iter().any(|sign| dir.join(sign).exists())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn program(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_script_shows_its_own_directory_and_its_interpreters() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (home, python) = (root.join("home"), root.join("opt/python/bin/python3"));
        fs::create_dir_all(home.join(".config")).unwrap();
        program(&python, "\x7fELF");
        // As `python -m venv` and `uv tool install` make it.
        let tool = home.join(".local/share/tools/git");
        fs::create_dir_all(tool.join("bin")).unwrap();
        symlink(&python, tool.join("bin/python")).unwrap();
        program(&tool.join("bin/server"), &format!("#!{}\n", tool.join("bin/python").display()));
        fs::create_dir_all(home.join(".local/bin")).unwrap();
        symlink(tool.join("bin/server"), home.join(".local/bin/server")).unwrap();

        let path = std::env::join_paths([PathBuf::from("relative"), home.join(".local/bin")]).unwrap();
        let search_paths = SearchPaths { path: &path, home: Some(&home), workspace: None };
        let project = home.join("project");
        fs::create_dir_all(&project).unwrap();
        fs::write(home.join("notes.txt"), "private").unwrap();
        let args = [
            format!("--repository={}", project.display()),
            "~/notes.txt".to_owned(),
            "/no/such/file".to_owned(),
            "/".to_owned(),
            "/etc/passwd".to_owned(),
        ];
        let files = program_files("server", &args, search_paths).unwrap();
        assert_eq!(files.program, home.join(".local/bin/server"));
        let expected = [home.join(".local/bin"), tool.clone(), project, root.join("opt/python")];
        assert!(files.dirs.is_superset(&expected.into()), "{:?}", files.dirs);
        assert!(!files.dirs.contains(&home), "{:?}", files.dirs);
        assert!(files.path.contains(&python.parent().unwrap().to_owned()), "{:?}", files.path);

        // As pyenv and its kin have it.
        program(&home.join(".pyenv/shims/python3"), "#!/usr/bin/env bash\n");
        let shim = program_files("~/.pyenv/shims/python3", &[], search_paths).unwrap();
        assert!(shim.dirs.contains(&home.join(".pyenv")), "{:?}", shim.dirs);
        assert!(!shim.dirs.contains(&home), "{:?}", shim.dirs);
        for (odd, whole) in [("shims", home.clone()), (".local/shims", home.join(".local"))] {
            program(&home.join(odd).join("python3"), "#!/usr/bin/env bash\n");
            let odd = program_files(&format!("~/{odd}/python3"), &[], search_paths).unwrap();
            assert!(!odd.dirs.contains(&whole), "{:?}", odd.dirs);
        }

        let error = program_files("none", &[], search_paths).unwrap_err();
        assert!(error.contains("`none`"), "{error}");
        assert!(program_files("~/none", &[], search_paths).unwrap_err().contains("home/none"));
    }

    /// A path through a link stands for what it leads to, but for links that tools may have made.
    #[test]
    fn links_are_followed_outside_of_the_workspace() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (home, workspace) = (root.join("home"), root.join("workspace"));
        program(&home.join("venv/bin/server"), "\x7fELF");
        for dir in [home.join("project"), workspace.join("inner")] {
            fs::create_dir_all(dir).unwrap();
        }
        let links = [
            (root.join("linked"), home.clone()),
            (home.join("current"), home.join("project")),
            (home.join("mine"), workspace.join("inner")),
            (workspace.join("also"), workspace.join("inner")),
            (workspace.join("planted"), home.join("project")),
        ];
        for (link, target) in &links {
            symlink(target, link).unwrap();
        }
        let args = |names: &[&Path]| names.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let search_paths = SearchPaths { path: OsStr::new(""), home: None, workspace: Some(&workspace) };
        let server = root.join("linked/venv/bin/server");
        let server = server.to_str().unwrap();

        let [_, current, mine, also, planted] = links.map(|(link, _)| link);
        let files = program_files(server, &args(&[&current, &mine, &also]), search_paths).unwrap();
        let aliases = [(root.join("linked/venv"), home.join("venv")), (current, home.join("project"))];
        assert_eq!(files.aliases, aliases.into());
        let dirs = [home.join("project"), home.join("venv"), workspace.join("inner")];
        assert_eq!(files.dirs, dirs.into());

        symlink(&workspace, home.join("way")).unwrap();
        for planted in [planted, home.join("way/planted")] {
            let files = program_files(server, &args(&[&planted]), search_paths).unwrap();
            assert_eq!(files.dirs, [home.join("venv")].into(), "{planted:?}");
        }
    }
}
