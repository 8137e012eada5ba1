//! Additional properties of a skill: texts by name, in the order in which they were written.

use serde::{Serialize, Serializer};

/// Additional properties of a skill: a map of texts to texts that keeps the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata(Box<[(String, String)]>);

impl Metadata {
    /// The value of this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(candidate, _)| *candidate == key).map(|(_, value)| value)
    }

    /// All keys with their values, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of two values with the same key, the first is kept.
impl FromIterator<(String, String)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        let mut entries: Vec<_> = entries.into_iter().enumerate().collect();
        entries.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b));
        entries.dedup_by(|(_, (next, _)), (_, (earlier, _))| next == earlier);
        entries.sort_unstable_by_key(|(index, _)| *index);
        Self(entries.into_iter().map(|(_, entry)| entry).collect())
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
