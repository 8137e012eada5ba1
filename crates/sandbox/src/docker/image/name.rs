//! The name of an image, `REPOSITORY:TAG`.

use std::fmt;
use std::str::FromStr;

/// The name that a built image gets: a repository and a tag.
///
/// ```
/// use conjure_sandbox::ImageName;
///
/// let name: ImageName = "registry.example:5000/team/sandbox".parse()?;
/// assert_eq!((name.repository(), name.tag()), ("registry.example:5000/team/sandbox", "latest"));
/// assert_eq!(ImageName::default().to_string(), "conjure/sandbox:latest");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName {
    repository: String,
    tag: String,
}

/// The longest repository that engines accept.
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

impl ImageName {
    /// The part before the tag, with the registry's host if it names one.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The name with a registry. If it names none, the registry is Docker's, as in Docker itself.
    pub(super) fn qualified(&self) -> Self {
        let repository = match (has_registry(&self.repository), self.repository.contains('/')) {
            (true, _) => self.repository.clone(),
            (false, true) => format!("docker.io/{}", self.repository),
            (false, false) => format!("docker.io/library/{}", self.repository),
        };
        Self { repository, tag: self.tag.clone() }
    }
}

impl Default for ImageName {
    /// The default image of containers (specification 5.8).
    fn default() -> Self {
        Self { repository: "conjure/sandbox".to_owned(), tag: "latest".to_owned() }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

impl FromStr for ImageName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A colon before the last slash belongs to the registry's port.
        let last = text.rfind('/').map_or(0, |at| at + 1);
        let (repository, tag) = match text[last..].find(':') {
            Some(at) => (&text[..last + at], &text[last + at + 1..]),
            None => (text, "latest"),
        };
        if is_repository(repository) && is_tag(tag) {
            Ok(Self { repository: repository.to_owned(), tag: tag.to_owned() })
        } else {
            Err(format!(
                "`{}` is no name for an image: it is REPOSITORY:TAG, in lower case, such as `conjure/sandbox:latest`",
                text.escape_debug()
            ))
        }
    }
}

fn has_registry(repository: &str) -> bool {
    repository.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost")
}

fn is_repository(text: &str) -> bool {
    let mut parts = text.split('/').peekable();
    let first = parts.peek().copied().unwrap_or_default();
    if has_registry(text) {
        let (host, port) = first.split_once(':').unwrap_or((first, "0"));
        let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
        if !is_host || port.parse::<u16>().is_err() {
            return false;
        }
        parts.next();
    }
    text.len() <= MAX_REPOSITORY && parts.all(is_component)
}

fn is_component(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_word)
        && text.ends_with(is_word)
        && text.chars().all(|c| is_word(c) || "._-".contains(c))
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= MAX_TAG && text.starts_with(is_word) && text.chars().all(|c| is_word(c) || ".-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_repository_and_a_tag() {
        for (text, whole) in [
            ("sandbox", "sandbox:latest"),
            ("conjure/sandbox:1.0", "conjure/sandbox:1.0"),
            ("localhost/a/b:C_d", "localhost/a/b:C_d"),
            ("host.example:5000/a", "host.example:5000/a:latest"),
            ("a__b/c-d.e", "a__b/c-d.e:latest"),
        ] {
            assert_eq!(text.parse::<ImageName>().unwrap().to_string(), whole);
        }
    }

    #[test]
    fn a_name_without_a_registry_is_one_of_dockers() {
        for (text, whole) in [
            ("sandbox", "docker.io/library/sandbox:latest"),
            ("conjure/sandbox:1", "docker.io/conjure/sandbox:1"),
            ("localhost/a:1", "localhost/a:1"),
            ("host.example:5000/a/b:1", "host.example:5000/a/b:1"),
        ] {
            assert_eq!(text.parse::<ImageName>().unwrap().qualified().to_string(), whole);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(300);
        for text in [
            "",
            ":",
            "a:",
            ":b",
            "A",
            "a b",
            "a:b c",
            "a/",
            "/a",
            "a//b",
            "-a",
            "a-",
            "a@sha256:1",
            "a:-b",
            "ho st:1/a",
            "h:x/a",
            "ä",
            "a\nb",
            &long,
        ] {
            assert!(text.parse::<ImageName>().is_err(), "{text}");
        }
    }
}
