//! Renders Jupyter notebooks (nbformat 4) as text: the source of each cell, and the text of its outputs.

use std::fmt::Write as _;

use serde_json::Value;

/// The notebook as text; `None` when the bytes are no notebook.
pub(super) fn render(bytes: &[u8]) -> Option<String> {
    let notebook: Value = serde_json::from_slice(bytes).ok()?;
    let cells = notebook.get("cells")?.as_array()?;
    let mut text = format!("[notebook with {} cells]\n", cells.len());
    for (at, cell) in cells.iter().enumerate() {
        let kind = cell.get("cell_type").and_then(Value::as_str).unwrap_or("unknown");
        let _ = writeln!(text, "\n[cell {}: {kind}]", at + 1);
        push_lines(&mut text, &joined(cell.get("source")));
        for output in cell.get("outputs").and_then(Value::as_array).into_iter().flatten() {
            let _ = writeln!(text, "[output of cell {}]", at + 1);
            push_output(&mut text, output);
        }
    }
    Some(text)
}

fn push_output(text: &mut String, output: &Value) {
    match output.get("output_type").and_then(Value::as_str) {
        Some("stream") => push_lines(text, &joined(output.get("text"))),
        Some("error") => {
            let part = |name: &str| output.get(name).and_then(Value::as_str).unwrap_or_default();
            push_lines(text, &format!("{}: {}", part("ename"), part("evalue")));
        }
        _ => {
            let data = output.get("data").and_then(Value::as_object);
            if let Some(plain) = data.and_then(|data| data.get("text/plain")) {
                push_lines(text, &joined(Some(plain)));
            }
            for kind in data.into_iter().flat_map(|data| data.keys()).filter(|kind| *kind != "text/plain") {
                let _ = writeln!(text, "[also as {kind}]");
            }
        }
    }
}

/// A text, or the lines of one.
fn joined(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

fn push_lines(text: &mut String, lines: &str) {
    text.push_str(lines);
    if !lines.is_empty() && !lines.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_and_the_text_of_their_outputs_are_shown() {
        let notebook = json!({"nbformat": 4, "cells": [
            {"cell_type": "markdown", "source": ["# Sales\n", "by month"]},
            {"cell_type": "code", "source": "print(1)\nx", "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                {"output_type": "execute_result", "data": {"text/plain": "<Figure>", "image/png": "AAAA"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "no x", "traceback": []},
            ]},
        ]});
        assert_eq!(
            render(notebook.to_string().as_bytes()).unwrap(),
            "[notebook with 2 cells]\n\n[cell 1: markdown]\n# Sales\nby month\n\n[cell 2: code]\nprint(1)\nx\n\
             [output of cell 2]\n1\n[output of cell 2]\n<Figure>\n[also as image/png]\n[output of cell 2]\n\
             ValueError: no x\n"
        );
        for other in ["", "[]", "{}", r#"{"cells": 1}"#, "cells"] {
            assert_eq!(render(other.as_bytes()), None);
        }
    }

    proptest! {
        #[test]
        fn any_json_is_a_notebook_or_none(kind in ".{0,8}", source in ".{0,20}", outputs in any::<bool>()) {
            let output = json!([{"output_type": kind, "data": {"text/plain": [source]}}, 3, null]);
            let cell = json!({"cell_type": kind, "source": source, "outputs": if outputs { output } else { json!(7) }});
            let text = render(json!({"cells": [cell, 1, "x"]}).to_string().as_bytes()).unwrap();
            prop_assert!(text.starts_with("[notebook with 3 cells]"));
            prop_assert!(text.contains(&source));
        }
    }
}
