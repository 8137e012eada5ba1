//! Sessions of the runtime whose sandboxes are containers, on this machine's engine, with an image that the tests make and
//! remove.
//!
//! Where no engine answers the tests say so and pass, unless `CONJURE_REQUIRE_DOCKER=1` is set.

use conjure::{Environment, ExecutorKind, Runtime, RuntimeOptions, Settings};

use crate::engine::docker;
use crate::image::test_image;
use crate::runtime_bed::{Host, ask, model, soon, spec, tenant};

#[test]
fn a_session_in_containers_keeps_its_skills_and_files_over_a_restart() {
    let Some(image) = test_image() else { return };
    let host = Host::new(ExecutorKind::Docker);
    let options = || {
        let settings = Settings {
            image: Some(image.name().to_owned()),
            engine: Some(docker().to_string()),
            ..Settings::default()
        };
        let config = host.config().with(settings).unwrap().in_environment(&Environment::of_process());
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
    std::fs::remove_dir_all(host.skill("greeting")).unwrap();
    threads.block_on(async {
        let runtime = Runtime::spawn(options()).await.unwrap();
        let again = runtime.session(&tenant("acme"), id).await.unwrap();
        let said = ask(&again, run).await;
        assert!(said.ends_with("hello\n/workspace\nkept\n"), "{said}");
        let files = runtime.files(&tenant("acme"), id).await.unwrap();
        assert_eq!((files.files.len(), files.files[0].size), (1, 5));
        runtime.delete(&tenant("acme"), id).await.unwrap();
        runtime.shutdown(soon()).await.unwrap();
    });
}
