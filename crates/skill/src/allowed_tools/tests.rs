use super::*;
use proptest::prelude::*;

/// The rules of a text in our words, and how many were not understood.
fn check(text: &str, expected: &[&str], refused: usize) {
    let (allowed, problems) = AllowedTools::parse(text);
    let rules: Vec<_> = allowed.rules().iter().map(ToString::to_string).collect();
    assert_eq!(
        (&*rules, problems.len()),
        (&expected.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>()[..], refused),
        "{text:?}"
    );
}

#[track_caller]
fn matches(rule: &str, subject: &str, expected: bool) {
    let rule: AllowRule = rule.parse().unwrap();
    assert_eq!(rule.matches(rule.tool(), Some(subject)), expected, "`{rule}` and {subject:?}");
}

#[test]
fn rules_are_parsed_in_common_spellings() {
    check("Bash(git:*) Read", &["bash_tool(git:*)", "view"], 0);
    check("Bash(git:*),Read,\n Write", &["bash_tool(git:*)", "view", "create_file"], 0);
    check("Bash(git log *), Bash(npm run test)", &["bash_tool(git log:*)", "bash_tool(npm run test)"], 0);
    check("Edit MultiEdit str_replace", &["str_replace"], 0);
    check("Bash(*) mcp__docs__find skills.load", &["bash_tool(*)", "mcp__docs__find", "skills.load"], 0);
    check("Read(src/**) Read(./a//b)", &["view(src/**)", "view(a/b)"], 0);
    check("Bash(make (all))", &["bash_tool(make (all))"], 0);
    check("", &[], 0);
    check(" , ,", &[], 0);
}

#[test]
fn invalid_rules_are_reported_and_approve_nothing() {
    check("Bash( Read Write", &[], 1);
    check("Bash) Read", &["view"], 1);
    check("Bash() (git) Bash(a)b", &[], 3);
    check("* mcp__* Rea?", &[], 3);
    check("Bash(ls *.txt) Bash(git && git:*) Bash(\"git\":*) Bash($x:*)", &[], 4);
    check("Read(~/x) Read(../x) Read([a]) Read(a**) Read(/) Read(skill://a/b)", &[], 6);
    check("WebFetch(domain:*)", &[], 1);
    check("WebFetch(domain:example.com)", &["WebFetch(domain:example.com)"], 0);
    let long = format!("Bash({})", "x".repeat(2000));
    check(&long, &[], 1);
    let many: String = (0..1000).map(|n| format!("t{n} ")).collect();
    let (allowed, problems) = AllowedTools::parse(&many);
    assert_eq!((allowed.rules().len(), problems.len()), (256, 1));
}

#[test]
fn a_finding_names_the_rule_and_a_fix() {
    let (_, problems) = AllowedTools::parse("Bash(ls *.txt)");
    assert_eq!(
        problems[0].to_string(),
        "warning[allowed-tools]: the rule `Bash(ls *.txt)` of `allowed-tools` approves nothing: a command's pattern is \
         `words:*` or the exact command, and has no other wildcards"
    );
}

#[test]
fn a_prefix_matches_one_simple_command() {
    for command in ["git", "git status", "git\tstatus", "  git log --oneline ", "git commit -m 'a b'"] {
        matches("Bash(git:*)", command, true);
    }
    for command in [
        "git status; rm -rf /",
        "git status && rm x",
        "git log | sh",
        "git log &",
        "git log > /etc/passwd",
        "git log < x",
        "git log $(rm x)",
        "git log `rm x`",
        "git log ${x}",
        "git log $x",
        "git\nrm x",
        "git\rrm x",
        "git {a,b}",
        "git log \"a;b\"",
        "gitk",
        "git-lfs pull",
        "GIT status",
        "env git status",
        "X=1 git status",
        "",
        " ",
    ] {
        matches("Bash(git:*)", command, false);
    }
    matches("Bash(git log:*)", "git log -p", true);
    matches("Bash(git log:*)", "git logs", false);
    matches("Bash(git log:*)", "git push", false);
    matches("Bash(*)", "ls -l", true);
    matches("Bash(*)", "ls; ls", false);
}

#[test]
fn a_tool_name_matches_every_call_of_it() {
    matches("Bash", "a; b", true);
    let rule: AllowRule = "Read".parse().unwrap();
    assert!(rule.matches("view", None) && !rule.matches("bash_tool", Some("ls")));
    let rule: AllowRule = "Read(a)".parse().unwrap();
    assert!(!rule.matches("view", None));
}

#[test]
fn an_exact_rule_matches_the_complete_command() {
    matches("Bash(make && make test)", "make && make test", true);
    matches("Bash(make)", "make all", false);
    matches("Bash(make)", "make; ls", false);
}

#[test]
fn paths_match_segment_by_segment() {
    for (pattern, path, expected) in [
        ("src/**", "src/a/b.rs", true),
        ("src/**", "./src//a.rs", true),
        ("src/**", "src/../../etc/passwd", false),
        ("src/**", "/src/a", false),
        ("/workspace/**", "/workspace/a", true),
        ("/workspace/**", "/workspace-2/a", false),
        ("/workspace/**", "/workspace/../etc/passwd", false),
        ("**", "a/b", true),
        ("**", "skill://a/b", false),
        ("**", "file://a", false),
        ("**", "~/x", false),
        ("*.md", "a.md", true),
        ("*.md", "a/b.md", false),
        ("**/*.md", "a.md", true),
        ("**/*.md", "a/b/c.md", true),
        ("a/**/b", "a/b", true),
        ("a/**/b", "a/x/y/b", true),
        ("a/**/b", "a/x/y", false),
        ("a?c", "abc", true),
        ("a?c", "a/c", false),
    ] {
        matches(&format!("Read({pattern})"), path, expected);
    }
}

#[test]
fn hostile_patterns_match_in_bounded_time() {
    let stars = "*a".repeat(400);
    matches(&format!("Read({stars})"), &"a".repeat(4000), true);
    let dirs = "**/a/".repeat(150);
    matches(&format!("Read({dirs}b)"), &"a/".repeat(2000), false);
}

proptest! {
    #[test]
    fn any_text_is_parsed_and_round_trips(text in r"([A-Za-z]|[-:*?,()\[\]{}~/.$ '\n\t;|]){0,60}") {
        let (allowed, _) = AllowedTools::parse(&text);
        for rule in allowed.rules() {
            let again: AllowRule = rule.to_string().parse().unwrap();
            prop_assert_eq!(&again, rule);
        }
        let written: Vec<_> = allowed.rules().iter().map(ToString::to_string).collect();
        let (again, problems) = AllowedTools::parse(&written.join(" "));
        prop_assert_eq!(problems, Vec::new());
        prop_assert_eq!(again, allowed);
    }

    #[test]
    fn no_prefix_approves_two_commands(
        prefix in "[a-z]{0,3}",
        command in r"[a-z ]{0,8}[;&|<>$()`{}\n\r\x00\x1b][a-z ]{0,8}",
    ) {
        let rule: AllowRule = format!("Bash({prefix}:*)").parse().unwrap();
        prop_assert!(!rule.matches("bash_tool", Some(&command)));
    }
}
