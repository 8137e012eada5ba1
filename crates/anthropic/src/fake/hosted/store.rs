//! The fake's store of skills, files and containers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::Timestamp;

/// The skills that the service itself provides.
const BUILT_IN: [(&str, &str); 4] =
    [("xlsx", "Excel"), ("pptx", "PowerPoint"), ("docx", "Word"), ("pdf", "PDF")];
/// When those skills were created.
const BUILT_IN_AT: Timestamp = Timestamp::from_millis(1_760_313_600_000);

/// Who created a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fake) enum SkillOwner {
    Anthropic,
    Custom,
}

impl SkillOwner {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Custom => "custom",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Skill {
    pub(super) id: String,
    pub(super) owner: SkillOwner,
    pub(super) title: String,
    pub(super) name: String,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    /// The versions, oldest first.
    pub(super) versions: Vec<Version>,
}

#[derive(Debug, Clone)]
pub(super) struct Version {
    /// The id `skillver_…`, which addresses the version under the current profile.
    pub(super) id: String,
    /// A time in microseconds, which addresses the version under the beta profile.
    pub(super) number: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) created: Timestamp,
    /// The files by path, including the top directory.
    pub(super) files: Vec<(String, Bytes)>,
}

impl Version {
    pub(super) fn is(&self, text: &str) -> bool {
        self.id == text || self.number == text
    }
}

#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) media_type: String,
    pub(super) content: Bytes,
    pub(super) created: Timestamp,
    /// Whether a tool produced the file. Produced files can be downloaded, uploaded ones cannot.
    pub(super) is_produced: bool,
}

/// Everything that the fake stores.
#[derive(Debug)]
pub(in crate::fake) struct Store {
    /// The skills in order of creation.
    pub(super) skills: Vec<Skill>,
    pub(super) files: Vec<File>,
    /// When each container expires.
    pub(super) containers: BTreeMap<String, Timestamp>,
    count: u64,
}

impl Store {
    pub(in crate::fake) fn new() -> Self {
        let built_in = BUILT_IN.iter().map(|(id, title)| Skill {
            id: (*id).to_owned(),
            owner: SkillOwner::Anthropic,
            title: (*title).to_owned(),
            name: (*id).to_owned(),
            created: BUILT_IN_AT,
            updated: BUILT_IN_AT,
            versions: vec![Version {
                id: format!("skillver_{id}"),
                number: "20251013".to_owned(),
                name: (*id).to_owned(),
                description: format!("{title} documents"),
                created: BUILT_IN_AT,
                files: Vec::new(),
            }],
        });
        Self { skills: built_in.collect(), files: Vec::new(), containers: BTreeMap::new(), count: 0 }
    }

    /// Returns a new id with this prefix.
    pub(super) fn fresh(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}_fake{:06}", self.count)
    }

    /// Creates a version of these files.
    pub(super) fn version(
        &mut self,
        (name, description): (String, String),
        files: Vec<(String, Bytes)>,
        now: Timestamp,
    ) -> Version {
        let id = self.fresh("skillver");
        // Newer versions have greater numbers, even if they are created in the same millisecond.
        let number = now.millis().saturating_mul(1000).saturating_add(self.count).to_string();
        Version { id, number, name, description, created: now, files }
    }

    pub(super) fn skill(&self, id: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.id == id)
    }

    pub(in crate::fake) fn add_file(
        &mut self,
        name: &str,
        media_type: &str,
        content: Bytes,
        origin: Origin,
        now: Timestamp,
    ) -> String {
        let id = self.fresh("file");
        self.files.push(File {
            id: id.clone(),
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            content,
            created: now,
            is_produced: origin == Origin::Tool,
        });
        id
    }

    pub(in crate::fake) fn file_ids(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.id.as_str())
    }

    pub(in crate::fake) fn content(&self, id: &str) -> Option<Bytes> {
        self.files.iter().find(|file| file.id == id).map(|file| file.content.clone())
    }

    /// Creates a container, or extends the life of an existing one. Returns when it expires.
    pub(in crate::fake) fn begin_container(
        &mut self,
        id: String,
        lifetime: Duration,
        now: Timestamp,
    ) -> Timestamp {
        let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let ends = Timestamp::from_millis(now.millis().saturating_add(millis));
        self.containers.insert(id, ends);
        ends
    }

    pub(in crate::fake) fn expire_containers(&mut self) {
        self.containers.values_mut().for_each(|ends| *ends = Timestamp::from_millis(0));
    }

    pub(in crate::fake) fn containers(&self) -> Vec<String> {
        self.containers.keys().cloned().collect()
    }
}

/// How a file was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fake) enum Origin {
    Upload,
    Tool,
}
