//! The `<available_skills>` block (specification 5.4 and 7), in the bytes of the format's reference validator.

use conjure_base::text::{strip_deceptive, truncate};
use conjure_skill::{MAX_DESCRIPTION_CHARS, Skill};

use crate::skill_locations::SkillLocations;
use crate::xml::XmlWriter;

/// The `<available_skills>` block with this machine's own paths, byte for byte as the reference validator writes it, without a
/// newline at the end. Without skills the text is empty, since an empty block only costs tokens.
///
/// There are four intended differences from the reference:
///
/// - `location` is escaped.
/// - Control characters are replaced.
/// - A description longer than the format allows, which only a lenient skill has, is truncated at [`MAX_DESCRIPTION_CHARS`].
///   Otherwise all of it would be part of every request.
/// - Characters that people do not see are removed ([`conjure_base::text::strip_deceptive`]).
#[must_use]
pub fn available_skills_block<'s>(skills: impl IntoIterator<Item = &'s Skill>) -> String {
    available_skills_block_at(skills, &SkillLocations::host())
}

/// The `<available_skills>` block with the paths of `locations`, in the order of `skills`.
#[must_use]
pub fn available_skills_block_at<'s>(
    skills: impl IntoIterator<Item = &'s Skill>,
    locations: &SkillLocations,
) -> String {
    block(skills.into_iter().map(|skill| SkillEntry::from_skill(skill, locations)))
}

/// The `<skill>` element of one skill, without a newline at the end.
#[must_use]
pub fn format_skill(skill: &Skill, locations: &SkillLocations) -> String {
    let mut xml = XmlWriter::default();
    SkillEntry::from_skill(skill, locations).write(&mut xml);
    xml.finish()
}

/// The fields of a skill that the model reads.
struct SkillEntry<'s> {
    name: &'s str,
    description: &'s str,
    location: Option<String>,
}

impl<'s> SkillEntry<'s> {
    fn from_skill(skill: &'s Skill, locations: &SkillLocations) -> Self {
        Self {
            name: skill.name().as_str(),
            description: skill.description(),
            location: locations.location_of(skill.location()).map(|path| path.to_string_lossy().into_owned()),
        }
    }

    fn write(&self, xml: &mut XmlWriter) {
        xml.element("skill", |xml| {
            xml.value("name", self.name);
            xml.value("description", &truncate(&strip_deceptive(self.description), MAX_DESCRIPTION_CHARS));
            if let Some(location) = &self.location {
                xml.value("location", location);
            }
        });
    }
}

fn block<'s>(entries: impl Iterator<Item = SkillEntry<'s>>) -> String {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return String::new();
    }
    let mut xml = XmlWriter::default();
    xml.element("available_skills", |xml| entries.for_each(|entry| entry.write(xml)));
    xml.finish()
}

#[cfg(test)]
mod tests;
