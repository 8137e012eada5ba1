//! Conformance with the format's reference implementation, PyPI `skills-ref`.
//!
//! Fixtures, fixed and random, are written to a directory; one Python process tells what the reference makes of all of
//! them; then verdict, messages, properties and prompt are compared with ours, fixture by fixture. Where the two may
//! differ is a closed list with reasons, [`DIFFERENCES`].
//!
//! The interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`. Without `skills_ref` in it the test says so and passes,
//! unless `CONJURE_TEST_REQUIRE=all`. `CONJURE_CONFORMANCE_SEED` and `CONJURE_CONFORMANCE_COUNT` run other and larger
//! campaigns than the usual one.

mod fixtures;
mod generator;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use conjure_prompt::available_skills_block;
use conjure_skill::{Diagnostic, Mode, RuleId, Skill, validate};
use serde::Deserialize;

/// The default number of random fixtures.
const RANDOM_FIXTURES: u64 = 500;

/// The reference's results for the directories listed in a file, one JSON object per line.
const ORACLE: &str = r#"
import json, sys
from pathlib import Path
from skills_ref import validate, read_properties, to_prompt

def attempt(function):
    try:
        return {"value": function(), "crash": None}
    except Exception as error:
        return {"value": None, "crash": type(error).__name__}

with open(sys.argv[1], encoding="utf-8") as paths, open(sys.argv[2], "w", encoding="utf-8") as out:
    for line in paths:
        path = Path(json.loads(line))
        out.write(json.dumps({
            "errors": attempt(lambda: validate(path)),
            "properties": attempt(lambda: json.dumps(read_properties(path).to_dict(), indent=2)),
            "prompt": attempt(lambda: to_prompt([path]).encode("utf-8").decode("utf-8")),
        }) + "\n")
"#;

/// One skill directory.
#[derive(Debug, Clone)]
pub(crate) struct Fixture {
    pub(crate) dir: String,
    pub(crate) file: &'static str,
    pub(crate) content: Vec<u8>,
}

/// The reference's result for one directory.
#[derive(Debug, Deserialize)]
struct ReferenceResult {
    errors: Attempt<Vec<String>>,
    properties: Attempt<String>,
    prompt: Attempt<String>,
}

#[derive(Debug, Deserialize)]
struct Attempt<T> {
    value: Option<T>,
}

/// Our result for one directory, in the reference's terms.
#[derive(Debug)]
struct OwnResult {
    findings: Vec<Diagnostic>,
    properties: Option<String>,
    prompt: Option<String>,
}

/// Everything that is known of one fixture.
struct Case<'a> {
    text: Option<&'a str>,
    reference: &'a ReferenceResult,
    ours: &'a OwnResult,
}

/// The compared aspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aspect {
    Verdict,
    Messages,
    Properties,
    Prompt,
}

use Aspect::{Messages, Prompt, Properties, Verdict};

/// A kind of input on which we differ from the reference on purpose.
struct Difference {
    name: &'static str,
    /// In what.
    aspects: &'static [Aspect],
    /// Why. Printed with what differs.
    reason: &'static str,
    applies: fn(&Case<'_>) -> bool,
}

/// All kinds of input on which the verdict, the properties or the prompt may differ.
const DIFFERENCES: [Difference; 11] = [
    Difference {
        name: "hyphens within a line",
        aspects: &[Verdict, Messages, Properties, Prompt],
        reason: "the reference ends the frontmatter at any `---`, even within a description, and loses the rest; we at a \
                 line that begins with it",
        applies: |case| {
            let text = case.text.unwrap_or_default().replace("\r\n", "\n").replace('\r', "\n");
            let second = text.get(3..).and_then(|rest| rest.find("---")).map(|at| at + 3);
            second.is_some_and(|at| !text[..at].ends_with('\n'))
        },
    },
    Difference {
        name: "metadata of another shape",
        aspects: &[Verdict, Messages, Properties],
        reason: "the format says a map of strings to strings; the reference turns anything into the text of a Python \
                 object",
        applies: |case| has(case, RuleId::MetadataShape),
    },
    Difference {
        name: "lists where text belongs",
        aspects: &[Properties],
        reason: "the reference prints `license`, `allowed-tools` and `compatibility` of any shape; we join the texts",
        applies: |case| has(case, RuleId::FieldNotText) || has(case, RuleId::CompatibilityNotText),
    },
    Difference {
        name: "merge keys",
        aspects: &[Verdict, Messages, Properties, Prompt],
        reason: "the reference merges or drops what `<<` holds, although it forbids aliases; we refuse it as YAML's other \
                 indirections",
        applies: |case| says(case, "merge keys are not allowed"),
    },
    Difference {
        name: "half a character",
        aspects: &[Verdict, Messages, Properties, Prompt],
        reason: "the reference accepts an escaped surrogate, which is no character and cannot be written as UTF-8",
        applies: |case| says(case, "is not a character"),
    },
    Difference {
        name: "the value `=`",
        aspects: &[Verdict, Messages, Properties, Prompt],
        reason: "the reference takes an unquoted `=` for a value of an obsolete type and then fails; to us it is text",
        applies: |case| {
            let is_value = |line: &str| {
                let line = line.split(" #").next().unwrap_or_default();
                line.trim().rsplit_once([':', '-']).map_or(line, |(_, value)| value).trim() == "="
            };
            case.text.is_some_and(|text| text.lines().any(is_value))
        },
    },
    Difference {
        name: "names in another normal form",
        aspects: &[Properties, Prompt],
        reason: "the reference checks the NFKC form and then shows the text as written; we show what was checked",
        applies: |case| {
            let name = |properties: &Option<String>| {
                let json: serde_json::Value = serde_json::from_str(properties.as_deref()?).ok()?;
                json.get("name").map(ToString::to_string)
            };
            name(&case.ours.properties) != name(&case.reference.properties.value)
        },
    },
    Difference {
        name: "descriptions beyond the limit in the prompt",
        aspects: &[Prompt],
        reason: "the reference shows a model a description of any length, although it calls it invalid; we show no more \
                 of it than the format allows",
        applies: |case| has(case, RuleId::DescriptionTooLong),
    },
    Difference {
        name: "deceptive characters in the prompt",
        aspects: &[Prompt],
        reason: "the reference tells a model what people do not see, or see in another order; we leave it out",
        applies: |case| has(case, RuleId::DescriptionDeceptive),
    },
    Difference {
        name: "control characters in the prompt",
        aspects: &[Prompt],
        reason: "the reference writes them as they are, which is no XML",
        applies: |case| {
            case.reference.prompt.value.as_deref().is_some_and(|prompt| {
                prompt.chars().any(|c| (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}'))
            }) && case.ours.properties == case.reference.properties.value
        },
    },
    Difference {
        name: "bounds",
        aspects: &[Verdict, Messages, Properties, Prompt],
        reason: "we read 1 MiB of frontmatter and 64 levels; the reference as much as there is, or until it fails",
        applies: |case| has(case, RuleId::FrontmatterTooLarge) || says(case, "nested deeper than"),
    },
];

fn has(case: &Case<'_>, rule: RuleId) -> bool {
    case.ours.findings.iter().any(|finding| finding.rule() == rule)
}

fn says(case: &Case<'_>, text: &str) -> bool {
    case.ours.findings.iter().any(|finding| finding.message().contains(text))
}

/// A skill on which the reference fails is not valid to it.
fn verdicts_agree(case: &Case<'_>) -> bool {
    let theirs = case.reference.errors.value.as_ref().is_some_and(Vec::is_empty);
    theirs != case.ours.findings.iter().any(Diagnostic::is_error)
}

/// In what the two differ.
fn compare(case: &Case<'_>) -> Vec<Aspect> {
    let Case { reference, ours: actual, .. } = case;
    let mut differing = Vec::new();
    if !verdicts_agree(case) {
        differing.push(Verdict);
    }
    if let Some(errors) = &reference.errors.value {
        // How YAML errors are described is each one's own.
        let kind = |message: &str| match message.strip_prefix("Invalid YAML in frontmatter: ") {
            Some(_) => "Invalid YAML in frontmatter: ".to_owned(),
            None => message.to_owned(),
        };
        let theirs: Vec<_> = errors.iter().map(|message| kind(message)).collect();
        let errors = actual.findings.iter().filter(|finding| finding.is_error());
        let actual: Vec<_> = errors.map(|finding| kind(finding.message())).collect();
        if theirs != actual {
            differing.push(Messages);
        }
    }
    if reference.properties.value.is_some() && reference.properties.value != actual.properties {
        differing.push(Properties);
    }
    if reference.prompt.value.is_some() && reference.prompt.value != actual.prompt {
        differing.push(Prompt);
    }
    differing
}

#[test]
fn skills_are_judged_and_shown_as_by_the_reference() {
    let Some(python) = oracle() else { return };
    let seed = setting("CONJURE_CONFORMANCE_SEED").unwrap_or(1);
    let count = setting("CONJURE_CONFORMANCE_COUNT").unwrap_or(RANDOM_FIXTURES);
    let mut fixtures = fixtures::all();
    fixtures
        .extend((0..count).map(|index| generator::fixture(seed.wrapping_mul(1_000_003).wrapping_add(index))));

    let temp = tempfile::tempdir().unwrap();
    let dirs = write(&fixtures, temp.path());
    let references = ask(&python, &dirs, temp.path());
    assert_eq!(references.len(), fixtures.len());

    let (mut valid, mut agreed) = (0, 0);
    let mut differing: BTreeMap<&str, u32> = BTreeMap::new();
    let mut unlisted = Vec::new();
    for ((fixture, dir), reference) in fixtures.iter().zip(&dirs).zip(&references) {
        let actual = judge(dir);
        let case = Case { text: std::str::from_utf8(&fixture.content).ok(), reference, ours: &actual };
        valid += u32::from(reference.errors.value.as_ref().is_some_and(Vec::is_empty));
        let aspects = compare(&case);
        agreed += u32::from(aspects.is_empty());
        for aspect in aspects {
            let applies = |difference: &&Difference| {
                difference.aspects.contains(&aspect) && (difference.applies)(&case)
            };
            match DIFFERENCES.iter().find(applies) {
                Some(difference) => *differing.entry(difference.name).or_default() += 1,
                None => unlisted.push(format!(
                    "{aspect:?} of {:?} in {:?}:\n  {reference:?}\n  {actual:?}",
                    case.text, fixture.dir
                )),
            }
        }
    }
    println!("{} fixtures, {valid} valid to the reference; {agreed} agreed", fixtures.len());
    for difference in DIFFERENCES {
        let count = differing.get(difference.name).copied().unwrap_or_default();
        println!("  {count} differed on purpose: {} ({})", difference.name, difference.reason);
    }
    assert!(
        unlisted.is_empty(),
        "{} unlisted differences:\n{}",
        unlisted.len(),
        unlisted[..unlisted.len().min(10)].join("\n")
    );
    // A generator that makes only what is invalid, or only what differs, would compare nothing.
    assert!(fixtures.len() >= 300 && valid * 8 > u32::try_from(fixtures.len()).unwrap());
    assert!(agreed * 10 > u32::try_from(fixtures.len()).unwrap() * 8);
}

#[test]
fn each_known_defect_of_the_reference_is_avoided() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("good");
    fs::create_dir(&dir).unwrap();
    let check = |content: &[u8], expected: &[RuleId]| {
        fs::write(dir.join("SKILL.md"), content).unwrap();
        let rules: Vec<_> = validate(&dir, Mode::Strict).iter().map(Diagnostic::rule).collect();
        assert_eq!(rules, expected, "{:?}", String::from_utf8_lossy(content));
    };
    // The reference cuts at the inner hyphens, and passes.
    check(b"---\nname: good\ndescription: a --- b\n---\n", &[]);
    assert_eq!(Skill::load(&dir, Mode::Strict).unwrap().description(), "a --- b");
    // There the directory's name is empty to the reference.
    let dot = dir.join("sub").join("..");
    fs::create_dir(dir.join("sub")).unwrap();
    assert_eq!(validate(dot, Mode::Strict), []);
    // There the reference ends in a traceback.
    check(b"---\nname: good\ndescription: \xff\n---\n", &[RuleId::NotUtf8]);
    // This passes.
    check(b"---\nname: good\ndescription: d\nmetadata: text\n---\n", &[RuleId::MetadataShape]);
    check(b"---\nname: good\ndescription: d\nmetadata:\n  - a\n---\n", &[RuleId::MetadataShape]);
}

/// Our side of a comparison. What the reference shows of a skill that it finds invalid is compared with what we show of
/// it when we load it leniently, as it does.
fn judge(dir: &Path) -> OwnResult {
    let findings = validate(dir, Mode::Strict);
    let mode = if findings.iter().any(Diagnostic::is_error) { Mode::Lenient } else { Mode::Strict };
    let skill = Skill::load(dir, mode).ok();
    OwnResult {
        findings,
        properties: skill.as_ref().map(|skill| skill.properties().to_json()),
        prompt: skill.as_ref().map(|skill| available_skills_block([skill])),
    }
}

/// Writes each fixture into a directory of its own; the paths are absolute and resolved.
fn write(fixtures: &[Fixture], root: &Path) -> Vec<PathBuf> {
    let root = root.canonicalize().unwrap();
    let write = |(index, fixture): (usize, &Fixture)| {
        let dir = root.join(index.to_string()).join(&fixture.dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(fixture.file), &fixture.content).unwrap();
        dir
    };
    fixtures.iter().enumerate().map(write).collect()
}

/// The reference's results for all directories.
fn ask(python: &str, dirs: &[PathBuf], root: &Path) -> Vec<ReferenceResult> {
    let (script, paths, answers) = (root.join("oracle.py"), root.join("paths"), root.join("answers"));
    fs::write(&script, ORACLE).unwrap();
    let lines: Vec<_> = dirs.iter().map(|dir| serde_json::to_string(dir).unwrap()).collect();
    fs::write(&paths, lines.join("\n")).unwrap();
    let output = command(python).arg(&script).arg(&paths).arg(&answers).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(&answers).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The interpreter that has the reference implementation, if there is one.
fn oracle() -> Option<String> {
    let python = variable("CONJURE_ORACLE_PYTHON").unwrap_or_else(|| "python3".to_owned());
    let imported = command(&python).args(["-c", "import skills_ref"]).output();
    if imported.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let reason = format!("`{python}` has no `skills-ref` of PyPI, and CONJURE_ORACLE_PYTHON names no other");
    test_support::skip(&reason, ".ci/run installs it");
    None
}

#[expect(clippy::disallowed_methods, reason = "the oracle is a program of the test, not of a sandbox")]
fn command(program: &str) -> Command {
    Command::new(program)
}

#[expect(clippy::disallowed_methods, reason = "the test's own settings, declared at the top of this file")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn setting(name: &str) -> Option<u64> {
    variable(name).map(|value| value.parse().unwrap())
}
