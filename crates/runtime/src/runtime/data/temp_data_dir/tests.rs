use super::*;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        entries(dir).map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// As a runtime leaves it that was killed.
fn dead(around: &Path, name: &str, lock: &str) -> PathBuf {
    let path = around.join(name);
    fs::create_dir_all(path.join("tenants/acme/workspaces/1-0/workspace")).unwrap();
    fs::create_dir(path.join("tenants/acme/store")).unwrap();
    fs::write(path.join("tenants/acme/workspaces/1-0/lock"), "").unwrap();
    fs::write(path.join(lock), "").unwrap();
    path
}

#[test]
fn what_a_dead_runtime_left_goes_and_what_somebody_has_stays() {
    let around = tempfile::tempdir().unwrap();
    let living = TempDataDir::create(around.path()).unwrap();
    let gone = dead(around.path(), "conjure-dead", TEMPORARY_DIR_LOCK);
    let former = dead(around.path(), "conjure-former", FORMER_LOCK);
    let others = dead(around.path(), "others-dead", TEMPORARY_DIR_LOCK);
    // One that begins, or is none of ours.
    fs::create_dir(around.path().join("conjure-begins")).unwrap();
    std::os::unix::fs::symlink(&others, around.path().join("conjure-link")).unwrap();
    let next = TempDataDir::create(around.path()).unwrap();
    assert!(!gone.exists() && !former.exists() && others.join("tenants").exists());
    let mut left = names(around.path());
    left.retain(|name| ![living.path(), next.path()].iter().any(|path| path.ends_with(name)));
    assert_eq!(left, ["conjure-begins", "conjure-link", "others-dead"]);
    assert!(living.path().join(TEMPORARY_DIR_LOCK).exists());
    let path = living.path().to_owned();
    drop(living);
    assert!(!path.exists());
}

#[test]
fn what_was_kept_in_it_stays_and_nothing_else_does() {
    let around = tempfile::tempdir().unwrap();
    let crashed = dead(around.path(), "conjure-dead", FORMER_LOCK);
    fs::write(crashed.join("tenants/acme/workspaces/1-0/kept"), "").unwrap();
    fs::create_dir(crashed.join("tenants/acme/workspaces/1-1")).unwrap();
    let living = TempDataDir::create(around.path()).unwrap();
    let path = living.path().to_owned();
    fs::create_dir_all(path.join("tenants/acme/workspaces/2-0")).unwrap();
    fs::write(path.join("tenants/acme/workspaces/2-0/keep"), "").unwrap();
    fs::create_dir(path.join("processes")).unwrap();
    living.keep();
    drop(living);
    for (path, kept) in [(crashed, "1-0"), (path, "2-0")] {
        assert_eq!(names(&path), ["tenants"]);
        assert_eq!(names(&path.join("tenants/acme")), ["workspaces"]);
        assert_eq!(names(&path.join("tenants/acme/workspaces")), [kept]);
    }
}
