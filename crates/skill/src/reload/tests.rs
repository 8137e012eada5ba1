use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;
use crate::package::{PackageLimits, pack_file};
use crate::scan::dir_handle::recorded_opens;
use crate::scan::test_as_nobody;

fn content(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n")
}

fn write(root: &Path, name: &str, description: &str) {
    fs::create_dir_all(root.join(name)).unwrap();
    fs::write(root.join(name).join("SKILL.md"), content(name, description)).unwrap();
}

/// A directory in which there is nothing.
fn empty() -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().canonicalize().unwrap();
    (temp, path)
}

/// A scope with these skills, loaded once.
fn loaded(names: &[&str]) -> (TempDir, PathBuf, Reloader) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    for name in names {
        write(&root, name, "first");
    }
    let mut reloader = Reloader::new([Scope::named(&root)], DiscoveryLimits::default(), Mode::Lenient);
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
fn only_the_edited_skill_is_read_again() {
    const SKILLS: usize = 1_000;
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    for index in 0..SKILLS {
        write(&root, &format!("s{index}"), "first");
    }
    let bounds = DiscoveryLimits { depth: 2, directories: SKILLS + 1, ..DiscoveryLimits::default() };
    let mut reloader = Reloader::new([Scope::named(&root)], bounds, Mode::Lenient);
    assert_eq!(reloader.reload().added.len(), SKILLS);
    assert_eq!(recorded_opens::take_opened_files(&root).len(), SKILLS);

    let reload = reloader.reload();
    assert!(reload.is_unchanged() && reload.catalog.len() == SKILLS);
    assert_eq!(recorded_opens::take_opened_files(&root), [] as [PathBuf; 0]);

    write(&root, "s77", "second");
    let reload = reloader.reload();
    check(&reload, [&[], &["s77"], &[], &[]]);
    assert_eq!(recorded_opens::take_opened_files(&root), [root.join("s77/SKILL.md")]);
    assert_eq!(reload.catalog.get("s77").unwrap().description(), "second");
}

#[test]
fn added_and_removed_skills_are_reported() {
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
fn an_invalid_edit_keeps_the_last_valid_version() {
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
    recorded_opens::take_opened_files(&root);
    let reload = reloader.reload();
    check(&reload, [&[], &[], &[], &["a"]]);
    assert_eq!((recorded_opens::take_opened_files(&root).len(), reload.diagnostics.len()), (0, 2));

    write(&root, "a", "mended");
    let reload = reloader.reload();
    check(&reload, [&[], &["a"], &[], &[]]);
    assert_eq!((reload.diagnostics, reload.catalog.get("a").unwrap().description()), (vec![], "mended"));
}

#[test]
fn a_skill_that_was_never_valid_is_only_reported() {
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
fn a_changed_package_is_unpacked_again_and_an_invalid_one_keeps_the_old() {
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
    // The old directory stays until its last user is done.
    let dir = first.root_dir().to_owned();
    assert!(dir.exists());
    drop((first, reload));
    assert!(!dir.exists());
    fs::remove_file(&package).unwrap();
    check(&reloader.reload(), [&[], &[], &["p"], &[]]);
}

fn lock(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Checks that skills stay as long as a directory has one of these modes, are told of, and are as before afterwards.
#[track_caller]
fn check_kept(reloader: &mut Reloader, dir: &Path, modes: &[u32], kept: &[&str]) {
    for mode in modes {
        let before = Arc::clone(reloader.catalog());
        for _ in 0..2 {
            lock(dir, *mode);
            let reload = reloader.reload();
            lock(dir, 0o700);
            check(&reload, [&[], &[], &[], kept]);
            let reported = rules(&reload);
            let of = |rule| reported.iter().filter(|reported| **reported == rule).count();
            assert_eq!(
                (of(RuleId::LastGoodKept), reported.len() - kept.len()),
                (kept.len(), 1),
                "{reported:?}"
            );
        }
        let reload = reloader.reload();
        check(&reload, [&[], &[], &[], &[]]);
        assert_eq!(reload.diagnostics, []);
        for skill in before.iter() {
            assert!(Arc::ptr_eq(skill, reload.catalog.get(skill.name().as_str()).unwrap()));
        }
    }
}

/// Returns when a change is dated later than the last one of this: files are dated by a clock that may tick rarely.
fn until_later_than(path: &Path, probe: &Path) {
    let changed = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let last = changed(path);
    let probe = probe.join("probe");
    loop {
        fs::write(&probe, "").unwrap();
        if changed(&probe) > last {
            return;
        }
    }
}

#[test]
fn unreadable_skills_are_not_removed() {
    test_as_nobody::check("reload::tests::unreadable_skills_are_not_removed", || {
        let (_temp, root, mut reloader) = loaded(&["a"]);
        write(&root.join("group"), "b", "first");
        write(&root.join("group"), "c", "first");
        assert_eq!(reloader.reload().catalog.len(), 3);
        // Neither listable nor searchable, only searchable, only listable.
        check_kept(&mut reloader, &root.join("group"), &[0o000, 0o100, 0o600], &["b", "c"]);
        let (_probe, probe) = empty();
        until_later_than(&root.join("a"), &probe);
        for mode in [0o000, 0o600] {
            lock(&root.join("a"), mode);
            let reload = reloader.reload();
            lock(&root.join("a"), 0o700);
            check(&reload, [&[], &[], &[], &["a"]]);
            assert_eq!(rules(&reload), [RuleId::Unreadable, RuleId::LastGoodKept]);
        }
        // Its directory has changed meanwhile, so it was read again.
        check(&reloader.reload(), [&[], &["a"], &[], &[]]);
        check_kept(&mut reloader, &root, &[0o000, 0o100, 0o600], &["a", "b", "c"]);
        // The directory above the scope.
        let scope = root.join("group");
        let mut reloader = Reloader::new([Scope::named(&scope)], DiscoveryLimits::default(), Mode::Lenient);
        assert_eq!(reloader.reload().catalog.len(), 2);
        check_kept(&mut reloader, &root, &[0o000, 0o600], &["b", "c"]);
    });
}

#[test]
fn an_unresolvable_link_removes_no_skill() {
    test_as_nobody::check("reload::tests::an_unresolvable_link_removes_no_skill", || {
        let (_temp, root, mut reloader) = loaded(&[]);
        let (_temp, elsewhere) = empty();
        for name in ["deep/a", "b", "p", "packed/q"] {
            let (dir, name) = name.rsplit_once('/').unwrap_or(("", name));
            write(&elsewhere.join(dir), name, "first");
        }
        let package = elsewhere.join("packed/q.skill");
        pack_file(elsewhere.join("packed/q"), &package, PackageLimits::default()).unwrap();
        fs::create_dir(root.join("group")).unwrap();
        symlink(elsewhere.join("deep/a"), root.join("a")).unwrap();
        symlink(elsewhere.join("b"), root.join("group/b")).unwrap();
        symlink(&package, root.join("group/q.skill")).unwrap();
        // The same skill by two ways, and a directory of skills in the scope by a link.
        symlink(elsewhere.join("b"), root.join("b")).unwrap();
        symlink("group", root.join("again")).unwrap();
        assert_eq!(reloader.reload().catalog.len(), 3);
        check_kept(&mut reloader, &root, &[0o000, 0o100, 0o600], &["a", "b", "q"]);
        // `b` is still reached from above.
        check_kept(&mut reloader, &root.join("group"), &[0o000, 0o600], &["q"]);
        check_kept(&mut reloader, &elsewhere.join("deep"), &[0o000, 0o600], &["a"]);
        check_kept(&mut reloader, &elsewhere.join("packed"), &[0o000, 0o600], &["q"]);
    });
}

#[test]
fn proven_removals_remove_skills_even_if_others_are_unreadable() {
    test_as_nobody::check(
        "reload::tests::proven_removals_remove_skills_even_if_others_are_unreadable",
        || {
            let (_temp, root, mut reloader) = loaded(&["a", "b"]);
            let elsewhere = tempfile::tempdir().unwrap();
            write(elsewhere.path(), "c", "first");
            write(elsewhere.path(), "d", "first");
            for name in ["c", "d"] {
                symlink(elsewhere.path().join(name), root.join(name)).unwrap();
            }
            write(&root.join("group"), "e", "first");
            assert_eq!(reloader.reload().catalog.len(), 5);
            // The directory is there and holds it no more; the link is gone.
            lock(&root.join("group"), 0o000);
            fs::remove_dir_all(root.join("a")).unwrap();
            fs::remove_file(root.join("c")).unwrap();
            let reload = reloader.reload();
            lock(&root.join("group"), 0o700);
            check(&reload, [&[], &[], &["a", "c"], &["e"]]);
            // Nothing can be told of the scope, but where its link led there is nothing any more.
            fs::remove_dir_all(elsewhere.path().join("d")).unwrap();
            lock(&root, 0o000);
            let reload = reloader.reload();
            lock(&root, 0o700);
            check(&reload, [&[], &[], &["d"], &["b", "e"]]);
        },
    );
}

#[test]
fn link_loops_and_limits_do_not_prove_removals() {
    let (_temp, root, mut reloader) = loaded(&["a", "b"]);
    let elsewhere = tempfile::tempdir().unwrap();
    write(elsewhere.path(), "c", "first");
    symlink(elsewhere.path().join("c"), root.join("c")).unwrap();
    assert_eq!(reloader.reload().catalog.len(), 3);
    fs::remove_file(root.join("c")).unwrap();
    symlink("c", root.join("c")).unwrap();
    let reload = reloader.reload();
    check(&reload, [&[], &[], &[], &["c"]]);
    assert_eq!(rules(&reload), [RuleId::LastGoodKept]);
    // Leads nowhere: that is known.
    fs::remove_file(root.join("c")).unwrap();
    symlink("nowhere", root.join("c")).unwrap();
    check(&reloader.reload(), [&[], &[], &["c"], &[]]);

    reloader.limits.directories = 2;
    let reload = reloader.reload();
    check(&reload, [&[], &[], &[], &["b"]]);
    assert_eq!(rules(&reload), [RuleId::ScopeBounds, RuleId::LastGoodKept]);
    fs::remove_dir_all(root.join("b")).unwrap();
    check(&reloader.reload(), [&[], &[], &["b"], &[]]);
}

#[test]
fn loaded_packages_keep_their_disk_budget() {
    let (_temp, root, mut reloader) = loaded(&[]);
    let source = tempfile::tempdir().unwrap();
    let pack = |name: &str, description: &str| {
        write(source.path(), name, description);
        pack_file(source.path().join(name), &root, PackageLimits::default()).unwrap();
    };
    // Each takes two blocks: its directory and its `SKILL.md`.
    reloader.limits.package_bytes = 4 * 4096;
    pack("b", "first");
    pack("c", "first");
    check(&reloader.reload(), [&["b", "c"], &[], &[], &[]]);
    pack("a", "first");
    pack("c", "second");
    for changed in [&["c"][..], &[]] {
        let reload = reloader.reload();
        check(&reload, [&[], changed, &[], &[]]);
        assert_eq!(rules(&reload), [RuleId::PackageBudget]);
        assert_eq!(reload.diagnostics[0].path(), root.join("a.skill"));
    }
    fs::remove_file(root.join("c.skill")).unwrap();
    check(&reloader.reload(), [&["a"], &[], &["c"], &[]]);
    // A version that needs more room than there is takes nothing away.
    fs::write(source.path().join("a/x"), vec![0; 5000]).unwrap();
    pack("a", "larger");
    let reload = reloader.reload();
    check(&reload, [&[], &[], &[], &["a"]]);
    assert_eq!(rules(&reload), [RuleId::PackageBudget, RuleId::LastGoodKept]);
}

#[test]
fn distrusting_a_scope_removes_its_skills() {
    let (_temp, root, mut reloader) = loaded(&["a"]);
    reloader.scopes = vec![Scope { trust: crate::Trust::Untrusted, ..Scope::named(&root) }];
    let reload = reloader.reload();
    check(&reload, [&[], &[], &["a"], &[]]);
    assert_eq!(rules(&reload), [RuleId::ScopeUntrusted]);
}

#[test]
fn an_edited_sidecar_manifest_changes_the_skill() {
    let (_temp, root, mut reloader) = loaded(&["a", "b"]);
    let manifest = root.join("a").join(SIDECAR_FILE);
    let is_sensitive =
        |reload: &Reload| reload.catalog.get("a").unwrap().manifest().map(|manifest| manifest.sensitive());
    fs::write(&manifest, "manifest_version: \"1.0\"\n").unwrap();
    let added = reloader.reload();
    check(&added, [&[], &["a"], &[], &[]]);
    assert_eq!(is_sensitive(&added), Some(false));
    fs::write(&manifest, "manifest_version: \"1.0\"\nsensitive: true\n").unwrap();
    let edited = reloader.reload();
    check(&edited, [&[], &["a"], &[], &[]]);
    assert_eq!(is_sensitive(&edited), Some(true));
    fs::write(&manifest, "manifest_version: \"2.0\"\n").unwrap();
    let broken = reloader.reload();
    check(&broken, [&[], &[], &[], &["a"]]);
    assert_eq!(is_sensitive(&broken), Some(true));
    assert_eq!(rules(&broken), [RuleId::LastGoodKept, RuleId::ManifestVersion]);
    fs::remove_file(&manifest).unwrap();
    assert_eq!(is_sensitive(&reloader.reload()), None);
}
