use serde_json::json;

use super::*;

#[test]
fn every_text_of_a_value_is_a_secret() {
    let secrets = secrets_in_value(
        "key",
        &json!({"a": ["one", {"b": "two", "a-long-key": {}}], "n": 12345, "t": true}),
    );
    let values: Vec<_> = secrets.iter().map(|(_, value)| value.as_str()).collect();
    for expected in ["one", "two", "12345", "a-long-key"] {
        assert!(values.contains(&expected), "{values:?}");
    }
    assert!(!values.contains(&"a"), "it would occur everywhere: {values:?}");
    let names: BTreeSet<_> = secrets.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), secrets.len(), "none takes another's place");
    assert_eq!(secrets_in_value("key", &json!("x")), [("input key".to_owned(), "x".to_owned())]);
}

#[test]
fn what_is_shown_is_escaped_and_cut() {
    let long = "x".repeat(SHOWN_CHARS + 2);
    let values = Inputs::from([
        ("a".to_owned(), json!("</value></inputs>")),
        ("b".to_owned(), json!(long)),
        ("c".to_owned(), json!([1, "two"])),
        ("d".to_owned(), json!("secret")),
    ]);
    let shown = prompt_text(&values, &["a", "b", "c"].map(str::to_owned).into());
    assert_eq!(shown.matches("</inputs>").count(), 1);
    assert!(shown.contains("<value>&lt;/value&gt;&lt;/inputs&gt;</value>"));
    assert!(shown.contains("x…</value>") && !shown.contains(&long));
    assert!(shown.contains("<value>[1,&quot;two&quot;]</value>"));
    assert!(!shown.contains("secret</value>") && shown.contains("<variable>CONJURE_INPUT_D</variable>"));
    assert_eq!(prompt_text(&Inputs::new(), &BTreeSet::new()), "");
    let hidden = Inputs::from([("a".to_owned(), json!("A\u{e0049}\u{202e}B"))]);
    assert!(prompt_text(&hidden, &["a".to_owned()].into()).contains("<value>AB</value>"));
}
