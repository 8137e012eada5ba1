use std::fs;

use tempfile::TempDir;

use super::*;
use crate::files::opened;
use crate::package::{PackageLimits, pack_file};

fn content(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n")
}

fn write(root: &Path, name: &str, description: &str) {
    fs::create_dir_all(root.join(name)).unwrap();
    fs::write(root.join(name).join("SKILL.md"), content(name, description)).unwrap();
}

/// A scope with these skills, loaded once.
fn loaded(names: &[&str]) -> (TempDir, PathBuf, Reloader) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    for name in names {
        write(&root, name, "first");
    }
    let mut reloader = Reloader::new([Scope::named(&root)], Bounds::default(), Mode::Lenient);
    let first = reloader.reload();
    assert_eq!(texts(&first.added), names);
    (temp, root, reloader)
}

fn texts(names: &[SkillName]) -> Vec<&str> {
    names.iter().map(SkillName::as_str).collect()
}

/// Checks which names a reload has added, changed, removed and found broken.
#[track_caller]
fn check(reload: &Reload, expected: [&[&str]; 4]) {
    let found = [&reload.added, &reload.changed, &reload.removed, &reload.broken].map(|names| texts(names));
    assert_eq!(found, expected.map(<[&str]>::to_vec));
}

fn rules(reload: &Reload) -> Vec<RuleId> {
    reload.diagnostics.iter().map(Diagnostic::rule).collect()
}

#[test]
fn editing_one_of_many_opens_only_that_skills_file() {
    const SKILLS: usize = 10_000;
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    for index in 0..SKILLS {
        write(&root, &format!("s{index}"), "first");
    }
    let bounds = Bounds { depth: 2, directories: SKILLS + 1 };
    let mut reloader = Reloader::new([Scope::named(&root)], bounds, Mode::Lenient);
    assert_eq!(reloader.reload().added.len(), SKILLS);
    assert_eq!(opened::take_beneath(&root).len(), SKILLS);

    let reload = reloader.reload();
    assert!(reload.is_unchanged() && reload.catalog.len() == SKILLS);
    assert_eq!(opened::take_beneath(&root), [] as [PathBuf; 0]);

    write(&root, "s77", "second");
    let reload = reloader.reload();
    check(&reload, [&[], &["s77"], &[], &[]]);
    assert_eq!(opened::take_beneath(&root), [root.join("s77/SKILL.md")]);
    assert_eq!(reload.catalog.get("s77").unwrap().description(), "second");
}

#[test]
fn skills_come_and_go() {
    let (_temp, root, mut reloader) = loaded(&["a", "b"]);
    let before = Arc::clone(reloader.catalog());
    write(&root, "c", "new");
    fs::remove_dir_all(root.join("a")).unwrap();
    check(&reloader.reload(), [&["c"], &[], &["a"], &[]]);
    // The snapshot of before stays as it was, and what did not change is shared.
    assert!(before.get("a").is_some() && before.get("c").is_none());
    assert!(Arc::ptr_eq(before.get("b").unwrap(), reloader.catalog().get("b").unwrap()));
    fs::remove_file(root.join("c/SKILL.md")).unwrap();
    check(&reloader.reload(), [&[], &[], &["c"], &[]]);
    fs::remove_dir_all(&root).unwrap();
    let reload = reloader.reload();
    check(&reload, [&[], &[], &["b"], &[]]);
    assert_eq!(rules(&reload), [RuleId::PathMissing]);
}

#[test]
fn a_broken_edit_keeps_the_last_good_version() {
    let (_temp, root, mut reloader) = loaded(&["a", "b"]);
    for broken in ["", "no frontmatter", "---\nname: a\n---\n"] {
        fs::write(root.join("a/SKILL.md"), broken).unwrap();
        let reload = reloader.reload();
        check(&reload, [&[], &[], &[], &["a"]]);
        assert_eq!(reload.catalog.get("a").unwrap().description(), "first");
        assert_eq!(rules(&reload).last(), Some(&RuleId::LastGoodKept), "{:?}", reload.diagnostics);
        assert!(reload.diagnostics[0].is_error());
    }
    // It is not read again as long as nobody mends it, and goes on being reported.
    opened::take_beneath(&root);
    let reload = reloader.reload();
    check(&reload, [&[], &[], &[], &["a"]]);
    assert_eq!((opened::take_beneath(&root).len(), reload.diagnostics.len()), (0, 2));

    write(&root, "a", "mended");
    let reload = reloader.reload();
    check(&reload, [&[], &["a"], &[], &[]]);
    assert_eq!((reload.diagnostics, reload.catalog.get("a").unwrap().description()), (vec![], "mended"));
}

#[test]
fn a_skill_that_never_was_good_is_only_reported() {
    let (_temp, root, mut reloader) = loaded(&["a"]);
    fs::create_dir(root.join("new")).unwrap();
    fs::write(root.join("new/SKILL.md"), "broken").unwrap();
    let reload = reloader.reload();
    check(&reload, [&[], &[], &[], &[]]);
    assert_eq!(rules(&reload), [RuleId::FrontmatterMissing]);
}

#[test]
fn a_replacement_of_equal_size_and_time_is_noticed() {
    let (_temp, root, mut reloader) = loaded(&["a"]);
    let path = root.join("a/SKILL.md");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, content("a", "other")).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    // Within one tick of the file system's clock only the inode tells; an editor that replaces the file changes it.
    fs::copy(&path, root.join("copy")).unwrap();
    fs::rename(root.join("copy"), &path).unwrap();
    check(&reloader.reload(), [&[], &["a"], &[], &[]]);
}

#[test]
fn a_renamed_skill_and_a_change_of_rank_are_changes_by_name() {
    let (_temp, root, mut reloader) = loaded(&["a", "b"]);
    fs::rename(root.join("a"), root.join("z")).unwrap();
    fs::write(root.join("z/SKILL.md"), content("z", "renamed")).unwrap();
    check(&reloader.reload(), [&["z"], &[], &["a"], &[]]);
    // A skill with the same name earlier in the order of paths takes its place.
    fs::create_dir(root.join("0")).unwrap();
    fs::write(root.join("0/SKILL.md"), content("b", "earlier")).unwrap();
    let reload = reloader.reload();
    check(&reload, [&[], &["b"], &[], &[]]);
    assert_eq!(rules(&reload), [RuleId::NameDirectoryMismatch, RuleId::NameCollision]);
    fs::remove_dir_all(root.join("0")).unwrap();
    check(&reloader.reload(), [&[], &["b"], &[], &[]]);
}

#[test]
fn a_package_is_unpacked_again_when_it_changed_and_kept_when_it_broke() {
    let (_temp, root, mut reloader) = loaded(&[]);
    let source = tempfile::tempdir().unwrap();
    write(source.path(), "p", "first");
    let package = root.join("p.skill");
    let pack = || pack_file(source.path().join("p"), &package, PackageLimits::default()).unwrap();
    pack();
    check(&reloader.reload(), [&["p"], &[], &[], &[]]);
    let first = Arc::clone(reloader.catalog().get("p").unwrap());
    check(&reloader.reload(), [&[], &[], &[], &[]]);

    fs::write(&package, "broken").unwrap();
    let reload = reloader.reload();
    check(&reload, [&[], &[], &[], &["p"]]);
    assert_eq!(rules(&reload), [RuleId::PackageInvalid, RuleId::LastGoodKept]);
    assert!(first.body().is_ok());

    write(source.path(), "p", "second");
    pack();
    check(&reloader.reload(), [&[], &["p"], &[], &[]]);
    assert_eq!(reloader.catalog().get("p").unwrap().description(), "second");
    // The old folder stays until its last user is done.
    let folder = first.root_dir().to_owned();
    assert!(folder.exists());
    drop((first, reload));
    assert!(!folder.exists());
    fs::remove_file(&package).unwrap();
    check(&reloader.reload(), [&[], &[], &["p"], &[]]);
}

#[test]
fn an_unreadable_folder_takes_nothing_away() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_temp, root, mut reloader) = loaded(&["a"]);
    write(&root.join("group"), "b", "first");
    assert_eq!(reloader.reload().catalog.len(), 2);
    fs::set_permissions(root.join("group"), fs::Permissions::from_mode(0o000)).unwrap();
    let reload = reloader.reload();
    fs::set_permissions(root.join("group"), fs::Permissions::from_mode(0o755)).unwrap();
    check(&reload, [&[], &[], &[], &[]]);
    // The superuser may read everything.
    assert!(matches!(rules(&reload)[..], [] | [RuleId::Unreadable]));
}

#[test]
fn distrust_removes() {
    let (_temp, root, mut reloader) = loaded(&["a"]);
    reloader.scopes = vec![Scope { trust: crate::Trust::Untrusted, ..Scope::named(&root) }];
    let reload = reloader.reload();
    check(&reload, [&[], &[], &["a"], &[]]);
    assert_eq!(rules(&reload), [RuleId::ScopeUntrusted]);
}
