//! How programs run: what they are given, what they give, and how they end by themselves.

use conjure_sandbox::{Command, CommandEnd, Executor, Input, LineRange, RunEvent, SandboxErrorKind};
use futures_util::{StreamExt, future};

use crate::support::{Fixture, Kind, options, text};

pub(crate) async fn a_program_runs_in_the_workspace_with_its_input_and_variables(kind: &dyn Kind) {
    let fixture = Fixture::with(kind, |context| {
        context.environment.insert("FROM_CONTEXT".to_owned(), "one".to_owned());
    })
    .await;
    let mut command = Command::bash("pwd; cat; echo $FROM_CONTEXT $FROM_CALL; echo oops >&2; exit 3");
    command.input = Input::Bytes(b"typed\n".to_vec());
    command.env.insert("FROM_CALL".to_owned(), "two".to_owned());
    let outcome = fixture.sandbox.run(command, options()).await.unwrap();
    assert_eq!(outcome.end, CommandEnd::Exited(3));
    let workspace = fixture.sandbox.layout().workspace.display();
    assert_eq!(text(&outcome), format!("{workspace}\ntyped\none two\noops\n"));
}

pub(crate) async fn a_large_input_reaches_a_program_that_answers_in_between(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let mut command = Command::new(["sha256sum"]);
    command.input = Input::Bytes(vec![b'x'; 5_000_000]);
    let outcome = fixture.sandbox.run(command, options()).await.unwrap();
    let expected = fixture.bash("head -c 5000000 /dev/zero | tr '\\0' x | sha256sum").await.unwrap();
    assert_eq!(text(&outcome), text(&expected));

    // One that does not read its input ends all the same.
    let mut command = Command::new(["true"]);
    command.input = Input::Bytes(vec![b'x'; 5_000_000]);
    let outcome = fixture.sandbox.run(command, options()).await.unwrap();
    assert_eq!(outcome.end, CommandEnd::Exited(0));
}

pub(crate) async fn no_key_of_the_host_is_in_the_environment(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let output = text(&fixture.sandbox.run(Command::new(["env"]), options()).await.unwrap());
    assert!(output.contains("PATH="), "{output}");
    assert!(!output.contains("ANTHROPIC_API_KEY") && !output.contains("not for commands"), "{output}");
    assert!(!output.contains("CARGO"), "{output}");
}

pub(crate) async fn how_a_program_ended_is_told_apart(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let killed = fixture.bash("kill -TERM $$").await.unwrap();
    assert_eq!(killed.end, CommandEnd::Signaled(15));
    let missing = fixture.sandbox.run(Command::new(["no-such-program"]), options()).await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound, "{missing}");
    fixture.put("plain", "x").await;
    let plain = fixture.sandbox.run(Command::new(["./plain"]), options()).await.unwrap_err();
    assert!(
        matches!(plain.kind(), SandboxErrorKind::NotExecutable | SandboxErrorKind::PermissionDenied),
        "{plain:?}"
    );
}

pub(crate) async fn both_streams_are_kept_apart_when_asked_for(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let mut command = Command::bash("echo out; echo err >&2");
    command.merge_stderr = false;
    let outcome = fixture.sandbox.run(command, options()).await.unwrap();
    assert_eq!(
        (outcome.stdout.head.as_slice(), outcome.stderr.head.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
}

pub(crate) async fn output_is_seen_while_the_program_runs(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let script = "echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 5";
    let process = fixture.sandbox.start(Command::bash(script), options()).await.unwrap();
    let mut output = String::new();
    let outcome = loop {
        match process.next_event().await.unwrap() {
            RunEvent::Stdout(bytes) => output += std::str::from_utf8(&bytes).unwrap(),
            RunEvent::Stderr(_) => panic!("it was merged"),
            RunEvent::Ended(outcome) => break outcome,
        }
        if output == "one\n" {
            fixture.sandbox.create_file("go", b"", options()).await.unwrap();
        }
    };
    assert_eq!(
        (output.as_str(), outcome.end, outcome.stdout.total),
        ("one\ntwo\n", CommandEnd::Exited(5), 8)
    );
}

pub(crate) async fn a_content_stream_that_is_not_read_delays_no_other(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    fixture.put("big", vec![7; 10_000_000]).await;
    let content = fixture.sandbox.read("big", options()).await.unwrap();
    for _ in 0..20 {
        assert_eq!(fixture.bash("true").await.unwrap().end, CommandEnd::Exited(0));
    }
    let size: usize = content.map(|piece| piece.unwrap().len()).fold(0, |a, b| future::ready(a + b)).await;
    assert_eq!(size, 10_000_000);
}

pub(crate) async fn sixty_four_calls_at_once_are_told_apart(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let calls = (0..64).map(|number| async move { (number, format!("echo {number}; echo {number} >&2")) });
    let outcomes = future::join_all(calls.map(|call| async {
        let (number, script) = call.await;
        (number, fixture.bash(&script).await.unwrap())
    }))
    .await;
    for (number, outcome) in outcomes {
        assert_eq!(text(&outcome), format!("{number}\n{number}\n"));
    }
}

/// Invalid requests are rejected, and harm nothing.
pub(crate) async fn invalid_requests_are_rejected(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let sandbox = &fixture.sandbox;
    let bad = SandboxErrorKind::BadRequest;
    let plain = || Command::new(["env"]);
    let with = |change: fn(&mut Command)| {
        let mut command = plain();
        change(&mut command);
        command
    };
    let commands = [
        (Command::new(Vec::<String>::new()), bad),
        (Command::new([""]), bad),
        (Command::new(["true", "a\0b"]), bad),
        (Command::new(["true".to_owned(), "x".repeat(30 << 20)]), SandboxErrorKind::TooLarge),
        (with(|command| drop(command.env.insert("A=B".to_owned(), String::new()))), bad),
        (with(|command| drop(command.env.insert(String::new(), "x".to_owned()))), bad),
        (with(|command| drop(command.env.insert("A".to_owned(), "x\0".to_owned()))), bad),
        (with(|command| command.cwd = Some("\0".to_owned())), bad),
        (with(|command| command.cwd = Some("missing".to_owned())), SandboxErrorKind::NotFound),
        (with(|command| command.cwd = Some("file".to_owned())), SandboxErrorKind::WrongFileType),
    ];
    fixture.put("file", "x").await;
    for (command, expected) in commands {
        let error = sandbox.run(command, options()).await.unwrap_err();
        assert_eq!(error.kind(), expected, "{error}");
    }
    for path in ["", "\0", &"x/".repeat(3000), &"x".repeat(300)] {
        let refusals = [
            sandbox.view(path, None, 10, options()).await.map(|_| ()),
            sandbox.list(path, 1, 1, options()).await.map(|_| ()),
            sandbox.create_file(path, b"x", options()).await.map(|_| ()),
            sandbox.str_replace(path, "x", "y", options()).await.map(|_| ()),
            sandbox.read(path, options()).await.map(|_| ()),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert_eq!(error.kind(), bad, "{error}");
        }
    }
    let empty = sandbox.str_replace("file", "", "y", options()).await.unwrap_err();
    assert_eq!(empty.kind(), bad, "{empty}");
    let past = Some(LineRange { first: 9, last: Some(3) });
    assert!(sandbox.view("file", past, 10, options()).await.is_err());
    assert_eq!(sandbox.list(".", 1, 10, options()).await.unwrap().entries.len(), 1);
    assert_eq!(text(&fixture.bash("echo well").await.unwrap()), "well\n");
}
