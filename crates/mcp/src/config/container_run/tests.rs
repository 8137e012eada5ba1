use proptest::prelude::*;

use super::*;

fn parse(line: &str) -> Result<Option<ContainerRun>, String> {
    let mut words = line.split_whitespace().map(str::to_owned);
    let command = words.next().unwrap();
    ContainerRun::parse(&command, &words.collect::<Vec<_>>())
}

fn run(line: &str) -> ContainerRun {
    parse(line).unwrap().unwrap()
}

#[test]
fn the_lines_that_people_have_are_read() {
    let github = run("docker run -i --rm -e GITHUB_TOKEN -e LEVEL=info ghcr.io/github/github-mcp-server");
    assert_eq!(github.image, "ghcr.io/github/github-mcp-server");
    assert!(github.args.is_empty() && github.network.is_none());
    let starts_with = [("GITHUB_TOKEN", "t0ken"), ("OTHER", "x")];
    let starts_with = starts_with.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let expected = [("GITHUB_TOKEN", "t0ken"), ("LEVEL", "info")];
    let expected: BTreeMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(github.environment(&starts_with), expected);
    assert!(!github.environment(&BTreeMap::new()).contains_key("GITHUB_TOKEN"), "it is not set");

    let files =
        run("/usr/bin/docker container run -i --mount type=bind,src=/home/ada/app,dst=/projects/app,ro \
         -v /srv/data:/data:ro --network none --workdir=/projects mcp/filesystem /projects --verbose -v");
    let mounts = [("/home/ada/app", "/projects/app"), ("/srv/data", "/data")];
    let mounts = mounts.map(|(host, target)| ContainerMount { host: host.into(), target: target.into() });
    assert_eq!(
        (files.mounts, files.args),
        (mounts.to_vec(), vec!["/projects".to_owned(), "--verbose".to_owned(), "-v".to_owned()])
    );
    assert_eq!((files.network, files.workdir.as_deref()), (Some(NetworkPolicy::None), Some("/projects")));

    let podman = run("podman run -iqeA=b --name x --network=bridge --entrypoint node -- a/b:1 index.js");
    assert_eq!((podman.program, podman.network), (ContainerProgram::Podman, Some(NetworkPolicy::Full)));
    assert_eq!((podman.entrypoint.as_deref(), podman.env["A"].as_deref()), (Some("node"), Some("b")));
    assert!(!format!("{:?}", run("docker run -e KEY=s3cret x")).contains("s3cret"), "values are not shown");
    for other in ["uvx docker run", "docker-compose run x", "/opt/docker/server"] {
        assert_eq!(parse(other), Ok(None), "{other}");
    }
}

#[test]
fn what_a_sandbox_does_not_have_is_refused_by_its_name() {
    for (line, part) in [
        ("docker", "only lines that begin with `docker run`"),
        ("docker exec -i x", "only lines that begin with `docker run`"),
        ("docker --context x run y", "only lines that begin with `docker run`"),
        ("docker run", "names no image"),
        ("docker run -i --rm", "names no image"),
        ("docker run --privileged x", "`--privileged` is refused: a server runs in a sandbox"),
        ("docker run --cap-add=SYS_ADMIN x", "`--cap-add` is refused"),
        ("docker run -p 80:80 x", "`--publish` is refused: nothing can connect"),
        ("docker run -P x", "`--publish-all` is refused"),
        ("docker run -it x", "`--tty` is refused"),
        ("docker run -di x", "`--detach` is refused"),
        ("docker run --user 0 x", "`--user` is refused"),
        ("docker run --memory 8g x", "`--memory` is refused: the limits are those"),
        ("docker run --env-file .env x", "`--env-file` is refused: give its variables by `env`"),
        ("docker run --security-opt seccomp=unconfined x", "`--security-opt` is refused"),
        ("docker run --nonsense x y", "`--nonsense` is refused: it is not supported"),
        ("docker run -x y", "`-x` is refused: it is not supported"),
        ("docker run --pull always x", "pull it before"),
        ("docker run --network host x", "the network `host` is not supported"),
        ("docker run --network container:other x", "the network `container:other` is not supported"),
        ("docker run -v data:/data x", "the volume `data` is one of the engine"),
        ("docker run -v ./data:/data x", "the path `./data`, which is not absolute"),
        ("docker run -v /data x", "is not `HOST:TARGET`"),
        ("docker run -v /a:/b:shared x", "the option `shared`, which is not supported"),
        ("docker run --mount type=tmpfs,target=/x y", "is of the type `tmpfs`, and only `bind`"),
        ("docker run --mount type=bind,target=/x y", "has no `source` or no `target`"),
        ("docker run --mount src=/a,dst=/b,bind-propagation=shared y", "the part `bind-propagation`"),
        ("docker run -e =x y", "has no name of a variable"),
        ("docker run --rm=perhaps x", "takes `true` or `false` alone"),
        ("docker run -e", "`--env` has no value"),
        ("docker run --env", "`--env` has no value"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
    let error = ContainerRun::parse("docker", &["run".to_owned(), "a b".to_owned()]).unwrap_err();
    assert!(error.contains("`a b` is no name of an image"), "{error}");
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(args in proptest::collection::vec("(--?[a-z]{0,12}(=\\PC{0,8})?|run|\\PC{0,12})", 0..12)) {
        let _ = ContainerRun::parse("docker", &args);
        let mut line = vec!["run".to_owned()];
        line.extend(args);
        if let Ok(Some(run)) = ContainerRun::parse("podman", &line) {
            prop_assert!(line.contains(&run.image) && line.ends_with(&run.args));
        }
    }

    #[test]
    fn what_follows_the_image_is_the_servers(args in proptest::collection::vec("\\PC{0,12}", 0..6)) {
        let mut line: Vec<String> = ["run", "-i", "--rm", "a/b:1"].map(str::to_owned).into();
        line.extend(args.iter().cloned());
        let run = ContainerRun::parse("docker", &line).unwrap().unwrap();
        prop_assert_eq!((run.image.as_str(), run.args), ("a/b:1", args));
    }
}
