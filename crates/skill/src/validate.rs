//! Validation as the reference validator does it.

use std::path::Path;

use crate::diagnostic::Diagnostic;
use crate::error::SkillError;
use crate::frontmatter::Mode;
use crate::skill::Skill;

/// All findings about the skill in this folder, or whose `SKILL.md` this is. The skill is valid when none of them
/// [is an error](Diagnostic::is_error).
///
/// In strict mode the verdict is the format's reference validator's, and so are the messages of the errors, but for
/// the texts that describe what is wrong with YAML. We differ where the reference is known to be wrong: a `---` within
/// a line ends no frontmatter; `.` has a name; what is not UTF-8 is an error, not a crash; `metadata` must be a map of
/// texts to texts.
#[must_use]
pub fn validate(path: impl AsRef<Path>, mode: Mode) -> Vec<Diagnostic> {
    match Skill::load(path, mode) {
        Ok(skill) => skill.diagnostics().to_vec(),
        Err(error) => SkillError::into_diagnostics(error),
    }
}
