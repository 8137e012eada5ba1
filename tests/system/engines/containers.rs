//! Sessions of the runtime whose sandboxes are containers, on this machine's engine, with an image that the tests make and
//! remove.
//!
//! Where no engine answers the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use bollard::query_parameters::ListContainersOptionsBuilder;
use conjure::config::ExecutorKind;
use conjure::{Clock as _, ProcessEnv, Runtime, RuntimeOptions, SessionSpec, Settings, SystemClock};

use crate::engine::{client, docker};
use crate::image::test_image;
use crate::runtime::fixture::{Fixture, ask, model, soon, spec, tenant};
use crate::runtime::open_failpoints::pause;

#[test]
fn a_session_in_containers_keeps_its_skills_and_files_over_a_restart() {
    let Some(image) = test_image() else { return };
    let fixture = Fixture::new(ExecutorKind::Docker);
    let options = || {
        let settings = Settings {
            image: Some(image.name().to_owned()),
            engine: Some(docker().to_string()),
            ..Settings::default()
        };
        let config = fixture.config().with(settings).unwrap().with_process_env(&ProcessEnv::from_process());
        RuntimeOptions::from(config).model("echo", model())
    };
    let run = "$ sh /mnt/skills/greeting/scripts/run.sh; pwd; cat note 2>/dev/null; echo kept > note";
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let id = threads.block_on(async {
        let runtime = Runtime::spawn(options()).await.unwrap();
        let session = runtime.open(spec()).await.unwrap();
        assert_eq!(ask(&session, run).await, "it says: hello\n/workspace\n");
        runtime.shutdown(soon()).await.unwrap();
        session.id()
    });
    std::fs::remove_dir_all(fixture.skill("greeting")).unwrap();
    threads.block_on(async {
        let runtime = Runtime::spawn(options()).await.unwrap();
        let revived = runtime.session(&tenant("acme"), id).await.unwrap();
        let answer = ask(&revived, run).await;
        assert!(answer.ends_with("hello\n/workspace\nkept\n"), "{answer}");
        let files = runtime.files(&tenant("acme"), id).await.unwrap();
        assert_eq!((files.files.len(), files.files[0].size), (1, 5));
        runtime.delete(&tenant("acme"), id).await.unwrap();
        runtime.shutdown(soon()).await.unwrap();
    });
}

/// The environment variable with the part's host and the image of its containers.
const HOST: &str = "CONJURE_TEST_CONTAINER_HOST";
const IMAGE: &str = "CONJURE_TEST_CONTAINER_IMAGE";

/// A host whose sessions work in jails, unless they say otherwise.
fn of_jails(fixture: &Fixture, image: &str) -> RuntimeOptions {
    let settings =
        Settings { image: Some(image.to_owned()), engine: Some(docker().to_string()), ..Settings::default() };
    let config = fixture.config().with(settings).unwrap().with_process_env(&ProcessEnv::from_process());
    RuntimeOptions::from(config).model("echo", model())
}

/// One that no other test has, by which its containers are known.
fn own_tenant(fixture: &Fixture) -> String {
    let name = fixture.dir().file_name().unwrap().to_str().unwrap();
    name.trim_start_matches('.').to_lowercase()
}

/// The part: a host with a session in a container, which says so and lives until it is killed.
#[tokio::test]
async fn part_a_process_with_a_container() {
    #[expect(clippy::disallowed_methods, reason = "the variable has the parameters of the part")]
    let (Ok(dir), Ok(image)) = (std::env::var(HOST), std::env::var(IMAGE)) else { return };
    let fixture = Fixture::existing(Path::new(&dir), ExecutorKind::Jail);
    let runtime = Runtime::spawn(of_jails(&fixture, &image)).await.unwrap();
    let session =
        runtime.open(SessionSpec::new(tenant(&own_tenant(&fixture))).sandbox("docker")).await.unwrap();
    assert_eq!(ask(&session, "$ echo here").await, "it says: here\n");
    println!("\nREADY");
    std::future::pending::<()>().await;
}

/// Also where containers are not what sessions usually work in.
#[test]
fn containers_of_a_killed_process_are_removed_by_the_next_start_whatever_the_default_is() {
    let Some(image) = test_image() else { return };
    let fixture = Fixture::new(ExecutorKind::Jail);
    let whose = own_tenant(&fixture);
    #[expect(clippy::disallowed_methods, reason = "the test needs another process")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["containers::part_a_process_with_a_container", "--exact", "--nocapture"]);
    command.env(HOST, fixture.dir()).env(IMAGE, image.name());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = BufReader::new(process.stdout.take().unwrap());
    let came_so_far = stdout.lines().any(|line| line.is_ok_and(|line| line == "READY"));
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let count = async || {
        let engine = client(&docker()).await.unwrap();
        let filter = format!("conjure.tenant={whose}");
        let filters = HashMap::from([("label", vec![filter.as_str()])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        engine.list_containers(Some(options)).await.unwrap().len()
    };
    let there = threads.block_on(count());
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(came_so_far, "the host did not come so far");
    assert_eq!(there, 1);
    threads.block_on(async {
        let runtime = Runtime::spawn(of_jails(&fixture, image.name())).await.unwrap();
        let deadline = soon();
        while count().await > 0 {
            assert!(!SystemClock.remaining(deadline).is_zero(), "the container is left");
            pause().await;
        }
        runtime.shutdown(soon()).await.unwrap();
    });
}
