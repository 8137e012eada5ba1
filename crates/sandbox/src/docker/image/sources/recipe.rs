//! Tests of the files in `docker/`.

use std::fs;
use std::path::Path;

fn docker(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docker").join(name)).unwrap()
}

/// The instructions of the Dockerfile, each on one line.
fn instructions() -> Vec<String> {
    let text = docker("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_base_of_the_dockerfile_is_an_argument() {
    let instructions = instructions();
    assert_eq!(instructions[0], "ARG BASE=ubuntu:24.04");
    let bases: Vec<_> = instructions.iter().filter(|line| line.starts_with("FROM ")).collect();
    assert_eq!(bases, ["FROM ${BASE} AS wheels", "FROM ${BASE}"]);
}

#[test]
fn the_dockerfile_says_what_the_specification_does() {
    let instructions = instructions();
    let last = instructions.iter().rposition(|line| line.starts_with("FROM ")).unwrap();
    for line in
        ["ENV PYTHONUNBUFFERED=1 NODE_ENV=production", "USER sandbox", "WORKDIR /workspace", "CMD [\"bash\"]"]
    {
        assert!(instructions[last..].iter().any(|one| one == line), "{line}");
    }
}

/// The classic builder supports no mounts of `RUN`, no here-documents, no links of `COPY` and no syntax line.
#[test]
fn the_dockerfile_is_for_the_classic_builder_too() {
    let text = docker("Dockerfile");
    for word in ["--mount", "--link", "--chmod", "<<", "syntax=", "ADD --", "TARGETARCH"] {
        assert!(!text.contains(word), "{word}");
    }
    for line in instructions() {
        let known = ["ARG", "CMD", "COPY", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"];
        assert!(known.contains(&line.split(' ').next().unwrap()), "{line}");
    }
}

#[test]
fn what_the_dockerfile_copies_is_there() {
    for line in instructions().iter().filter(|line| line.starts_with("COPY ") && !line.contains("--from")) {
        let mut words: Vec<_> = line.split(' ').skip(1).collect();
        words.pop();
        for word in words {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("docker").join(word).exists(), "{word}");
        }
    }
}
