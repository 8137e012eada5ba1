//! The `<artifacts>` section (ADR-0018, section 4): the session's artifacts and the assets of its skills, each with its reference.
//!
//! The section comes last, after the instructions of active skills. It is short and they are long, so a change of the artifacts
//! leaves the longer part of the cached prefix intact. It changes only when an artifact is registered, unregistered or fetched. A
//! session without artifacts and assets has no section. Only a few assets of each skill are listed, since they are part of every
//! request. A skill's other files are listed when it is loaded, or named in its instructions.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_conversation::{Artifact, SessionView};

use crate::builtin_tools::BuiltinTool;
use crate::session_skills::{SessionSkill, SessionSkills};
use crate::skill_tools::SkillTool;
use crate::xml::{XmlWriter, escape};

/// The maximum number of listed artifacts.
pub const MAX_ARTIFACTS_LISTED: usize = 100;

/// The maximum number of listed assets, of all skills together.
pub const MAX_ASSETS_LISTED: usize = 100;
/// The maximum number of listed assets of one skill.
const MAX_ASSETS_PER_SKILL: usize = 3;

/// The directory of a skill whose files are assets.
const ASSETS: &str = "assets";

/// Reference features available in this session.
#[derive(Debug, Clone)]
pub struct ArtifactPrompt {
    /// How commands find artifacts.
    pub access: ArtifactAccess,
    /// Whether artifacts are uploaded to the containers of the model's service.
    pub container_files: ContainerFiles,
    /// Whether URLs are fetched.
    pub url_references: UrlReferences,
    /// Returns the media type of an asset by its name.
    pub media_type: fn(&str) -> String,
}

/// How commands find the artifacts of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactAccess {
    /// Not at all: only tools take references.
    ToolsOnly,
    /// By environment variables only.
    EnvironmentVariables,
    /// In this directory, each under its name, and by environment variables.
    Directory(PathBuf),
}

/// Whether the artifacts of a session are uploaded to the containers in which the model's service runs code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerFiles {
    /// They are not uploaded.
    #[default]
    None,
    /// Each is uploaded as a file of its name.
    Uploaded,
}

/// Whether a URL in a tool's input is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlReferences {
    /// It is fetched.
    Fetched,
    /// A tool call with one is refused.
    Refused,
}

/// The section of one session, without the list of its artifacts.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactSection {
    prompt: ArtifactPrompt,
    /// The elements of the assets; empty when there are none.
    assets: String,
    /// The tools that take references, as text; `None` if no tools of the session run here.
    reference_tools: Option<String>,
}

impl ArtifactSection {
    /// Creates the section for a session with these skills and tools. It lists the files of the skills, which blocks if they were
    /// not listed before.
    pub(crate) fn new<'t>(
        prompt: ArtifactPrompt,
        skills: &SessionSkills,
        tools: impl Iterator<Item = &'t str>,
    ) -> Self {
        let assets = asset_list(skills, prompt.media_type);
        Self { assets, reference_tools: list_reference_tools(tools), prompt }
    }

    /// The section without a newline at the end; `None` if it would be empty.
    pub(crate) fn block(&self, session: &SessionView) -> Option<String> {
        let artifacts = session.artifacts();
        if artifacts.is_empty() && self.assets.is_empty() {
            return None;
        }
        let mut xml = XmlWriter::default();
        xml.element("artifacts", |xml| {
            xml.element("artifacts_description", |xml| {
                let description = "Artifacts are files and data available for this conversation.";
                let how = "\nReference them using their URI in tool calls.";
                xml.fragment(&if self.reference_tools.is_some() {
                    format!("{description}{how}")
                } else {
                    description.to_owned()
                });
            });
            if !artifacts.is_empty() {
                xml.element("user_artifacts", |xml| xml.fragment(&self.artifact_list(artifacts)));
            }
            if !self.assets.is_empty() {
                xml.element("skill_assets", |xml| xml.fragment(&self.assets));
            }
            xml.element("artifact_usage", |xml| xml.fragment(&self.usage(artifacts)));
        });
        Some(xml.finish())
    }

    fn artifact_list(&self, artifacts: &[Arc<Artifact>]) -> String {
        let mut text = String::new();
        for artifact in artifacts.iter().take(MAX_ARTIFACTS_LISTED) {
            let size = artifact.size().map_or_else(|| "unknown".to_owned(), human_size);
            let _ = write!(
                text,
                r#"<artifact name="{}" type="{}" size="{size}""#,
                escape(artifact.name.as_str()),
                escape(&single_line(&artifact.content_type)),
            );
            if self.reference_tools.is_some() {
                let _ = write!(text, r#" uri="file://{}""#, percent_encode(artifact.name.as_str()));
            }
            if self.prompt.access != ArtifactAccess::ToolsOnly {
                let _ = write!(text, r#" variable="{}""#, escape(&artifact.variable));
            }
            text.push_str("/>\n");
        }
        if let Some(more @ 1..) = artifacts.len().checked_sub(MAX_ARTIFACTS_LISTED) {
            let _ = write!(text, "[{more} more artifacts are not named here]");
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    fn usage(&self, artifacts: &[Arc<Artifact>]) -> String {
        let mut text = String::new();
        if let Some(reference_tools) = &self.reference_tools {
            let _ = writeln!(
                text,
                "Give the URI, and nothing else, where a tool takes a path{reference_tools}. Artifacts cannot be changed."
            );
            self.command_hint(artifacts, &mut text);
        }
        if !artifacts.is_empty() {
            self.container_hint(artifacts, &mut text);
        }
        if self.reference_tools.is_some() {
            text.push_str("URI schemes:\n- skill://{skill}/{path} - Files of skills, assets/ and others\n");
            text.push_str("- file://{name} - User artifacts");
            if self.prompt.url_references == UrlReferences::Fetched {
                text.push_str("\n- https://{url} - Remote resources, fetched on access");
            }
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    /// Writes how the tools that run here find artifacts.
    fn command_hint(&self, artifacts: &[Arc<Artifact>], text: &mut String) {
        let is_there = |artifact: &&Arc<Artifact>| artifact.content.is_some();
        let Some(example) = artifacts.iter().find(is_there).or(artifacts.first()) else { return };
        let variable = escape(&example.variable);
        let _ = match &self.prompt.access {
            ArtifactAccess::ToolsOnly => writeln!(text, "Commands do not find user artifacts."),
            ArtifactAccess::EnvironmentVariables => writeln!(
                text,
                "Commands take no URI: they find the path of a user artifact in its variable, as in `cat \
                 \"${variable}\"`."
            ),
            ArtifactAccess::Directory(dir) => writeln!(
                text,
                "Commands take no URI: they find a user artifact at {}/NAME, and that path in its variable, as in `cat \
                 \"${variable}\"`.",
                escape(&dir.to_string_lossy())
            ),
        };
        if !artifacts.iter().all(|artifact| is_there(&artifact)) {
            text.push_str("One of unknown size is fetched when a tool is first given its URI");
            text.push_str(match self.prompt.access {
                ArtifactAccess::ToolsOnly => ".\n",
                _ => "; commands find it from then on.\n",
            });
        }
    }

    /// Writes how code that the model's service runs finds artifacts.
    fn container_hint(&self, artifacts: &[Arc<Artifact>], text: &mut String) {
        match (self.prompt.container_files, &self.reference_tools) {
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
        if self.prompt.container_files == ContainerFiles::Uploaded
            && artifacts.iter().any(|artifact| artifact.content.is_none())
        {
            text.push_str(" One of unknown size is there once it was fetched.");
        }
        text.push('\n');
    }
}

/// The tools that take references, for the middle of a sentence; `None` if there are no tools.
fn list_reference_tools<'t>(tools: impl Iterator<Item = &'t str>) -> Option<String> {
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

/// The elements of the skills' assets, a few of each skill, without a newline at the end.
fn asset_list(skills: &SessionSkills, media_type: fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut named = 0;
    let mut left = 0;
    for skill in skills.iter() {
        let files: Vec<&Path> = asset_files(skill).collect();
        let most = MAX_ASSETS_PER_SKILL.min(MAX_ASSETS_LISTED - named);
        for path in files.iter().take(most) {
            let path = path.to_string_lossy();
            let uri = path.split('/').map(percent_encode).collect::<Vec<_>>().join("/");
            let _ = writeln!(
                text,
                r#"<asset type="{}" uri="skill://{}/{uri}"/>"#,
                escape(&single_line(&media_type(&path))),
                percent_encode(skill.name()),
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

/// A skill's assets in a stable order, without those whose names no reference can contain.
fn asset_files(skill: &SessionSkill) -> impl Iterator<Item = &Path> {
    let files = skill.files().iter().map(PathBuf::as_path);
    // References cannot contain the other characters.
    let is_writable = |file: &&Path| {
        file.to_str().is_some_and(|path| !path.contains(|c: char| c.is_control() || c == '\\'))
    };
    files.filter(|file| file.starts_with(ASSETS)).filter(is_writable)
}

/// A part of a reference in its normal form: everything except ASCII letters, digits, `-`, `.`, `_` and `~` is percent-encoded.
fn percent_encode(part: &str) -> String {
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

/// The start of a foreign text, on one line.
fn single_line(text: &str) -> String {
    text.chars().take(100).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// A number of bytes for people: `812 bytes`, `1.5 kB`, `20 MB`.
fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
    }
    // Use rounded tenths, so that 999,960 bytes are a megabyte.
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
