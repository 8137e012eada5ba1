//! `conjure image build` without an engine; the tests of `crates/sandbox` build images.

use crate::support::Conjure;

#[test]
fn without_an_engine_the_error_names_what_is_needed() {
    let build = Conjure::new(["image", "build"]).env("DOCKER_HOST", "unix:///nonexistent/engine.sock");
    build.finish().code(1).says("no container engine can be used").says("start Docker or Podman");
    let unknown = Conjure::new(["image", "build"]).env("DOCKER_HOST", "ssh://somewhere").finish();
    unknown.code(2).says("is no engine's address that can be used").says("unix:///path/to/socket");
}

#[test]
fn invalid_arguments_are_rejected_before_any_work() {
    for (arguments, message) in [
        (["--tag", "No Name"], "is no name for an image"),
        (["--mirror", "example.com"], "is no address of a mirror"),
        (["--add", "--root"], "--root"),
        (["--add", "a,b"], "is no name of a package"),
        (["--timeout", "0"], "a number of seconds"),
        (["--from", "thin-air"], "possible values: auto, dockerfile, debian"),
    ] {
        Conjure::new(["image", "build"]).args(arguments).finish().code(2).says(message);
    }
    let unknown = Conjure::new(["image", "build", "--from", "debian", "--base", "alpine:3"]).finish();
    unknown.code(2).says("`alpine:3` is no release").says("known are `debian:13`");
}
