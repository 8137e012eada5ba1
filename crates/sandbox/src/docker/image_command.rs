//! [`ImageCommand`]: what an image starts by default. A sandbox does not start it; the caller decides whether to run
//! it.

use bollard::models::ImageInspect;

use crate::docker::engine::engine_info::EngineKind;

/// The entrypoint, the command and the working directory of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCommand {
    /// The kind of the engine that has the image.
    pub engine: EngineKind,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// The default arguments, which a caller can replace.
    pub command: Vec<String>,
    /// The directory in which it starts.
    pub workdir: Option<String>,
}

impl ImageCommand {
    pub(super) fn from_inspect(image: ImageInspect, engine: EngineKind) -> Self {
        let config = image.config.unwrap_or_default();
        Self {
            engine,
            entrypoint: config.entrypoint.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
            workdir: config.working_dir.filter(|dir| dir.starts_with('/')),
        }
    }

    /// Returns the command line that `docker run --entrypoint ENTRYPOINT IMAGE ARGS…` starts. A given entrypoint
    /// replaces both the entrypoint and the command of the image. Given arguments replace the command of the image.
    #[must_use]
    pub fn argv(&self, entrypoint: Option<&str>, args: &[String]) -> Vec<String> {
        let (first, command) = match entrypoint {
            Some("") => (Vec::new(), [].as_slice()),
            Some(program) => (vec![program.to_owned()], [].as_slice()),
            None => (self.entrypoint.clone(), self.command.as_slice()),
        };
        let rest = if args.is_empty() { command } else { args };
        first.into_iter().chain(rest.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;

    use super::*;

    #[test]
    fn a_line_takes_the_place_of_what_an_image_starts() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let config = ImageConfig {
            entrypoint: Some(words(&["node", "index.js"])),
            cmd: Some(words(&["--all"])),
            working_dir: Some("/app".to_owned()),
            ..ImageConfig::default()
        };
        let image = ImageInspect { config: Some(config), ..ImageInspect::default() };
        let image = ImageCommand::from_inspect(image, EngineKind::Docker);
        assert_eq!(image.workdir.as_deref(), Some("/app"));
        for (entrypoint, args, expected) in [
            (None, words(&[]), words(&["node", "index.js", "--all"])),
            (None, words(&["--one"]), words(&["node", "index.js", "--one"])),
            (Some("sh"), words(&[]), words(&["sh"])),
            (Some("sh"), words(&["-c", "x"]), words(&["sh", "-c", "x"])),
            (Some(""), words(&["x"]), words(&["x"])),
        ] {
            assert_eq!(image.argv(entrypoint, &args), expected);
        }
        let empty = ImageCommand::from_inspect(ImageInspect::default(), EngineKind::Podman);
        assert!(empty.argv(None, &[]).is_empty() && empty.workdir.is_none());
    }
}
