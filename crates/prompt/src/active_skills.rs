//! The `<active_skills>` block (runtime specification, "Prompt/Instruction Contract"): the instructions of the loaded skills.
//!
//! A skill's text is Markdown with code, and the model copies from it, so it is not escaped as XML. It is written unchanged into its
//! own element, except that tags of *our* structure get `&lt;` for `<`, and characters that people do not see are removed. So no text can
//! close its own element, imitate another skill, or hide something from those who review the skill.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use conjure_base::text::{is_invisible, strip_deceptive};
use conjure_conversation::{PinnedSkill, SessionView};
use conjure_skill::SkillError;

use crate::session_skills::{SessionSkill, SessionSkills};
use crate::xml::{XmlWriter, escape, without_forbidden};

/// The maximum number of a skill's files that are listed when it is loaded.
pub const MAX_FILES_LISTED: usize = 50;

/// The elements that only this crate writes. They are escaped in a skill's text.
const OWN_TAGS: [&str; 20] = [
    "active_skills",
    "artifact_usage",
    "artifacts",
    "artifacts_description",
    "available_skills",
    "environment",
    "input",
    "inputs",
    "skill",
    "skill_assets",
    "skill_directory",
    "skill_files",
    "skill_instructions",
    "skill_usage_instructions",
    "skills",
    "skills_description",
    "user_artifacts",
    "value-withheld",
    "variable",
    "workspace",
];

impl SessionSkills {
    /// The block with the instructions of the active skills, in their order, without a newline at the end; empty when no skill is active.
    ///
    /// An active skill that cannot be read, or whose content has changed since it was loaded, is listed as missing. The conversation
    /// continues, and the model knows what it does not have.
    #[must_use]
    pub fn active_skills_block(&self, session: &SessionView) -> String {
        let active = session.active_skills();
        if active.is_empty() {
            return String::new();
        }
        let mut xml = XmlWriter::default();
        xml.element("active_skills", |xml| {
            xml.fragment(
                "These skills are loaded, the most recent last. Where their instructions conflict, those of the later skill count.",
            );
            for pinned in active {
                let element = match self.recorded(pinned) {
                    None => missing_skill_block(pinned, "it is not there any more with the content that was loaded"),
                    Some(skill) => self.active_skill(skill).unwrap_or_else(|error| {
                        tracing::warn!(skill = pinned.name, %error, "the instructions of an active skill cannot be read");
                        missing_skill_block(pinned, "its instructions cannot be read")
                    }),
                };
                xml.fragment(&element);
            }
        });
        xml.finish()
    }

    /// The element of one loaded skill: its directory, the names of some of its files, and its instructions.
    ///
    /// # Errors
    /// When the instructions cannot be read.
    pub fn active_skill(&self, skill: &SessionSkill) -> Result<String, SkillError> {
        let body = skill.body()?;
        let mut xml = XmlWriter::default();
        xml.named("skill", skill.name(), |xml| {
            if let Some(dir) = self.root_dir(skill) {
                xml.value("skill_directory", &dir.to_string_lossy());
            }
            let files = skill.files();
            if !files.is_empty() {
                xml.element("skill_files", |xml| xml.fragment(&file_names(files)));
            }
            xml.element("skill_instructions", |xml| xml.fragment(&escape_own_tags(&strip_deceptive(&body))));
        });
        Ok(xml.finish())
    }
}

fn missing_skill_block(pinned: &PinnedSkill, why: &str) -> String {
    let mut xml = XmlWriter::default();
    xml.named("skill", &pinned.name, |xml| {
        xml.fragment(&format!("This skill is loaded, but {why}. Load it again, or do without it."));
    });
    xml.finish()
}

/// Names of files, one per line, up to the maximum.
fn file_names(files: &[impl AsRef<Path>]) -> String {
    let mut text = String::new();
    for file in files.iter().take(MAX_FILES_LISTED) {
        let name =
            file.as_ref().to_string_lossy().replace(|c: char| c.is_control() || is_invisible(c), "\u{FFFD}");
        text.push_str(&escape(&name));
        text.push('\n');
    }
    match files.len().checked_sub(MAX_FILES_LISTED) {
        Some(more @ 1..) => {
            let _ = write!(text, "[{more} more files are not named here]");
        }
        _ => text.truncate(text.trim_end_matches('\n').len()),
    }
    text
}

/// A skill's text with our own tags escaped and characters that XML forbids replaced; everything else is unchanged.
fn escape_own_tags(text: &str) -> Cow<'_, str> {
    let text = without_forbidden(text);
    let opens = |position: &usize| is_own_tag(&text[position + 1..]);
    let mut positions = text.match_indices('<').map(|(position, _)| position).filter(opens).peekable();
    if positions.peek().is_none() {
        drop(positions);
        return text;
    }
    let mut out = String::with_capacity(text.len() + 64);
    let mut copied = 0;
    for position in positions {
        out.push_str(&text[copied..position]);
        out.push_str("&lt;");
        copied = position + 1;
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Whether the text after a `<` could be read as the name of one of our elements. Spaces and invisible characters are ignored.
fn is_own_tag(rest: &str) -> bool {
    let mut characters =
        rest.chars().filter(|c| !is_invisible(*c)).skip_while(|c| c.is_whitespace() || *c == '/').peekable();
    let mut name = String::new();
    while let Some(c) = characters.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '-')) {
        if name.len() > 32 {
            return false;
        }
        name.push(c);
    }
    OWN_TAGS.iter().any(|ours| name.eq_ignore_ascii_case(ours))
}

#[cfg(test)]
mod tests;
