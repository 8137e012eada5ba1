//! Tests of dispatch: timeouts, approval, redaction, tools of the embedder, and arbitrary input.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conjure_base::{CallId, Clock as _, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{
    Authorization, CallConcurrency, CallContext, CallTraits, ProgressSink, ResultContent, SessionView,
    ToolCall, ToolProgress, ToolRunner as _,
};
use conjure_sandbox::CallOptions;
use futures_util::future::{self, BoxFuture};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::call_abort::SANDBOX_GRACE;
use super::parsed_call::ParsedCall;
use super::*;
use crate::ToolboxError;
use crate::fake::{FakeCommand, FakeExecutor, exited};
use crate::tool::{ToolContext, ToolOutput, ToolStatus, tool_fn};
use crate::{DenyAll, approver_fn};

fn context() -> CallContext {
    CallContext::default()
}

fn bash(script: &str) -> ToolCall {
    ToolCall::new("toolu_1", "bash_tool", &json!({"command": script, "description": "why"}))
}

fn host_call(name: &str) -> ToolCall {
    ToolCall::new("toolu_1", name, &json!({}))
}

fn definition(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: "A tool.".to_owned(),
        input_schema: json!({"type": "object"}),
    }
}

const SHARED: CallTraits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };

fn over(executor: &FakeExecutor) -> ToolboxBuilder {
    Toolbox::builder().with_executor(Arc::new(executor.clone()))
}

fn giving(outcome: ToolOutput) -> Toolbox {
    let tool = tool_fn(definition("host"), SHARED, move |_, _| future::ready(outcome.clone()));
    Toolbox::builder().with_tool(tool).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_timeout_with_the_output_until_then() {
    let executor =
        FakeExecutor::new().with_command("sleep", FakeCommand::RunsUntilCancelled("working\n".to_owned()));
    let toolbox = over(&executor).with_timeout(Duration::from_secs(7)).build().unwrap();
    let start = SystemClock.deadline(Duration::ZERO);
    let result = toolbox.run_without_input(&bash("sleep"), context()).await;
    assert!(result.is_error);
    assert!(result.text().starts_with("working\n[timed out"), "{}", result.text());
    assert_eq!(toolbox.elapsed(start).as_secs(), 7);
    assert_eq!(executor.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_end_with_their_turn() {
    let executor = FakeExecutor::new().with_command("sleep", FakeCommand::RunsUntilCancelled(String::new()));
    let toolbox = over(&executor).build().unwrap();
    let start = SystemClock.deadline(Duration::ZERO);
    let deadline = SystemClock.deadline(Duration::from_secs(3));
    let result = toolbox.run_without_input(&bash("sleep"), CallContext { deadline, ..context() }).await;
    assert!(result.text().contains("timed out"), "{}", result.text());
    assert_eq!(toolbox.elapsed(start).as_secs(), 3);

    let result = toolbox.run_without_input(&bash("sleep"), CallContext { deadline, ..context() }).await;
    assert!(result.text().contains("before it started"), "{}", result.text());
    assert_eq!(executor.commands().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unresponsive_calls_are_abandoned_after_the_grace_period() {
    let executor = FakeExecutor::new().with_command("stuck", FakeCommand::IgnoresCancel);
    let stuck = tool_fn(definition("stuck"), SHARED, |_, _| future::pending());
    let toolbox = over(&executor).with_tool(stuck).build().unwrap();
    for (call, overtime) in [(bash("stuck"), SANDBOX_GRACE), (host_call("stuck"), Duration::ZERO)] {
        let start = SystemClock.deadline(Duration::ZERO);
        let result = toolbox.run_without_input(&call, context()).await;
        assert!(result.is_error && result.text().starts_with("timed out"), "{}", result.text());
        assert_eq!(toolbox.elapsed(start), Duration::from_secs(30) + overtime);
        assert_eq!(executor.running(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn cancellation_stops_running_calls_with_a_notice() {
    let executor = FakeExecutor::new()
        .with_command("sleep", FakeCommand::RunsUntilCancelled("working\n".to_owned()))
        .with_command("stuck", FakeCommand::IgnoresCancel);
    let toolbox = over(&executor).build().unwrap();
    for script in ["sleep", "stuck"] {
        let context = context();
        let cancel = context.cancel.clone();
        let call = bash(script);
        let mut running = Box::pin(toolbox.run_without_input(&call, context));
        assert!(futures_util::poll!(&mut running).is_pending());
        assert_eq!(executor.running(), 1);
        cancel.cancel();
        let result = running.await;
        assert!(result.is_error && result.text().contains("cancelled"), "{}", result.text());
        assert_eq!(executor.running(), 0);
    }
    let context = context();
    context.cancel.cancel();
    let result = toolbox.run_without_input(&bash("sleep"), context).await;
    assert!(result.text().starts_with("cancelled"), "{}", result.text());
    assert_eq!(executor.commands().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_ends_what_it_started() {
    let executor = FakeExecutor::new().with_command("sleep", FakeCommand::RunsUntilCancelled(String::new()));
    let token = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&token);
    let tool = tool_fn(definition("host"), SHARED, move |_, context: ToolContext| {
        *seen.lock().unwrap() = Some(context.cancel);
        future::pending()
    });
    let toolbox = over(&executor).with_tool(tool).build().unwrap();
    for call in [bash("sleep"), host_call("host")] {
        let mut running = toolbox.run_without_input(&call, context());
        assert!(futures_util::poll!(&mut running).is_pending());
        drop(running);
    }
    assert_eq!(executor.running(), 0);
    assert!(token.lock().unwrap().as_ref().unwrap().is_cancelled());
}

#[test]
fn reads_and_commands_are_shared_and_writes_are_barriers() {
    let host = tool_fn(definition("host"), SHARED, |_, _| future::ready(ToolOutput::text("")));
    let toolbox = over(&FakeExecutor::new()).with_tool(host).build().unwrap();
    let traits = |name: &str, input: Value| toolbox.traits(&ToolCall::new("a", name, &input));
    let (shared, exclusive) = (CallConcurrency::Shared, CallConcurrency::Exclusive);
    for (name, input, concurrency, idempotent) in [
        ("view", json!({"path": "a"}), shared, true),
        ("bash_tool", json!({"command": "ls"}), shared, false),
        ("create_file", json!({"path": "a", "file_text": ""}), exclusive, true),
        ("str_replace", json!({"path": "a", "old_str": "b"}), exclusive, false),
        ("host", json!({}), shared, true),
        // What only produces an error holds nobody up.
        ("create_file", json!({}), shared, true),
        ("unknown", json!({}), shared, true),
    ] {
        assert_eq!(traits(name, input), CallTraits { concurrency, idempotent }, "{name}");
    }
}

#[tokio::test]
async fn the_approver_sees_only_valid_calls() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let approver = approver_fn(move |call: ToolCall| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            match call.name.as_str() {
                "view" => Authorization::Allow,
                _ => Authorization::Ask { reason: "may it?".to_owned() },
            }
        }
    });
    let toolbox = over(&FakeExecutor::new()).with_approver(approver).build().unwrap();
    let view = ToolCall::new("a", "view", &json!({"path": "a"}));
    assert_eq!(toolbox.authorize(&view, &SessionView::default()).await, Authorization::Allow);
    assert_eq!(
        toolbox.authorize(&bash("ls"), &SessionView::default()).await,
        Authorization::Ask { reason: "may it?".to_owned() }
    );
    assert_eq!(toolbox.authorize(&host_call("unknown"), &SessionView::default()).await, Authorization::Allow);
    assert_eq!(toolbox.authorize(&host_call("view"), &SessionView::default()).await, Authorization::Allow);
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    let deny = DenyAll { reason: "not here".to_owned() };
    let toolbox = over(&FakeExecutor::new()).with_approver(deny).build().unwrap();
    assert_eq!(
        toolbox.authorize(&view, &SessionView::default()).await,
        Authorization::Deny { reason: "not here".to_owned() }
    );
}

#[tokio::test]
async fn host_tools_and_the_approver_get_the_caller() {
    struct OfOne(TenantId);

    impl Approver for OfOne {
        fn review<'a>(
            &'a self,
            _: &'a ToolCall,
            caller: Option<&'a CallerIdentity>,
        ) -> BoxFuture<'a, Authorization> {
            let is_known = caller.is_some_and(|caller| caller.tenant == self.0);
            let deny = Authorization::Deny { reason: "whose is it?".to_owned() };
            Box::pin(future::ready(if is_known { Authorization::Allow } else { deny }))
        }
    }

    let tenant = TenantId::new("acme").unwrap();
    let whose = || {
        tool_fn(definition("whose"), SHARED, |_, context| {
            let caller = context.caller.map(|caller| format!("{} {}", caller.tenant, caller.session));
            future::ready(ToolOutput::text(caller.unwrap_or_else(|| "nobody's".to_owned())))
        })
    };
    let caller = CallerIdentity { tenant: tenant.clone(), session: SessionId::from_bits(7) };
    let toolbox = over(&FakeExecutor::new())
        .with_tool(whose())
        .with_approver(OfOne(tenant.clone()))
        .with_caller(caller.clone());
    let toolbox = toolbox.build().unwrap();
    assert_eq!(toolbox.authorize(&host_call("whose"), &SessionView::default()).await, Authorization::Allow);
    let result = toolbox.run_without_input(&host_call("whose"), context()).await;
    assert_eq!(result.text(), format!("acme {}", caller.session));

    let toolbox = over(&FakeExecutor::new()).with_tool(whose()).with_approver(OfOne(tenant)).build().unwrap();
    let denied = toolbox.authorize(&host_call("whose"), &SessionView::default()).await;
    assert_eq!(denied, Authorization::Deny { reason: "whose is it?".to_owned() });
    assert_eq!(toolbox.run_without_input(&host_call("whose"), context()).await.text(), "nobody's");
}

#[tokio::test]
async fn secrets_are_redacted_in_results_errors_and_every_tool() {
    let executor = FakeExecutor::new()
        .with_file("key.txt", "s3cr3t-value\n")
        .with_command("env", FakeCommand::Exits(exited(1, "API_KEY=s3cr3t-value\n")));
    let host = tool_fn(definition("host"), SHARED, |_, _| {
        future::ready(ToolOutput::error("no entry with s3cr3t-value"))
    });
    let toolbox = over(&executor)
        .with_tool(host)
        .with_redactor(Redactor::new([("API_KEY", "s3cr3t-value")]))
        .build()
        .unwrap();
    for call in [
        bash("env"),
        host_call("host"),
        ToolCall::new("a", "view", &json!({"path": "key.txt"})),
        ToolCall::new("a", "view", &json!({"path": "s3cr3t-value"})),
        host_call("s3cr3t-value"),
    ] {
        let text = toolbox.run_without_input(&call, context()).await.text();
        assert!(text.contains("[REDACTED:API_KEY]") && !text.contains("s3cr3t"), "{text}");
    }
}

#[tokio::test]
async fn a_secret_split_by_truncation_is_redacted() {
    // Whichever way the cut falls, it falls into a secret.
    let output = "s3cr3t-value-of-some-length,".repeat(20_000);
    let executor = FakeExecutor::new().with_command("env", FakeCommand::Exits(exited(0, output.as_str())));
    let toolbox = over(&executor)
        .with_redactor(Redactor::new([("KEY", "s3cr3t-value-of-some-length")]))
        .build()
        .unwrap();
    let text = toolbox.run_without_input(&bash("env"), context()).await.text();
    assert!(text.contains("bytes of output are left out here"), "{text}");
    for part in ["s3cr", "gth,", "ngth"] {
        assert!(!text.contains(part), "{part} in {text}");
    }
}

#[tokio::test]
async fn results_of_host_tools_are_bounded_and_clean() {
    let long = giving(ToolOutput::text("x".repeat(1_000_000)));
    let text = long.run_without_input(&host_call("host"), context()).await.text();
    assert!(text.len() <= 256 * 1024);
    assert!(text.contains("of 1000000 bytes are left out here]"));

    let result = giving(ToolOutput::text("a\0b")).run_without_input(&host_call("host"), context()).await;
    assert_eq!(result.text(), "a␀b");

    let many = vec![ResultContent::Text { text: "a".to_owned() }; 1000];
    let outcome = ToolOutput { content: many, status: ToolStatus::Succeeded, input_request: None };
    let result = giving(outcome).run_without_input(&host_call("host"), context()).await;
    assert_eq!(result.content.len(), MOST_PARTS_AND_NOTICE);
    assert!(result.text().ends_with("[900 more parts of the result are left out]"));

    for (status, said) in
        [(ToolStatus::Succeeded, "[no output]"), (ToolStatus::Failed, "[the call failed without a reason]")]
    {
        let outcome = ToolOutput { content: Vec::new(), status, input_request: None };
        assert_eq!(giving(outcome).run_without_input(&host_call("host"), context()).await.text(), said);
    }
}

const MOST_PARTS_AND_NOTICE: usize = 101;

#[tokio::test]
async fn invalid_images_never_enter_the_history() {
    let image =
        |media_type: &str, data: String| ResultContent::Image { media_type: media_type.to_owned(), data };
    for (part, reported) in [
        (image("image/tiff", "AAAA".to_owned()), "`image/tiff`"),
        (image("image/png", "not base64".to_owned()), "not base64"),
        (image("image/png", String::new()), "not base64"),
        (image("image/png", "A".repeat(5 * 1024 * 1024 + 4)), "5242884 bytes"),
    ] {
        let outcome = ToolOutput { content: vec![part], status: ToolStatus::Succeeded, input_request: None };
        let result = giving(outcome).run_without_input(&host_call("host"), context()).await;
        assert!(result.text().starts_with("[an image is left out: ") && result.text().contains(reported));
    }
    let most = vec![image("image/png", "A".repeat(5 * 1024 * 1024)); 5];
    let outcome = ToolOutput { content: most, status: ToolStatus::Succeeded, input_request: None };
    let result = giving(outcome).run_without_input(&host_call("host"), context()).await;
    assert_eq!(result.text(), "[an image is left out: the result has too many images]");
    assert_eq!(result.content.len(), 5);
}

#[test]
fn invalid_tool_definitions_are_errors() {
    let host =
        |definition: ToolDefinition| tool_fn(definition, SHARED, |_, _| future::ready(ToolOutput::text("")));
    let build = |names: &[&str]| {
        let builder = over(&FakeExecutor::new());
        names.iter().fold(builder, |builder, name| builder.with_tool(host(definition(name)))).build()
    };
    for name in ["", "a.b", "a b", "ä", &"a".repeat(129)] {
        assert_eq!(build(&[name]).unwrap_err(), ToolboxError::InvalidName { name: name.to_owned() });
    }
    for names in [&["view"][..], &["a", "a"]] {
        assert!(matches!(build(names), Err(ToolboxError::DuplicateName { .. })), "{names:?}");
    }
    let schemaless = ToolDefinition { input_schema: json!({}), ..definition("a") };
    assert_eq!(
        Toolbox::builder().with_tool(host(schemaless)).build().unwrap_err(),
        ToolboxError::InvalidSchema { name: "a".to_owned() }
    );
    let names: Vec<String> =
        build(&["b", "a"]).unwrap().definitions().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["view", "bash_tool", "create_file", "str_replace", "a", "b"]);
}

#[tokio::test]
async fn a_blank_result_becomes_a_notice() {
    for blank in ["", " \n", "\u{2028}"] {
        let toolbox = giving(ToolOutput::text(blank));
        assert_eq!(toolbox.run_without_input(&host_call("host"), context()).await.text(), "[no output]");
    }
}

/// An embedder's executor, which numbers lines in its own way.
#[tokio::test]
async fn lines_with_the_highest_numbers_are_shown() {
    #[derive(Debug)]
    struct Numbers(FakeExecutor);

    impl Executor for Numbers {
        fn layout(&self) -> &conjure_sandbox::Layout {
            self.0.layout()
        }

        fn run<'a>(
            &'a self,
            command: conjure_sandbox::Command,
            options: CallOptions,
        ) -> BoxFuture<'a, Result<conjure_sandbox::CommandOutcome, conjure_sandbox::SandboxError>> {
            self.0.run(command, options)
        }

        fn view<'a>(
            &'a self,
            _: &'a str,
            _: Option<conjure_sandbox::LineRange>,
            _: u64,
            _: CallOptions,
        ) -> BoxFuture<'a, Result<conjure_sandbox::View, conjure_sandbox::SandboxError>> {
            Box::pin(future::ready(Ok(conjure_sandbox::View::Text {
                text: "one\ntwo\n".to_owned(),
                first_line: u64::MAX,
                last_line: u64::MAX,
                total_lines: u64::MAX,
                size: u64::MAX,
                truncated: true,
            })))
        }

        fn create_file<'a>(
            &'a self,
            path: &'a str,
            content: &'a [u8],
            options: CallOptions,
        ) -> BoxFuture<'a, Result<conjure_sandbox::WriteResult, conjure_sandbox::SandboxError>> {
            self.0.create_file(path, content, options)
        }

        fn str_replace<'a>(
            &'a self,
            path: &'a str,
            old: &'a str,
            new: &'a str,
            options: CallOptions,
        ) -> BoxFuture<'a, Result<conjure_sandbox::WriteResult, conjure_sandbox::SandboxError>> {
            self.0.str_replace(path, old, new, options)
        }
    }

    let toolbox = Toolbox::builder().with_executor(Arc::new(Numbers(FakeExecutor::new()))).build().unwrap();
    let call = ToolCall::new("toolu_1", "view", &json!({"path": "a.txt"}));
    let result = toolbox.run_without_input(&call, context()).await;
    assert!(result.text().contains(&format!("{}\ttwo", u64::MAX)), "{}", result.text());
}

#[tokio::test]
async fn input_that_is_too_long_or_too_deep_is_refused() {
    let limits = OutputLimits { input: 100, ..OutputLimits::default() };
    let toolbox = over(&FakeExecutor::new()).with_limits(limits).build().unwrap();
    let text = toolbox.run_without_input(&bash(&"x".repeat(100)), context()).await.text();
    assert!(text.contains("the maximum is 100"), "{text}");

    let toolbox = over(&FakeExecutor::new()).build().unwrap();
    let deep = format!(
        r#"{{"type":"tool_use","id":"a","name":"view","input":{}1{}}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    let call = conjure_prompt::parse_tool_use(&deep).unwrap();
    let text = toolbox.run_without_input(&call, context()).await.text();
    assert_eq!(text, "bad input for `view`: the input must be an object, not an array");
}

/// The model wrote no JSON object; the client put the text in one, so that the history stays valid. No tool runs.
#[tokio::test]
async fn a_call_with_invalid_input_never_runs() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let tool = tool_fn(definition("host"), SHARED, move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        future::ready(ToolOutput::text("ran"))
    });
    let toolbox = over(&FakeExecutor::new())
        .with_tool(tool)
        .with_approver(DenyAll { reason: "no".to_owned() })
        .build()
        .unwrap();
    for name in ["host", "view", "bash_tool"] {
        let call = ToolCall::new("toolu_1", name, &json!({"INVALID_JSON": "{\"path\": "}));
        // Nobody is asked about a call that only gives an error.
        assert_eq!(toolbox.authorize(&call, &SessionView::default()).await, Authorization::Allow);
        let result = toolbox.run_without_input(&call, context()).await;
        let expected = format!(
            "bad input for `{name}`: it is not a JSON object (EOF while parsing a value at line 1 column 9), so nothing was \
             done: write it again. It was: {{\"path\": "
        );
        assert_eq!((result.is_error, result.text()), (true, expected));
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    // A field of that name among others is input like any other.
    let call = ToolCall::new("toolu_1", "host", &json!({"INVALID_JSON": "{", "more": 1}));
    assert!(!giving(ToolOutput::text("ran")).run_without_input(&call, context()).await.is_error);
}

/// Any JSON, most of it with the names and types that tools look for.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!("/workspace/a.txt")),
        Just(json!([1, -1])),
        Just(json!([i64::MIN, i64::MAX])),
    ];
    let field = prop_oneof![
        Just("path".to_owned()),
        Just("view_range".to_owned()),
        Just("command".to_owned()),
        Just("file_text".to_owned()),
        Just("old_str".to_owned()),
        Just("new_str".to_owned()),
        any::<String>(),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn host_tool_results_are_bounded_clean_and_not_empty(
        texts in prop::collection::vec(any::<String>(), 0..130),
        room in 0usize..4000,
        succeeded: bool,
    ) {
        let status = if succeeded { ToolStatus::Succeeded } else { ToolStatus::Failed };
        let content = texts.into_iter().map(|text| ResultContent::Text { text }).collect();
        let limits = OutputLimits { text: room, ..OutputLimits::default() };
        let toolbox = Toolbox::builder().with_limits(limits).build().unwrap();
        let result = toolbox.finalize_result(&CallId::new("a"), ToolOutput { content, status, input_request: None });
        prop_assert_eq!(result.is_error, !succeeded);
        prop_assert!(!result.text().is_empty() && crate::text::is_clean(&result.text()));
        // Each of at most a hundred parts may end in a notice.
        prop_assert!(result.text().len() <= room + 101 * 64, "{}", result.text().len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_input_gives_one_result_that_is_not_empty(tool in 0usize..5, input in any_json(), id: String) {
        let name = ["view", "bash_tool", "create_file", "str_replace", "no_such_tool"][tool];
        let executor = FakeExecutor::new().with_file("a.txt", "one\ntwo\n");
        let toolbox = over(&executor).build().unwrap();
        let call = ToolCall::new(id.clone(), name, &input);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(toolbox.run_without_input(&call, context()));
        prop_assert_eq!(result.tool_use_id.as_str(), id.as_str());
        prop_assert!(!result.text().is_empty());
        // What is refused before it runs is an error, and a barrier only holds up what may run.
        let rejected = matches!(toolbox.parse(&call), ParsedCall::Rejected(_));
        prop_assert!(!rejected || (result.is_error && toolbox.traits(&call).concurrency == CallConcurrency::Shared));
    }
}

#[test]
fn no_secret_is_put_together_when_hidden_characters_are_left_out() {
    let redactor = Redactor::new([("KEY", "s3cret-value")]);
    let toolbox = Toolbox::builder().with_redactor(redactor).build().unwrap();
    let told = Arc::new(Mutex::new(String::new()));
    let collected = Arc::clone(&told);
    let sink = ProgressSink::new(move |progress| *collected.lock().unwrap() = progress.message);
    toolbox.redacting_sink(&sink).report(ToolProgress {
        call_id: CallId::new("toolu_1"),
        done: 1.0,
        total: None,
        message: "one s3c\u{200b}ret\u{1}-value\u{202e}".to_owned(),
    });
    assert_eq!(*told.lock().unwrap(), "one [REDACTED:KEY]");
}
