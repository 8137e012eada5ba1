//! The `<artifacts>` section (ADR-0018, section 4): what a session was given, and the assets of its skills, by the references that tools
//! take.
//!
//! It stands behind everything else, also behind the instructions of active skills: it is short, and they are long, so where an
//! artifact comes or goes the longer part of the prefix stays cached. It changes only when an artifact is registered, unregistered or
//! fetched. A session without artifacts and assets has none. Of each skill few assets are named, since all of them would stand in every
//! request: a skill's other files are named when it is loaded, or read in its instructions.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_conversation::{Artifact, Standing};

use crate::session_skills::{SessionSkill, SessionSkills};
use crate::skill_tools::SkillTool;
use crate::tools::BuiltinTool;
use crate::xml::{XmlWriter, escape};

/// How many artifacts are named.
pub const MOST_ARTIFACTS_NAMED: usize = 100;

/// How many assets are named, of all skills and of each.
pub const MOST_ASSETS_NAMED: usize = 100;
const MOST_OF_A_SKILL: usize = 3;

/// The folder of a skill whose files are assets.
const ASSETS: &str = "assets";

/// What is true of references in a session.
#[derive(Debug, Clone)]
pub struct ArtifactPrompt {
    /// How commands find artifacts.
    pub commands: ArtifactAccess,
    /// Whether they are given to the containers of the model's service.
    pub container: ContainerFiles,
    /// Whether URLs are fetched.
    pub urls: UrlReferences,
    /// The media type of an asset, by its name.
    pub media_type: fn(&str) -> String,
}

/// How commands find the artifacts of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactAccess {
    /// They do not: tools take references, and that is all.
    ToolsOnly,
    /// By variables alone.
    Variables,
    /// In this folder, each under its name, and by variables.
    Folder(PathBuf),
}

/// Whether the artifacts of a session are given to the containers in which the model's service runs code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerFiles {
    /// They are not.
    #[default]
    None,
    /// Each is uploaded, as a file of its name.
    Uploaded,
}

/// Whether a URL in a tool's input is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlReferences {
    /// It is.
    Fetched,
    /// It is refused.
    Refused,
}

/// The section of one session, but for its artifacts.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactSection {
    prompt: ArtifactPrompt,
    /// The elements of the assets; empty where there are none.
    assets: String,
    /// The tools that take references, as the model is told; none where a session has no tools that run here.
    takers: Option<String>,
}

impl ArtifactSection {
    /// Of a session with these skills and tools. Lists the files of the skills; blocks where that was not done before.
    pub(crate) fn new<'t>(
        prompt: ArtifactPrompt,
        skills: &SessionSkills,
        tools: impl Iterator<Item = &'t str>,
    ) -> Self {
        let assets = assets(skills, prompt.media_type);
        Self { assets, takers: takers(tools), prompt }
    }

    /// The section, without a newline at the end; none where there is nothing to tell.
    pub(crate) fn block(&self, standing: &Standing) -> Option<String> {
        let artifacts = standing.artifacts();
        if artifacts.is_empty() && self.assets.is_empty() {
            return None;
        }
        let mut xml = XmlWriter::default();
        xml.element("artifacts", |xml| {
            xml.element("artifacts_description", |xml| {
                let told = "Artifacts are files and data available for this conversation.";
                let how = "\nReference them using their URI in tool calls.";
                xml.fragment(&if self.takers.is_some() { format!("{told}{how}") } else { told.to_owned() });
            });
            if !artifacts.is_empty() {
                xml.element("user_artifacts", |xml| xml.fragment(&self.named(artifacts)));
            }
            if !self.assets.is_empty() {
                xml.element("skill_assets", |xml| xml.fragment(&self.assets));
            }
            xml.element("artifact_usage", |xml| xml.fragment(&self.usage(artifacts)));
        });
        Some(xml.finish())
    }

    fn named(&self, artifacts: &[Arc<Artifact>]) -> String {
        let mut text = String::new();
        for artifact in artifacts.iter().take(MOST_ARTIFACTS_NAMED) {
            let size = artifact.size().map_or_else(|| "unknown".to_owned(), human);
            let _ = write!(
                text,
                r#"<artifact name="{}" type="{}" size="{size}""#,
                escape(artifact.name.as_str()),
                escape(&shown(&artifact.content_type)),
            );
            if self.takers.is_some() {
                let _ = write!(text, r#" uri="file://{}""#, encoded(artifact.name.as_str()));
            }
            if self.prompt.commands != ArtifactAccess::ToolsOnly {
                let _ = write!(text, r#" variable="{}""#, escape(&artifact.variable));
            }
            text.push_str("/>\n");
        }
        if let Some(more @ 1..) = artifacts.len().checked_sub(MOST_ARTIFACTS_NAMED) {
            let _ = write!(text, "[{more} more artifacts are not named here]");
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    fn usage(&self, artifacts: &[Arc<Artifact>]) -> String {
        let mut text = String::new();
        if let Some(takers) = &self.takers {
            let _ = writeln!(
                text,
                "Give the URI, and nothing else, where a tool takes a path{takers}. Artifacts cannot be changed."
            );
            self.of_commands(artifacts, &mut text);
        }
        if !artifacts.is_empty() {
            self.of_containers(artifacts, &mut text);
        }
        if self.takers.is_some() {
            text.push_str("URI schemes:\n- skill://{skill}/{path} - Files of skills, assets/ and others\n");
            text.push_str("- file://{name} - User artifacts");
            if self.prompt.urls == UrlReferences::Fetched {
                text.push_str("\n- https://{url} - Remote resources, fetched on access");
            }
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    /// How the tools that run here find artifacts.
    fn of_commands(&self, artifacts: &[Arc<Artifact>], text: &mut String) {
        let is_there = |artifact: &&Arc<Artifact>| artifact.content.is_some();
        let Some(example) = artifacts.iter().find(is_there).or(artifacts.first()) else { return };
        let variable = escape(&example.variable);
        let _ = match &self.prompt.commands {
            ArtifactAccess::ToolsOnly => writeln!(text, "Commands do not find user artifacts."),
            ArtifactAccess::Variables => writeln!(
                text,
                "Commands take no URI: they find the path of a user artifact in its variable, as in `cat \
                 \"${variable}\"`."
            ),
            ArtifactAccess::Folder(folder) => writeln!(
                text,
                "Commands take no URI: they find a user artifact at {}/NAME, and that path in its variable, as in `cat \
                 \"${variable}\"`.",
                escape(&folder.to_string_lossy())
            ),
        };
        if !artifacts.iter().all(|artifact| is_there(&artifact)) {
            text.push_str("One of unknown size is fetched when a tool is first given its URI");
            text.push_str(match self.prompt.commands {
                ArtifactAccess::ToolsOnly => ".\n",
                _ => "; commands find it from then on.\n",
            });
        }
    }

    /// How code finds them that the model's service runs.
    fn of_containers(&self, artifacts: &[Arc<Artifact>], text: &mut String) {
        match (self.prompt.container, &self.takers) {
            (ContainerFiles::Uploaded, Some(_)) => text.push_str(
                "Code execution is elsewhere and takes no URI: its container has a copy of a user artifact, as a file of \
                 its name.",
            ),
            (ContainerFiles::Uploaded, None) => text.push_str(
                "The container of code execution has a copy of a user artifact, as a file of its name.",
            ),
            (ContainerFiles::None, Some(_)) => return,
            (ContainerFiles::None, None) => text.push_str("No tool finds user artifacts."),
        }
        if self.prompt.container == ContainerFiles::Uploaded
            && artifacts.iter().any(|artifact| artifact.content.is_none())
        {
            text.push_str(" One of unknown size is there once it was fetched.");
        }
        text.push('\n');
    }
}

/// Which of the tools take references, for the middle of a sentence; none where there are no tools.
fn takers<'t>(tools: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut tools = tools.peekable();
    tools.peek()?;
    let mut named = Vec::new();
    for tool in tools {
        if tool == BuiltinTool::View.name() {
            named.push(format!("in {tool} as {{\"path\": \"file://name\"}}"));
        } else if tool == SkillTool::RunScript.name() {
            named.push(format!("in {tool} as an argument"));
        }
    }
    Some(if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) })
}

/// The elements of the skills' assets, few of each, without a newline at the end.
fn assets(skills: &SessionSkills, media_type: fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut named = 0;
    let mut left = 0;
    for skill in skills.iter() {
        let files: Vec<&Path> = of_assets(skill).collect();
        let most = MOST_OF_A_SKILL.min(MOST_ASSETS_NAMED - named);
        for path in files.iter().take(most) {
            let path = path.to_string_lossy();
            let uri = path.split('/').map(encoded).collect::<Vec<_>>().join("/");
            let _ = writeln!(
                text,
                r#"<asset type="{}" uri="skill://{}/{uri}"/>"#,
                escape(&shown(&media_type(&path))),
                encoded(skill.name()),
            );
        }
        let shown = files.len().min(most);
        named += shown;
        if shown == 0 {
            left += files.len();
        } else if files.len() > shown {
            let _ = writeln!(
                text,
                "[{} more assets of {} are not named here]",
                files.len() - shown,
                escape(skill.name())
            );
        }
    }
    if left > 0 {
        let _ = writeln!(text, "[{left} more assets of other skills are not named here]");
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

/// A skill's assets, in a stable order. What has no name that can be written is none.
fn of_assets(skill: &SessionSkill) -> impl Iterator<Item = &Path> {
    let files = skill.files().iter().map(PathBuf::as_path);
    // References have none of the other characters.
    let is_told = |file: &&Path| {
        file.to_str().is_some_and(|path| !path.contains(|c: char| c.is_control() || c == '\\'))
    };
    files.filter(|file| file.starts_with(ASSETS)).filter(is_told)
}

/// A part of a reference, in its normal form: all but letters, digits, `-`, `.`, `_` and `~` of ASCII is percent-encoded.
fn encoded(part: &str) -> String {
    let mut text = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte))
            }
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

/// A text of somebody else's on one line.
fn shown(text: &str) -> String {
    text.chars().take(100).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// A number of bytes for people: `812 bytes`, `1.5 kB`, `20 MB`.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
    }
    // In tenths, rounded, so that 999,960 is a megabyte.
    let (mut tenths, mut unit) = (bytes.saturating_add(50) / 100, 0);
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths = tenths.saturating_add(500) / 1000;
        unit += 1;
    }
    let unit = UNITS.get(unit).copied().unwrap_or_default();
    match tenths {
        ..100 if !tenths.is_multiple_of(10) => format!("{}.{} {unit}", tenths / 10, tenths % 10),
        _ => format!("{} {unit}", (tenths + 5) / 10),
    }
}

#[cfg(test)]
mod tests;
