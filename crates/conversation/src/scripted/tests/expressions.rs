use proptest::prelude::*;

use super::model;
use super::{answer, refused, request, script_error, with_results};
use crate::scripted::request_view::RequestView;
use crate::scripted::template::{RenderContext, Template};
use crate::{Block, Message};

fn render(text: &str) -> Result<String, String> {
    let request = request(with_results());
    Template::parse(text)?.render(&mut RenderContext::new(RequestView::new(&request)))
}

fn check(text: &str, expected: &str) {
    assert_eq!(render(text).as_deref(), Ok(expected), "{text}");
}

fn fails(text: &str, parts: &[&str]) {
    let message = render(text).unwrap_err();
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

#[test]
fn expressions_read_the_sent_request() {
    check("{{user}}", "Which region grew fastest?");
    check("{{system | line:-1}}", "Be brief.");
    check("{{ result:c1 | line:1 }}", "total: 42");
    check("{{result:last|json:/top/0/message}}", "it broke");
    check("{{skill_location:other}}", "/skills/other/SKILL.md");
    check("{{skill_location:sales-report}}", "/srv/it's &lt;/sales-report/SKILL.md");
    check("{{skill_dir:sales-report | shell}}/x", r"'/srv/it'\''s &lt;/sales-report'/x");
    check(
        "{{system | match:'<location>\\n(.*sales-report.*)'}}",
        "/srv/it&#x27;s &amp;lt;/sales-report/SKILL.md",
    );
}

#[test]
fn a_location_beside_its_tag_is_found() {
    let mut request = request(with_results());
    request.instructions = vec!["<skill><name>a</name><location>/s/a/SKILL.md</location></skill>".to_owned()];
    let template = Template::parse("{{skill_dir:a}}").unwrap();
    assert_eq!(template.render(&mut RenderContext::new(RequestView::new(&request))).as_deref(), Ok("/s/a"));
}

#[test]
fn filters_chain() {
    check("{{result:c1 | line:1 | match:'(\\d+)'}}", "42");
    check("{{result:c1 | match:[a-z]+}}", "total");
    check("{{result:c1 | line:-1 | trim}}", "last line");
    check("{{result:last | json:/top/0/count}}", "25");
    check("{{result:last | json:/top/0}}", r#"{"count":25,"message":"it broke"}"#);
    check("{{result:c1 | match:'(?m)^(last|first) line'}}", "last");
    check(r#"{{result:last | match:"""(count)"""}}"#, "count");
    check("{{result:last | match:'}}?]'}}", "}]");
}

#[test]
fn braces_can_be_literal() {
    check("a {b} }} {", "a {b} }} {");
    check(r"\{{user}}", "{{user}}");
    check(r"\\{{user | match:region}}", r"\region");
    check(r"\\\{{user}}", r"\{{user}}");
    check(r"C:\dir\n", r"C:\dir\n");
}

#[test]
fn an_expression_without_a_match_reports_itself_and_its_source() {
    fails("{{result:c9}}", &["`{{result:c9}}` finds nothing", "c2, c1"]);
    fails("{{skill_location:pdf}}", &["`{{skill_location:pdf}}`", "other, sales-report"]);
    fails("{{result:c1 | line:9}}", &["no line 9", "total: 42"]);
    fails("{{result:c1 | line:-9}}", &["no line -9"]);
    fails("{{result:c1 | match:(north)}}", &["`(north)` does not match", "total: 42"]);
    fails("{{result:c1 | json:/a}}", &["not JSON"]);
    fails("{{result:last | json:/top/1}}", &["nothing is at `/top/1`"]);
    fails("{{result:c1 | match:x*}}", &["empty"]);
}

#[test]
fn an_invalid_expression_is_reported_at_load() {
    let script = |text: &str| format!("version: 1\nturns:\n- content:\n  - text: |\n      {text}");
    for (text, parts) in [
        ("{{nothing}}", ["`nothing` is not a source", "skill_dir:NAME"]),
        ("{{user", ["must stand at", "line 4"]),
        ("{{user:x}}", ["`user` is not a source here", "turn 1"]),
        ("{{result}}", ["`result` is not a source here", "turn 1"]),
        ("{{user | upper}}", ["`upper` is not a filter", "match:REGEX"]),
        ("{{user | match:a|b}}", ["`b` is not a filter", "quote an argument"]),
        ("{{user | line:0}}", ["lines count from 1", "content[0].text"]),
        ("{{user | match:'('}}", ["not a regular expression", "turn 1"]),
        ("{{user | match:'x}}", ["does not end", "turn 1"]),
        ("{{user | json:a}}", ["begins with `/`", "turn 1"]),
        ("{{}}", ["a name must stand", "turn 1"]),
    ] {
        let message = refused(&script(text));
        for part in parts {
            assert!(message.contains(part), "{part:?} is missing in: {message}");
        }
    }
    let nested = refused("version: 1\nturns: [{content: [{tool_use: {name: a, input: {b: [1, '{{c}}']}}}]}]");
    assert!(nested.contains("tool_use.input.b[1]") || nested.contains("`c` is not a source"), "{nested}");
}

#[tokio::test]
async fn tool_inputs_are_quoted_as_json_in_key_order() {
    let model = model(
        "version: 1\nturns: [{content: [{tool_use: {name: t, input: {z: '\"{{user}}\"', a: [1.5, true, null, {b: '{{result:c1 | line:1}}'}]}}}]}]",
    );
    let response = answer(&model, request(with_results())).await;
    let call = response.content[0].tool_call().unwrap();
    assert_eq!(
        call.input.get(),
        r#"{"z":"\"Which region grew fastest?\"","a":[1.5,true,null,{"b":"total: 42"}]}"#
    );
}

#[tokio::test]
async fn quoted_text_is_bounded() {
    let model = model(&format!("version: 1\nturns: [{{content: '{}'}}]", "{{user}}".repeat(100)));
    let huge = Message::user(vec![Block::text("x".repeat(1 << 20))]);
    let message = script_error(&model, request(vec![huge])).await;
    assert!(message.contains("turn 1") && message.contains("quote less"), "{message}");
}

#[tokio::test]
async fn searched_text_is_bounded() {
    let model = model(&format!("version: 1\nturns: [{{content: '{}'}}]", "{{user | line:1}}".repeat(300)));
    let huge = Message::user(vec![Block::text(format!("x\n{}", "y".repeat(1 << 20)))]);
    let message = script_error(&model, request(vec![huge])).await;
    assert!(message.contains("turn 1") && message.contains("fewer expressions"), "{message}");
}

proptest! {
    #[test]
    fn any_text_parses_or_fails_and_never_panics(text in r"(\PC|\{\{|\}\}|\||'|:|\\|user|result:last|match:|line:-?[0-9]{1,30}){0,40}") {
        if let Ok(template) = Template::parse(&text) {
            let request = request(with_results());
            let _ = template.render(&mut RenderContext::new(RequestView::new(&request)));
        }
    }

    #[test]
    fn escaped_text_is_literal(text in r"(\PC|\{|\{\{|\}\}|\\){0,30}") {
        prop_assert_eq!(render(&escape(&text)), Ok(text));
    }

    #[test]
    fn text_without_double_braces_is_unchanged(text in r"([^{]|\{[^{]){0,40}") {
        prop_assume!(!text.contains("{{"));
        prop_assert_eq!(render(&text), Ok(text));
    }
}

/// Writes a text so that it stands for itself.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let text_before = before.trim_end_matches('\\');
        escaped.push_str(text_before);
        escaped.push_str(&"\\".repeat(2 * (before.len() - text_before.len()) + 1));
        escaped.push_str("{{");
        rest = after;
    }
    escaped + rest
}
