//! Answers: those that are cut off run no tool, and all are sent back unchanged.

use conjure::conversation::{LoopOptions, TurnOutcome, TurnStop};
use conjure::model::StopReason;
use conjure::session::ContextOptions;
use conjure::{Block, Message, Skill, Workbench, run_loop};
use serde_json::json;

use crate::support::host::{Host, ask, say, spec};
use crate::support::test_reply::{TestReply, call, note, raw_block, thinking};
use crate::support::test_wire::{TestService, TestWire, on_every_wire};

on_every_wire!(
    no_tool_of_a_cut_or_refused_answer_runs,
    answers_go_back_byte_for_byte,
    each_request_begins_with_the_one_before,
);

/// The next request is valid, too.
async fn no_tool_of_a_cut_or_refused_answer_runs(wire: TestWire) {
    let unknown = StopReason::Unknown("OF_NEXT_YEAR".to_owned());
    let mut reasons = vec![
        (StopReason::MaxTokens, TurnStop::Truncated(StopReason::MaxTokens)),
        (StopReason::Refusal, TurnStop::Refused),
    ];
    // Servers of Chat have reasons of their own for complete calls.
    if wire != TestWire::Chat {
        reasons.push((unknown.clone(), TurnStop::Truncated(unknown)));
    }
    for (reason, expected) in reasons {
        let content =
            vec![thinking("Hm."), Block::text("I begin."), note("call_1", "a"), note("call_2", "b")];
        let replies = [TestReply::stopped(reason.clone(), content), TestReply::text("Hello.")];
        let service = TestService::start(wire, replies).await;
        let host = Host::new();
        let runtime = host.start(&service).await;
        let session = runtime.open(spec()).await.unwrap();
        assert_eq!(say(&session, "Go").await.0, expected);
        assert_eq!(ask(&session, "Hi").await, "Hello.");
        assert!(host.tools.lines().is_empty(), "{reason:?}");
        assert_eq!(service.received(), 2);
        let results = service.last_request().results();
        assert_eq!(results.len(), 2, "{reason:?}");
        assert!(
            results.iter().all(|(text, is_error)| *is_error && text.starts_with("not run")),
            "{results:?}"
        );
        service.check();
    }
}

/// Thinking, a text, and two calls, one of them with numbers and letters that nobody else would write so.
fn odd_answer(wire: TestWire) -> Vec<Block> {
    let odd = r#"{"command": "echo  \u0041","description":"x", "n": [1.50, 1e2]}"#;
    let odd_call = format!(r#"{{"type":"tool_use","id":"call_1","name":"bash_tool","input":{odd}}}"#);
    let plain = json!({"command": "echo b", "description": "x"});
    let mut content = vec![
        thinking("Let me look."),
        Block::text("I look."),
        raw_block(&odd_call),
        call("call_2", "bash_tool", &plain),
    ];
    if wire == TestWire::Messages {
        content.insert(1, raw_block(r#"{"type":"of_next_year","n":1.50,"of":{"b": 1,"a":[ ]}}"#));
        content.insert(2, raw_block(r#"{"of_next_year":1.0,"text":"With a field.","type":"text"}"#));
    }
    content
}

/// Every later request contains what the client kept of an answer. It also contains the parts that the service sent.
async fn answers_go_back_byte_for_byte(wire: TestWire) {
    let replies =
        [TestReply::blocks(odd_answer(wire)), TestReply::blocks(vec![thinking("So."), Block::text("Done.")])];
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let workbench =
        Workbench::open(Vec::<Skill>::new(), &host.config(), ContextOptions::default()).await.unwrap();
    let model = service.model();
    let ask = async |messages: Vec<Message>| {
        run_loop(messages, &workbench, "Be brief.", &model, LoopOptions::default()).await.unwrap()
    };
    let outcome = ask(vec![Message::user(vec![Block::text("Go")])]).await;
    assert_eq!(outcome.stop, TurnOutcome::Finished(TurnStop::Answered(StopReason::EndTurn)));
    // The same conversation, continued by another loop.
    service.add_reply(&TestReply::text("Hello."));
    let mut history: Vec<Message> = outcome.messages.iter().map(|message| (**message).clone()).collect();
    history.push(Message::user(vec![Block::text("Hi")]));
    assert_eq!(ask(history).await.text(), "Hello.");
    workbench.close().await;

    let requests = service.requests();
    assert_eq!(requests.len(), 3);
    for (request, answers) in requests.iter().zip(0..) {
        let of_model = outcome.messages.iter().skip(1).step_by(2).take(answers);
        for message in of_model {
            let kept: Vec<&str> = match &message.native {
                Some(native) => native.items.iter().map(|item| item.json()).collect(),
                None => message.content.iter().map(Block::json).collect(),
            };
            assert_eq!(message.native.is_none(), wire == TestWire::Messages);
            assert!(!kept.is_empty());
            for item in kept {
                assert!(request.prefix().contains(item), "{item} is not in {}", request.body());
            }
        }
    }
    let sent = match wire {
        TestWire::Messages => odd_answer(wire).iter().map(|block| block.json().to_owned()).collect(),
        TestWire::Chat => vec![r#""reasoning_content":"Let me look.""#.to_owned(), quoted_input()],
        TestWire::Responses => vec![r#""encrypted_content":"encrypted-1-0""#.to_owned(), quoted_input()],
        // The fake refuses parts whose signature is not that of the part.
        TestWire::Gemini => vec![r#""thoughtSignature":""#.to_owned()],
    };
    for item in sent {
        assert!(requests[2].prefix().contains(&item), "{item} is not in {}", requests[2].body());
    }
    service.check();
}

/// The input of the odd call as a string, as two wires have it.
fn quoted_input() -> String {
    let odd = &odd_answer(TestWire::Chat)[2];
    serde_json::to_string(odd.tool_call().unwrap().input.get()).unwrap()
}

/// This holds over several turns, with thinking and calls.
async fn each_request_begins_with_the_one_before(wire: TestWire) {
    let work = |id: &str| {
        TestReply::blocks(vec![
            thinking("Hm."),
            Block::text("I work."),
            note(id, id),
            note(&format!("{id}b"), "b"),
        ])
    };
    let done = || TestReply::blocks(vec![thinking("So."), Block::text("Done.")]);
    let replies = [work("call_1"), work("call_2"), done(), work("call_3"), done()];
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    for words in ["Go", "Again"] {
        assert_eq!(ask(&session, words).await, "Done.");
    }
    let requests = service.requests();
    assert_eq!(requests.len(), 5);
    for pair in requests.windows(2) {
        let (before, after) = (pair[0].prefix(), pair[1].prefix());
        assert!(after.starts_with(&before) && after.len() > before.len(), "{before}\nand then\n{after}");
    }
    service.check();
}
