use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;
use crate::scan::test_as_nobody;
use crate::{LinkPolicy, discover, load_all};

/// A directory with skills at these paths; each is named as its directory.
fn dir_with(skills: &[&str]) -> TempDir {
    let temp = tempfile::tempdir().unwrap();
    for path in skills {
        write_skill(temp.path(), path, "d");
    }
    temp
}

fn write_skill(root: &Path, path: &str, description: &str) {
    let dir = root.join(path);
    fs::create_dir_all(&dir).unwrap();
    let name = dir.file_name().unwrap().to_str().unwrap();
    fs::write(dir.join("SKILL.md"), format!("---\nname: {name}\ndescription: {description}\n---\n")).unwrap();
}

fn find_in(path: &Path) -> Discovery {
    discover(&[Scope::named(path)], DiscoveryLimits::default(), Mode::Lenient)
}

fn names(discovery: &Discovery) -> Vec<&str> {
    discovery.skills.iter().map(|skill| skill.name().as_str()).collect()
}

fn rules(discovery: &Discovery) -> Vec<RuleId> {
    discovery.diagnostics.iter().map(Diagnostic::rule).collect()
}

#[test]
fn skills_are_found_at_every_level_in_the_order_of_paths() {
    let temp = dir_with(&["b", "a", "group/sub/c", "a/nested", ".git/x", "node_modules/y", ".hidden/z"]);
    let found = find_in(temp.path());
    assert_eq!(names(&found), ["z", "a", "b", "c"]);
    assert_eq!(found.diagnostics, []);
    let dirs = scan_directory(temp.path(), DiscoveryLimits::default()).unwrap();
    let roots: Vec<_> = found.skills.iter().map(|skill| skill.root_dir().to_owned()).collect();
    assert_eq!(dirs, roots);
}

#[test]
fn the_scope_itself_may_be_a_skill() {
    let temp = dir_with(&["only"]);
    assert_eq!(names(&find_in(&temp.path().join("only"))), ["only"]);
}

#[test]
fn an_invalid_skill_among_valid_ones_is_a_diagnostic() {
    let temp = dir_with(&["a", "b"]);
    for (name, content) in
        [("x", &b"no frontmatter"[..]), ("y", b"---\nname: \xff\n---\n"), ("z", b"---\nname: z\n---\n")]
    {
        fs::create_dir(temp.path().join(name)).unwrap();
        fs::write(temp.path().join(name).join("SKILL.md"), content).unwrap();
    }
    fs::create_dir_all(temp.path().join("w/SKILL.md")).unwrap();
    let found = find_in(temp.path());
    assert_eq!(names(&found), ["a", "b"]);
    assert_eq!(
        rules(&found),
        [RuleId::SkillFileKind, RuleId::FrontmatterMissing, RuleId::NotUtf8, RuleId::DescriptionMissing]
    );
    assert!(found.diagnostics.iter().all(Diagnostic::is_error));
}

#[test]
fn the_higher_ranked_of_two_equal_names_is_kept() {
    let (project, user) = (dir_with(&["a", "sub/b", "b"]), dir_with(&["a", "c"]));
    let scopes = [
        Scope { path: user.path().to_owned(), kind: ScopeKind::User, trust: Trust::Trusted },
        Scope { path: project.path().to_owned(), kind: ScopeKind::Project, trust: Trust::Trusted },
    ];
    let found = discover(&scopes, DiscoveryLimits::default(), Mode::Lenient);
    let project_root = project.path().canonicalize().unwrap();
    assert_eq!(names(&found), ["a", "b", "c"]);
    assert!(found.skills[..2].iter().all(|skill| skill.root_dir().starts_with(&project_root)));
    assert_eq!(found.skills[1].root_dir(), project_root.join("b"));
    assert_eq!(rules(&found), [RuleId::NameCollision, RuleId::NameCollision]);
    // The same scope twice is no collision.
    let twice = [scopes[0].clone(), scopes[0].clone()];
    assert_eq!(discover(&twice, DiscoveryLimits::default(), Mode::Lenient).diagnostics, []);
}

#[test]
fn an_untrusted_scope_is_not_loaded() {
    let temp = dir_with(&["a"]);
    let scope = Scope { path: temp.path().to_owned(), kind: ScopeKind::Project, trust: Trust::Untrusted };
    let found = discover(&[scope], DiscoveryLimits::default(), Mode::Lenient);
    assert_eq!((names(&found), rules(&found)), (vec![], vec![RuleId::ScopeUntrusted]));
}

#[test]
fn a_missing_scope_is_an_error_when_it_was_named() {
    let temp = dir_with(&[]);
    let absent = temp.path().join("absent");
    assert_eq!(rules(&find_in(&absent)), [RuleId::PathMissing]);
    let scope = Scope { kind: ScopeKind::User, ..Scope::named(&absent) };
    assert_eq!(discover(&[scope], DiscoveryLimits::default(), Mode::Lenient).diagnostics, []);
    assert!(matches!(load_all([&absent]), Err(SkillError::NotFound { missing: Missing::Path, .. })));
    assert!(scan_directory(&absent, DiscoveryLimits::default()).is_err());
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(rules(&find_in(&file)), [RuleId::NotADirectory]);
    assert!(load_all([temp.path()]).unwrap().skills.is_empty());
}

#[test]
fn links_are_followed_once_and_loops_are_detected() {
    let (temp, elsewhere) = (dir_with(&["a", "group/b"]), dir_with(&["c", "deep/d"]));
    symlink(temp.path(), temp.path().join("circle")).unwrap();
    symlink("self", temp.path().join("self")).unwrap();
    symlink("group", temp.path().join("again")).unwrap();
    symlink(elsewhere.path().join("c"), temp.path().join("c")).unwrap();
    // What lies elsewhere is a skill or nothing: it is not searched.
    symlink(elsewhere.path(), temp.path().join("elsewhere")).unwrap();
    let found = find_in(temp.path());
    let mut found_names = names(&found);
    found_names.sort_unstable();
    assert_eq!(found_names, ["a", "b", "c"]);
    assert_eq!(found.diagnostics, []);
}

#[test]
fn forbidden_links_out_of_a_scope_are_not_followed_and_are_reported() {
    let (temp, elsewhere) = (dir_with(&["group/b"]), dir_with(&["c", "deep/d"]));
    symlink("group", temp.path().join("again")).unwrap();
    symlink(elsewhere.path().join("c"), temp.path().join("c")).unwrap();
    symlink(elsewhere.path(), temp.path().join("group/elsewhere")).unwrap();
    fs::write(elsewhere.path().join("p.skill"), "no package").unwrap();
    symlink(elsewhere.path().join("p.skill"), temp.path().join("p.skill")).unwrap();
    let bounds = DiscoveryLimits { links: LinkPolicy::WithinScope, ..DiscoveryLimits::default() };
    let found = discover(&[Scope::named(temp.path())], bounds, Mode::Lenient);
    assert_eq!(names(&found), ["b"]);
    assert_eq!(rules(&found), [RuleId::ScopeLink; 3]);
    let message = found.diagnostics[0].message();
    assert!(message.contains("copy the skill here"), "{message}");
}

#[test]
fn limits_drop_the_deepest_entries_with_a_diagnostic() {
    let temp = dir_with(&["1/2/3/deep", "1/near"]);
    let within = |depth, directories| {
        discover(
            &[Scope::named(temp.path())],
            DiscoveryLimits { depth, directories, ..DiscoveryLimits::default() },
            Mode::Lenient,
        )
    };
    assert_eq!(names(&within(4, 100)), ["deep", "near"]);
    assert_eq!(within(4, 100).diagnostics, []);
    assert_eq!((names(&within(3, 100)), rules(&within(3, 100))), (vec!["near"], vec![RuleId::ScopeBounds]));
    assert_eq!((names(&within(9, 4)), rules(&within(9, 4))), (vec!["near"], vec![RuleId::ScopeBounds]));
    assert_eq!((names(&within(9, 3)), rules(&within(9, 3))), (vec![], vec![RuleId::ScopeBounds]));
}

#[test]
fn unreadable_directories_are_reported_and_hide_no_other_skill() {
    test_as_nobody::check(
        "discovery::tests::unreadable_directories_are_reported_and_hide_no_other_skill",
        || {
            let (temp, elsewhere) = (dir_with(&["a", "locked/b", "shut/c"]), dir_with(&["deep/d"]));
            symlink(elsewhere.path().join("deep/d"), temp.path().join("d")).unwrap();
            let root = temp.path().canonicalize().unwrap();
            let locked = [
                (root.join("locked"), 0o000),
                (root.join("shut"), 0o600),
                (elsewhere.path().join("deep"), 0),
            ];
            for (path, mode) in &locked {
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            let found = find_in(temp.path());
            for (path, _) in &locked {
                fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
            }
            assert_eq!(names(&found), ["a"]);
            let reported: Vec<_> =
                found.diagnostics.iter().map(|finding| (finding.rule(), finding.path())).collect();
            let expected = ["d", "locked", "shut"].map(|name| root.join(name));
            assert_eq!(reported, expected.each_ref().map(|path| (RuleId::Unreadable, &**path)));
        },
    );
}

#[test]
fn many_skills_are_loaded_by_several_threads_in_order() {
    let many: Vec<String> = (0..300).map(|index| format!("s{index:03}")).collect();
    let temp = dir_with(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let found = find_in(temp.path());
    assert_eq!(names(&found), many);
}
