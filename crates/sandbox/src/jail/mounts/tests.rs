//! The mounts of contexts, and the contexts that are refused.

use super::*;
use crate::settings::context::SharedDir;

fn from_context(context: &ExecutionContext) -> Result<JailMounts, SandboxError> {
    let data = DataDir::temporary().unwrap();
    let dir = data.sandboxes().create().unwrap();
    JailMounts::from_context(context, JailUser::choose(), ContentSource { data: &data, dir: Some(&dir) })
}

fn refusal(context: &ExecutionContext) -> String {
    from_context(context).unwrap_err().to_string()
}

#[test]
fn a_workspace_is_a_directory_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (skill, sandbox_target, link) =
        (directory.path().join("skill"), directory.path().join("skill/work"), directory.path().join("link"));
    fs::create_dir_all(&sandbox_target).unwrap();
    std::os::unix::fs::symlink(&sandbox_target, &link).unwrap();
    let around = directory.path().join("around");
    std::os::unix::fs::symlink(&skill, &around).unwrap();
    for given in [link, around.join("work")] {
        assert!(refusal(&ExecutionContext::new(&given)).contains("a symbolic link stands in the path"));
    }
    assert!(refusal(&ExecutionContext::new(directory.path().join("none"))).contains("cannot be used"));
    assert!(refusal(&ExecutionContext::new("/")).contains("the whole machine"));
    let read_only = vec![SharedDir::new(&skill, "/mnt/skills/one")];
    let within = ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(&sandbox_target) };
    assert!(refusal(&within).contains("lies in the read-only directory"));
    let same = ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(&skill) };
    assert!(refusal(&same).contains("lies in the read-only directory"));
    let around = ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(directory.path()) };
    // It is a snapshot that the sandbox has.
    assert!(from_context(&around).is_ok());
    let shown = vec![SharedDir::new(&skill, "/mnt/one")];
    let around = ExecutionContext { read_only: shown, ..ExecutionContext::new(directory.path()) };
    assert!(refusal(&around).contains("contains the read-only directory"));
    let other = tempfile::tempdir().unwrap();
    let allowed_paths = vec![sandbox_target];
    let allowed_paths = ExecutionContext { read_only, allowed_paths, ..ExecutionContext::new(other.path()) };
    assert!(refusal(&allowed_paths).contains("the allowed path"), "{}", refusal(&allowed_paths));
}

#[test]
fn nothing_takes_the_place_of_what_is_the_sandboxs_own() {
    let directory = tempfile::tempdir().unwrap();
    for path in ["/", "/usr", "/home", "/mnt", "/etc", "/proc/self", "/dev/shm"] {
        let allowed_paths = vec![PathBuf::from(path)];
        let context = ExecutionContext { allowed_paths, ..ExecutionContext::new(directory.path()) };
        if Path::new(path).is_dir() {
            assert!(refusal(&context).contains("the sandbox's own"), "{path}");
        }
    }
    let host = tempfile::tempdir().unwrap();
    let shared = |target: &str| {
        let read_only = vec![SharedDir::new(host.path(), target)];
        ExecutionContext { read_only, ..ExecutionContext::new(directory.path()) }
    };
    for target in ["mnt/skills", "/mnt/../etc", "/", ""] {
        assert!(refusal(&shared(target)).contains("is no place in a sandbox"), "{target}");
    }
    for target in ["/mnt/skills", "/mnt/skills/a/b", "/artifacts"] {
        assert!(refusal(&shared(target)).contains("a directory cannot be mounted at"), "{target}");
    }
    let good = from_context(&shared("/mnt/skills/one")).unwrap();
    let inside = good.layout.sandbox_path(&host.path().join("SKILL.md"));
    assert_eq!(inside, Some("/mnt/skills/one/SKILL.md".into()));
    let mut twice = shared("/mnt/skills/one");
    twice.read_only.push(twice.read_only[0].clone());
    assert_eq!(from_context(&twice).unwrap_err().kind(), SandboxErrorKind::Exists);
}

#[test]
fn what_is_the_host_s_own_is_not_for_commands_to_write() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(&directory.path().join("data")).unwrap();
    let dir = data.sandboxes().create().unwrap();
    let content_source = ContentSource { data: &data, dir: Some(&dir) };
    let of =
        |context: &ExecutionContext| JailMounts::from_context(context, JailUser::choose(), content_source);
    let own = data.workspace().unwrap();
    assert!(of(&ExecutionContext::new(own.path())).is_ok());
    let others = [directory.path().to_owned(), data.path().to_owned(), data.store().root().to_owned()];
    for path in others.iter().chain([&dir.output(), &own.path().join("..")]) {
        let error = of(&ExecutionContext::new(path)).unwrap_err();
        assert!(error.to_string().contains("the data directory"), "{error}");
        let allowed_paths = vec![path.clone()];
        let error = of(&ExecutionContext { allowed_paths, ..ExecutionContext::new(own.path()) });
        assert!(error.unwrap_err().to_string().contains("the data directory"));
    }
}
