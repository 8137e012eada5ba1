//! The instructions around the skills: the structure of specification 7.1 and the top-level prompt (10.1).

use std::path::Path;

use conjure_skill::Skill;

use crate::options::{ActivationStyle, PromptOptions};
use crate::skills::available_skills_block_at;
use crate::xml::XmlWriter;

/// What skills are and how to use them, without the skills themselves: the two instructing elements of
/// [`generate`], with an empty line between them.
#[must_use]
pub fn discovery_instructions(style: ActivationStyle) -> String {
    let mut xml = XmlWriter::default();
    describe(&mut xml, style);
    xml.blank();
    instruct(&mut xml, style);
    xml.finish()
}

/// The complete fragment on skills, in the order of specification 7.1: description, block, usage. No skills: an
/// empty text.
#[must_use]
pub fn generate<'s>(skills: impl IntoIterator<Item = &'s Skill>, options: &PromptOptions) -> String {
    let block = available_skills_block_at(skills, &options.locations);
    if block.is_empty() {
        return block;
    }
    let mut xml = XmlWriter::default();
    xml.element("skills", |xml| {
        describe(xml, options.style);
        xml.blank();
        xml.fragment(&block);
        xml.blank();
        instruct(xml, options.style);
    });
    xml.finish()
}

/// Where the model's tools work: the path of the workspace, as the sandbox has it.
#[must_use]
pub fn environment_instructions(workspace: &Path) -> String {
    let path = workspace.to_string_lossy();
    let mut xml = XmlWriter::default();
    xml.element("environment", |xml| {
        xml.value("workspace", &path);
        xml.fragment(
            "Commands start in the workspace, and relative paths are resolved against it. Create and change files \
             there; the user finds them there.",
        );
    });
    xml.finish()
}

/// The top-level instructions of a call: the host's base prompt as it is, then what this crate adds. Parts that
/// are empty are left out; the others are set apart by an empty line.
///
/// ```
/// use conjure_prompt::{PromptOptions, build_system_prompt};
/// use conjure_skill::{Frontmatter, Mode, Skill};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let document = Frontmatter::parse("---\nname: pdf\ndescription: Reads PDF files.\n---\n", Mode::Strict)?;
/// let skill = Skill::new(document.frontmatter, "/mnt/skills/pdf/SKILL.md");
/// let prompt = build_system_prompt("You are a helpful assistant.", [&skill], &PromptOptions::default());
/// assert!(prompt.starts_with("You are a helpful assistant.\n\n<skills>"));
/// assert!(prompt.contains("<location>\n/mnt/skills/pdf/SKILL.md\n</location>"));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn build_system_prompt<'s>(
    base: &str,
    skills: impl IntoIterator<Item = &'s Skill>,
    options: &PromptOptions,
) -> String {
    parts(base, skills, options).join("\n\n")
}

/// The parts of the top-level instructions that are not empty: base prompt, environment, skills.
pub(crate) fn parts<'s>(
    base: &str,
    skills: impl IntoIterator<Item = &'s Skill>,
    options: &PromptOptions,
) -> Vec<String> {
    let environment = options.workspace.as_deref().map(environment_instructions).unwrap_or_default();
    [base.to_owned(), environment, generate(skills, options)]
        .into_iter()
        .filter(|part| !part.trim().is_empty())
        .collect()
}

fn describe(xml: &mut XmlWriter, style: ActivationStyle) {
    xml.element("skills_description", |xml| match style {
        ActivationStyle::View => {
            xml.fragment(
                "You have access to a set of skills that extend your capabilities for specialized tasks.\n\
                 Only the name, description and location of each skill are listed here; its instructions are in its \
                 SKILL.md.\n\
                 To use a skill, first read its SKILL.md file using the view tool.",
            );
        }
    });
}

fn instruct(xml: &mut XmlWriter, style: ActivationStyle) {
    xml.element("skill_usage_instructions", |xml| match style {
        ActivationStyle::View => {
            xml.fragment(
                "When a task matches a skill's description:\n\
                 1. Use the view tool to read the skill's SKILL.md file before you use anything else of the skill\n\
                 2. Follow the instructions in the skill\n\
                 3. Use additional resources (scripts/, references/, assets/) as directed by the skill\n\
                 Paths in a skill are relative to the folder of its SKILL.md, which must not be changed. Run its \
                 scripts from that folder (`cd` there in the same command), and name your own files by absolute \
                 paths.",
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use conjure_skill::{Frontmatter, Mode};

    use super::*;
    use crate::locations::Locations;

    fn skill(name: &str, description: &str) -> Skill {
        let content = format!("---\nname: {name}\ndescription: {description}\n---\n# {name}\n");
        let frontmatter = Frontmatter::parse(&content, Mode::Strict).unwrap().frontmatter;
        Skill::new(frontmatter, format!("/home/me/skills/{name}/SKILL.md"))
    }

    #[test]
    fn the_whole_prompt_with_the_paths_of_the_sandbox() {
        let skills = [
            skill("log-analyzer", "Finds errors in logs. Use for files that end in .log."),
            skill("sales-report", "Computes growth by region & product from a <CSV>."),
        ];
        let options = PromptOptions {
            locations: Locations::mapped(|host| {
                Some(Path::new("/mnt/skills").join(host.strip_prefix("/home/me/skills").ok()?))
            }),
            workspace: Some("/workspace".into()),
            ..PromptOptions::default()
        };
        insta::assert_snapshot!(build_system_prompt("You are a helpful assistant.", &skills, &options));
    }

    #[test]
    fn without_locations_no_path_of_the_host_is_told() {
        let skills = [skill("pdf", "Reads PDF files.")];
        for locations in [Locations::omitted(), Locations::mapped(|_| None)] {
            let text = generate(&skills, &PromptOptions { locations, ..PromptOptions::default() });
            assert!(text.contains("\npdf\n") && !text.contains("/home"), "{text}");
        }
    }

    #[test]
    fn what_the_model_reads_about_skills() {
        insta::assert_snapshot!(discovery_instructions(ActivationStyle::View));
    }

    #[test]
    fn what_the_model_reads_about_its_workspace() {
        insta::assert_snapshot!(environment_instructions(Path::new("/workspace & <more>")));
    }

    #[test]
    fn without_skills_there_is_no_block() {
        let options = PromptOptions::default();
        assert_eq!(generate([], &options), "");
        assert_eq!(build_system_prompt("Be brief.", [], &options), "Be brief.");
        assert_eq!(build_system_prompt("", [], &options), "");
    }
}
