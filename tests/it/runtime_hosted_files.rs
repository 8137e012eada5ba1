//! What hosted sessions are given and what they make: under which key it goes, what becomes of failures, and that a session can be spoken to
//! while something is on its way.

use conjure::{ArtifactSource as Source, ExecutorKind, HostedSkill, SessionSpec};
use conjure_anthropic::fake::{FakeMessages, HostedRun, Refusal, Reply};
use conjure_conversation::ApiErrorKind;
use serde_json::Value;

use crate::runtime_bed::{Host, ask, soon, tenant};
use crate::runtime_hosted::of_service;

fn spec() -> SessionSpec {
    SessionSpec::new(tenant("acme")).model("m").hosted([HostedSkill::anthropic("xlsx")])
}

fn run() -> Reply {
    HostedRun::new("true").saying("Done.").into()
}

/// A service that runs hosted skills, in so many turns.
async fn service(turns: usize) -> FakeMessages {
    FakeMessages::builder().hosting().turns((0..turns).map(|_| run())).start().await.unwrap()
}

fn sales() -> Source {
    Source::content("region,2024\nnorth,3\n", "text/csv")
}

/// The bodies of the requests for answers.
fn asked(fake: &FakeMessages) -> Vec<Value> {
    let requests = fake.requests().into_iter().filter(|request| request.path().starts_with("/v1/messages"));
    requests.map(|request| serde_json::from_slice(request.body()).unwrap()).collect()
}

/// The content of the files that a request puts into its container.
fn given(fake: &FakeMessages, request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    let ids = blocks.filter(|block| block["type"] == "container_upload");
    let content = ids.map(|block| fake.file(&block["file_id"].as_str().unwrap().into()).unwrap());
    content.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
}

fn uploads(fake: &FakeMessages) -> usize {
    let requests = fake.requests();
    requests
        .iter()
        .filter(|request| request.path().starts_with("/v1/files") && request.method() == "POST")
        .count()
}

const NOT_GIVEN: &str = "could not be put into the container";

#[tokio::test]
async fn an_upload_of_which_nobody_knows_whether_it_arrived_is_made_again_in_the_next_turn() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service(3).await;
    let runtime = of_service(&host, &fake).await;
    let session = runtime.open(spec()).await.unwrap();
    session.artifacts().register("sales.csv", sales()).await.unwrap();
    fake.add_hosted_fault(Reply::error(Refusal::new(ApiErrorKind::Api, "internal").with_status(500)));
    for words in ["one", "two", "three"] {
        ask(&session, words).await;
    }
    assert_eq!(uploads(&fake), 2);
    let requests = asked(&fake);
    assert_eq!(given(&fake, &requests[0]), Vec::<String>::new());
    for request in &requests[1..] {
        assert_eq!(given(&fake, request), ["region,2024\nnorth,3\n"]);
        assert_eq!(request.to_string().matches(NOT_GIVEN).count(), 1, "{request}");
    }
    runtime.shutdown(soon()).await.unwrap();
}
