//! `conjure image build`, as far as no engine is needed; images are built in the tests of `crates/sandbox`.

use crate::support::Conjure;

#[test]
fn without_an_engine_it_says_what_is_needed() {
    let build = Conjure::new(["image", "build"]).env("DOCKER_HOST", "unix:///nonexistent/engine.sock");
    build.finish().code(1).says("no container engine can be used").says("start Docker or Podman");
    let unknown = Conjure::new(["image", "build"]).env("DOCKER_HOST", "ssh://somewhere").finish();
    unknown.code(2).says("is no engine's address that can be used").says("unix:///path/to/socket");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_done() {
    for (arguments, told) in [
        (["--tag", "No Name"], "is no name for an image"),
        (["--mirror", "example.com"], "is no address of a mirror"),
        (["--add", "--root"], "--root"),
        (["--add", "a,b"], "is no name of a package"),
        (["--timeout", "0"], "a number of seconds"),
        (["--from", "thin-air"], "possible values: auto, dockerfile, debian"),
    ] {
        Conjure::new(["image", "build"]).args(arguments).finish().code(2).says(told);
    }
    let unknown = Conjure::new(["image", "build", "--from", "debian", "--base", "alpine:3"]).finish();
    unknown.code(2).says("`alpine:3` is no release").says("known are `debian:13`");
}
